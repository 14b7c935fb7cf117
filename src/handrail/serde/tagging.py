"""Which members the values in the fields of a dataclass are of, where JSON does not say it; for canonical JSON."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Final, cast, get_args

from handrail.errors import SchemaError
from handrail.serde.adapter import BUILD_ERRORS, closed_adapter, core_config
from handrail.serde.annotations import is_union, strip_annotated
from handrail.serde.bounded_cache import BoundedCache
from handrail.serde.core_schemas import OF_CLASSES, Core, core_definitions, innermost, with_flat_unions
from handrail.serde.supported_types import accept_type
from handrail.serde.unions import union_members

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


def has_ambiguous_unions(cls: object) -> bool:
    """Whether the digest of a value of a class may be another than that of versions before, which wrote no tags."""
    return _ambiguous.get(cls, lambda: _has_ambiguous_unions(cls))


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


_ambiguous: Final[BoundedCache[bool]] = BoundedCache()
_taggers: Final[BoundedCache[Mapping[str, Tagger]]] = BoundedCache()


def _has_ambiguous_unions(cls: object) -> bool:
    try:
        # All dataclasses within count, because the digest of a value is of all that it holds.
        return any(taggers_of(found.cls) for found in accept_type(cls))
    except SchemaError:
        return False


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
    """One search; an alias that refers to itself is looked into once."""

    __slots__ = ("_seen", "definitions")

    def __init__(self, definitions: Mapping[str, Core]) -> None:
        self.definitions = definitions
        self._seen: list[Core] = []

    def tagger(self, core: Core) -> Tagger | None:
        """What tags the values of a type; `None` if none of them needs a tag."""
        core = innermost(core, self.definitions)
        if any(core is seen for seen in self._seen):
            return None
        # A stack, and not all that was seen: a type that is used twice needs its tagger in both places.
        self._seen.append(core)
        try:
            return self._tagger(core)
        finally:
            self._seen.pop()

    def _tagger(self, core: Core) -> Tagger | None:
        kind = core["type"]
        if kind == "union":
            return self._union(core)
        if kind == "tuple":
            return self._tuple(core)
        held: Core | None = core.get("items_schema") if kind in _ITEMS else core.get("values_schema")
        item = None if held is None else self.tagger(held)
        if item is None:
            return None
        return _Values(item) if kind in _MAPPINGS else _Items(item)

    def _union(self, core: Core) -> Tagger | None:
        union = union_members(core, self.definitions, core_config())
        inner = [self.tagger(member.core) for member in union.members]
        if all(tag is None for tag in inner) and all(member.name is None for member in union.members):
            return None
        # By identity, because a member holds dicts and has no hash.
        by_member = {id(member): tag for member, tag in zip(union.members, inner, strict=True)}

        def tag(value: object) -> object:
            member = union.member_of(value)
            # Canonical JSON is made of any value, also of one that is not of its declared type.
            if member is None:
                return value
            within = by_member[id(member)]
            tagged = value if within is None else within(value)
            return tagged if member.name is None else Tagged(member.name, tagged)

        return tag

    def _tuple(self, core: Core) -> Tagger | None:
        items = [self.tagger(item) for item in core["items_schema"]]
        if not any(items):
            return None
        if "variadic_item_index" in core and len(items) == 1:
            return None if items[0] is None else _Items(items[0])

        def tag(value: object) -> object:
            held = _items_of(value)
            if len(held) != len(items):
                return value
            return [item if inner is None else inner(item) for inner, item in zip(items, held, strict=True)]

        return tag


def _items_of(value: object) -> tuple[object, ...]:
    return cast("tuple[object, ...]", value) if isinstance(value, tuple) else ()


class _Items:
    """Tags the items of a collection."""

    __slots__ = ("_item",)

    def __init__(self, item: Tagger) -> None:
        self._item = item

    def __call__(self, value: object) -> object:
        if isinstance(value, AbstractSet):
            # A tuple becomes a list of tagged items, which has no hash, so that a set could not hold it.
            return SetItems(map(self._item, cast("AbstractSet[object]", value)))
        if isinstance(value, list | tuple | deque):
            items: Iterable[object] = cast("Iterable[object]", value)
            return [self._item(item) for item in items]
        return value


class _Values:
    """Tags the values of a mapping."""

    __slots__ = ("_item",)

    def __init__(self, item: Tagger) -> None:
        self._item = item

    def __call__(self, value: object) -> object:
        if not isinstance(value, Mapping):
            return value
        return {key: self._item(item) for key, item in cast("Mapping[object, object]", value).items()}
