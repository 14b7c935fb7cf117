"""Where a fault is: pydantic's location, followed through the JSON Schema and the data at once.

A path leads through the data only. pydantic puts the name of the branch it tried into the location of a fault inside a
union; here the schema separates those names from keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import takewhile
from typing import Final, NamedTuple

from handrail.serde.json_schema import Node, is_array, is_object, leaves_of, options_of, resolve_ref

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
