"""The words of messages: faults, places, types, names and counts: `$.steps[2].title: missing field title`, `1.5 kB`.

pydantic says what is wrong and what would be right, in its own words; those of a table are better known here. Of a
union's branches only those are reported that the data can have meant. Nothing that was sent is repeated, except the
names of fields, cut to a bounded length: a value may be a secret, and the sender has it.

The place of a fault is pydantic's location, followed through the JSON Schema and the data at once. pydantic puts the
name of the branch it tried into the location of a fault inside a union; the schema separates those names from keys.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate, groupby
from typing import Final, NamedTuple

from pydantic_core import ErrorDetails

from handrail.serde.core_schemas import JSON_KINDS
from handrail.serde.json_schema import MEMBERS, Node, is_array, is_object, list_options, resolve_ref

_LONGEST_KEY = 60
_LONGEST_PLACE = 120
_LONGEST_COMPARED = 100
_MOST_NEAR = 10
_LEAST_LIKENESS = 0.4
_MODULES = r"\b(?:\w+\.)*(?:<locals>\.)?(?=\w+\b)"
_SHOWN = json.JSONEncoder(ensure_ascii=False, default=repr)


def format_path(segments: Iterable[str | int]) -> str:
    """The path from the root through `segments`: names follow a dot, positions stand in brackets.

    A key that is not an identifier is quoted, and a long one is cut, because keys may come from a model. Of a path with
    many segments the first and the last ones are shown.
    """
    texts = ["$", *(_format_segment(segment) for segment in segments)]
    if sum(map(len, texts)) <= _LONGEST_PLACE:
        return "".join(texts)
    first, last = _fitting(texts, _LONGEST_PLACE // 2), _fitting(texts[::-1], _LONGEST_PLACE // 2)
    return "".join((*first, "…", *last[::-1]))


def _fitting(parts: Sequence[str], limit: int, *, gap: int = 0, size: Callable[[str], int] = len) -> list[str]:
    ends = accumulate(size(part) + gap for part in parts)
    return [part for part, end in zip(parts, ends, strict=True) if end <= limit]


def _format_segment(segment: str | int) -> str:
    if isinstance(segment, int):
        return f"[{segment}]"
    if segment.isidentifier() and len(segment) <= _LONGEST_KEY:
        return f".{segment}"
    return f"[{quote(segment)}]"


def quote(text: str) -> str:
    """`text` as a JSON string of bounded length, every character of which can be printed and sent."""
    return json.dumps(shorten(text, _LONGEST_KEY), ensure_ascii=not text.isprintable())


def shorten(text: str, limit: int) -> str:
    """`text`, cut to `limit` characters; an ellipsis marks the cut."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def quote_value(text: str) -> str:
    """A text of a document as messages show it: quoted, and cut if it is long."""
    return repr(shorten(text, _LONGEST_KEY))


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The name that is most like another one, whatever the case of their letters; `None` if none is like it."""
    from difflib import get_close_matches  # noqa: PLC0415

    by_fold = {candidate.casefold(): candidate for candidate in names}
    # Cut before it is compared: the time of a comparison grows with the square of the length, and a model may send any
    # name.
    near = get_close_matches(shorten(name, _LONGEST_COMPARED).casefold(), by_fold, n=1)
    return by_fold[near[0]] if near else None


def enumerated(names: Sequence[str], *, limit: int, near: str = "") -> str:
    """Names with commas between them: all, or those that fit into `limit` bytes of UTF-8 and how many more there are.

    A name longer than 64 characters is cut. Where not all fit, those nearest to `near` come first.
    """
    texts = [shorten(name, _LONGEST_KEY + 4) for name in names]
    text = ", ".join(texts)
    if _size(text) <= limit:
        return text
    from difflib import get_close_matches  # noqa: PLC0415

    matches = get_close_matches(shorten(near, _LONGEST_KEY), texts, n=_MOST_NEAR, cutoff=_LEAST_LIKENESS)
    nearest_first = [*matches, *(name for name in texts if name not in matches)]
    # The largest count that may be written, so that the end always fits.
    room = limit - _size(f" and {len(texts):,} more")
    fitting = _fitting(nearest_first, room, gap=len(", "), size=_size)
    return f"{', '.join(fitting)} and {len(texts) - len(fitting):,} more"


def _size(text: str) -> int:
    return len(text.encode(errors="surrogatepass"))


def json_line(value: object) -> str:
    """A value as JSON on one line, for people; what has none as its `repr`."""
    return _SHOWN.encode(value)


def type_name(kind: object) -> str:
    """A type as people write it, without the modules it comes from."""
    return kind.__name__ if isinstance(kind, type) else re.sub(_MODULES, "", str(kind))


def count_noun(number: int, noun: str, plural: str = "") -> str:
    """A number with its noun: `1 entry`, `2,000 entries`."""
    several = plural or (f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s")
    return f"{number:,} {noun if number == 1 else several}"


# ------------------------------------------------------------------------------------------------------------- faults


Fault = tuple[str, str]
"""A path, and what is wrong there."""

MOST_FAULTS: Final = 100
"""How many faults of one input are reported; one more says that there are others."""

NOT_FINITE: Final = "expected a finite number; JSON has no NaN, no Infinity and no number beyond 1.8e308"
"""What is said of a number that JSON cannot hold."""

_LONGEST_REASON = 300
_LONGEST_LINE = 900
# Below the 2,000 characters after which `runtime.failures` cuts a text: a message of faults is never cut within a line.
_LONGEST_MESSAGE = 1_900
_MORE = "more faults, not listed"
_LONGEST_NAME = 60
_MOST_CHOICES = 20
_LONGEST_CHOICE = 60
_UNKNOWN_FIELD = {"unexpected_keyword_argument", "extra_forbidden"}
_UNTAGGED = {"union_tag_invalid", "union_tag_not_found"}
_REFUSED_BY_CODE = {"value_error", "assertion_error"}
_CHOICES = {"literal_error", "enum"}
_SHOULD_BE = "input should be "

KIND_NAMES: Final = {
    "null": "null",
    "boolean": "a boolean",
    "integer": "an integer",
    "number": "a number",
    "string": "a string",
    "array": "an array",
    "object": "an object",
}
"""JSON types with their articles."""

_EXAMPLES = {"date-time": "2026-01-31T12:00:00Z", "date": "2026-01-31", "time": "12:00:00", "duration": "PT1H30M"}
"""Texts of a format, of which pydantic says no more than its name."""


class _LocatedFault(NamedTuple):
    spot: FaultLocation
    line: ErrorDetails


def report_faults(lines: Sequence[ErrorDetails], schema: Node, data: object) -> tuple[Fault, ...]:
    """Describes what pydantic found wrong with the decoded input."""
    first = lines[:MOST_FAULTS]
    spots = locate((line["loc"] for line in first), schema, data)
    faults = [_LocatedFault(spot, line) for spot, line in zip(spots, first, strict=True)]
    # Members of a union may report the same fault several times.
    text = tuple(dict.fromkeys(_describe_faults(faults, 0, schema)))
    return (*text, ("$", _MORE)) if len(lines) > len(faults) else text


def fault_message(faults: Sequence[Fault]) -> str:
    """The faults as the text of one exception, one a line, bounded in number and length."""
    lines = [shorten(f"{path}: {text}", _LONGEST_LINE) for path, text in faults]
    # Whole lines only: half a fault could be read as another one.
    first = _fitting(lines, _LONGEST_MESSAGE, gap=1)
    return "\n".join(lines if len(first) == len(lines) else (*first, f"$: {_MORE}"))


def format_reason(line: ErrorDetails) -> str:
    """The words of pydantic itself for a fault, cut to a bounded length."""
    return shorten(line["msg"][:1].lower() + line["msg"][1:], _LONGEST_REASON)


def _describe_faults(faults: Sequence[_LocatedFault], level: int, root: Node) -> Iterator[Fault]:
    def union(item: _LocatedFault) -> object:
        branches = item.spot.branches
        return branches[level].at if len(branches) > level else None

    # pydantic reports the faults of one union in a row, so that they need not be sorted: the order of the input
    # remains.
    for at, group in groupby(faults, key=union):
        if at is None:
            yield from (_fault(item, root) for item in group)
        else:
            yield from _union(list(group), level, root)


def _union(faults: Sequence[_LocatedFault], level: int, root: Node) -> Iterator[Fault]:
    entered: dict[str, list[_LocatedFault]] = {}
    # A member that the value was read into, at least in part, explains more than one of another kind.
    for item in faults:
        if _is_inside(item, level):
            entered.setdefault(item.spot.branches[level].label, []).append(item)
    if not entered:
        # No member was entered: one fault that names all of them says more than one fault for each.
        reasons = [format_reason(item.line) for item in faults]
        if all(reason.startswith(_SHOULD_BE) for reason in reasons):
            reasons = [_SHOULD_BE + join_alternatives(reason.removeprefix(_SHOULD_BE) for reason in reasons)]
        yield format_path(faults[0].spot.path), f"{join_alternatives(reasons)}{_describe_value(faults[0], root)}"
        return
    # A member whose mark is another one is not meant; if all say so, all are reported.
    likely = {
        label: items for label, items in entered.items() if not any(_is_other(i, level) for i in items)
    } or entered
    for label, items in likely.items():
        for path, text in _describe_faults(items, level + 1, root):
            yield path, text if len(likely) == 1 else f"{text} (if meant as {label})"


def _is_inside(item: _LocatedFault, level: int) -> bool:
    spot = item.spot
    return len(spot.path) > len(spot.branches[level].at) or item.line["type"] in _REFUSED_BY_CODE


def _is_other(item: _LocatedFault, level: int) -> bool:
    one_deeper = len(item.spot.path) == len(item.spot.branches[level].at) + 1
    return one_deeper and item.line["type"] == "literal_error"


def _fault(item: _LocatedFault, root: Node) -> Fault:
    # pydantic reports the tag, and the schema the field that holds it.
    unions = map(partial(unwrapped, root=root), item.spot.nodes if item.line["type"] in _UNTAGGED else ())
    for discriminator in [union["discriminator"] for union in unions if "discriminator" in union]:
        path = (*item.spot.path, discriminator["propertyName"])
        return format_path(path), f"expected {join_alternatives(map(quote, discriminator['mapping']))}"
    return format_path(item.spot.path), _text(item, root)


def _text(item: _LocatedFault, root: Node) -> str:
    spot, line = item.spot, item.line
    kind = line["type"]
    if kind == "missing":
        what = "item" if isinstance(spot.path[-1], int) else f"field {spot.path[-1]}"
        return f"missing {what}; expected {join_alternatives(_describe_expected(node, root) for node in spot.nodes)}"
    if kind in _UNKNOWN_FIELD:
        names = dict.fromkeys(field for node in spot.around for field in node.get("properties", {}))
        return unknown_field(str(spot.path[-1]), list(names))
    # The words of a `ValueError` that the program's own code has raised.
    if kind in _REFUSED_BY_CODE:
        return shorten(str(line.get("ctx", {}).get("error", line["msg"])), _LONGEST_REASON)
    if kind == "finite_number":
        return NOT_FINITE
    if kind in _UNTAGGED:  # by a function of the program; pydantic would repeat what was sent
        return f"input should be of one of the kinds {line.get('ctx', {}).get('expected_tags', '')}"
    return f"wrong key: {format_reason(line)}" if spot.is_key else f"{format_reason(line)}{_describe_value(item, root)}"


def _describe_expected(node: Node, root: Node) -> str:
    if choices := _choices(node):
        return join_choices(choices)
    kinds = kinds_asked(node, root)
    # A number may be an integer.
    words = [KIND_NAMES[kind] for kind in sorted(kinds) if (kind, "number" in kinds) != ("integer", True)]
    return join_alternatives(words) or "any value"


def unknown_field(name: str, names: Sequence[str]) -> str:
    """The fault of an unknown field, with the known ones."""
    near = nearest(name, names)
    name_text = name if name.isidentifier() and len(name) <= _LONGEST_NAME else quote(name)
    guess = f", did you mean {near}?" if near else ";"
    return f"unknown field {name_text}{guess} known fields: {', '.join(names) or 'none'}"


def _describe_value(item: _LocatedFault, root: Node) -> str:
    value, kind = item.spot.value, item.line["type"]
    if value is NO_VALUE_THERE:
        return ""
    nodes = [unwrapped(node, root) for node in item.spot.nodes]
    if kind in _CHOICES and isinstance(value, str):
        near = nearest(value, [str(choice) for node in nodes for choice in _choices(node)])
        return f"; did you mean {quote(near)}?" if near else ""
    example = next((_EXAMPLES[name] for node in nodes if (name := node.get("format")) in _EXAMPLES), None)
    such_as = f'; write it as in "{example}"' if example else ""
    is_other_kind = kind.endswith("_type") or kind in {"none_required", "integer", *_CHOICES}
    return (f", {got_kind(value, kind)}" if is_other_kind else "") + such_as


def got_kind(value: object, expected: str) -> str:
    """Describes a value of another kind than expected; `expected` is the type of pydantic's error, or a JSON type."""
    hint = ""
    if isinstance(value, float) and expected.startswith("int"):
        hint = " with a decimal point or an exponent"
    # The commonest slip of models: the JSON of the argument once more in a string.
    if isinstance(value, str) and not expected.startswith("str") and value.lstrip()[:1] in {"[", "{"}:
        hint = "; send the JSON itself, not a string that holds it"
    return f"got {KIND_NAMES[JSON_KINDS[type(value)]]}{hint}"


