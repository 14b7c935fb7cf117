"""The one place where pydantic is bent: an adapter that closes every plain dataclass below a type.

A `TypeAdapter` refuses a configuration for a standard library dataclass, because such a class may carry one itself. It
accepts one for a *named alias* of the class, and hands it down to all plain dataclasses inside: nested, generic,
recursive, frozen or slotted. No class is changed for it. What does carry a configuration of its own (a pydantic model,
a pydantic dataclass) keeps it, and so stays open; `annotations` refuses those, and `json_schema` makes sure of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, cast

from pydantic import ConfigDict, PydanticUndefinedAnnotation, PydanticUserError, TypeAdapter
from pydantic_core import CoreConfig, CoreSchema, SchemaSerializer, SchemaValidator
from pydantic_core import SchemaError as CoreSchemaError
from typing_extensions import TypeAliasType

from handrail.serde.agreement import agreeing
from handrail.serde.core_schemas import Core, definitions_of, innermost, rebuilt
from handrail.serde.recursive_unions import choices_of

BYTES_AS: Final = "base64"
"""How `bytes` stand in JSON: base64 with the alphabet that is safe in URLs (RFC 4648, section 5)."""

BUILD_ERRORS = (
    PydanticUserError,
    PydanticUndefinedAnnotation,
    CoreSchemaError,
    AttributeError,
    KeyError,
    NameError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What pydantic raises for a type from which it can build no validator, serializer or JSON Schema."""

_CLOSED = ConfigDict(
    extra="forbid",
    allow_inf_nan=False,
    ser_json_bytes=BYTES_AS,
    val_json_bytes=BYTES_AS,
    # Written as they are, so that `Codec` sees and refuses them; the default would turn them into null.
    ser_json_inf_nan="constants",
)
_CORE: Final = CoreConfig(
    extra_fields_behavior="forbid",
    allow_inf_nan=False,
    ser_json_bytes=BYTES_AS,
    val_json_bytes=BYTES_AS,
    ser_json_inf_nan="constants",
)
_RECHECK: Final = "always"

# Untyped, because type checkers take an alias for something that is written out and known before the program runs.
_named: Callable[[str, object], Any] = TypeAliasType


@dataclass(frozen=True, slots=True)
class Adapter:
    """What reads and writes the values of a type.

    Attributes:
        made: what pydantic makes of the type; it knows the JSON Schema.
        validator: reads values, as the JSON Schema says.
        serializer: writes them.
    """

    made: TypeAdapter[Any]
    validator: SchemaValidator
    serializer: SchemaSerializer


def closed_adapter(kind: object, *, recheck: bool = False) -> Adapter:
    """An adapter for `kind` whose plain dataclasses take no unknown field and no NaN.

    With `recheck` it looks into instances too, where it would otherwise take their fields on trust.

    Raises:
        BUILD_ERRORS: pydantic cannot handle the type.
    """
    config: ConfigDict = {**_CLOSED, "revalidate_instances": _RECHECK} if recheck else _CLOSED
    made = TypeAdapter[Any](_named("Closed", kind), config=config)
    core = cast("Core", made.core_schema)
    agreed = agreeing(core, core_config(recheck=recheck))
    validator = (
        made.validator if agreed == core else SchemaValidator(cast("CoreSchema", agreed), core_config(recheck=recheck))
    )
    return Adapter(made, cast("SchemaValidator", validator), _serializer(made, core))


def _serializer(made: TypeAdapter[Any], core: Core) -> SchemaSerializer:
    """What pydantic made, or one that writes a string enum by its value, in a union whose other members take any `str`.

    The serializer of a path or an address writes the `str()` of the enum, which is the name of the member.
    """
    definitions = definitions_of(core)

    def change(part: Core, *, was: Core, made: bool) -> Core:
        del was, made
        if part["type"] != "union":
            return part
        enums = [choice for choice, inner in zip(part["choices"], choices_of(part), strict=True) if _is_enum(inner)]
        return {**part, "choices": [*enums, *(choice for choice in part["choices"] if choice not in enums)]}

    def _is_enum(choice: Core) -> bool:
        return bool(innermost(choice, definitions)["type"] == "enum")

    written = rebuilt(core, change)
    return made.serializer if written == core else SchemaSerializer(cast("CoreSchema", written), core_config())


def core_config(*, recheck: bool = False) -> CoreConfig:
    """The configuration of a core schema that `closed_adapter` has made; parts of it are to be built with the same."""
    return {**_CORE, "revalidate_instances": _RECHECK} if recheck else _CORE
