"""The adapter of a type: the one place where pydantic is made to behave otherwise.

It closes every plain dataclass below a type, and parses what the JSON Schema says. A `TypeAdapter` refuses a
configuration for a standard library dataclass, but takes one for a *named alias* of the class, and hands it down to all
plain dataclasses inside. A pydantic model keeps its own, so it and what is below it is closed in the core schema.

pydantic takes more, or less, than the JSON Schema says. `agreeing` rebuilds the core schema of a type, and pydantic
still does the parsing. The serializer and the JSON Schema are made from what pydantic made.

| type | pydantic takes also | accepted here |
|---|---|---|
| `datetime` | digits, as seconds since 1970: `"2024"` | ISO 8601: `"2026-01-31T12:00:00Z"` |
| `date` | digits, as seconds since 1970 | `"2026-01-31"` |
| `timedelta` | `"01:00"`, `"1 day, 00:00:00"`, `"1d"` | ISO 8601: `"PT1H"` |
| `Decimal` in a string | blanks, underscores, digits of other scripts | `DECIMAL` |
| `Fraction` in a string | the same | `FRACTION` |
| a `Literal` or an enum with numbers | `true` for `1`, `1` for `True` | booleans are not numbers |
| a key that is not a string | `"01"`, `" 1"` | `KEY_FORMS` |

A number with a fraction of zero, `5.0`, is an integer in JSON Schema; `Codec` sees to that where an argument is at
fault, so that it costs nothing otherwise.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, DecimalException
from enum import Enum
from typing import Any, Final, LiteralString, NamedTuple, cast

from pydantic import ConfigDict, TypeAdapter
from pydantic_core import (
    CoreConfig,
    CoreSchema,
    PydanticCustomError,
    PydanticKnownError,
    SchemaSerializer,
    SchemaValidator,
    core_schema,
)
from pydantic_core import SchemaError as CoreSchemaError
from typing_extensions import TypeAliasType

from handrail.serde.core_schemas import (
    Core,
    core_definitions,
    innermost,
    kinds_in,
    list_choices,
    make_label,
    make_serializer,
    make_validator,
    rebuilt,
    referred,
    replacing,
    without_name,
)
from handrail.serde.json_schema import DECIMAL, FORMATS, FRACTION, KEY_FORMS

BYTES_AS: Final = "base64"
"""How `bytes` are written in JSON: base64 with the alphabet that is safe in URLs (RFC 4648, section 5)."""

BUILD_ERRORS = (CoreSchemaError, AttributeError, KeyError, NameError, RuntimeError, TypeError, ValueError)
"""What pydantic raises for a type from which it can build no validator, serializer or JSON Schema."""

_SHARED: Final = {
    "allow_inf_nan": False,
    "ser_json_bytes": BYTES_AS,
    "val_json_bytes": BYTES_AS,
    # Written as they are, so that `Codec` sees and refuses them; the default would turn them into null.
    "ser_json_inf_nan": "constants",
    # What a model's own configuration says of these does not count.
    "ser_json_timedelta": "iso8601",
    "ser_json_temporal": "iso8601",
    "polymorphic_serialization": False,
}
_CLOSED: Final = cast("ConfigDict", {"extra": "forbid", **_SHARED})
_CORE: Final = cast("CoreConfig", {"extra_fields_behavior": "forbid", **_SHARED})
_RECHECK: Final = "always"
_WITH_FIELDS: Final = frozenset({"model-fields", "dataclass-args", "typed-dict"})
_CONFIGURED: Final = frozenset({"model", "dataclass", "typed-dict"})

# Untyped, because type checkers take an alias for something that is written out and known before the program runs.
_name_alias: Callable[[str, object], Any] = TypeAliasType

_ISO_8601: Final[LiteralString] = "input should be written as in ISO 8601"

_DIGITS: Final[LiteralString] = "it has to be written in the digits 0 to 9, without blanks, commas or underscores"

_TEXTS: Final[Mapping[str, tuple[str, LiteralString]]] = {
    "datetime": (FORMATS["date-time"], _ISO_8601),
    "date": (FORMATS["date"], _ISO_8601),
    "timedelta": (FORMATS["duration"], _ISO_8601),
    "decimal": (DECIMAL, _DIGITS),
    "fraction": (FRACTION, _DIGITS),
}
"""The form of a text, or of its beginning, and what is said of another; by the type of the core schema."""

_KEYS: Final[Mapping[str, tuple[str, LiteralString]]] = {
    "int": (KEY_FORMS["integer"], "input should be an integer in digits"),
    "uuid": (KEY_FORMS["uuid"], "input should be a UUID in small letters, with hyphens"),
}
"""The one form of a key that is not a string, so that no two keys of an object mean the same; as above."""

_TEXT: Final = core_schema.str_schema()

_INTEGER_OR_TEXT: Final = core_schema.union_schema(
    [core_schema.int_schema(), core_schema.str_schema()],
    custom_error_type="integer",
    custom_error_message="input should be an integer, or a string of digits",
)

_NUMBERS: Final = frozenset({"decimal", "fraction"})


_EACH_NUMBER: Final = r'(?s)"[^"\\]*+(?:\\.[^"\\]*+)*+"|(-?[0-9]++(?:\.[0-9]++)?(?:[eE][-+]?[0-9]++)?)'
"""The strings, in which a digit is not a number, and the numbers, each in one pass over its digits."""

_DIFFERING: Final = frozenset({*_TEXTS, "dict", "ordered-dict", "counter", "literal", "enum", "union"})
"""The types of the parts that `agreeing` may replace."""


class Adapter(NamedTuple):
    """The reader and the writer of the values of a type."""

    type_adapter: TypeAdapter[Any]  # pydantic's, which knows the JSON Schema
    core: Core  # its core schema, in which models are closed as dataclasses are
    kinds: frozenset[str]  # the types of the parts of `core`
    validator: SchemaValidator  # reads values, as the JSON Schema says
    serializer: SchemaSerializer  # writes them


def closed_adapter(kind: object, *, recheck: bool = False) -> Adapter:
    """Makes an adapter for `kind` whose plain dataclasses take no unknown field and no NaN; may raise `BUILD_ERRORS`.

    With `recheck` it looks into instances too, whose fields it would otherwise trust.
    """
    config = core_config(recheck=recheck)
    checked: ConfigDict = {**_CLOSED, "revalidate_instances": _RECHECK} if recheck else _CLOSED
    type_adapter = TypeAdapter[Any](_name_alias("Closed", kind), config=checked)
    was = cast("Core", type_adapter.core_schema)
    kinds = kinds_in(was)
    core = was if kinds.isdisjoint({"model", "union"}) else _prepared(was, config)
    # Most types hold nothing that is read otherwise, and to rebuild a core schema takes long.
    agreed = core if kinds.isdisjoint(_DIFFERING) else agreeing(core, config)
    # A core schema compares by what it holds, so that a part which was rebuilt without a change is equal.
    # The one that pydantic has made serves where nothing differs, because making another takes milliseconds.
    validator = type_adapter.validator if agreed == was else make_validator(agreed, config)
    serializer = type_adapter.serializer if core == was else make_serializer(core, core_config())
    return Adapter(type_adapter, core, kinds, cast("SchemaValidator", validator), serializer)


def _prepared(core: Core, config: CoreConfig) -> Core:
    definitions = core_definitions(core)

    def is_other(choice: Any) -> bool:  # noqa: ANN401 - a part, or one with its label
        (part,) = list_choices({"choices": [choice]})
        return bool(innermost(part, definitions)["type"] != "enum")

    def change(part: Core, _was: Core, _coded: bool) -> Core:  # noqa: FBT001 - of an edit
        if part["type"] == "union":
            return {**part, "choices": sorted(part["choices"], key=is_other)}
        # pydantic has handed the configuration of a model down to the dataclasses and TypedDicts below it.
        if part["type"] in _WITH_FIELDS:
            part = {**part, "extra_behavior": "forbid"}
        return {**part, "config": {**part.get("config", {}), **config}} if part["type"] in _CONFIGURED else part

    return rebuilt(core, change)


def core_config(*, recheck: bool = False) -> CoreConfig:
    """The configuration of a core schema of `closed_adapter`, for building parts of it."""
    return {**_CORE, "revalidate_instances": _RECHECK} if recheck else _CORE


def agreeing(core: Core, config: CoreConfig) -> Core:
    """The core schema of a validator that takes what the JSON Schema of `core` says.

    An enum takes the values of the schema alone, and none that its `_missing_` adds.
    """
    definitions = core_definitions(core)

    def change(part: Core, was: Core, coded: bool) -> Core:  # noqa: FBT001 - of an edit
        keys = referred(part.get("keys_schema", {"type": "any"}), definitions)
        if form := _KEYS.get(innermost(keys, definitions)["type"]):
            # A key is a text, and in strict mode pydantic makes no integer of one.
            read = core_schema.chain_schema([_TEXT, _from_text(keys, config, *form)])
            return {**part, "keys_schema": core_schema.json_or_python_schema(read, without_name(keys))}
        if part["type"] == "union":
            # Each with the name of its type, for the locations of faults: pydantic's own is made of the parts of a core
            # schema, and the same for scalars.
            labels = [make_label(choice, definitions) for choice in list_choices(was)]
            pairs = zip(list_choices(part), labels, strict=True)
            return {
                **part,
                "choices": [choice if choice == {"type": name} else (choice, name) for choice, name in pairs],
            }
        steps = _steps_instead(part, config)
        if not steps:
            return part
        # A value that a function has made is not JSON, which is all that the first of several steps takes.
        chain = core_schema.chain_schema(steps[-1:] if coded else steps)
        return replacing(part, core_schema.json_or_python_schema(chain, without_name(part)))

    return rebuilt(core, change)


def _steps_instead(core: Core, config: CoreConfig) -> list[CoreSchema]:
    kind = core["type"]
    if kind in _TEXTS:
        from_text = _from_text(core, config, *_TEXTS[kind])
        # An integer stays one where a decimal, which takes integers too, is declared first: see below.
        return [_INTEGER_OR_TEXT, _less_exact(from_text)] if kind in _NUMBERS else [_TEXT, from_text]
    if kind == "literal" and not all(isinstance(value, str) for value in core["expected"]):
        return [_from_choice([(value, value) for value in core["expected"]], "literal_error")]
    if kind == "enum":
        has_more = getattr(core["cls"]._missing_, "__func__", None) is not getattr(Enum._missing_, "__func__", None)
        members = [(value.value, value) for value in core["members"]]
        if has_more or not all(isinstance(value, str) for value, _ in members):
            return [_less_exact(_from_choice(members, "enum"))]
    return []


def _less_exact(read: CoreSchema) -> CoreSchema:
    return core_schema.chain_schema([read, core_schema.any_schema()])


# -------------------------------------------------------------------------------------------------------------- texts


def _from_text(core: Core, config: CoreConfig, form: str, fault: LiteralString) -> CoreSchema:
    validator = make_validator(cast("Core", without_name(core)), config)
    fits = re.compile(form).match
    read: Callable[..., object] = validator.validate_strings
    is_number = core["type"] in _NUMBERS

    def read_text(value: object) -> object:
        if type(value) is str:
            if not fits(value):
                raise PydanticCustomError("form", fault)
            return read(value, strict=True)
        # By its shortest decimal text, so that 0.1 is the decimal 0.1 and not the binary fraction.
        if is_number and type(value) in {int, float}:
            return read(repr(value), strict=True)
        return validator.validate_python(value, strict=True)

    return core_schema.no_info_plain_validator_function(read_text)


def inexact_numbers(data: str | bytes | bytearray) -> frozenset[float]:
    """The whole floats of a text whose number, with a fraction or an exponent, is another one."""
    text = data if isinstance(data, str) else data.decode(errors="replace")
    numbers = (match[1] for match in re.finditer(_EACH_NUMBER, text) if match[1])
    return frozenset(float(number) for number in numbers if not number.lstrip("-").isdecimal() and _is_other(number))


def _is_other(number: str) -> bool:
    try:
        return float(number).is_integer() and Decimal(number) != Decimal(float(number))
    except DecimalException:
        return True


# ------------------------------------------------------------------------------------------------------------ choices


def _from_choice(pairs: Sequence[tuple[Any, object]], error: Any) -> CoreSchema:  # noqa: ANN401
    # Where all are integers, `Codec` writes 1 for 1.0 as it does for `int`, so that a union takes both for the same.
    accepted = str | int | None if all(type(value) is int for value, _ in pairs) else str | int | float | None
    # Equal numbers are one value in JSON, and Python holds `True` for equal to 1.
    choices = {(type(value) is bool, value): choice for value, choice in pairs}
    expected = " or ".join(json.dumps(value) for value, _ in pairs)

    def read_choice(value: object) -> object:
        # A function of the program before this step may have made the member already.
        if isinstance(value, Enum):
            value = value.value
        key = type(value) is bool, value
        if isinstance(value, accepted) and (choice := choices.get(key, choices)) is not choices:
            return choice
        raise PydanticKnownError(error, {"expected": expected})

    return core_schema.no_info_plain_validator_function(read_choice)
