"""From what pydantic found to what a model reads: every fault of one input, each with its path and its cure.

Of a union's branches only those are reported that the data can have meant. Nothing that was sent is repeated, except
the names of fields, cut to a bounded length: a value may be a secret, and the sender has it.

What a JSON Schema asks for, and what a value is, is said in words that a model can act on.

The place of a fault is pydantic's location, followed through the JSON Schema and the data at once. A path leads through
the data only. pydantic puts the name of the branch it tried into the location of a fault inside a
union; here the schema separates those names from keys.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, groupby, takewhile
from typing import Any, Final, NamedTuple

from pydantic_core import ErrorDetails

from handrail.serde.formatting import count_noun, format_path, nearest, quote, shorten
from handrail.serde.json_schema import DECIMAL, FRACTION, Node, is_array, is_object, leaves_of, options_of, resolve_ref

Fault = tuple[str, str]
"""A path, and what is wrong there."""

MOST_FAULTS: Final = 100
"""How many faults of one input are reported; one more counts those left out."""

NOT_FINITE: Final = "expected a finite number; JSON has no NaN, no Infinity and no number beyond 1.8e308"
"""What is said of a number that JSON cannot hold."""

_LONGEST_REASON = 300
_LONGEST_LINE = 900
# Below the 2,000 characters after which `runtime.failures` cuts a text: a message of faults is never cut within a line.
_LONGEST_MESSAGE = 1_900
_MORE = "more faults, not listed"
_LONGEST_NAME = 60
_UNKNOWN_FIELD = {"unexpected_keyword_argument", "extra_forbidden"}
_UNTAGGED = {"union_tag_invalid", "union_tag_not_found"}
_REFUSED_BY_CODE = {"value_error", "assertion_error"}
_SIZE = r"(string_)?too_(short|long)"
_RANGE = r"(greater|less)_than(_equal)?"
_PARTS = {"string": "character", "array": "item", "object": "entry"}

_KINDS = {
    "null": "null",
    "boolean": "a boolean",
    "integer": "an integer",
    "number": "a number",
    "string": "a string",
    "array": "an array",
    "object": "an object",
}

_TYPES: tuple[tuple[type[Any], str], ...] = (
    # First, because `bool` is a subclass of `int`.
    (bool, "boolean"),
    (int, "integer"),
    (float, "number"),
    (str, "string"),
    (list, "array"),
    (dict, "object"),
)

_FORMATS = {
    "date-time": 'a date-time string such as "2026-01-31T12:00:00Z"',
    "date": 'a date string such as "2026-01-31"',
    "time": 'a time string such as "12:00:00"',
    "duration": 'an ISO 8601 duration string such as "PT1H30M"',
    "uuid": "a UUID string",
    "base64url": "a base64url string",
}

_PATTERNS = {
    DECIMAL: 'a decimal string such as "12.50"',
    FRACTION: 'a fraction string such as "1/3"',
}

_BOUNDS = {
    "exclusiveMinimum": ">",
    "minimum": ">=",
    "exclusiveMaximum": "<",
    "maximum": "<=",
    "multipleOf": "divisible by",
}

_MOST_CHOICES = 20

_LONGEST_PATTERN = 100

_LONGEST_CHOICE = 60


class _Found(NamedTuple):
    """A fault as pydantic reports it, and where it is."""

    spot: FaultLocation
    line: ErrorDetails


def faults_of(lines: Sequence[ErrorDetails], schema: Node, data: object) -> tuple[Fault, ...]:
    """What pydantic found in words; `data` is the decoded input, `schema` the JSON Schema that it does not fit."""
    first = lines[:MOST_FAULTS]
    spots = followed_each((line["loc"] for line in first), schema, data)
    found = [_Found(spot, line) for spot, line in zip(spots, first, strict=True)]
    # Members of a union may report the same fault several times.
    text = tuple(dict.fromkeys(_reported(found, 0, schema)))
    rest = len(lines) - len(found)
    return (*text, ("$", f"{rest} {_MORE}")) if rest else text


def foreign_fault(path: Path, schema: Node, name: str) -> Fault:
    """That a value of a type that JSON does not have is at `path` in data that should be decoded JSON.

    Args:
        path: the path.
        schema: the schema of the data.
        name: the name of the type, behind "key " for a key of the mapping there.
    """
    kind = name.removeprefix("key ")
    got = f"got {kind if kind == 'bytes' else f'a {kind}'}, which JSON does not have"
    if name != kind:
        return format_path(path), f"wrong key: expected a string, {got}"
    nodes = asked_at(path, schema)
    return format_path(path), f"expected {_expected(nodes, schema)}, {got}" if nodes else got


def fault_message(faults: Sequence[Fault]) -> str:
    """The faults as the text of one exception, one a line; of so many and so long ones as one reads."""
    lines = [shorten(f"{path}: {text}", _LONGEST_LINE) for path, text in faults]
    ends = accumulate(len(line) + 1 for line in lines)
    # Whole lines only: half a fault could be read as another one.
    shown = [line for line, end in zip(lines, ends, strict=True) if end <= _LONGEST_MESSAGE]
    if len(shown) == len(lines):
        return "\n".join(lines)
    number, _, words = faults[-1][1].partition(" ")
    left_out = int(number) - 1 if words == _MORE else 0  # the last line counts those that are not there
    return "\n".join((*shown, f"$: {len(lines) - len(shown) + left_out} {_MORE}"))


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
        branch = found[0].spot.branches[level]
        # No member was entered: one fault that names all of them says more than one fault for each.
        yield format_path(branch.at), _mismatch((branch.union,), branch.value, root, None)
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
    spot, line = item.spot, item.line
    if line["type"] in _UNTAGGED:
        return _untagged(spot, line, root)
    return format_path(spot.path), _text(spot, line, root)


def _text(spot: FaultLocation, line: ErrorDetails, root: Node) -> str:
    kind = line["type"]
    if kind == "missing":
        what = "item" if isinstance(spot.path[-1], int) else f"field {spot.path[-1]}"
        return f"missing {what}; expected {_expected(spot.nodes, root)}"
    if kind in _UNKNOWN_FIELD:
        known = dict.fromkeys(field for node in spot.around for field in node.get("properties", {}))
        return unknown_field(str(spot.path[-1]), list(known))
    # The words of a `ValueError` that the program's own code has raised.
    if kind in _REFUSED_BY_CODE:
        return shorten(str(line.get("ctx", {}).get("error", line["msg"])), _LONGEST_REASON)
    if kind == "finite_number":
        return NOT_FINITE
    return f"wrong key: {reason_of(line)}" if spot.is_key else _mismatch(spot.nodes, spot.value, root, line)


def _untagged(spot: FaultLocation, line: ErrorDetails, root: Node) -> Fault:
    unions = [unwrapped(node, root) for node in spot.nodes]
    # pydantic reports the tag, and the schema the field that holds it.
    discriminators = [union["discriminator"] for union in unions if "discriminator" in union]
    if not discriminators:
        return format_path(spot.path), _mismatch(spot.nodes, spot.value, root, None)
    discriminator: dict[str, Any] = discriminators[0]
    name = discriminator["propertyName"]
    missing = f"missing field {name}; " if line["type"] == "union_tag_not_found" else ""
    return format_path(
        (*spot.path, name)
    ), f"{missing}expected {join_alternatives(quote(tag) for tag in discriminator['mapping'])}"


def unknown_field(name: str, known: Sequence[str]) -> str:
    """That an object has a field of this name, and which it may have."""
    near = nearest(name, known)
    written = name if name.isidentifier() and len(name) <= _LONGEST_NAME else quote(name)
    guess = f", did you mean {near}?" if near else ";"
    return f"unknown field {written}{guess} known fields: {', '.join(known) or 'none'}"


def _expected(nodes: Sequence[Node], root: Node) -> str:
    return join_alternatives(describe_expected(node, root) for node in nodes) or "something else"


def _mismatch(nodes: Sequence[Node], value: object, root: Node, line: ErrorDetails | None) -> str:
    expected = f"expected {_expected(nodes, root)}"
    if value is NO_VALUE_THERE:
        return expected
    kind = json_kind(value)
    # Two sets of words: of a value of another kind only the kind is said, of one of the right kind what is wrong with
    # it.
    asked = {kind for node in nodes for kind in kinds_asked(node, root)}
    # Of another kind altogether: what pydantic says of it in detail would mislead.
    if kind not in asked:
        return f"{expected}, {got_kind(value, asked)}"
    if line is None:
        return f"{expected}, got {json_kind_name(kind)} that is none of these"
    return f"{expected}{_flaw(value, kind, nodes, line)}"


def got_kind(value: object, asked: set[str]) -> str:
    """A value of another kind than is asked for, as text that follows what is expected."""
    return f"got {json_kind_name(json_kind(value))}{_hint(value, asked)}"


def got_size(value: str | Sequence[object] | Mapping[str, object]) -> str:
    """A value of a size that is not asked for, as text that follows what is expected."""
    return f"got one of {count_noun(len(value), _PARTS[json_kind(value)])}"


def _hint(value: object, asked: set[str]) -> str:
    if isinstance(value, float) and "integer" in asked:
        return " with a decimal point or an exponent"
    # The commonest slip of models: the JSON of the argument once more in a string.
    if isinstance(value, str) and asked & {"array", "object"} and value.lstrip()[:1] in {"[", "{"}:
        return "; send the JSON itself, not a string that holds it"
    return ""


def _flaw(value: object, kind: str, nodes: Sequence[Node], line: ErrorDetails) -> str:
    """What is wrong with a value of the right kind, without repeating the value."""
    if re.fullmatch(_SIZE, line["type"]) and (isinstance(value, str) or is_array(value) or is_object(value)):
        return f", {got_size(value)}"
    if re.fullmatch(_RANGE, line["type"]) and kind in {"integer", "number"}:
        return ", got one out of range"
    if line["type"] == "multiple_of":
        return ", got one that is not"
    if line["type"] == "string_pattern_mismatch":
        return ", got one that does not match"
    if line["type"] in {"literal_error", "enum"}:
        choices = [
            choice for node in nodes for choice in node.get("enum", [node.get("const")]) if isinstance(choice, str)
        ]
        near = nearest(str(value), choices)
        return f", got another {kind}{f'; did you mean {quote(near)}?' if near else ''}"
    return f": {reason_of(line)}"


def json_kind(value: object) -> str:
    """The JSON type of a decoded value: `"integer"`, `"object"`, ..."""
    return next((kind for python, kind in _TYPES if isinstance(value, python)), "null")


def json_kind_name(kind: str) -> str:
    """A JSON type with its article: `an integer`."""
    return _KINDS[kind]


def kinds_asked(node: Node, root: Node) -> set[str]:
    """The JSON types that `node` takes; empty when it takes any."""
    node = resolve_ref(node, root)
    choices = node.get("enum", [node["const"]] if "const" in node else [])
    if choices:
        return {json_kind(choice) for choice in choices}
    if "type" in node:
        return {"integer", "number"} if node["type"] == "number" else {str(node["type"])}
    return {kind for option in options_of(node) for kind in kinds_asked(option, root)}


def describe_expected(node: Node, root: Node, *, depth: int = 0) -> str:
    """What `node` asks for, with its article: `an integer > 0`, `"a" or "b"`.

    Items and values of containers are described at the first level only.
    """
    node = resolve_ref(node, root)
    if options_of(node):
        return join_alternatives(describe_expected(option, root, depth=depth) for option in leaves_of(node, root))
    if "const" in node or "enum" in node:
        return join_alternatives(_choice(choice) for choice in node.get("enum", [node.get("const")]))
    kind = node.get("type", "")
    if kind == "array":
        return _array(node, root, depth)
    if kind == "object":
        return _object(node, root, depth)
    return _string(node) if kind == "string" else _scalar(node, kind)


def join_alternatives(choices: Iterable[str]) -> str:
    """`a, b or c`, each once, and not more of them than one reads."""
    every = list(dict.fromkeys(choices))
    shown = every[:_MOST_CHOICES]
    if len(every) > len(shown):
        shown.append(f"one of {len(every) - len(shown)} more")
    return " or ".join(part for part in (", ".join(shown[:-1]), *shown[-1:]) if part)


def _choice(value: object) -> str:
    return shorten(json.dumps(value, ensure_ascii=False), _LONGEST_CHOICE)


def _scalar(node: Node, kind: str) -> str:
    bounds = [f"{words} {node[key]}" for key, words in _BOUNDS.items() if key in node]
    return " ".join(part for part in (_KINDS.get(kind, "any value"), " and ".join(bounds)) if part)


def _string(node: Node) -> str:
    if known := _PATTERNS.get(node.get("pattern", "")):
        return known
    text = _FORMATS.get(node.get("format", ""), "a string")
    size = _size(node.get("minLength"), node.get("maxLength"), "character")
    pattern = f"matching {shorten(node['pattern'], _LONGEST_PATTERN)}" if "pattern" in node else ""
    return " ".join(part for part in (text, size, pattern) if part)


def _array(node: Node, root: Node, depth: int) -> str:
    text = " ".join(part for part in ("an array", _size(node.get("minItems"), node.get("maxItems"), "item")) if part)
    if depth:
        return text
    if "prefixItems" in node:
        parts = ", ".join(describe_expected(item, root, depth=depth + 1) for item in node["prefixItems"])
        return f"{text} ({parts})"
    return f"{text}{_each('item', node.get('items'), root, depth)}"


def _object(node: Node, root: Node, depth: int) -> str:
    if "properties" in node:
        names = list(node["properties"])
        return f"an object with the fields ({', '.join(names)})" if names else "an object without fields"
    size = _size(node.get("minProperties"), node.get("maxProperties"), "entry")
    text = " ".join(part for part in ("an object", size) if part)
    return text if depth else f"{text}{_each('value', node.get('additionalProperties'), root, depth)}"


def _each(what: str, node: object, root: Node, depth: int) -> str:
    return f" (each {what}: {describe_expected(node, root, depth=depth + 1)})" if is_object(node) and node else ""


def _size(least: int | None, most: int | None, what: str) -> str:
    if least is None and most is None:
        return ""
    if most is None:
        return f"of at least {count_noun(least or 0, what)}"
    if least == most:
        return f"of {count_noun(most, what)}"
    return f"of {least} to {count_noun(most, what)}" if least else f"of at most {count_noun(most, what)}"


# ------------------------------------------------------------------------------------------------------------ locations


_SCALARS = {"int": "integer", "float": "number", "bool": "boolean", "str": "string"}

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
        union: the schema of the whole union.
        value: what stands there.
    """

    at: Path
    label: str
    union: Node
    value: object


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


