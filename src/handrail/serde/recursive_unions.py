"""Unions of recursive dataclasses: which member a value is of is decided before any of them is tried.

pydantic tries each member of a union, and each member tries what it holds. Where a union holds itself, the number of
attempts doubles with every level. Here one member is selected before any is tried:

| what stands there | is read as |
|---|---|
| an object | the dataclass with the names of its fields, and with the strings of its `Literal` fields |
| an array | the collection whose items can be the objects in it, told in the same way |
| what several members read alike | a list before other collections, else the first; pydantic would take the same |

Where several are left all are tried, and the attempts are counted (`handrail.serde.attempts`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from pydantic_core import CoreSchema, core_schema

from handrail.serde.attempts import count_attempt
from handrail.serde.core_schemas import Core, choices_of, in_place_of, parts_of, without_name
from handrail.serde.location import ALL_MEMBERS, MARKS_ALONE
from handrail.serde.same_reading import reads_the_same, stands_for

_ARRAYS: Final = frozenset({"list", "tuple", "set", "frozenset"})
_OBJECTS: Final = frozenset({"dict", "ordered-dict", "counter"})
_TEXT: Final[frozenset[type[Any]]] = frozenset({str})
_NUMBER: Final[frozenset[type[Any]]] = frozenset({int, float})
_FORMS: Final[Mapping[str, frozenset[type[Any]]]] = {
    **dict.fromkeys(("str", "bytes", "date", "time", "datetime", "timedelta", "uuid"), _TEXT),
    **dict.fromkeys(("int", "float"), _NUMBER),
    **dict.fromkeys(("decimal", "fraction"), _NUMBER | _TEXT),
    "literal": _NUMBER | _TEXT | {bool, type(None)},
    **dict.fromkeys(_ARRAYS, frozenset({list})),
    **dict.fromkeys(_OBJECTS | {"dataclass"}, frozenset({dict})),
    "bool": frozenset({bool}),
    "none": frozenset({type(None)}),
}
"""The types of Python that JSON gives for a value, by the type of the core schema."""

_SURROUNDING: Final = frozenset({"default", "nullable"})


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A dataclass of a union.

    Attributes:
        label: the name of its class.
        choice: its core schema, as it stands in the union.
        marks: the strings that each of its `Literal` fields takes.
        required: the fields without a default.
        known: all fields.
        forms: what JSON gives for each of its fields, of those that do not take anything.
    """

    label: str
    choice: Core
    marks: Mapping[str, frozenset[str]]
    required: frozenset[str]
    known: frozenset[str]
    forms: Mapping[str, frozenset[type[Any]]]

    def is_marked(self, value: Mapping[str, object]) -> bool:
        """Whether the `Literal` fields of an object are those of this class."""
        return all(
            type(found := value[name]) is str and found in texts if name in value else name not in self.required
            for name, texts in self.marks.items()
        )

    def is_formed(self, value: Mapping[str, object]) -> bool:
        """Whether the fields of an object hold what the types of this class take: a text, a number, an array, ..."""
        return all(type(item) in self.forms[name] for name, item in value.items() if name in self.forms)

    def may_be(self, value: Mapping[str, object]) -> bool:
        """Whether the fields of an object are those of this class, as far as it can be seen from outside of them."""
        return self.required <= value.keys() <= self.known and self.is_marked(value) and self.is_formed(value)


@dataclass(frozen=True, slots=True)
class _Collection:
    """A collection of a union whose JSON is an array.

    Attributes:
        label: its type, as pydantic writes it.
        choice: its core schema, as it stands in the union.
        size: how many items it has, if that is fixed.
        objects: the dataclasses of which the objects in it can be; `None` if they may be anything.
    """

    label: str
    choice: Core
    size: int | None
    objects: tuple[_Candidate, ...] | None

    def may_be(self, value: Sequence[object]) -> bool:
        """Whether each object in an array can be of one of the dataclasses."""
        if self.size is not None and len(value) != self.size:
            return False
        objects = self.objects
        if objects is None:
            return True
        found = (cast("dict[str, object]", item) for item in value if type(item) is dict)
        return all(any(one.may_be(item) for one in objects) for item in found)


