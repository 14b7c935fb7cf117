r"""YAML 1.2 text as a tree in which every part knows its line and column. A date is text, as in JSON.

What is read is what JSON can say, and aliases, so that nothing said twice need be written twice:

- one document; no tags (`!!int`), no directives but `%YAML 1.2`;
- a key has at most 1024 characters with its quotes and escapes, as in YAML, unless it is written after `? `;
- `on`, `yes` and dates are text; numbers may have underscores between their digits;
- U+0085, U+2028 and U+2029 break lines, as in YAML 1.1, because ruamel.yaml reads them so; escaped, they do not;
- values nest at most `MAX_YAML_DEPTH` deep, counted through aliases, and aliases repeat at most `MOST_REPEATED` values:
  a short text that stands for billions of values is refused when the first alias too many is met.

The text is read event by event and not recursively, so that neither its depth nor its size can exhaust the stack.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from handrail.errors import DocumentError
from handrail.serde.formatting import shorten

try:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError
    from ruamel.yaml.events import (
        AliasEvent,
        DocumentStartEvent,
        MappingEndEvent,
        MappingStartEvent,
        ScalarEvent,
        SequenceEndEvent,
        SequenceStartEvent,
    )
except ModuleNotFoundError as _error:
    raise ModuleNotFoundError(
        f"reading YAML needs {_error.name}, which is not installed: pip install 'handrail[agents]'", name=_error.name
    ) from _error

MAX_YAML_DEPTH = 64
"""How deeply values may nest; what reads a tree recursively stays far below the stack's limit."""

MOST_REPEATED = 10_000
"""How many values aliases may repeat in one text."""

_LONGEST_KEY = 1024  # YAML 1.2.2, 7.4.2: implicit keys
_LONGEST_NUMBER = 1_000
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # YAML 1.2.2, rule 1
_BETWEEN_DIGITS = re.compile(r"(?<=[0-9a-fA-F])_(?=[0-9a-fA-F])")
_COLON = "mapping values are not allowed here"
_SURROGATE = re.compile("[\ud800-\udfff]")
_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEAN = re.compile(r"true|True|TRUE|false|False|FALSE")
_INTEGER = re.compile(r"[-+]?(?:0b[01]+|0o[0-7]+|0x[0-9a-fA-F]+|[0-9]+)")
_REAL = re.compile(r"[-+]?(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|\.(?:inf|Inf|INF))|\.(?:nan|NaN|NAN)")


@dataclass(frozen=True, slots=True)
class YamlScalar:
    """A single value: `text` as it is written, `value` as JSON has it; `line` and `column` count from 1."""

    text: str
    value: str | int | float | bool | None
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class YamlSequence:
    """A list."""

    items: tuple[YamlNode, ...]
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class YamlMapping:
    """A mapping; one that holds a key twice holds it twice here."""

    entries: tuple[tuple[YamlNode, YamlNode], ...]
    line: int
    column: int


YamlNode = YamlScalar | YamlSequence | YamlMapping
"""A part of the text."""


class ErrorFactory(Protocol):
    """Makes the error for a fault of a document: the class `DocumentError`, or one of its subclasses."""

    def __call__(
        self, message: str, /, *, file: str, line: int | None = None, column: int | None = None
    ) -> DocumentError:
        """The error, to be raised."""
        ...


def read_tree(text: str, *, name: str, first_line: int = 1, refusal: ErrorFactory = DocumentError) -> YamlNode | None:
    """The tree of a text that holds one document; `None` if it holds nothing.

    Args:
        text: the text, or a part of a file.
        name: what errors call the file.
        first_line: the line of the file that the text begins with.
        refusal: makes the errors.

    Raises:
        DocumentError: it is not YAML, or more than is read here; made by `refusal`.
    """
    place = _Place(name, first_line, refusal)
    # Before ruamel.yaml, whose error for such a character has a position, and neither a line nor a mark.
    unprintable = first_unprintable(text)
    if unprintable is not None:
        line, column, words = unprintable
        raise place.fault(f"{words}; remove it, or write it as an escape in double quotes", line, column)
    return _Growth(place).tree(_events(text, place))


def first_unprintable(text: str) -> tuple[int, int, str] | None:
    """Line, column, and in words the first character that YAML does not allow: NUL, other control characters."""
    found = _UNPRINTABLE.search(text)
    if found is None:
        return None
    lines = re.split("\r\n?|\n", text[: found.start()])
    return len(lines), len(lines[-1]) + 1, f"the character U+{ord(found[0]):04X} is not allowed in YAML"