def kinds_asked(node: Node, root: Node) -> set[str]:
    """The JSON types that `node` takes; empty when it takes any."""
    node = resolve_ref(node, root)
    if choices := _choices(node):
        return {JSON_KINDS[type(choice)] for choice in choices}
    if "type" in node:
        return {"integer", "number"} if node["type"] == "number" else {str(node["type"])}
    return {kind for option in list_options(node) for kind in kinds_asked(option, root)}


def _choices(node: Node) -> list[object]:
    return [*node.get("enum", [node["const"]] if "const" in node else [])]


def join_alternatives(choices: Iterable[str]) -> str:
    """`a, b or c`, each once, and not more of them than one reads."""
    every = list(dict.fromkeys(choices))
    first = every[:_MOST_CHOICES]
    if len(every) > len(first):
        first.append(f"one of {len(every) - len(first)} more")
    return " or ".join(part for part in (", ".join(first[:-1]), *first[-1:]) if part)


def join_choices(choices: Iterable[object]) -> str:
    """Values of JSON as alternatives, each cut to a bounded length."""
    return join_alternatives(shorten(json.dumps(choice, ensure_ascii=False), _LONGEST_CHOICE) for choice in choices)


# ------------------------------------------------------------------------------------------------------------ locations


_KEY = "[key]"
"""What pydantic writes into a location behind a key that is at fault itself."""

