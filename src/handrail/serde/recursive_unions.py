"""Unions of recursive dataclasses: which member an object is of is decided before any of them is tried.

pydantic tries each member of a union, and each member tries what it holds. Where a union holds itself, the number of
attempts doubles with every level. Here the names of an object's fields, and the strings of its `Literal` fields,
select the one member that can fit. Of members that read the same JSON the first is taken, so that a list of a class
and a tuple of it are one.

Where several members are left, all are tried. Each member tries what it holds, so that the number of attempts may
double with every level of the input: 22 levels in two hundred bytes take four million attempts. The attempts are
counted where a union selects its member, and the count is that of the innermost `validate_json` that `bounded` has
made: a `__post_init__` may parse other values meanwhile. What is read without `bounded` is not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Final, NamedTuple, cast

from pydantic_core import CoreSchema, core_schema

from handrail.errors import ParseError
from handrail.serde.core_schemas import Core, choices_of, parts_of, referred, replacing, without_name
from handrail.serde.location import ALL_MEMBERS, MARKS_ALONE

_UNREAD: Final = frozenset({"ref", "metadata", "serialization", "default", "default_factory", "dataclass_name"})
"""What does not matter to which JSON a core schema reads."""

_OF_CLASS: Final = frozenset({"cls", "cls_name", "fields", "slots", "frozen", "config", "generic_origin"})


def reads_the_same(one: Core, other: Core, definitions: Mapping[str, Core]) -> bool:
    """Whether two parts surely read the same JSON, though perhaps as values of different classes."""
    return _Equality(definitions).same(one, other)


class _Equality:
    """One comparison; pairs that are being compared are taken to be equal, because types may be recursive."""

    __slots__ = ("_definitions", "_seen")

    def __init__(self, definitions: Mapping[str, Core]) -> None:
        self._definitions = definitions
        self._seen: set[tuple[int, int]] = set()

    def same(self, one: Core, other: Core) -> bool:
        """Whether two parts read the same JSON."""
        one, other = referred(one, self._definitions), referred(other, self._definitions)
        pair = id(one), id(other)
        # A pair that has been compared and differs has ended the whole comparison, so that only equal ones are met
        # again.
        if one is other or pair in self._seen:
            return True
        self._seen.add(pair)
        one, other = _as_list(one), _as_list(other)
        if one["type"] != other["type"]:
            return False
        unread = _UNREAD
        if one["type"] == "dataclass":
            # It may refuse what the fields alone would take.
            if one.get("post_init") or other.get("post_init"):
                return False
            unread = _UNREAD | _OF_CLASS
        names = (one.keys() | other.keys()) - unread
        return all(name in one and name in other and self._equal(one[name], other[name]) for name in names)

    def _equal(self, one: object, other: object) -> bool:
        if isinstance(one, dict) and isinstance(other, dict):
            first, second = cast("Core", one), cast("Core", other)
            if isinstance(first.get("type"), str) and isinstance(second.get("type"), str):
                return self.same(first, second)
            return first.keys() == second.keys() and all(self._equal(first[key], second[key]) for key in first)
        if isinstance(one, list | tuple) and isinstance(other, list | tuple):
            pair = cast("Sequence[object]", one), cast("Sequence[object]", other)
            return len(pair[0]) == len(pair[1]) and all(map(self._equal, *pair))
        return _is_equal(cast("Core", one), other)  # or anything else


def _as_list(core: Core) -> Core:
    """A tuple of any length as the list that reads the same; any other part as it is."""
    if core["type"] != "tuple" or "variadic_item_index" not in core or len(core["items_schema"]) != 1:
        return core
    kept = {key: value for key, value in core.items() if key != "variadic_item_index"}
    return {**kept, "type": "list", "items_schema": core["items_schema"][0]}


def _is_equal(one: object, other: object) -> bool:
    """Whether two values are equal and of one type: `True` is 1 in Python."""
    return type(one) is type(other) and one == other


_ATTEMPTS: Final = 10_000
"""How often all members of recursive unions may be tried in any input."""

_ATTEMPTS_PER_BYTE: Final = 4
"""How much more often in a larger one; a value that is tried once has two bytes at least."""

_TOO_MANY_WAYS: Final = (
    "there are too many ways to read this value: at every level, it may be of several members of a union that holds "
    "itself; nest it less deeply, or declare a Literal field in each class by which they are told apart"
)

_Validate = Callable[..., Any]
_attempts_left: Final[ContextVar[list[int] | None]] = ContextVar("attempts_left", default=None)


# Not a ValueError: a wrap validator around a union would turn that into one fault of one member, and the members beside
# it would be tried all the same.
class TooManyWaysError(Exception):
    """All members of recursive unions have been tried too often."""


def bounded(validate: _Validate) -> _Validate:
    """A `validate_json` that raises `ParseError` where the members of recursive unions are tried too often.

    Args:
        validate: pydantic's own, which takes JSON and options.
    """

    def within(data: str | bytes | bytearray, **options: Any) -> object:  # noqa: ANN401 - pydantic's
        # A list, so that `count_attempt` can count in place: the variable itself is only set where a reading begins and
        # ends.
        token = _attempts_left.set([_ATTEMPTS + _ATTEMPTS_PER_BYTE * len(data)])
        try:
            return validate(data, **options)
        except TooManyWaysError:
            raise ParseError(f"$: {_TOO_MANY_WAYS}", faults=(("$", _TOO_MANY_WAYS),)) from None
        finally:
            # Restores the count of the reading that this one is nested in, as in a `__post_init__` that parses.
            _attempts_left.reset(token)

    return within


def count_attempt() -> None:
    """Count that all members of a union are tried, if what is read is bounded.

    Raises:
        TooManyWaysError: the input being read leaves no more attempts.
    """
    left = _attempts_left.get()
    if left is not None:
        left[0] -= 1
        if left[0] < 0:
            raise TooManyWaysError


_SCALARS: Final = frozenset(
    {"str", "int", "float", "bool", "none", "literal", "enum", "bytes", "date", "time", "datetime", "timedelta"}
    | {"decimal", "fraction", "uuid"}
)
"""Types of which no value is an object or an array in JSON."""

_ARRAYS: Final = frozenset({"list", "tuple", "set", "frozenset", "deque"})
_OBJECTS: Final = frozenset({"dataclass", "dict", "typed-dict", "ordered-dict", "counter"})


class _Candidate(NamedTuple):
    """A dataclass of a union.

    Attributes:
        label: the name of its class.
        choice: its core schema, as it is in the union.
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
    """Selects the member of a value."""

    __slots__ = ("_arrays", "_candidates", "_like", "is_bounded")

    def __init__(
        self, candidates: Sequence[_Candidate], *, arrays: Sequence[str], like: Mapping[str, str], is_bounded: bool
    ) -> None:
        self._candidates = candidates
        self._arrays = arrays
        self._like = like
        self.is_bounded = is_bounded

    def label_of(self, value: object) -> str:
        """The label of the one member that can fit, or what stands for several.

        Raises:
            TooManyWaysError: all members have been tried too often.
        """
        # The exact types of decoded JSON: a value of Python, or an instance of a member, is left to pydantic.
        label = ALL_MEMBERS
        if type(value) is dict:
            label = self._of_object(cast("dict[str, object]", value)) if self._candidates else ALL_MEMBERS
        elif type(value) is list:
            label = self._of_array(cast("list[object]", value))
        else:
            return label
        # Counted only where several members are tried, for only there the number of attempts may double.
        if label == ALL_MEMBERS and self.is_bounded:
            count_attempt()
        return label

    def _of_array(self, items: Sequence[object]) -> str:
        """Of members that read the same arrays, the one that pydantic takes after it has tried all of them.

        A list is a more exact match of an array than a tuple, unless it holds a string or an object: the first then.
        """
        if not self._arrays or not items:
            return ALL_MEMBERS
        return self._arrays[0] if _holds_inexact(items) else min(self._arrays, key=lambda label: label[:4] != "list")

    def _of_object(self, given: Mapping[str, object]) -> str:
        # From the strictest condition to the weakest: the first that leaves one member decides.
        marked = [one for one in self._candidates if one.is_marked(given)]
        if not marked:
            # No member can fit: to try all of them would report the faults of each, and not that the mark is wrong.
            return MARKS_ALONE
        fitting = [one for one in marked if one.required <= given.keys()]
        exact = [one for one in fitting if given.keys() <= one.known]
        # The weaker conditions are for objects with faults too: the member that is meant then explains them alone.
        left = {self._like[one.label] for one in exact or fitting or marked}
        return left.pop() if len(left) == 1 else ALL_MEMBERS


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
    options = _options(part, was, definitions)
    candidates = _candidates(options, definitions)
    arrays = _arrays(options)
    # With one recursive member of a form, each level of the input is tried once: the number of attempts does not
    # double.
    is_bounded = any(len(_recursive(options, kind, definitions)) > 1 for kind in ("object", "array"))
    # Nothing to decide and nothing to count: pydantic's own union is faster.
    if not candidates and not arrays and not is_bounded:
        return tried
    members: dict[Hashable, CoreSchema] = {ALL_MEMBERS: without_name(tried)}
    if candidates:
        members[MARKS_ALONE] = core_schema.union_schema([(_marks(one), one.label) for one in candidates])
    # The labels are those of pydantic's own unions, so that the locations of faults are the same.
    members |= {one.label: cast("CoreSchema", one.choice) for one in candidates}
    members |= {one.label: cast("CoreSchema", one.choice) for one in arrays}
    decision = _Decision(
        candidates,
        arrays=[one.label for one in arrays],
        like={one.label: one.like.label for one in options},
        is_bounded=is_bounded,
    )
    return replacing(tried, cast("Core", core_schema.tagged_union_schema(members, decision.label_of)))


