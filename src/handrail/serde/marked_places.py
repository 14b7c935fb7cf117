"""How the places are written that a type marks as secret, and of which pydantic does not know it: as `MASK`.

What is shown, stored and returned has the mask there, and so has what is read of it, whatever the type of the place:
an `int` that is marked is read as asterisks. Only null stays null. Parameters of a tool are read as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, cast

from pydantic_core import core_schema

from handrail.redaction import MASK
from handrail.serde.adapter import Adapter, agreeing, core_config
from handrail.serde.core_schemas import Core, rebuilt, serializer_of, validator_of
from handrail.serde.secret_types import marked_fields
from handrail.serde.supported_types import AcceptedType

_WITH_FIELDS: Final = ("dataclass", "model", "typed-dict")


def masking_adapter(adapter: Adapter, found: Iterable[AcceptedType]) -> Adapter:
    """The adapter of a type that writes the mask for what is marked, and reads it back.

    Args:
        adapter: that of the type.
        found: the classes in the type.

    Returns:
        The same, if nothing is marked.
    """
    marked = {one.cls: fields for one in found if (fields := marked_fields(one.cls))}
    if not marked:
        return adapter

    def change(part: Core, *, was: Core, made: bool) -> Core:
        del made
        names = marked.get(was.get("cls", object)) if was["type"] in _WITH_FIELDS else None
        return part if names is None else _with_masked(part, names)

    core, config = rebuilt(adapter.core, change), core_config()
    agreed = agreeing(core, config)
    return replace(adapter, core=core, validator=validator_of(agreed, config), serializer=serializer_of(core, config))


def _with_masked(part: Core, names: Collection[str]) -> Core:
    """A class, or what is inside of it around its fields, with the fields of these names masked."""
    if "fields" not in part or part["type"] in {"dataclass", "model"}:
        return {**part, "schema": _with_masked(part["schema"], names)}
    fields: Any = part["fields"]
    if isinstance(fields, Mapping):
        by_name = cast("Mapping[str, Core]", fields)
        return {**part, "fields": {name: _masked(each, name in names) for name, each in by_name.items()}}
    return {**part, "fields": [_masked(each, each["name"] in names) for each in cast("list[Core]", fields)]}


def _masked(field: Core, is_marked: bool) -> Core:  # noqa: FBT001 - called twice, beside
    if not is_marked:
        return field
    held = field["schema"]
    # A default is that of the field, so it stays outside.
    if held["type"] == "default":
        return {**field, "schema": {**held, "schema": _or_mask(held["schema"])}}
    return {**field, "schema": _or_mask(held)}


def _or_mask(held: Core) -> Core:
    written = core_schema.plain_serializer_function_ser_schema(_mask_for, when_used="unless-none")
    return cast("Core", core_schema.no_info_wrap_validator_function(_read, cast("Any", held), serialization=written))


def _mask_for(value: object) -> str:
    del value
    return MASK


def _read(value: object, read: Callable[[Any], object]) -> object:
    return MASK if value == MASK else read(value)
