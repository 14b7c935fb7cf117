"""How a value is read that was stored with tags which its type does not write any more: its union has become another.

A tag is written where a union was ambiguous. When a member is removed, or told apart otherwise, the tag is still in the
store. Here every place of a type reads a value with a tag that names the type of the place. It takes longer, so that
it is done only with what could not be read otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, cast

from pydantic_core import CoreConfig, CoreSchema, core_schema

from handrail.serde.core_schemas import (
    Core,
    choices_of,
    core_definitions,
    innermost,
    python_view,
    rebuilt,
    replacing,
    without_name,
)
from handrail.serde.location import ALL_MEMBERS
from handrail.serde.member_names import names_of
from handrail.serde.unions import boxed_value, name_in

_SURROUNDING: Final = frozenset(
    {"any", "nullable", "default", "definitions", "definition-ref", "union", "tagged-union"}
    | {"dataclass-args", "dataclass-field", "typed-dict", "typed-dict-field"}
)
"""Parts that have no name of their own: what they hold has one."""

_WRAPPING: Final = frozenset(
    {"function-before", "function-after", "function-wrap", "json-or-python", "lax-or-strict", "chain"}
)
"""Parts that check or convert what another part reads: both are of one place."""

_MAPPINGS: Final = frozenset({"dict", "ordered-dict", "counter"})
_HOLDING: Final = _MAPPINGS | {"list", "tuple", "set", "frozenset", "deque", "dataclass", "union", "tagged-union"}
_READ_AS_LISTS: Final = "Sequence"


class _NamedPlace:
    """Selects, for one place of a type, the part that reads a value with a tag; without a known tag `untagged`."""

    __slots__ = ("names", "untagged")
    __name__ = "named_place"  # pydantic asks for it

    def __init__(self, names: frozenset[str], untagged: Core) -> None:
        self.names = names
        self.untagged = untagged

    def __call__(self, value: object) -> str:
        name = name_in(value)
        return name if name in self.names else ALL_MEMBERS


def reading_tags(core: Core, config: CoreConfig) -> Core:
    """A core schema that also reads, in every place, a value with a tag that names the type of the place.

    Args:
        core: what reads the type as it is stored.
        config: its configuration.
    """
    definitions = core_definitions(core)

    def change(part: Core, *, was: Core, made: bool) -> Core:
        if was["type"] in _MAPPINGS and "keys_schema" in was:
            part = {**part, "keys_schema": was["keys_schema"]}  # keys are texts
        # This union reads the tags that are written today; of one that it does not know the members decide.
        if was["type"] == "tagged-union" and ALL_MEMBERS in was["choices"]:
            return {**part, "discriminator": _all_for_other_tags(was["discriminator"])}
        # What a function has made is not JSON, so that there is no tag in it.
        if made or was["type"] in _SURROUNDING:
            return part
        inner = _read_as(was, definitions)
        if was["type"] in _WRAPPING:
            # Only the outermost part stands for the place: the text that a Decimal is read from is not of type str.
            part = _untagged_within(part) if inner["type"] in _HOLDING else was
        names = names_of(was, definitions)
        if inner["type"] == "list":  # a Sequence is read as a list, and either name is in stores
            names = (*names, *names_of(inner, definitions), _READ_AS_LISTS)
        readers = dict.fromkeys(names, part)
        for name, choice in _former_items(was, definitions):
            # The present names come first: a former one must not take the place of a name that is written today.
            readers.setdefault(name, _holding(part, rebuilt(choice, change)))
        boxes = {name: boxed_value(name, [cast("Core", without_name(each))], config) for name, each in readers.items()}
        untagged = cast("Core", without_name(part))
        choices = {ALL_MEMBERS: cast("CoreSchema", untagged), **boxes}
        read = core_schema.tagged_union_schema(choices, _NamedPlace(frozenset(boxes), untagged))
        return replacing(part, cast("Core", read))

    return rebuilt(core, change)


def _untagged_within(part: Core) -> Core:
    """A part without the tags that are read directly within it."""

    def untagged(each: object) -> object:
        if isinstance(each, list):
            return [untagged(one) for one in cast("list[object]", each)]
        if not isinstance(each, dict):
            return each
        held = cast("Core", each)
        place = held.get("discriminator")
        return place.untagged if isinstance(place, _NamedPlace) else held

    return {key: untagged(each) for key, each in part.items()}


def _read_as(core: Core, definitions: Mapping[str, Core]) -> Core:
    """The part that reads the JSON of a place."""
    inner = innermost(core, definitions)
    is_one_step = inner["type"] == "chain" and len(inner["steps"]) == 1
    return _read_as(inner["steps"][0], definitions) if is_one_step else inner


def _all_for_other_tags(label_of: Callable[[object], str]) -> Callable[[object], str]:
    """Tries all members of a union for a tag that it does not know."""

    def label(value: object) -> str:
        found, name = label_of(value), name_in(value)
        # A tag of a former member: one of the members that are left may read it.
        return ALL_MEMBERS if name and found != name else found

    return label


def _former_items(core: Core, definitions: Mapping[str, Core]) -> Iterator[tuple[str, Core]]:
    """What a collection was called when its items were of one member of their union, and that member."""
    # A tag of `list[A]` was written while the items were of one class, which are of `A | B` now.
    held = core.get("items_schema", core.get("values_schema"))
    if core["type"] == "tuple" and "variadic_item_index" in core and len(core["items_schema"]) == 1:
        held = core["items_schema"][0]
    if not isinstance(held, dict):
        return
    keys = names_of(core["keys_schema"], definitions)[:1] if "keys_schema" in core else ()
    for choice in _choices(cast("Core", held), definitions):
        for name in names_of(choice, definitions):
            yield f"{names_of(core, definitions)[0]}[{', '.join((*keys, name))}]", choice


def _holding(collection: Core, items: Core) -> Core:
    """A collection with other items; what surrounds the former ones is dropped."""
    if collection["type"] == "tuple":
        return {**collection, "items_schema": [items]}
    return {**collection, "items_schema" if "items_schema" in collection else "values_schema": items}


def _choices(core: Core, definitions: Mapping[str, Core]) -> list[Core]:
    """The members of a union, which may be one that is stored with tags; none of any other type."""
    view = python_view(core, definitions)
    # All members of a union that is read with tags stand in the choice that is read without one.
    if view["type"] == "tagged-union" and ALL_MEMBERS in view["choices"]:
        return _choices(view["choices"][ALL_MEMBERS], definitions)
    return choices_of(view) if view["type"] == "union" else []