class _Option:
    """A member of a union: the form of its JSON, and the first member that reads the same JSON."""

    __slots__ = ("choice", "kind", "label", "like", "named", "original")

    def __init__(self, choice: Core, original: Core, definitions: Mapping[str, Core]) -> None:
        self.choice = choice
        self.original = original
        self.named = referred(original, definitions)
        self.kind = "array" if self.named["type"] in _ARRAYS else "any"
        if self.named["type"] in _OBJECTS:
            self.kind = "object"
        elif self.named["type"] in _SCALARS:
            self.kind = "scalar"
        self.label = _label(self.named, definitions)
        self.like = self


def _options(part: Core, was: Core, definitions: Mapping[str, Core]) -> list[_Option]:
    pairs = zip(choices_of(part), choices_of(was), strict=True)
    options = [_Option(choice, original, definitions) for choice, original in pairs]
    for position, option in enumerate(options):
        # Only earlier members, so that of several that are alike the first stands for all.
        same = (one for one in options[:position] if reads_the_same(one.named, option.named, definitions))
        option.like = next(same, option)
    return options


def _candidates(options: Sequence[_Option], definitions: Mapping[str, Core]) -> list[_Candidate]:
    """The dataclasses among which the fields of an object decide; none if another member may be an object."""
    found = [_candidate(one.choice, referred(one.original, definitions)) for one in options]
    if any(each is None and one.kind in {"object", "any"} for each, one in zip(found, options, strict=True)):
        return []
    candidates = [each for each in found if each is not None]
    # Labels are the keys of the tagged union, so that two classes of one name cannot be distinguished here.
    return candidates if 1 < len(candidates) == len({one.label for one in candidates}) else []