_WITHOUT_KEYS = {"array", "integer", "number", "string", "boolean", "null"}

NO_VALUE_THERE: Final = object()
"""Stands for a value that the data does not hold."""

DataPath = tuple[str | int, ...]
"""Keys and positions from the root of the data."""


class SchemaBranch(NamedTuple):
    """A union on the way to a fault: its path, and pydantic's name of the branch that was tried."""

    at: DataPath
    label: str


class FaultLocation(NamedTuple):
    """The place of a fault."""

    path: DataPath  # in the data
    # The schemas that can hold there; several, where branches of a union cannot be distinguished.
    nodes: tuple[Node, ...]
    around: tuple[Node, ...]  # the schemas of what holds it
    value: object  # the value there, or `NO_VALUE_THERE`
    branches: tuple[SchemaBranch, ...] = ()  # the unions on the way, outermost first
    is_key: bool = False  # whether the fault is in the last key of the path rather than in its value


def locate(locations: Iterable[DataPath], root: Node, data: object) -> list[FaultLocation]:
    """The spots to which pydantic's locations lead from the root of `data` and of its schema, in their order."""
    # By location, because most have the most of it in common.
    spots: dict[DataPath, FaultLocation] = {(): FaultLocation((), (root,), (), data)}

    def spot(location: DataPath) -> FaultLocation:
        if location not in spots:
            spots[location] = _step(spot(location[:-1]), location[-1], root)
        return spots[location]

    return [
        place._replace(nodes=tuple(resolve_ref(node, root) for node in place.nodes)) for place in map(spot, locations)
    ]