@dataclass(frozen=True, slots=True)
class _Place:
    """The part of a file that is read; lines and columns count from 1."""

    file: str
    first_line: int
    refusal: ErrorFactory

    def fault(self, message: str, line: int, column: int) -> DocumentError:
        """The error at a line and column of the text."""
        return self.refusal(message, file=self.file, line=line + self.first_line - 1, column=column)

    def of(self, mark: Any) -> tuple[int, int]:  # noqa: ANN401 - ruamel.yaml declares no types for marks
        """Line and column in the file."""
        return mark.line + self.first_line, mark.column + 1

    def fault_at(self, mark: Any, message: str) -> DocumentError:  # noqa: ANN401 - as above
        """The error at a mark."""
        return self.fault(message, mark.line + 1, mark.column + 1)


def _events(text: str, place: _Place) -> Iterator[Any]:
    """What ruamel.yaml meets in the text, one by one; its errors as ours."""
    yaml: Any = YAML(typ="safe", pure=True)  # `parse` declares no types
    events = yaml.parse(text)
    mark: Any = None
    try:
        for event in events:
            mark = event.start_mark
            yield event
    except MarkedYAMLError as error:
        known: Any = error  # nor do the errors
        at = known.problem_mark or known.context_mark or mark
        raise place.fault_at(at, _problem(text, known, at)) from error
    # These have no mark, so that the last event stands for the place.
    except (ValueError, OverflowError) as error:  # an escape beyond Unicode, a version of thousands of digits
        raise place.fault_at(mark, "an escape or a directive from here on is out of range") from error


def _problem(text: str, error: Any, mark: Any) -> str:  # noqa: ANN401 - as in `_events`
    if text[mark.index : mark.index + 1] == "\t":
        return "a tab stands where YAML takes only spaces; indent with spaces"
    words = [str(error.problem or error.context)]
    if words[0] == _COLON:
        words.append("text that holds ': ' is put in quotes")
    # ruamel.yaml does not say that the key is too long: to it the colon is then out of place.
    if text[mark.index : mark.index + 1] == ":" and mark.column > _LONGEST_KEY:
        words.append(f"a key has at most {_LONGEST_KEY} characters, unless it is written after '? '")
    return "; ".join(words)


@dataclass(slots=True)
class _Open:
    """A list or mapping that has begun; `before` is how many values there were before it, `below` how deep it goes."""

    mark: Any
    mapping: bool
    anchor: str | None
    before: int
    below: int = 0
    parts: list[YamlNode] = field(default_factory=list["YamlNode"])


@dataclass(frozen=True, slots=True)
class _Named:
    """What an anchor names: a tree of so many values, so many levels deep."""

    tree: YamlNode
    values: int
    depth: int


