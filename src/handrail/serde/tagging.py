"""Which members the values in the fields of a dataclass are of, where JSON does not say it; for canonical JSON."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Final, cast, get_args

from handrail.errors import SchemaError
from handrail.serde.adapter import BUILD_ERRORS, closed_adapter, core_config
from handrail.serde.annotations import is_union, strip_annotated
from handrail.serde.bounded_cache import BoundedCache
from handrail.serde.core_schemas import OF_CLASSES, Core, core_definitions, innermost, with_flat_unions
from handrail.serde.supported_types import accept_type
from handrail.serde.unions import UnionMembers, union_members

Tagger = Callable[[object], object]
"""Puts a `Tagged` in the place of every value in a field that needs a tag."""

_NONE: Final[Mapping[str, Tagger]] = {}
_ITEMS: Final = frozenset({"list", "set", "frozenset", "deque"})
_MAPPINGS: Final = frozenset({"dict", "ordered-dict", "counter"})


@dataclass(frozen=True, slots=True)
class Tagged:
    """A value of a member of an ambiguous union.

    Attributes:
        name: what the member is called.
        value: the value.
    """

    name: str
    value: object


class SetItems(tuple[object, ...]):
    """The items of a set, tagged; they may be such that no set can hold them."""

    __slots__ = ()


def taggers_of(cls: type[Any]) -> Mapping[str, Tagger]:
    """For the fields of a dataclass that hold ambiguous unions, what tags their values; most have none.

    A type variable of a generic dataclass may stand for anything, so it is not looked into.
    """
    return _taggers.get(cls, lambda: _made_taggers(cls))


def tag_fields(cls: type[Any], named: Mapping[str, object]) -> Mapping[str, object]:
    """Values of fields of a dataclass, by their names, tagged where their types are ambiguous."""
    taggers = taggers_of(cls)
    if not taggers:
        return named
    return {name: taggers[name](value) if name in taggers else value for name, value in named.items()}


_taggers: Final[BoundedCache[Mapping[str, Tagger]]] = BoundedCache()


def _made_taggers(cls: type[Any]) -> Mapping[str, Tagger]:
    try:
        found = accept_type(cls)
        # Before an adapter is made, which takes milliseconds: most dataclasses hold no union. A dataclass in a field
        # has taggers of its own.
        if not found or not any(_holds_union(hint) for hint in found[0].hints.values()):
            return _NONE
        core = with_flat_unions(closed_adapter(cls).core)
    except (SchemaError, *BUILD_ERRORS):  # serde does not take it; its canonical JSON is that of the values in it
        return _NONE
    search = _Search(core_definitions(core))
    taggers = {name: search.tagger(part) for name, part in _fields_of(innermost(core, search.definitions))}
    return {name: tagger for name, tagger in taggers.items() if tagger is not None}


def _fields_of(core: Core) -> Iterator[tuple[str, Core]]:
    """The fields of a dataclass or a model with their types; none of a TypedDict, whose values do not name it."""
    if core["type"] not in OF_CLASSES:
        return
    core = core["schema"]
    # The program's own validators may stand around the fields of a model.
    while "fields" not in core:
        core = core["schema"]
    fields: Any = core["fields"]
    if core["type"] == "model-fields":
        yield from ((name, part["schema"]) for name, part in fields.items())
    else:
        yield from ((part["name"], part["schema"]) for part in fields)


def _holds_union(hint: object) -> bool:
    plain = strip_annotated(hint)
    # The text of a type alias is not evaluated here: pydantic's core schema says what is in it.
    return isinstance(plain, str) or is_union(plain) or any(map(_holds_union, get_args(plain)))


class _Search:
    """One search, in which each part of a core schema gets one tagger, also if it holds itself."""

    __slots__ = ("_ambiguous", "_made", "_unions", "definitions")

    def __init__(self, definitions: Mapping[str, Core]) -> None:
        self.definitions = definitions
        # By identity, because parts are dicts and have no hash; the core schema of the search keeps them alive.
        self._ambiguous: dict[int, bool] = {}
        self._made: dict[int, _Parts] = {}
        self._unions: dict[int, UnionMembers] = {}

    def tagger(self, core: Core) -> Tagger | None:
        """What tags the values of a type; `None` if none of them needs a tag."""
        core = innermost(core, self.definitions)
        if not self._is_ambiguous(core):
            return None
        if (known := self._made.get(id(core))) is not None:
            return known.tag
        self._made[id(core)] = made = self._empty(core)
        # After it can be found, because a type alias may refer to itself.
        made.parts = [self.tagger(part) or _unchanged for part in self._parts(core)]
        return made.tag

    def _is_ambiguous(self, core: Core) -> bool:
        """Whether a value of a type may hold one of an ambiguous union; each part within is looked at once."""
        if (known := self._ambiguous.get(id(core))) is not None:
            return known
        left, seen, found = [core], set[int](), False
        while left and not found:
            part = innermost(left.pop(), self.definitions)
            if id(part) not in seen:
                seen.add(id(part))
                found = part["type"] == "union" and any(each.name is not None for each in self._union(part).members)
                left.extend(self._parts(part))
        self._ambiguous[id(core)] = found
        return found

    def _parts(self, core: Core) -> Sequence[Core]:
        kind = core["type"]
        if kind == "union":
            return [member.core for member in self._union(core).members]
        if kind == "tuple":
            return cast("list[Core]", core["items_schema"])
        held: Core | None = core.get("items_schema") if kind in _ITEMS else core.get("values_schema")
        return [] if held is None else [held]

    def _union(self, core: Core) -> UnionMembers:
        if id(core) not in self._unions:
            self._unions[id(core)] = union_members(core, self.definitions, core_config())
        return self._unions[id(core)]

    def _empty(self, core: Core) -> _Parts:
        kind = core["type"]
        if kind == "union":
            return _Members(self._union(core))
        if kind == "tuple" and not ("variadic_item_index" in core and len(core["items_schema"]) == 1):
            return _Positions()
        return _Values() if kind in _MAPPINGS else _Items()


def _unchanged(value: object) -> object:
    return value


class _Parts(ABC):
    """Tags the values of a type that holds others.

    Attributes:
        parts: what tags the values of each part, in the order of the parts.
    """

    __slots__ = ("parts",)

    def __init__(self) -> None:
        self.parts: Sequence[Tagger] = ()

    # Not `__call__`, which uses up more of the levels that Python has for calls.
    @abstractmethod
    def tag(self, value: object) -> object:
        """The value with its tags."""


class _Members(_Parts):
    """Tags a value of a union."""

    __slots__ = ("_positions", "_union")

    def __init__(self, union: UnionMembers) -> None:
        super().__init__()
        self._union = union
        # By identity, because a member holds dicts and has no hash.
        self._positions = {id(member): position for position, member in enumerate(union.members)}

    def tag(self, value: object) -> object:
        member = self._union.member_of(value)
        # Canonical JSON is made of any value, also of one that is not of its declared type.
        if member is None:
            return value
        tagged = self.parts[self._positions[id(member)]](value)
        return tagged if member.name is None else Tagged(member.name, tagged)


class _Positions(_Parts):
    """Tags the items of a tuple, each by its position."""

    __slots__ = ()

    def tag(self, value: object) -> object:
        held = _items_of(value)
        if len(held) != len(self.parts):
            return value
        return [part(item) for part, item in zip(self.parts, held, strict=True)]


def _items_of(value: object) -> tuple[object, ...]:
    return cast("tuple[object, ...]", value) if isinstance(value, tuple) else ()


class _Items(_Parts):
    """Tags the items of a collection."""

    __slots__ = ()

    def tag(self, value: object) -> object:
        (part,) = self.parts
        if isinstance(value, AbstractSet):
            # A tuple becomes a list of tagged items, which has no hash, so that a set could not hold it.
            return SetItems(map(part, cast("AbstractSet[object]", value)))
        if isinstance(value, list | tuple | deque):
            items: Iterable[object] = cast("Iterable[object]", value)
            return list(map(part, items))
        return value


class _Values(_Parts):
    """Tags the values of a mapping."""

    __slots__ = ()

    def tag(self, value: object) -> object:
        (part,) = self.parts
        if not isinstance(value, Mapping):
            return value
        return {key: part(item) for key, item in cast("Mapping[object, object]", value).items()}