def unwrapped(node: Node, root: Node) -> Node:
    """`node`, or what it refers to, or the one thing that it can be beside null."""
    while True:
        # A type or null is not a union to pydantic: its locations have no name of a member there.
        node = resolve_ref(node, root)
        options = [option for option in list_options(node) if resolve_ref(option, root).get("type") != "null"]
        if len(options) != 1:
            return node
        node = options[0]


def _step(spot: FaultLocation, segment: str | int, root: Node) -> FaultLocation:
    around = tuple(unwrapped(node, root) for node in spot.nodes)
    union = next((node for node in around if list_options(node)), None)
    is_key = segment == _KEY and _inside(spot.value, _KEY) is NO_VALUE_THERE
    # pydantic puts the name of a member behind that of its union, so that this segment is not in the data.
    if union is not None and not is_key:
        branch = SchemaBranch(spot.path, str(segment))
        return spot._replace(nodes=_find_branches(union, str(segment), root), branches=(*spot.branches, branch))
    if is_key:
        return spot._replace(nodes=(), is_key=True)
    # A string cannot be a key of an array or a scalar.
    if isinstance(segment, str) and around and all(node.get("type") in _WITHOUT_KEYS for node in around):
        return spot  # the name of a branch: members that JSON does not distinguish have one schema
    return spot._replace(
        path=(*spot.path, segment),
        nodes=tuple(child for node in around for child in _children(node, segment)),
        around=around,
        value=_inside(spot.value, segment),
    )


def _find_branches(union: Node, label: str, root: Node) -> tuple[Node, ...]:
    # A tag, or a label that Handrail gave; within a type of pydantic's own, such as a secret, it may be neither.
    tag = union.get("discriminator", {}).get("mapping", {}).get(label)
    if tag is not None:
        return ({"$ref": tag},)
    if label in root.get(MEMBERS, {}):
        return (root[MEMBERS][label],)
    return tuple(option for option in list_options(union) if resolve_ref(option, root).get("type") != "null")


def _children(node: Node, segment: str | int) -> Iterator[Node]:
    if isinstance(segment, int):
        fixed = node.get("prefixItems", ())
        child = fixed[segment] if 0 <= segment < len(fixed) else node.get("items", node.get("additionalProperties"))
    else:
        child = node.get("properties", {}).get(segment, node.get("additionalProperties"))
    if is_object(child):
        yield child


def _inside(value: object, segment: str | int) -> object:
    if is_object(value) and isinstance(segment, str):
        return value.get(segment, NO_VALUE_THERE)
    if is_array(value) and isinstance(segment, int) and 0 <= segment < len(value):
        return value[segment]
    return NO_VALUE_THERE