def locate(location: Path, root: Node, data: object) -> FaultLocation:
    """The spot to which pydantic's `location` leads from the root of `data` and of its schema."""
    return next(followed_each([location], root, data))


def followed_each(locations: Iterable[Path], root: Node, data: object) -> Iterator[FaultLocation]:
    """The spots to which locations lead, in their order; what one shares with the one before it is followed once."""
    way = [FaultLocation((), (root,), (), data)]
    taken: Path = ()
    for location in locations:
        # pydantic reports faults in the order of the data, so that neighbours share most of their locations.
        shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(location, taken, strict=False)))
        # One more, because the root is on the way before any segment.
        del way[shared + 1 :]
        for segment in location[shared:]:
            way.append(_step(way[-1], segment, root))
        taken = location
        yield way[-1]._replace(nodes=tuple(resolve_ref(node, root) for node in way[-1].nodes))


def asked_at(path: Path, root: Node) -> tuple[Node, ...]:
    """The schemas that can hold at `path` in the data: of every branch of a union, for none has been tried."""
    nodes: tuple[Node, ...] = (root,)
    for segment in path:
        nodes = tuple(child for node in nodes for one in leaves_of(node, root) for child in _children(one, segment))
    return tuple(resolve_ref(node, root) for node in nodes)


def unwrapped(node: Node, root: Node) -> Node:
    """`node`, or what it refers to, or the one thing that it can be beside null."""
    while True:
        # A type or null is not a union to pydantic: its locations have no name of a member there.
        options = [option for option in options_of(node) if resolve_ref(option, root).get("type") != "null"]
        inner = resolve_ref(options[0] if len(options) == 1 else node, root)
        if inner is node:
            return node
        node = inner