class _Decision:
    """Selects the member of a value.

    Attributes:
        has_marks: whether an object may be refused for its `Literal` fields alone.
    """

    __slots__ = ("_arrays", "_objects", "_others_of_arrays", "_others_of_objects", "has_marks")

    def __init__(self, objects: Sequence[_Candidate], arrays: Sequence[_Collection], others: Sequence[Core]) -> None:
        self._objects = objects
        self._arrays = arrays
        self._others_of_objects = [each for each in others if each["type"] not in _ARRAYS]
        self._others_of_arrays = [each for each in others if each["type"] not in _OBJECTS]
        self.has_marks = len(objects) > 1 and not self._others_of_objects

    @property
    def is_needed(self) -> bool:
        """Whether several members may have to be tried for an object, or for an array."""
        several = len(self._objects) + len(self._others_of_objects), len(self._arrays) + len(self._others_of_arrays)
        return max(several) > 1

    def label_of(self, value: object) -> str:
        """The label of the one member that can fit, or what stands for several."""
        if type(value) is dict:
            label = self._of_object(cast("dict[str, object]", value))
        elif type(value) is list:
            label = self._of_array(cast("list[object]", value))
        else:
            return ALL_MEMBERS
        if label == ALL_MEMBERS:
            count_attempt()
        return label

    def _of_object(self, value: Mapping[str, object]) -> str:
        marked = [one for one in self._objects if one.is_marked(value)]
        if self._others_of_objects:
            return ALL_MEMBERS
        if not marked:
            return MARKS_ALONE if self.has_marks else ALL_MEMBERS
        fitting = [one for one in marked if one.required <= value.keys()]
        exact = [one for one in fitting if value.keys() <= one.known]
        left = exact or fitting or marked
        if len(left) > 1:
            left = [one for one in left if one.is_formed(value)]
        return left[0].label if len(left) == 1 else ALL_MEMBERS

    def _of_array(self, value: Sequence[object]) -> str:
        if self._others_of_arrays:
            return ALL_MEMBERS
        fitting = [one for one in self._arrays if one.may_be(value)]
        return fitting[0].label if len(fitting) == 1 else ALL_MEMBERS


def deciding(part: Core, *, was: Core, tried: Core, definitions: Mapping[str, Core]) -> Core:
    """A union that selects the member of a value, where it holds a recursive type; otherwise `tried`.

    Args:
        part: the union, whose members may have been changed.
        was: the union as pydantic made it.
        tried: the same with its members in the order in which they are tried.
        definitions: the shared parts of the whole core schema, as pydantic made them.
    """
    if not _is_recursive(was, definitions, frozenset(), set()):
        return tried
    objects: list[_Candidate] = []
    arrays: list[_Collection] = []
    others: list[Core] = []
    left = _left(part, was, definitions)
    for choice, original in left:
        named = _named(original, definitions)
        if (found := _candidate(choice, named, definitions)) is not None:
            objects.append(found)
        elif named["type"] in _ARRAYS:
            arrays.append(_collection(choice, named, definitions))
        elif not _is_scalar(named):
            others.append(named)
    selected: list[_Candidate | _Collection] = [*objects, *arrays]
    labels = [each.label for each in selected]
    if len(set(labels)) < len(labels):  # two classes of one name: which is which a location could not say
        objects, arrays, selected, others = [], [], [], choices_of(was)
    decision = _Decision(objects, arrays, others)
    if not decision.is_needed and len(left) == len(choices_of(was)):
        return tried
    members = {ALL_MEMBERS: without_name(tried)}
    if decision.has_marks:
        members[MARKS_ALONE] = core_schema.union_schema([(_marks(one), one.label) for one in objects])
    members |= {each.label: cast("CoreSchema", each.choice) for each in selected}
    return in_place_of(tried, cast("Core", core_schema.tagged_union_schema(members, decision.label_of)))


def counts_attempts(core: Core) -> bool:
    """Whether a core schema has a union of which all members may have to be tried, at every level of a value."""
    function = core.get("discriminator")
    is_counted = isinstance(getattr(function, "__self__", None), _Decision)
    return is_counted or any(map(counts_attempts, parts_of(core)))


