"""How a value is read that was stored with tags which its type does not write any more: its union has become another.

A tag is written where a union was ambiguous. When a member is removed, or told apart otherwise, the tag is still in the
store. Here every place of a type reads a value with a tag that names the type of the place. It takes longer, so that
it is done only with what could not be read otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, cast

from pydantic_core import CoreConfig, core_schema

from handrail.serde.core_schemas import (
    Core,
    choices_of,
    core_definitions,
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

_MAPPINGS: Final = frozenset({"dict", "ordered-dict", "counter"})
_READ_AS_LISTS: Final = "Sequence"


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
        if was["type"] == "tagged-union" and ALL_MEMBERS in was["choices"]:
            return {**part, "discriminator": _all_for_other_tags(was["discriminator"])}
        if made or was["type"] in _SURROUNDING:
            return part
        names = _names(was, definitions)
        boxes = {name: boxed_value(name, [cast("Core", without_name(part))], config) for name in names}

        def name_of(value: object) -> str:
            name = name_in(value)
            return name if name in boxes else ALL_MEMBERS

        read = core_schema.tagged_union_schema({ALL_MEMBERS: without_name(part), **boxes}, name_of)
        return replacing(part, cast("Core", read))

    return rebuilt(core, change)


def _all_for_other_tags(label_of: Callable[[object], str]) -> Callable[[object], str]:
    """Tries all members of a union for a tag that it does not know."""

    def label(value: object) -> str:
        found, name = label_of(value), name_in(value)
        return ALL_MEMBERS if name and found != name else found

    return label


def _names(core: Core, definitions: Mapping[str, Core]) -> Iterator[str]:
    """What a type is called in tags, and what it was called when its items were of one member of their union."""
    yield from names_of(core, definitions)
    view = python_view(core, definitions)
    items = view.get("items_schema", view.get("values_schema"))
    if view["type"] == "list":
        yield _READ_AS_LISTS
    if isinstance(items, dict):
        keys = names_of(view["keys_schema"], definitions)[:1] if "keys_schema" in view else ()
        for choice in _choices(cast("Core", items), definitions):
            for name in names_of(choice, definitions):
                yield f"{names_of(core, definitions)[0]}[{', '.join((*keys, name))}]"


def _choices(core: Core, definitions: Mapping[str, Core]) -> list[Core]:
    """The members of a union, which may be one that is stored with tags; none of any other type."""
    view = python_view(core, definitions)
    if view["type"] == "tagged-union" and ALL_MEMBERS in view["choices"]:
        return _choices(view["choices"][ALL_MEMBERS], definitions)
    return choices_of(view) if view["type"] == "union" else []