def _step(spot: FaultLocation, segment: str | int, root: Node) -> FaultLocation:
    around = tuple(unwrapped(node, root) for node in spot.nodes)
    union = next((node for node in around if options_of(node)), None)
    # pydantic puts the name of a member behind that of its union, so that this segment is not in the data.
    if union is not None and segment != _KEY:
        branch = SchemaBranch(spot.path, str(segment), union, spot.value)
        return spot._replace(nodes=_meant(union, str(segment), root), branches=(*spot.branches, branch))
    if segment == _KEY:
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
    # From the surest to the least sure: a tag, a label that Handrail gave, a name that pydantic made.
    tag = union.get("discriminator", {}).get("mapping", {}).get(label)
    if tag is not None:
        return ({"$ref": tag},)
    if label in root.get(MEMBERS, {}):
        return (root[MEMBERS][label],)
    options = tuple(option for option in options_of(union) if resolve_ref(option, root).get("type") != "null")
    return tuple(option for option in options if _fits(option, label)) or options


def _fits(node: Node, label: str) -> bool:
    """Whether `node` is of the class of that name, or a scalar that Python calls so."""
    if "$ref" in node:
        definition = str(node["$ref"]).rpartition("/")[2]
        # pydantic names the definition of `Page[Item]` with `_` in the place of the brackets.
        name = re.sub(r"\W", "_", label)
        return definition == name or definition.startswith(f"{name}_")
    return bool(node.get("type") == _SCALARS.get(label, ""))


def _children(node: Node, segment: str | int) -> Iterator[Node]:
    if isinstance(segment, int):
        fixed = node.get("prefixItems", ())
        child = fixed[segment] if segment < len(fixed) else node.get("items")
    else:
        child = node.get("properties", {}).get(segment, node.get("additionalProperties"))
    if is_object(child):
        yield child


def _inside(value: object, segment: str | int) -> object:
    if is_object(value) and isinstance(segment, str):
        return value.get(segment, NO_VALUE_THERE)
    if is_array(value) and isinstance(segment, int) and segment < len(value):
        return value[segment]
    return NO_VALUE_THERE