def _arrays(options: Sequence[_Option]) -> list[_Option]:
    """The members that read arrays, where there are several and all read the same ones."""
    # A member of an unknown form may read arrays too, so that it must be alike as well.
    arrays = [one for one in options if one.kind in {"array", "any"}]
    is_one = len({id(one.like) for one in arrays}) == 1 < len(arrays)
    return arrays if is_one and len({one.label for one in arrays}) == len(arrays) else []


def _holds_inexact(items: Sequence[object]) -> bool:
    """Whether a string or an object is in an array, at any depth."""
    return any(
        type(each) in {str, dict} or (type(each) is list and _holds_inexact(cast("list[object]", each)))
        for each in items
    )


def _recursive(options: Sequence[_Option], kind: str, definitions: Mapping[str, Core]) -> set[int]:
    """The members of one form that hold a recursive type; of those that read the same JSON the first."""
    return {
        id(one.like)
        for one in options
        if one.kind in {kind, "any"} and _is_recursive(one.original, definitions, frozenset(), set())
    }


def _label(named: Core, definitions: Mapping[str, Core]) -> str:
    """What pydantic calls a member, as far as that distinguishes it from others."""
    held: Any = named.get("items_schema", [])
    items = cast("list[Core]", held if isinstance(held, list) else [held])
    inner = f"[{_label(referred(items[0], definitions), {})}]" if items and definitions else ""
    return str(named.get("cls_name", getattr(named.get("cls"), "__name__", named["type"]))) + inner


def optional_mark(one: Core, other: Core, definitions: Mapping[str, Core]) -> str | None:
    """A `Literal` field that tells two dataclasses apart, but has a default in both; `None` if there is none."""
    first, second = (_candidate(core, referred(core, definitions)) for core in (one, other))
    if first is None or second is None:
        return None
    common = first.marks.keys() & second.marks.keys() - first.required - second.required
    return next((name for name in sorted(common) if not first.marks[name] & second.marks[name]), None)


def _is_recursive(core: Core, definitions: Mapping[str, Core], above: frozenset[str], done: set[str]) -> bool:
    """Whether a part holds a type that holds itself."""
    if core["type"] == "definition-ref":
        name = core["schema_ref"]
        if name in above or name in done or name not in definitions:
            return name in above
        # Shared by the whole search: without it, types that refer to each other would be searched once for each way to
        # them.
        done.add(name)
        return _is_recursive(definitions[name], definitions, above | {name}, done)
    return any(_is_recursive(part, definitions, above, done) for part in parts_of(core))


def _candidate(choice: Core, named: Core) -> _Candidate | None:
    """What is known of a member; `None` if it is not a dataclass, or the program's own code may change its JSON."""
    if named["type"] != "dataclass" or named["schema"]["type"] != "dataclass-args":
        return None
    fields: list[Core] = named["schema"]["fields"]
    # The names of the object are then not those of the fields.
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


def is_bounded(core: Core) -> bool:
    """Whether a union in a core schema counts its attempts, so that it is to be read by what `bounded` makes."""
    # The discriminator of such a union is the method `label_of`, and its decision is the object that it is bound to.
    found = [core.get("discriminator")] if core["type"] == "tagged-union" else []
    decisions = [getattr(each, "__self__", None) for each in found]
    return any(isinstance(each, _Decision) and each.is_bounded for each in decisions) or any(
        map(is_bounded, parts_of(core))
    )
