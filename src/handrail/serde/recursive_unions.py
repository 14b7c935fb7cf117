"""Unions of recursive dataclasses: which member an object is of is decided before any of them is tried.

pydantic tries each member of a union, and each member tries what it holds. Where a union holds itself, the number of
attempts doubles with every level. Here the names of an object's fields, and the strings of its `Literal` fields,
select the one member that can fit. Other unions are left as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from pydantic_core import CoreSchema, core_schema

from handrail.serde.core_schemas import Core, choices_of, in_place_of, parts_of, without_name
from handrail.serde.location import ALL_MEMBERS, MARKS_ALONE

_NOT_OBJECTS: Final = frozenset(
    {"str", "int", "float", "bool", "none", "literal", "enum", "bytes", "date", "time", "datetime", "timedelta"}
    | {"decimal", "fraction", "uuid", "list", "tuple", "set", "frozenset", "deque"}
)
"""Types of which no value is an object in JSON."""


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A dataclass of a union.

    Attributes:
        label: the name of its class.
        choice: its core schema, as it stands in the union.
        marks: the strings that each of its `Literal` fields takes.
        required: the fields without a default.
        known: all fields.
    """

    label: str
    choice: Core
    marks: Mapping[str, frozenset[str]]
    required: frozenset[str]
    known: frozenset[str]

    def is_marked(self, value: Mapping[str, object]) -> bool:
        """Whether the `Literal` fields of an object are those of this class."""
        return all(
            type(found := value[name]) is str and found in texts if name in value else name not in self.required
            for name, texts in self.marks.items()
        )


class _Decision:
    """Selects the member of an object."""

    __slots__ = ("_candidates",)

    def __init__(self, candidates: Sequence[_Candidate]) -> None:
        self._candidates = candidates

    def label_of(self, value: object) -> str:
        """The label of the one member that can fit, or what stands for several."""
        if type(value) is not dict:
            return ALL_MEMBERS
        given = cast("dict[str, object]", value)
        marked = [one for one in self._candidates if one.is_marked(given)]
        if not marked:
            return MARKS_ALONE
        fitting = [one for one in marked if one.required <= given.keys()]
        exact = [one for one in fitting if given.keys() <= one.known]
        left = exact or fitting or marked
        return left[0].label if len(left) == 1 else ALL_MEMBERS


def deciding(part: Core, *, was: Core, tried: Core, definitions: Mapping[str, Core]) -> Core:
    """A union that selects the member of an object, where it holds a recursive type; otherwise `tried`.

    Args:
        part: the union, whose members may have been changed.
        was: the union as pydantic made it.
        tried: the same with its members in the order in which they are tried.
        definitions: the shared parts of the whole core schema, as pydantic made them.
    """
    if not _is_recursive(was, definitions, frozenset(), set()):
        return tried
    candidates: list[_Candidate] = []
    for choice, original in zip(choices_of(part), choices_of(was), strict=True):
        found = _candidate(choice, _named(original, definitions))
        if found is not None:
            candidates.append(found)
        elif _named(original, definitions)["type"] not in _NOT_OBJECTS:
            return tried
    labels = {one.label for one in candidates}
    if len(candidates) <= 1 or len(labels) < len(candidates):
        return tried
    members = {
        ALL_MEMBERS: without_name(tried),
        MARKS_ALONE: core_schema.union_schema([(_marks(one), one.label) for one in candidates]),
        **{one.label: cast("CoreSchema", one.choice) for one in candidates},
    }
    return in_place_of(tried, cast("Core", core_schema.tagged_union_schema(members, _Decision(candidates).label_of)))


def optional_mark(one: Core, other: Core, definitions: Mapping[str, Core]) -> str | None:
    """A `Literal` field that tells two dataclasses apart, but has a default in both; `None` if there is none."""
    first, second = (_candidate(core, _named(core, definitions)) for core in (one, other))
    if first is None or second is None:
        return None
    shared = first.marks.keys() & second.marks.keys() - first.required - second.required
    return next((name for name in sorted(shared) if not first.marks[name] & second.marks[name]), None)


def _is_recursive(core: Core, definitions: Mapping[str, Core], above: frozenset[str], done: set[str]) -> bool:
    """Whether a part holds a type that holds itself."""
    if core["type"] == "definition-ref":
        name = core["schema_ref"]
        if name in above or name in done or name not in definitions:
            return name in above
        done.add(name)
        return _is_recursive(definitions[name], definitions, above | {name}, done)
    return any(_is_recursive(part, definitions, above, done) for part in parts_of(core))


def _named(core: Core, definitions: Mapping[str, Core]) -> Core:
    while core["type"] == "definition-ref" and core["schema_ref"] in definitions:
        core = definitions[core["schema_ref"]]
    return core


def _candidate(choice: Core, named: Core) -> _Candidate | None:
    """What is known of a member; `None` if it is not a dataclass, or the program's own code may change its JSON."""
    if named["type"] != "dataclass" or named["schema"]["type"] != "dataclass-args":
        return None
    fields: list[Core] = named["schema"]["fields"]
    if any("validation_alias" in field for field in fields):
        return None
    label = str(named.get("cls_name", named["cls"].__name__))
    marks = {field["name"]: texts for field in fields if (texts := _texts(field["schema"]))}
    required = frozenset(field["name"] for field in fields if field["schema"]["type"] != "default")
    return _Candidate(label, choice, marks, required, frozenset(field["name"] for field in fields))


def _texts(core: Core) -> frozenset[str]:
    """The strings that a `Literal` takes; none for any other type."""
    inner: Any = core["schema"] if core["type"] == "default" else core
    if inner["type"] != "literal" or any(type(each) is not str for each in inner["expected"]):
        return frozenset()
    return frozenset(inner["expected"])


def _marks(one: _Candidate) -> CoreSchema:
    """What refuses an object for its `Literal` fields alone."""
    fields = {
        name: core_schema.typed_dict_field(core_schema.literal_schema(sorted(texts)), required=name in one.required)
        for name, texts in one.marks.items()
    }
    return core_schema.typed_dict_schema(fields, extra_behavior="ignore")