class _Growth:
    """A tree that grows event by event. It owns what is open, what anchors name, and the count of values."""

    def __init__(self, place: _Place) -> None:
        self._place = place
        self._open: list[_Open] = []
        self._named: dict[str, _Named | _Open] = {}
        self._values = 0
        self._repeated = 0
        self._root: YamlNode | None = None

    def tree(self, events: Iterator[Any]) -> YamlNode | None:
        """The tree of all events."""
        for event in events:
            match event:
                case DocumentStartEvent():
                    self._begin(event)
                case AliasEvent():
                    self._repeat(event)
                case ScalarEvent():
                    known: Any = event  # ruamel.yaml declares no type for its anchor
                    self._add(self._scalar(event), known.anchor, values=1, depth=0)
                case SequenceStartEvent() | MappingStartEvent():
                    self._descend(event)
                case SequenceEndEvent() | MappingEndEvent():
                    self._ascend()
                case _:  # a stream begins or ends, or a document ends
                    pass
        return self._root

    def _begin(self, event: Any) -> None:  # noqa: ANN401 - ruamel.yaml declares no types that its events keep
        if self._root is not None:
            raise self._place.fault_at(event.start_mark, "but found another document; there can be only one")
        if event.tags or event.version not in (None, (1, 2)):
            raise self._place.fault_at(
                event.start_mark, "directives are not read here, and the text is YAML 1.2; remove the lines with %"
            )

    def _descend(self, event: Any) -> None:  # noqa: ANN401 - as above
        self._refuse_tag(event)
        self._refuse_deeper(event, 1)
        opened = _Open(event.start_mark, isinstance(event, MappingStartEvent), event.anchor, self._values)
        # Before its parts are read, so that an alias to it from within is found, and not taken for an unknown one.
        if opened.anchor is not None:
            self._named[opened.anchor] = opened
        self._values += 1
        self._open.append(opened)

    def _ascend(self) -> None:
        closed = self._open.pop()
        line, column = self._place.of(closed.mark)
        # Keys and values in turn, as the events come; the parser has put an empty value where none stands.
        parts = closed.parts
        tree: YamlNode = YamlSequence(tuple(parts), line, column)
        if closed.mapping:
            tree = YamlMapping(tuple(zip(parts[::2], parts[1::2], strict=True)), line, column)
        self._add(tree, closed.anchor, values=self._values - closed.before, depth=closed.below + 1)

    def _repeat(self, event: Any) -> None:  # noqa: ANN401 - as above
        named = self._named.get(event.anchor)
        if named is None:
            raise self._place.fault_at(event.start_mark, f"nothing before the alias *{event.anchor} has that anchor")
        # A tree that holds itself would have no end for those who walk it.
        if isinstance(named, _Open):
            raise self._place.fault_at(named.mark, "this value holds itself, by an alias")
        self._refuse_deeper(event, named.depth)
        self._values += named.values
        # All the values that the alias stands for, those of the aliases within included: nested aliases multiply.
        self._repeated += named.values
        if self._repeated > MOST_REPEATED:
            raise self._place.fault_at(
                event.start_mark, f"with this alias, more than {MOST_REPEATED} values are repeated; write less"
            )
        self._add(named.tree, None, values=named.values, depth=named.depth)

    def _scalar(self, event: Any) -> YamlScalar:  # noqa: ANN401 - as above
        self._refuse_tag(event)
        self._values += 1
        text = str(event.value)
        try:
            text = _joined(text)
            value = _value(text) if event.implicit[0] else text  # implicit: neither in quotes nor a block of text
        except ValueError as error:
            raise self._place.fault_at(event.start_mark, str(error)) from None
        line, column = self._place.of(event.start_mark)
        if value is None and not text and self._open and self._open[-1].mapping and len(self._open[-1].parts) % 2:
            key = self._open[-1].parts[-1]  # where nothing stands behind a key, the mark is that of what comes next
            line, column = key.line, key.column
        return YamlScalar(text, value, line, column)

    def _add(self, tree: YamlNode, anchor: str | None, *, values: int, depth: int) -> None:
        if anchor is not None:
            # An anchor may be set again: an alias means the last one before it (YAML 1.2.2, 3.2.2.2).
            self._named[anchor] = _Named(tree, values, depth)
        if self._open:
            parent = self._open[-1]
            parent.parts.append(tree)
            parent.below = max(parent.below, depth)
        else:
            self._root = tree

    def _refuse_tag(self, event: Any) -> None:  # noqa: ANN401 - as above
        if event.tag is not None:
            raise self._place.fault_at(
                event.start_mark,
                f"the tag {shorten(event.tag, 60)!r} is not read here; put text in quotes, and leave the rest bare",
            )

    def _refuse_deeper(self, event: Any, levels: int) -> None:  # noqa: ANN401 - as above
        if len(self._open) + levels > MAX_YAML_DEPTH:
            raise self._place.fault_at(event.start_mark, f"values nest more than {MAX_YAML_DEPTH} deep")


def _joined(text: str) -> str:
    """The text, with each pair of surrogates joined to the one character that JSON writes so."""
    if not _SURROGATE.search(text):
        return text
    try:
        # In UTF-16 a pair is one character, and a lone surrogate is the only thing that cannot be decoded.
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise ValueError("this text holds half a character, a lone surrogate; write the whole one") from None


def _value(text: str) -> str | int | float | bool | None:
    """What plain text means, by the core schema of YAML 1.2."""
    if text in _NULL:
        return None
    # `yes` and `on` are text in YAML 1.2, so that they are not here.
    if _BOOLEAN.fullmatch(text):
        return text.lower() == "true"
    # Only to look for a number: a text that is none stays as it is written.
    plain = _BETWEEN_DIGITS.sub("", text)
    integer = _INTEGER.fullmatch(plain)
    if not integer and not _REAL.fullmatch(plain):
        return text
    # Before `int`, whose time grows with the square of the digits, and which refuses more than 4,300 of them.
    if len(plain) > _LONGEST_NUMBER:
        raise ValueError(f"a number has at most {_LONGEST_NUMBER} characters; put text in quotes")
    if integer:
        # Base 0 knows the prefixes, but refuses `010`, which is ten in YAML 1.2.
        return int(plain, 0 if plain.lstrip("+-")[:2] in ("0x", "0o", "0b") else 10)
    return float(plain.lower().replace(".inf", "inf").replace(".nan", "nan"))
