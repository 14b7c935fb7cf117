"""Which places of a type are secret, and how those that pydantic does not know are written and read.

| a place is secret | by |
|---|---|
| if its type is or contains `SecretStr`, `SecretBytes` or another `Secret` of pydantic's | the type |
| if its field is declared with `field(metadata={"secret": True})` | a mark |
| if its type is `Annotated[T, Field(json_schema_extra={"writeOnly": True})]`, or says `"format": "password"` | a mark |
| if `handrail.redaction` lists the name of its field | the operator |

pydantic writes the first kind as asterisks. The others are written as `MASK`. What is shown, stored and returned has
the mask there, and so has what is read of it, whatever the type of the place: an `int` that is marked is read as
asterisks. Only null stays null. Parameters of a tool are read as they are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from dataclasses import is_dataclass
from typing import Any, Protocol, TypeGuard, cast

from pydantic_core import core_schema

from handrail.redaction import MASK, current_redaction
from handrail.serde.adapter import Adapter, agreeing, core_config
from handrail.serde.core_schemas import (
    OF_FIELDS,
    Core,
    fields_of,
    is_bound,
    makes_secret,
    parts_of,
    rebuilt,
    serializer_of,
    validator_of,
)
from handrail.serde.json_schema import is_object

_SECRETS = frozenset({"SecretStr", "SecretBytes", "Secret"})
_MODULE = "pydantic.types"  # not imported, because it takes long; a program with a secret has imported it


def is_secret_schema(node: Mapping[str, Any]) -> bool:
    """Whether a JSON Schema marks a place as secret, as pydantic's does for its secrets."""
    return node.get("writeOnly") is True or node.get("format") == "password"


class SecretValue(Protocol):
    """One of pydantic's secrets: an object that holds the secret and does not show it."""

    def get_secret_value(self) -> object:
        """What it holds."""
        ...


def is_secret_value(value: object) -> TypeGuard[SecretValue]:
    """Whether a value is one of pydantic's secrets."""
    cls: type[Any] = type(value)
    return _is_secret_class(cls)


def has_marks(core: Core) -> bool:
    """Whether a field in a type is secret, and pydantic does not know it."""
    return bool(_marked_fields(core)) or any(map(has_marks, parts_of(core)))


def _marked_fields(part: Core) -> frozenset[str]:
    """The fields of a class or a TypedDict that are secret, and of which pydantic does not know it."""
    if part["type"] not in OF_FIELDS:
        return frozenset()
    hides, cls = current_redaction().hides_name, part.get("cls")
    own = dataclasses.fields(cls) if isinstance(cls, type) and is_dataclass(cls) else ()
    marked = {field.name for field in own if field.metadata.get("secret")}
    return frozenset(
        name for name, field in fields_of(part).items() if name in marked or hides(name) or _has_mark(field)
    )


def _has_mark(core: Core) -> bool:
    extra: object = core.get("metadata", {}).get("pydantic_js_extra")
    if is_object(extra) and is_secret_schema(extra):
        return True
    return core["type"] not in OF_FIELDS and any(map(_has_mark, parts_of(core)))


def _is_secret_class(cls: type[Any]) -> bool:
    # A subclass that the program defines is a secret too.
    return any(base.__module__ == _MODULE and base.__name__ in _SECRETS for base in cls.__mro__)


def masking_adapter(adapter: Adapter) -> Adapter:
    """The adapter of a type that writes the mask for what is marked, and reads it back.

    Args:
        adapter: that of the type.

    Returns:
        The same, if nothing is marked, and there are no secrets of pydantic's that are not text.
    """

    def change(part: Core, *, was: Core, made: bool) -> Core:
        del made
        if was["type"] == "function-after" and makes_secret(was["function"]["function"]):
            return {**part, "schema": _mask_or(part["schema"])}
        if was["type"] == "function-after" and _bounds_secret(was):
            # The mask may be shorter than the least length that the secret is held to.
            return {"type": "union", "choices": [_mask_through(part["schema"]), part], "mode": "left_to_right"}
        if names := _marked_fields(was):
            _mask_fields(part, names)
        return part

    if "function-after" not in adapter.kinds and not has_marks(adapter.core):
        return adapter
    core, config = rebuilt(adapter.core, change), core_config()
    if core == adapter.core:
        return adapter
    agreed = agreeing(core, config)
    return adapter._replace(core=core, validator=validator_of(agreed, config), serializer=serializer_of(core, config))


def _mask_fields(part: Core, names: Collection[str]) -> None:
    """Mask the fields of these names in the copy of a class, or of what is inside of it around its fields."""
    for name, field in fields_of(part).items():
        # A default is that of the field, so it stays outside.
        holder = field["schema"] if field["schema"]["type"] == "default" else field
        if name in names:
            holder["schema"] = _or_mask(holder["schema"])


def _or_mask(held: Core) -> Core:
    written = core_schema.plain_serializer_function_ser_schema(_mask_for, when_used="unless-none")
    return cast("Core", core_schema.no_info_wrap_validator_function(_read, cast("Any", held), serialization=written))


def _mask_for(value: object) -> str:
    del value
    return MASK


def _bounds_secret(core: Core) -> bool:
    """Whether it holds a secret to a bound, such as a length, which the mask may not keep to."""
    while core["type"] == "function-after" and is_bound(core["function"]):
        core = core["schema"]
    if core["type"] != "lax-or-strict":
        return False
    parts = [part for part in parts_of(core["strict_schema"]) if part["type"] == "function-after"]
    return any(_is_secret_class(made) for part in parts if isinstance(made := part["function"]["function"], type))


def _mask_through(held: Core) -> core_schema.CoreSchema:
    """Reads the mask as what is held reads it."""
    return core_schema.chain_schema([core_schema.literal_schema([MASK]), cast("Any", held)])


def _mask_or(held: Core) -> core_schema.CoreSchema:
    """Reads the mask too, because nothing else is stored of a secret."""
    made: object = MASK.encode() if held["type"] == "bytes" else MASK
    mask = core_schema.no_info_after_validator_function(lambda _: made, core_schema.literal_schema([MASK]))
    return core_schema.union_schema([mask, cast("Any", held)], mode="left_to_right")


def _read(value: object, read: Callable[[Any], object]) -> object:
    return MASK if value == MASK else read(value)
