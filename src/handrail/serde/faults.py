"""From what pydantic found to what a model reads: every fault of one input, each with its path and its cure.

pydantic says what is wrong and what would be right, in its own words; those of a table are better known here. Of a
union's branches only those are reported that the data can have meant. Nothing that was sent is repeated, except the
names of fields, cut to a bounded length: a value may be a secret, and the sender has it.

The place of a fault is pydantic's location, followed through the JSON Schema and the data at once. A path leads through
the data only. pydantic puts the name of the branch it tried into the location of a fault inside a
union; here the schema separates those names from keys.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate, groupby
from typing import Final, NamedTuple

from pydantic_core import ErrorDetails

from handrail.serde.core_schemas import JSON_KINDS
from handrail.serde.formatting import format_path, nearest, quote, shorten
from handrail.serde.json_schema import Node, is_array, is_object, options_of, resolve_ref

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

_EXAMPLES = {
    "date-time": "2026-01-31T12:00:00Z",
    "date": "2026-01-31",
    "time": "12:00:00",
    "duration": "PT1H30M",
}
"""Texts of a format, of which pydantic says no more than its name."""


class _Found(NamedTuple):
    """A fault as pydantic reports it, and where it is."""

    spot: FaultLocation
    line: ErrorDetails


def faults_of(lines: Sequence[ErrorDetails], schema: Node, data: object) -> tuple[Fault, ...]:
    """What pydantic found in words; `data` is the decoded input, `schema` the JSON Schema that it does not fit."""
    first = lines[:MOST_FAULTS]
    spots = locate((line["loc"] for line in first), schema, data)
    found = [_Found(spot, line) for spot, line in zip(spots, first, strict=True)]
    # Members of a union may report the same fault several times.
    text = tuple(dict.fromkeys(_reported(found, 0, schema)))
    return (*text, ("$", _MORE)) if len(lines) > len(found) else text


def fault_message(faults: Sequence[Fault]) -> str:
    """The faults as the text of one exception, one a line; of so many and so long ones as one reads."""
    lines = [shorten(f"{path}: {text}", _LONGEST_LINE) for path, text in faults]
    ends = accumulate(len(line) + 1 for line in lines)
    # Whole lines only: half a fault could be read as another one.
    shown = [line for line, end in zip(lines, ends, strict=True) if end <= _LONGEST_MESSAGE]
    if len(shown) == len(lines):
        return "\n".join(lines)
    return "\n".join((*shown, f"$: {_MORE}"))


def reason_of(line: ErrorDetails) -> str:
    """The words of pydantic itself for a fault, cut to a bounded length."""
    return shorten(line["msg"][:1].lower() + line["msg"][1:], _LONGEST_REASON)


def _reported(found: Sequence[_Found], level: int, root: Node) -> Iterator[Fault]:
    """The faults in words; those inside one union, which is `level` unions deep, are reported together."""

    def union(item: _Found) -> object:
        branches = item.spot.branches
        return branches[level].at if len(branches) > level else None

    # pydantic reports the faults of one union in a row, so that they need not be sorted: the order of the input
    # remains.
    for at, group in groupby(found, key=union):
        if at is None:
            yield from (_fault(item, root) for item in group)
        else:
            yield from _union(list(group), level, root)


def _union(found: Sequence[_Found], level: int, root: Node) -> Iterator[Fault]:
    entered: dict[str, list[_Found]] = {}
    # A member that the value was read into, at least in part, explains more than one of another kind.
    for item in found:
        if _is_inside(item, level):
            entered.setdefault(item.spot.branches[level].label, []).append(item)
    if not entered:
        # No member was entered: one fault that names all of them says more than one fault for each.
        reasons = [reason_of(item.line) for item in found]
        if all(reason.startswith(_SHOULD_BE) for reason in reasons):
            reasons = [_SHOULD_BE + join_alternatives(reason.removeprefix(_SHOULD_BE) for reason in reasons)]
        yield format_path(found[0].spot.path), f"{join_alternatives(reasons)}{_got(found[0], root)}"
        return
    # A member whose mark is another one is not meant; if all say so, all are reported.
    meant = {label: items for label, items in entered.items() if not any(_is_other(i, level) for i in items)} or entered
    for label, items in meant.items():
        for path, text in _reported(items, level + 1, root):
            yield path, text if len(meant) == 1 else f"{text} (if meant as {label})"


def _is_inside(item: _Found, level: int) -> bool:
    """Whether the fault lies within a branch, rather than being that the value is something else altogether."""
    spot = item.spot
    return len(spot.path) > len(spot.branches[level].at) or item.line["type"] in _REFUSED_BY_CODE


def _is_other(item: _Found, level: int) -> bool:
    """Whether the fault says that another branch was meant: a field that marks the branch holds something else."""
    one_deeper = len(item.spot.path) == len(item.spot.branches[level].at) + 1
    return one_deeper and item.line["type"] == "literal_error"


def _fault(item: _Found, root: Node) -> Fault:
    # pydantic reports the tag, and the schema the field that holds it.
    unions = map(partial(unwrapped, root=root), item.spot.nodes if item.line["type"] in _UNTAGGED else ())
    for discriminator in [union["discriminator"] for union in unions if "discriminator" in union]:
        path = (*item.spot.path, discriminator["propertyName"])
        return format_path(path), f"expected {join_alternatives(map(quote, discriminator['mapping']))}"
    return format_path(item.spot.path), _text(item, root)


def _text(item: _Found, root: Node) -> str:
    spot, line = item.spot, item.line
    kind = line["type"]
    if kind == "missing":
        what = "item" if isinstance(spot.path[-1], int) else f"field {spot.path[-1]}"
        return f"missing {what}; expected {join_alternatives(_asked(node, root) for node in spot.nodes)}"
    if kind in _UNKNOWN_FIELD:
        known = dict.fromkeys(field for node in spot.around for field in node.get("properties", {}))
        return unknown_field(str(spot.path[-1]), list(known))
    # The words of a `ValueError` that the program's own code has raised.
    if kind in _REFUSED_BY_CODE:
        return shorten(str(line.get("ctx", {}).get("error", line["msg"])), _LONGEST_REASON)
    if kind == "finite_number":
        return NOT_FINITE
    if kind in _UNTAGGED:  # by a function of the program; pydantic would repeat what was sent
        return f"input should be of one of the kinds {line.get('ctx', {}).get('expected_tags', '')}"
    return f"wrong key: {reason_of(line)}" if spot.is_key else f"{reason_of(line)}{_got(item, root)}"


def _asked(node: Node, root: Node) -> str:
    if choices := _choices(node):
        return join_choices(choices)
    kinds = kinds_asked(node, root)
    # A number may be an integer.
    words = [KIND_NAMES[each] for each in sorted(kinds) if (each, "number" in kinds) != ("integer", True)]
    return join_alternatives(words) or "any value"


def unknown_field(name: str, known: Sequence[str]) -> str:
    """That an object has a field of this name, and which it may have."""
    near = nearest(name, known)
    written = name if name.isidentifier() and len(name) <= _LONGEST_NAME else quote(name)
    guess = f", did you mean {near}?" if near else ";"
    return f"unknown field {written}{guess} known fields: {', '.join(known) or 'none'}"


def _got(item: _Found, root: Node) -> str:
    """What stands where something else should, and what is like that; pydantic says neither."""
    value, kind = item.spot.value, item.line["type"]
    if value is NO_VALUE_THERE:
        return ""
    nodes = [unwrapped(node, root) for node in item.spot.nodes]
    if kind in _CHOICES and isinstance(value, str):
        near = nearest(value, [str(choice) for node in nodes for choice in _choices(node)])
        return f"; did you mean {quote(near)}?" if near else ""
    example = next((_EXAMPLES[each] for node in nodes if (each := node.get("format")) in _EXAMPLES), None)
    such_as = f'; write it as in "{example}"' if example else ""
    is_other_kind = kind.endswith("_type") or kind in {"none_required", "integer", *_CHOICES}
    return (f", {got_kind(value, kind)}" if is_other_kind else "") + such_as


def got_kind(value: object, asked: str) -> str:
    """A value of another kind than is asked for, as text that follows what is expected.

    Args:
        value: the value.
        asked: the type of pydantic's error, or the name of a JSON type.
    """
    hint = ""
    if isinstance(value, float) and asked.startswith("int"):
        hint = " with a decimal point or an exponent"
    # The commonest slip of models: the JSON of the argument once more in a string.
    if isinstance(value, str) and not asked.startswith("str") and value.lstrip()[:1] in {"[", "{"}:
        hint = "; send the JSON itself, not a string that holds it"
    return f"got {KIND_NAMES[JSON_KINDS[type(value)]]}{hint}"


def kinds_asked(node: Node, root: Node) -> set[str]:
    """The JSON types that `node` takes; empty when it takes any."""
    node = resolve_ref(node, root)
    if choices := _choices(node):
        return {JSON_KINDS[type(choice)] for choice in choices}
    if "type" in node:
        return {"integer", "number"} if node["type"] == "number" else {str(node["type"])}
    return {kind for option in options_of(node) for kind in kinds_asked(option, root)}


def _choices(node: Node) -> list[object]:
    return [*node.get("enum", [node["const"]] if "const" in node else [])]


def join_alternatives(choices: Iterable[str]) -> str:
    """`a, b or c`, each once, and not more of them than one reads."""
    every = list(dict.fromkeys(choices))
    shown = every[:_MOST_CHOICES]
    if len(every) > len(shown):
        shown.append(f"one of {len(every) - len(shown)} more")
    return " or ".join(part for part in (", ".join(shown[:-1]), *shown[-1:]) if part)


def join_choices(choices: Iterable[object]) -> str:
    """Values of JSON as alternatives, each cut to a bounded length."""
    return join_alternatives(shorten(json.dumps(each, ensure_ascii=False), _LONGEST_CHOICE) for each in choices)


# ------------------------------------------------------------------------------------------------------------ locations


_KEY = "[key]"
"""What pydantic writes into a location behind a key that is at fault itself."""

_WITHOUT_KEYS = {"array", "integer", "number", "string", "boolean", "null"}

NO_VALUE_THERE: Final = object()
"""Stands for a value that the data does not hold."""

MEMBERS: Final = "$memberSchemas"
"""Where a schema by which faults are explained has those of the members of unions, by label; none that is shown has."""

Path = tuple[str | int, ...]
"""Keys and positions from the root of the data."""


class SchemaBranch(NamedTuple):
    """A union on the way to a fault.

    Attributes:
        at: the path of the union.
        label: pydantic's name of the branch that was tried.
    """

    at: Path
    label: str


class FaultLocation(NamedTuple):
    """Where a fault is.

    Attributes:
        path: its path in the data.
        nodes: the schemas that can hold there; several, where branches of a union cannot be distinguished.
        around: the schemas of what holds it.
        value: what stands there, or `NO_VALUE_THERE`.
        branches: the unions on the way, outermost first.
        is_key: whether the fault is in the last key of the path rather than in what stands under it.
    """

    path: Path
    nodes: tuple[Node, ...]
    around: tuple[Node, ...]
    value: object
    branches: tuple[SchemaBranch, ...] = ()
    is_key: bool = False


def locate(locations: Iterable[Path], root: Node, data: object) -> list[FaultLocation]:
    """The spots to which pydantic's locations lead from the root of `data` and of its schema, in their order."""
    # By location, because most have the most of it in common.
    spots: dict[Path, FaultLocation] = {(): FaultLocation((), (root,), (), data)}

    def spot(location: Path) -> FaultLocation:
        if location not in spots:
            spots[location] = _step(spot(location[:-1]), location[-1], root)
        return spots[location]

    return [each._replace(nodes=tuple(resolve_ref(node, root) for node in each.nodes)) for each in map(spot, locations)]


