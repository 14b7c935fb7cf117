"""Globs of rules over a call: the name of its tool, the agents that made it, and its arguments.

Argument spelling must not change what is permitted. So a glob over an argument is read in one of two ways, and where
there is doubt a call is asked about or denied:

| | to allow: narrowly | to ask or deny: widely |
|---|---|---|
| `*`, `?`, `[...]` | stay between two slashes | fit slashes too: `rm *` fits `rm -r /srv` |
| a string | every spelling must fit | one spelling is enough |
| its spellings | as written; as a path in its shortest form | these; and each without regard to case and composition |
| a path out of the root | needs a glob that begins as it does (`/`, `~`, `../`), or `**` alone | is like any other |
| `folder/**` | is what lies below | is the folder itself, too |
| a list | every item must fit; an empty list does not | one item is enough |
| a mapping | needs a glob that begins with `{`, for its JSON | one key or value in it is enough, or its JSON |
| no such argument | does not fit | does not fit |

A path in its shortest form has slashes for backslashes, no empty parts, no `.`, and no `..` but at its start; links are
followed by `handrail.agents.approval.path_rules`. Values that are not strings are compared by their canonical JSON:
`true`, `3`, `{"a":1}`. A glob with a blank is also compared with a list of words: `git log*` fits
`["git", "log", "-3"]`. Where a tool hands one string to a shell it protects nothing, as it fits `git log; reboot`.

`matches_call` looks at the validated arguments, which run, and at the original ones, which may have other names and
spellings: widely, one that fits is enough; narrowly, the validated one must fit, and the original, where it is there. A
function whose only parameter is a model may be called with that parameter around its fields, so the original is also
looked at without it.

| in a glob | fits |
|---|---|
| `*` | any characters, or none |
| `**` | the same, slashes among them; `**/` at the start of a part may also stand for nothing |
| `?` | one character |
| `[a-z]`, `[!a]`, `[^a]` | one character that is, or is not, among these; `[*]` is a star |
| anything else | itself |

A glob becomes a regular expression once. Its engine takes linear time, so no glob and no text hold a call up. A lone
surrogate counts as a question mark, because the engine reads UTF-8.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Final, Literal, cast
from unicodedata import normalize

from pydantic_core import SchemaError, SchemaValidator, core_schema

from handrail.errors import AgentError, DumpError
from handrail.serde import canonical_json
from handrail.serde.formatting import shorten

_SLASH: Final = "/"
_START: Final = re.compile(r"/|~|[A-Za-z]:/|(?:\.\./)+|")
_SEGMENT: Final = re.compile(r"(?P<key>[^.\[\]]+)|\[(?P<item>\*|[0-9]{1,9})\]")

Segment = str | int | None
"""A step into an argument: a key, a position, or `None` for every one."""

_MISSING: Final = object()

Reading = Literal["narrow", "wide"]
"""`narrow` where `*`, `?` and brackets stay between two slashes."""

# A `]` at the start of the brackets is a character of the set, as in a shell.
_TOKEN: Final = re.compile(
    r"(?P<folders>(?<![^/])\*{2,}/)|(?P<stars>\*+)|(?P<one>\?)|\[(?P<negated>[!^]?)(?P<set>\]?[^\]]*)\]|.", re.DOTALL
)

_RANGE: Final = re.compile(r"(.)-(.)|.", re.DOTALL)
_LONGEST_SHOWN: Final = 100


def matches_name(pattern: str, name: str) -> bool:
    """True if a glob fits the name of a tool, in which a slash is a character like others."""
    return glob(pattern, "wide")(name)


def matches_agents(pattern: str, path: Sequence[str]) -> bool:
    """True if a glob fits the agents that called each other: `desk/*` is any agent that `desk` has called."""
    return glob(pattern, "narrow")(_SLASH.join(path))


def matches_argument(
    pattern: str, segments: Sequence[Segment], arguments: Mapping[str, object], reading: Reading
) -> bool:
    """True if a glob fits the values of the arguments in one place; see the table of this module."""
    values = _values_at(arguments, segments)
    fitting = (value is not _MISSING and _fits_value(pattern, value, reading) for value in values)
    return _every(fitting) if reading == "narrow" else any(fitting)


def matches_call(
    pattern: str,
    segments: Sequence[Segment],
    arguments: Mapping[str, object],
    original: Mapping[str, object] | None,
    reading: Reading,
) -> bool:
    """True if a glob fits a call in one place, by its validated and its original arguments; see this module."""
    fits = matches_argument(pattern, segments, arguments, reading)
    forms = () if original is None else _argument_forms(original)
    # An argument that the model spelled in another way must not bypass a rule that asks or denies.
    if reading == "wide":
        return fits or any(matches_argument(pattern, segments, form, reading) for form in forms)
    return fits and all(
        _fits_value(pattern, value, reading)
        for form in forms
        for value in _values_at(form, segments)
        if value is not _MISSING
    )


def _argument_forms(original: Mapping[str, object]) -> Iterator[Mapping[str, object]]:
    # Only a single name can stand around all arguments; with two, one of them would be left out of the check.
    yield original
    inner = next(iter(original.values())) if len(original) == 1 else None
    if isinstance(inner, Mapping):
        yield cast("Mapping[str, object]", inner)  # JSON's keys are strings


def argument_path(text: str) -> tuple[Segment, ...]:
    """The steps to an argument: `path`, `options.force`, `steps[0].title`, `steps[*].title`; `*` is every key.

    Raises:
        AgentError: it does not name an argument.
    """
    segments: list[Segment] = []
    at = 0
    while at < len(text):
        match = _SEGMENT.match(text, at)
        if match is None or (match["item"] is not None and not segments):
            break
        key, item = match["key"], match["item"]
        if key is not None and "*" in key and key != "*":
            break
        segments.append(None if "*" in (key, item) else key if item is None else int(item))
        at = match.end()
        if text[at : at + 1] == "." and at + 1 < len(text) and text[at + 1] not in ".[":
            at += 1
        elif text[at : at + 1] not in {"", "["}:
            break
    else:
        if segments:
            return tuple(segments)
    raise AgentError(
        f"{text!r} leads to no argument; write its name, and the way below it: path, options.force, "
        "steps[0].title, or steps[*].title for every step"
    )


def _values_at(value: object, segments: Sequence[Segment]) -> Iterator[object]:
    if not segments:
        yield value
        return
    first, rest = segments[0], segments[1:]
    for inner in _step(value, first):
        if inner is _MISSING:
            yield inner
        else:
            yield from _values_at(inner, rest)


def _step(value: object, segment: Segment) -> Iterable[object]:
    if isinstance(value, Mapping):
        entries = cast("Mapping[object, object]", value)  # what it holds is looked at below
        return tuple(entries.values()) if segment is None else (entries.get(segment, _MISSING),)
    if isinstance(value, list | tuple):
        items = cast("Sequence[object]", value)  # as above
        if segment is None:
            return items
        if isinstance(segment, int):
            # A position behind the end is missing, and not an error: rules apply to lists of any length.
            return (items[segment] if segment < len(items) else _MISSING,)
    return (_MISSING,)


def _fits_value(pattern: str, value: object, reading: Reading) -> bool:
    if isinstance(value, str):
        return _fits_text(pattern, value, reading)
    try:
        text = canonical_json(value).decode()
    except DumpError:  # it cannot be judged, so nothing allows it, and whatever asks or denies holds
        return reading == "wide"
    if reading == "wide":
        return _holds_fitting(pattern, value)
    if isinstance(value, Mapping):  # what it holds may be what an argument of its own would be, or anything else
        return pattern.startswith("{") and glob(pattern, reading)(text)
    if not isinstance(value, list | tuple):
        return glob(pattern, reading)(text)
    items = cast("Sequence[object]", value)  # each is looked at below
    one_by_one = _every(item is not _MISSING and _fits_value(pattern, item, reading) for item in _items(items))
    return one_by_one or _fits_words(pattern, items, reading)


def _holds_fitting(pattern: str, value: object) -> bool:
    # Whether any part of the value fits, however deep: the widest reading there is.
    to_visit = [value]
    while to_visit:
        part = to_visit.pop()
        if isinstance(part, str):
            # Any spelling is enough here, so the paths are also compared without regard to case, as some file systems
            # do.
            if _fits_text(pattern, part, "wide"):
                return True
            continue
        if isinstance(part, list | tuple):
            items = cast("Sequence[object]", part)  # each is looked at in its turn
            if _fits_words(pattern, items, "wide"):
                return True
            to_visit.extend(items)
            continue
        if glob(pattern, "wide")(canonical_json(part).decode()):
            return True
        if isinstance(part, Mapping):
            entries = cast("Mapping[object, object]", part)  # as above
            to_visit.extend((*entries.keys(), *entries.values()))
    return False


def _items(value: Sequence[object]) -> Iterator[object]:
    # Those of a list and of the lists in it; `_MISSING` for each of these that is empty.
    to_visit = [value]
    while to_visit:
        items = to_visit.pop()
        for item in items or (_MISSING,):
            if isinstance(item, list | tuple):
                to_visit.append(cast("Sequence[object]", item))  # each is looked at in its turn
            else:
                yield item


def _fits_words(pattern: str, items: Sequence[object], reading: Reading) -> bool:
    words = [item for item in items if isinstance(item, str)]
    # A glob without a blank is about single words, which are compared one by one.
    if not words or len(words) < len(items) or " " not in pattern:
        return False
    # Quoted by `shlex`, so that a blank within a word is not mistaken for one between two words.
    # In its shortest form word by word: on the whole line, `..` in one word would take away the words before it.
    lines = (shlex.join(words), shlex.join([shortest(word) for word in words]))
    if reading == "narrow":
        return all(glob(pattern, reading)(line) for line in lines)
    return any(_fits_text(pattern, line, reading) for line in lines)


def _fits_text(pattern: str, text: str, reading: Reading) -> bool:
    short, short_pattern = shortest(text), shortest(pattern)
    if reading == "narrow":
        # Otherwise `*` would fit `..`, and `**/*.py` an absolute path, so that an allow rule would reach out of the
        # root.
        if pattern != "**" and _start(short) != _start(short_pattern):
            return False
        as_written = glob(pattern, reading)(text) or glob(short_pattern, reading)(text)
        return as_written and glob(short_pattern, reading)(short)
    patterns = (pattern, short_pattern, short_pattern.removesuffix("/**") or pattern)
    pairs = [(form, spelling) for form in patterns for spelling in (text, short)]
    # Some filesystems ignore case and composition: `.ENV` may be the `.env` that a rule denies.
    pairs += [(_folded(form), _folded(spelling)) for form, spelling in pairs]
    return any(glob(form, reading)(spelling) for form, spelling in dict.fromkeys(pairs))


def shortest(path: str) -> str:
    """A text taken for a path, in its shortest form; `..` that leads out of its start stays there."""
    path = path.replace("\\", _SLASH)
    parts: list[str] = []
    for part in path.split(_SLASH):
        # A pattern such as `*/..` is not shortened: what the star stands for is not known.
        if part == ".." and parts and parts[-1] != ".." and not set("*?[") & set(parts[-1]):
            parts.pop()
        elif part not in {"", "."} and not (part == ".." and not parts and path.startswith(_SLASH)):
            parts.append(part)
    start = _SLASH if path.startswith(_SLASH) else ""
    return start + _SLASH.join(parts)


def _start(short: str) -> str:
    # Where a path begins, if not in the root: `/`, `~`, a drive, or so many times `../`.
    return next(_START.finditer(f"{short}/" if short else ""))[0]  # there is always a match, if an empty one


def _folded(text: str) -> str:
    # Twice, because `casefold` may return text that is not composed.
    return normalize("NFC", normalize("NFC", text).casefold())


def _every(fitting: Iterable[bool]) -> bool:
    empty = True
    for fits in fitting:
        if not fits:
            return False
        empty = False
    return not empty


def _ranges(body: str) -> Iterator[tuple[str, str]]:
    # `a-z` is a range, and a dash at either end stands for itself.
    return ((match[1], match[2]) if match[2] else (match[0], match[0]) for match in _RANGE.finditer(body))


def _character(character: str) -> str:
    return character if character.isalnum() else f"\\x{{{ord(character):x}}}"


def _translate(token: re.Match[str], reading: Reading) -> str:
    # A part of a glob as a regular expression, in which a dot is any character.
    narrow = reading == "narrow"
    if token["folders"]:
        return "(?:.*/)?"
    if token["stars"]:
        return "[^/]*" if narrow and len(token["stars"]) == 1 else ".*"
    if token["one"]:
        return "[^/]" if narrow else "."
    if not token["set"]:  # also brackets with nothing in them
        return "".join(map(_character, token[0]))
    ranges = [f"{_character(low)}-{_character(high)}" for low, high in _ranges(token["set"]) if low <= high]
    brackets = f"[{'^' if token['negated'] else ''}{''.join(ranges) or 'a&&b'}]"
    return f"[{brackets}&&[^/]]" if narrow else brackets


def _encodable(text: str) -> str:
    return text if text.isascii() else text.encode(errors="replace").decode()


# Rules are few and calls are many. The bound protects a process that makes rules without end.
@lru_cache(maxsize=4096)
def glob(text: str, reading: Reading, *, above: bool = False) -> Callable[[str], bool]:
    """Makes the test whether a glob fits a whole text, or with `above` also the text before one of its slashes.

    Raises:
        ValueError: the glob is too long.
    """
    expression = _TOKEN.sub(partial(_translate, reading=reading), _encodable(text))
    end = r"(?:/|\z)" if above else r"\z"
    # pydantic's Rust engine takes linear time; `re` backtracks.
    schema = core_schema.str_schema(pattern=rf"(?s)\A(?:{expression}){end}", regex_engine="rust-regex")
    try:
        fits = SchemaValidator(schema).isinstance_python
    except SchemaError as error:
        raise ValueError(f"the glob {shorten(repr(text), _LONGEST_SHOWN)} is too long") from error
    return lambda value: fits(_encodable(value))