def _left(part: Core, was: Core, definitions: Mapping[str, Core]) -> list[tuple[Core, Core]]:
    """The members of a union, each as it is now and as it was, without those for which another one stands."""
    pairs = list(zip(choices_of(part), choices_of(was), strict=True))
    found: list[tuple[Core, Core]] = []
    for position, (choice, original) in enumerate(pairs):
        lists = [] if was.get("mode") == "left_to_right" else [each for _, each in pairs if each is not original]
        if any(stands_for(each, original, definitions) for each in lists):
            continue
        if not any(reads_the_same(each, original, definitions) for _, each in pairs[:position]):
            found.append((choice, original))
    return found


def optional_mark(one: Core, other: Core, definitions: Mapping[str, Core]) -> str | None:
    """A `Literal` field that tells two dataclasses apart, but has a default in both; `None` if there is none."""
    first, second = (_candidate(core, _named(core, definitions), definitions) for core in (one, other))
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


def _candidate(choice: Core, named: Core, definitions: Mapping[str, Core]) -> _Candidate | None:
    """What is known of a member; `None` if it is not a dataclass, or the program's own code may change its JSON."""
    if named["type"] != "dataclass" or named["schema"]["type"] != "dataclass-args":
        return None
    fields: list[Core] = named["schema"]["fields"]
    if any("validation_alias" in field for field in fields):
        return None
    label = str(named.get("cls_name", named["cls"].__name__))
    marks = {field["name"]: texts for field in fields if (texts := _texts(field["schema"]))}
    required = frozenset(field["name"] for field in fields if field["schema"]["type"] != "default")
    forms = {field["name"]: taken for field in fields if (taken := _forms(field["schema"], definitions)) is not None}
    return _Candidate(label, choice, marks, required, frozenset(field["name"] for field in fields), forms)


def _collection(choice: Core, named: Core, definitions: Mapping[str, Core]) -> _Collection:
    items: Any = named.get("items_schema")
    several = cast("list[Core]", items if isinstance(items, list) else [items] if items else [])
    size = len(several) if named["type"] == "tuple" and "variadic_item_index" not in named else None
    objects = _objects_in(several[0], definitions) if len(several) == 1 else None
    inner = " | ".join(one.label for one in objects) if objects else "any"
    label = f"tuple[{inner}, ...]" if named["type"] == "tuple" and size is None else f"{named['type']}[{inner}]"
    return _Collection(label, choice, size, objects)


def _objects_in(item: Core, definitions: Mapping[str, Core]) -> tuple[_Candidate, ...] | None:
    """The dataclasses that the objects in a collection can be of; `None` if they can be of something else."""
    union = _named(item, definitions)
    found: list[_Candidate] = []
    for choice in choices_of(union) if union["type"] == "union" else [item]:
        one = _candidate(choice, _named(choice, definitions), definitions)
        if one is not None:
            found.append(one)
        elif (named := _named(choice, definitions))["type"] not in _ARRAYS and not _is_scalar(named):
            return None
    return tuple(found)


def _is_scalar(named: Core) -> bool:
    """Whether no value of a type is an object or an array in JSON."""
    if named["type"] == "enum":
        return not any(isinstance(each.value, list | tuple | dict) for each in named["members"])
    return named["type"] in _FORMS.keys() - _ARRAYS - _OBJECTS - {"dataclass"}


def _forms(core: Core, definitions: Mapping[str, Core]) -> frozenset[type[Any]] | None:
    """The types of Python that JSON gives for the values of a type; `None` if they may be any."""
    named = _named(core, definitions)
    kind = named["type"]
    if kind not in {"union", *_SURROUNDING}:
        return _FORMS.get(kind)
    inner = choices_of(named) if kind == "union" else [named["schema"]]
    found = [_forms(each, definitions) for each in inner]
    own: frozenset[type[Any]] = frozenset({type(None)}) if kind == "nullable" else frozenset()
    return None if None in found else own.union(*(each for each in found if each is not None))


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