def unwrapped(node: Node, root: Node) -> Node:
    """`node`, or what it refers to, or the one thing that it can be beside null."""
    while True:
        # A type or null is not a union to pydantic: its locations have no name of a member there.
        node = resolve_ref(node, root)
        options = [option for option in options_of(node) if resolve_ref(option, root).get("type") != "null"]
        if len(options) != 1:
            return node
        node = options[0]


def _step(spot: FaultLocation, segment: str | int, root: Node) -> FaultLocation:
    around = tuple(unwrapped(node, root) for node in spot.nodes)
    union = next((node for node in around if options_of(node)), None)
    is_key = segment == _KEY and _inside(spot.value, _KEY) is NO_VALUE_THERE
    # pydantic puts the name of a member behind that of its union, so that this segment is not in the data.
    if union is not None and not is_key:
        branch = SchemaBranch(spot.path, str(segment))
        return spot._replace(nodes=_meant(union, str(segment), root), branches=(*spot.branches, branch))
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


def _meant(union: Node, label: str, root: Node) -> tuple[Node, ...]:
    """The branches that a label can mean: all of them, where it is not clear."""
    # A tag, or a label that Handrail gave; within a type of pydantic's own, such as a secret, it may be neither.
    tag = union.get("discriminator", {}).get("mapping", {}).get(label)
    if tag is not None:
        return ({"$ref": tag},)
    if label in root.get(MEMBERS, {}):
        return (root[MEMBERS][label],)
    return tuple(option for option in options_of(union) if resolve_ref(option, root).get("type") != "null")


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
