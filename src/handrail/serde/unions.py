"""Unions whose members JSON does not tell apart: `Approve | Reject` of equal fields, `datetime | str`, `tuple | list`.

What is stored says which member it is of: `{"$type": "Reject", "value": {...}}`. The tag is written only where the
declared type is ambiguous, and only for the members that share a form; it is read where it stands, and what was stored
without one is read as before. What a model reads and writes has no tags.

The name of a member is that by which `stored_as` names its class, or the name of its class, or that of its type
(`datetime`, `list`). Where two members of one union would have the same, it is written out: `list[int]`,
`list[Approve | int]`, `module:Class`. Every one of these names is read. Two classes of one name are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from operator import itemgetter
from typing import Any, Final, NamedTuple, cast

from pydantic_core import CoreConfig, CoreSchema, core_schema

from handrail.serde.core_schemas import (
    OF_CLASSES,
    Core,
    SchemaEdit,
    choices_of,
    innermost,
    python_view,
    rebuilt,
    replacing,
    validator_of,
    without_name,
)
from handrail.serde.json_schema import Node, compared_json_schema
from handrail.serde.location import ALL_MEMBERS
from handrail.serde.member_names import class_of, exact_class, is_path, kinds_of, names_of, parts_in, spelling
from handrail.serde.overlap import Side, overlaps
from handrail.serde.recursive_unions import optional_mark

TYPE: Final = "$type"
"""The key of the name of the member."""

VALUE: Final = "value"
"""The key of what the member is written as."""

_KEYS: Final = (TYPE, VALUE)

_UNBOXED: Final = itemgetter(VALUE)

_SAME_VALUE: Final = frozenset({"str", "int", "float", "bool", "none", "NoneType"})
"""Types that JSON restores as what they are, whatever their metadata."""

_FORMS: Final = dict.fromkeys(("dict", "ordered-dict", "counter"), "object")
"""The form in JSON of the collections that are not arrays."""

_OF_LITERALS: Final = frozenset({str, int, bool, type(None)})

_HOLDING: Final = frozenset(
    {"list", "tuple", "set", "frozenset", "dict", "ordered-dict", "counter", "deque"}
    | {"dataclass", "model", "typed-dict"}
)
"""Types whose values hold others."""

_DISTINCT_BY_FORM: Final = [{number, exact} for number in ("int", "float") for exact in ("decimal", "fraction")]
"""Pairs of which one is written as a number and the other as a string, though it is read from a number too."""

_TAG: Final = Side(
    {
        "type": "object",
        "properties": {TYPE: {"type": "string"}, VALUE: {}},
        "required": [TYPE, VALUE],
        "additionalProperties": False,
    },
    {},
)
"""The schema of a value with its tag."""


class Member(NamedTuple):
    """A member of a union.

    Attributes:
        core: its core schema, as pydantic made it.
        name: what it is called in a tag; `None` if it is told apart without one.
        names: all that it may be called.
        cls: the class of its values, if it alone has values of that very class.
    """

    core: Core
    name: str | None
    names: tuple[str, ...]
    cls: type[Any] | None


class SameShape(NamedTuple):
    """Two dataclasses, or classes of paths, of which a model may write the same JSON.

    Attributes:
        one: the first.
        other: the second.
        mark: a `Literal` field that tells them apart where it is given, but has a default in both.
    """

    one: type[Any]
    other: type[Any]
    mark: str | None


class UnionMembers:
    """The members of a union, some of which may not be told apart by their JSON.

    Attributes:
        members: all of them, in their order.
        config: the configuration of their core schemas.
    """

    __slots__ = ("_by_class", "_by_value", "_definitions", "_fitting", "_tried", "config", "members")

    def __init__(self, members: Sequence[Member], definitions: Mapping[str, Core], config: CoreConfig) -> None:
        """Take the members; `union_members` determines which are to be told apart."""
        self.members: tuple[Member, ...] = tuple(members)
        self._definitions = definitions
        self.config: CoreConfig = config
        self._by_class = {member.cls: member for member in members if member.cls is not None}
        views = [(member, python_view(member.core, definitions)) for member in members]
        literals = [(member, view["expected"]) for member, view in views if view["type"] == "literal"]
        # True is 1 in Python, but not in JSON.
        # Reversed, because the last entry of a dict wins, and of two members with one choice the first counts.
        self._by_value: dict[tuple[object, object], Member] = {
            (type(each), each): member for member, expected in reversed(literals) for each in expected
        }
        # A strict float takes an int too: first come the members whose values have no class of their own.
        self._tried = sorted(members, key=lambda member: member.cls is not None)
        self._fitting: list[tuple[Member, Callable[..., bool]]] = []

    def member_of(self, value: object) -> Member | None:
        """The member that a value is of; `None` if it is of none."""
        cls: Any = type(value)
        # By class, in constant time, wherever one member alone has values of it.
        found = self._by_class.get(cls)
        if found is None and cls in _OF_LITERALS:
            found = self._by_value.get((cls, value))
        if found is not None:
            return found
        # Made at the first value that needs it: a validator for each member takes milliseconds.
        if not self._fitting:
            # Without a lock: two threads may both make the list, and each assigns a complete one.
            self._fitting = [
                (member, self._fits(member, change)) for change in (_exact, _lenient) for member in self._tried
            ]
        # The exact checks of all members come before the lenient ones, so that a subclass never takes the place of its
        # own class.
        return next((member for member, fits in self._fitting if fits(value, strict=True)), None)

    def _fits(self, member: Member, change: SchemaEdit) -> Callable[..., bool]:
        core = rebuilt(whole(member.core, self._definitions), change)
        return validator_of(core, self.config).isinstance_python


def _lenient(part: Core, *, was: Core, made: bool) -> Core:
    """A part that does not take the fields of a dataclass on trust, because its class alone does not suffice."""
    del was, made
    return {**part, "revalidate_instances": "always"} if part["type"] in OF_CLASSES else part


def _exact(part: Core, *, was: Core, made: bool) -> Core:
    """The same, and the values of a subclass do not fit, because another member may be of that class.

    Nor do values that are equal to a choice of a `Literal` and of another type, because `1 == True`.
    """
    if part["type"] == "literal":
        choices: list[tuple[object, object]] = [(type(each), each) for each in part["expected"]]

        def of_choices(value: object) -> object:
            if (type(value), value) not in choices:
                raise ValueError
            return value

        return replacing(
            part, cast("Core", core_schema.no_info_before_validator_function(of_choices, without_name(part)))
        )
    if part["type"] != "dict" and not (part["type"] == "is-instance" and is_path(part)):
        return _lenient(part, was=was, made=made)
    cls = exact_class(part)

    def of_class(value: object) -> object:
        # Not `isinstance`: an `OrderedDict` is a `dict` too, and both may be members.
        if type(value) is not cls:
            raise ValueError
        return value

    checked = core_schema.no_info_before_validator_function(of_class, without_name(part))
    return replacing(part, cast("Core", checked))


def ambiguous(union: Core, definitions: Mapping[str, Core], config: CoreConfig) -> UnionMembers | None:
    """The members of a union if JSON does not tell all of them apart; else `None`."""
    if any(choice["type"] == "is-instance" for choice in choices_of(union)):
        return None  # a part of one type of pydantic's own, such as `SecretStr`: an instance, or what makes one
    members = union_members(union, definitions, config)
    return members if any(member.name is not None for member in members.members) else None


def union_members(union: Core, definitions: Mapping[str, Core], config: CoreConfig) -> UnionMembers:
    """The members of a union; those that JSON does not tell apart have a name."""
    choices = choices_of(union)
    alike = _alike(choices, definitions)
    names = [names_of(choice, definitions) for choice in choices]
    classes = [exact_class(python_view(choice, definitions)) for choice in choices]
    members: list[Member] = []
    for position, choice in enumerate(choices):
        name = None
        if position in alike:
            others = {one for other in alike if other != position for one in names[other]}
            # The shortest name that no other of these members may be called by.
            name = next((each for each in names[position] if each not in others), names[position][-1])
        cls = classes[position]
        # The class does not distinguish two members of one class: their values are tried instead.
        members.append(Member(choice, name, names[position], cls if classes.count(cls) == 1 else None))
    return UnionMembers(members, definitions, config)


def same_shape(union: Core, definitions: Mapping[str, Core]) -> SameShape | None:
    """Two dataclasses of a union, or classes of paths, for which a model may write the same JSON; `None` if none are.

    They may be in collections of one shape, as in `list[A] | list[B]`. They are one and the same class where a
    generic one is there with two arguments.
    """
    choices = choices_of(union)
    found = [list(_dataclasses_in(choice, definitions, (), ())) for choice in choices]
    for one, other in combinations(range(len(choices)), 2):
        # Only at the same place in collections of one shape can the same JSON be read as either.
        for (way, first), (beside, second) in product(found[one], found[other]):
            if way == beside and _may_be_one(first, second, definitions):
                sides = (_side(choices[at], definitions, written=False) for at in (one, other))
                if not way or overlaps(*sides, same_class=True):
                    mark = optional_mark(first, second, definitions)
                    return SameShape(
                        python_view(first, definitions)["cls"], python_view(second, definitions)["cls"], mark
                    )
    return None


def _may_be_one(first: Core, second: Core, definitions: Mapping[str, Core]) -> bool:
    is_one = python_view(first, definitions)["cls"] is python_view(second, definitions)["cls"]
    sides = (_side(core, definitions, written=False) for core in (first, second))
    return overlaps(*sides, same_class=is_one)


def _dataclasses_in(
    core: Core, definitions: Mapping[str, Core], way: tuple[str, ...], above: tuple[Core, ...]
) -> Iterator[tuple[tuple[str, ...], Core]]:
    """The dataclasses and paths in the collections of a type, each with the forms of these in JSON."""
    view = innermost(core, definitions)
    if is_path(python_view(core, definitions)):
        yield way, core
        return
    # The type holds itself: its dataclasses have been found above.
    if any(view is each for each in above):
        return
    if view["type"] in OF_CLASSES:
        yield way, core
        return
    own = () if view["type"] == "union" else (str(_FORMS.get(view["type"], "array")),)
    for part in parts_in(view):
        yield from _dataclasses_in(part, definitions, (*way, *own), (*above, view))


def same_name(union: Core, definitions: Mapping[str, Core]) -> str | None:
    """The name of two members that JSON does not tell apart, of different classes; `None` if all names differ."""
    choices = choices_of(union)
    spelled = [spelling(choice, definitions) for choice in choices]
    for (position, one), (beside, other) in combinations(enumerate(spelled), 2):
        is_one_name = one.placed == other.placed and one.classes != other.classes
        if is_one_name and {position, beside} <= _alike(choices, definitions):
            return one.placed
    return None


def read_tagged(union: Core, members: UnionMembers) -> Core:
    """The union as it is read from a store: with tags or without.

    Which member it is, is decided before any of them is tried: pydantic would try all, at every level of a union that
    holds itself.

    Args:
        union: the union; what its members hold may have been changed since `ambiguous` looked at it.
        members: what that found.
    """
    by_name: dict[str, list[Core]] = {}
    for member, choice in zip(members.members, choices_of(union), strict=True):
        for name in member.names if member.name is not None else ():
            # Several members may have had one name: then the value decides, as without a tag.
            by_name.setdefault(name, []).append(choice)
    boxes = {name: boxed_value(name, choices, members.config) for name, choices in by_name.items()}

    read = core_schema.tagged_union_schema({ALL_MEMBERS: without_name(union), **boxes}, _NameIn(frozenset(boxes)))
    return replacing(union, cast("Core", read))


@dataclass(frozen=True, slots=True)
class _NameIn:
    """Selects the member that the tag of a value names; equal for the same names, so that core schemas compare."""

    names: frozenset[str]
    __name__ = "name_in"  # pydantic asks for it

    def __call__(self, value: object) -> str:
        name = name_in(value)
        return name if name in self.names else ALL_MEMBERS


def name_in(value: object) -> str:
    """The name of the member in a decoded value with a tag; empty if it has none."""
    if type(value) is not dict:
        return ""
    found = cast("dict[str, object]", value)
    name = found.get(TYPE)
    # Exactly the two keys, because a dict of the program may hold `$type` among others.
    return name if type(name) is str and len(found) == len(_KEYS) and VALUE in found else ""


def write_tagged(union: Core, members: UnionMembers) -> Core:
    """The union as it is written to a store: a value as its member writes it, with a tag if it needs one.

    Args:
        union: as for `read_tagged`.
        members: what `ambiguous` found.
    """
    # By identity, because a member holds dicts and has no hash. The closure keeps `members`, so that no id is given to
    # another object.
    places = {id(member): str(position) for position, member in enumerate(members.members)}

    def place_of(value: object) -> str:
        member = members.member_of(value)
        # A value of no member goes to pydantic's own union, which warns, so that the codec checks it once more.
        return ALL_MEMBERS if member is None else places[id(member)]

    choices: dict[str, CoreSchema] = {ALL_MEMBERS: without_name(union)}
    for position, (member, choice) in enumerate(zip(members.members, choices_of(union), strict=True)):
        choices[str(position)] = without_name(choice) if member.name is None else _boxed(member.name, choice)
    return replacing(union, cast("Core", core_schema.tagged_union_schema(choices, place_of)))


def _boxed(name: str, choice: Core) -> CoreSchema:
    def write(value: object, written: Callable[[object], object]) -> object:
        return {TYPE: name, VALUE: written(value)}

    wrapped = core_schema.wrap_serializer_function_ser_schema(write, schema=without_name(choice))
    return core_schema.any_schema(serialization=wrapped)


def whole(core: Core, definitions: Mapping[str, Core]) -> Core:
    """A part of a core schema with the shared parts that it refers to."""
    if not definitions:
        return core
    return {"type": "definitions", "schema": core, "definitions": list(definitions.values())}


def boxed_value(name: str, choices: Sequence[Core], config: CoreConfig) -> CoreSchema:
    """Reads the value out of a tag.

    Args:
        name: the name in the tag.
        choices: what may read the value.
        config: the configuration of their core schemas.
    """
    value = cast("CoreSchema", choices[0] if len(choices) == 1 else {"type": "union", "choices": list(choices)})
    fields = {
        TYPE: core_schema.typed_dict_field(core_schema.literal_schema([name])),
        VALUE: core_schema.typed_dict_field(value),
    }
    box = core_schema.typed_dict_schema(fields, extra_behavior="forbid", config=config)
    return core_schema.no_info_after_validator_function(_UNBOXED, box)


# ------------------------------------------------------------------------------------------------------ what is alike


def _alike(choices: Sequence[Core], definitions: Mapping[str, Core]) -> frozenset[int]:
    """The positions of the choices that share a form with another."""
    views = [python_view(choice, definitions) for choice in choices]
    # Most unions are of scalars alone: no JSON Schema is made for them.
    if all(view["type"] in _SAME_VALUE for view in views):
        return frozenset()
    read = [_side(choice, definitions, written=False) for choice in choices]
    written = [_side(choice, definitions, written=True) for choice in choices]
    alike: set[int] = set()
    for one, other in combinations(range(len(choices)), 2):
        if _is_same_value(views[one], views[other]):
            continue
        same = None is not class_of(views[one]) is class_of(views[other])
        # What one member writes against what the other reads: two forms that are only read alike are never stored.
        if overlaps(written[one], read[other], same_class=same) or overlaps(written[other], read[one], same_class=same):
            alike |= {one, other}
    if alike:  # an object that holds anything could look like a tag
        alike |= {at for at, side in enumerate(read) if _is_open(side.node) and overlaps(side, _TAG)}
    return frozenset(alike)


def _is_open(node: Node) -> bool:
    return node.get("type") == "object" and "properties" not in node


def _is_same_value(one: Core, other: Core) -> bool:
    """Whether what both can be read from is equal and of one type, whichever it is read as."""
    kinds = kinds_of(one) | kinds_of(other)
    if kinds in _DISTINCT_BY_FORM:
        return True
    if kinds & {"any"}:
        return kinds - {"any"} <= _SAME_VALUE
    return len(kinds) == 1 and not kinds & _HOLDING and one.get("cls") is other.get("cls")


def _side(core: Core, definitions: Mapping[str, Core], *, written: bool) -> Side:
    node = compared_json_schema(whole(core, definitions), mode="serialization" if written else "validation")
    return Side(node, node, written)
