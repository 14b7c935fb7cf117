"""The one place where pydantic is made to behave otherwise: an adapter for a type, as Handrail reads and writes it.

It closes every plain dataclass below a type, and parses what the JSON Schema says.

A `TypeAdapter` refuses a configuration for a standard library dataclass, because such a class may carry one itself. It
accepts one for a *named alias* of the class, and hands it down to all plain dataclasses inside: nested, generic,
recursive, frozen or slotted. No class is changed for it. A pydantic model keeps its own, and hands that down: it and
what is below it is closed in the core schema. A pydantic dataclass is refused by `supported_types`, and `json_schema`
makes sure that nothing is open.

pydantic takes more, or less, than the JSON Schema says. `agreeing` rebuilds the core schema of a type, so that all of
this is decided in one place, and pydantic still does the parsing. The serializer and the JSON Schema are made from what
pydantic made.

| type | what pydantic takes beside it | what is taken |
|---|---|---|
| `datetime` | digits, as seconds since 1970: `"2024"` | ISO 8601: `"2026-01-31T12:00:00Z"` |
| `date` | digits, as seconds since 1970 | `"2026-01-31"` |
| `timedelta` | `"01:00"`, `"1 day, 00:00:00"`, `"1d"` | ISO 8601: `"PT1H"` |
| `Decimal` in a string | blanks, underscores, digits of other scripts | `forms.DECIMAL` |
| `Fraction` in a string | the same | `forms.FRACTION` |
| a `Literal` or an enum with numbers | `true` for `1`, `1` for `True` | booleans are not numbers |
| a key that is not a string | `"01"`, `" 1"`, `"yes"` | `forms.KEYS` |
| keys that mean the same, as `1` and `1.0` | the last one | none of them |

A number with a fraction of zero, `5.0`, is an integer in JSON Schema; `Codec` sees to that, because it costs nothing
there as long as no argument is at fault.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from decimal import Context, Decimal, DecimalException, Inexact, InvalidOperation, Overflow, Subnormal
from enum import Enum
from typing import Any, Final, LiteralString, NamedTuple, cast

from pydantic import ConfigDict, PydanticUndefinedAnnotation, PydanticUserError, TypeAdapter
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
    choices_of,
    core_definitions,
    innermost,
    is_labelled,
    kinds_in,
    label_of,
    rebuilt,
    replacing,
    serializer_of,
    validator_of,
    without_name,
)
from handrail.serde.formatting import quote
from handrail.serde.json_schema import DECIMAL, FORMATS, FRACTION, KEY_FORMS

BYTES_AS: Final = "base64"
"""How `bytes` are written in JSON: base64 with the alphabet that is safe in URLs (RFC 4648, section 5)."""

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
_WITH_FIELDS: Final = frozenset({"model-fields", "dataclass-args", "typed-dict"})
_CONFIGURED: Final = frozenset({"model", "dataclass", "typed-dict"})

# Untyped, because type checkers take an alias for something that is written out and known before the program runs.
_named: Callable[[str, object], Any] = TypeAliasType

_ISO_8601: Final[LiteralString] = "input should be written as in ISO 8601"

_DIGITS: Final[LiteralString] = "input should be a number in decimal digits"

_DECIMAL: Final[LiteralString] = (
    "it has to be written in the digits 0 to 9, with a sign, a decimal point and an exponent where needed, "
    "and no blanks, commas or underscores"
)

_FRACTION: Final[LiteralString] = (
    "it has to be written in the digits 0 to 9, with a sign and a decimal point where needed, or as two integers with "
    "a slash between them, the second not zero, and no blanks"
)

_TEXTS: Final[Mapping[str, tuple[str, LiteralString]]] = {
    "datetime": (FORMATS["date-time"], _ISO_8601),
    "date": (FORMATS["date"], _ISO_8601),
    "timedelta": (FORMATS["duration"], _ISO_8601),
    "decimal": (DECIMAL, _DECIMAL),
    "fraction": (FRACTION, _FRACTION),
}
"""The form of a text, or of its beginning, and what is said of another; by the type of the core schema."""

_KEYS: Final[Mapping[str, tuple[str, LiteralString]]] = {
    "int": (KEY_FORMS["integer"], "input should be an integer in digits"),
    "float": (KEY_FORMS["number"], _DIGITS),
    "bool": (KEY_FORMS["boolean"], "input should be true or false"),
}

_TEXT: Final = core_schema.str_schema()

_NO_NUMBER: Final = r"(?i)[-+]?s?(nan|inf)"

_NO_TIMESTAMP: Final = r"[-+]?[0-9.]*[^-+0-9.]|[0-9]+-"
"""Of what is a timestamp in seconds, pydantic says that it is not an exact date."""

_NUMBER_OR_TEXT: Final = core_schema.union_schema(
    [core_schema.int_schema(), core_schema.float_schema(), core_schema.str_schema()],
    custom_error_type="number",
    custom_error_message="input should be a number",
)

_NUMBERS: Final = frozenset({"decimal", "fraction"})

_SEND_TEXT: Final[LiteralString] = (
    "it has more digits than the 15 that a JSON number with a fraction keeps; send it as a string"
)

_INEXACT: Final = ContextVar[frozenset[float]]("inexact", default=frozenset())
"""Those of the text that is being read; see `inexact_numbers`."""

_FLOAT: Final = Context(prec=15, Emin=-308, Emax=307, traps=[Inexact, InvalidOperation, Overflow, Subnormal])

_LONG_NUMBER: Final = r"[0-9.]{16}|[0-9][eE][-+]?[0-9]{3}"

_EACH_NUMBER: Final = r'(?s)"[^"\\]*+(?:\\.[^"\\]*+)*+"|(-?[0-9]++(?:\.[0-9]++)?(?:[eE][-+]?[0-9]++)?)'
"""The strings, in which a digit is not a number, and the numbers, each in one pass over its digits."""

_MAPPINGS: Final = frozenset({"dict", "ordered-dict", "counter"})

_PLAIN_NUMBERS: Final = frozenset({"int", "float"})

_DISTINCT_AS_WRITTEN: Final = frozenset({"any", "literal", "enum"})

_DIFFERING: Final = frozenset({*_TEXTS, *_MAPPINGS, "literal", "enum", "union"})
"""The types of the parts that `agreeing` may replace."""

_CHANGING: Final = ("strip_whitespace", "to_lower", "to_upper")


class Adapter(NamedTuple):
    """What reads and writes the values of a type.

    Attributes:
        made: what pydantic makes of the type; it knows the JSON Schema.
        core: its core schema, in which models are closed as dataclasses are.
        kinds: the types of the parts of `core`, by which most that is to be done to a part is known not to be needed.
        validator: reads values, as the JSON Schema says.
        serializer: writes them.
    """

    made: TypeAdapter[Any]
    core: Core
    kinds: frozenset[str]
    validator: SchemaValidator
    serializer: SchemaSerializer

    def guarded(self, validate: Callable[..., Any]) -> Callable[..., Any]:
        """A `validate_json` of the type with the digits of numbers, where it needs them."""
        return validate if self.kinds.isdisjoint(_NUMBERS) else with_digits(validate)


def closed_adapter(kind: object, *, recheck: bool = False, published: bool = False) -> Adapter:
    """An adapter for `kind` whose plain dataclasses take no unknown field and no NaN.

    Args:
        kind: the type.
        recheck: whether it looks into instances too, where it would otherwise take their fields on trust.
        published: as for `agreeing`.

    Raises:
        BUILD_ERRORS: pydantic cannot handle the type.
    """
    config: ConfigDict = {**_CLOSED, "revalidate_instances": _RECHECK} if recheck else _CLOSED
    made = TypeAdapter[Any](_named("Closed", kind), config=config)
    was = cast("Core", made.core_schema)
    kinds = kinds_in(was)
    core = _with_closed_models(was, core_config(recheck=recheck)) if "model" in kinds else was
    # Most types hold nothing that is read otherwise, and to rebuild a core schema takes long.
    agreed = core if kinds.isdisjoint(_DIFFERING) else agreeing(core, core_config(recheck=recheck), published=published)
    # A core schema compares by what it holds, so that a part which was rebuilt without a change is equal.
    # The one that pydantic has made serves where nothing differs, because making another takes milliseconds.
    validator = made.validator if agreed == was else validator_of(agreed, core_config(recheck=recheck))
    written = made.serializer if kinds.isdisjoint({"model", "union"}) else _serializer(made, core)
    return Adapter(made, core, kinds, cast("SchemaValidator", validator), written)


def _with_closed_models(core: Core, config: CoreConfig) -> Core:
    """The core schema with models that take and write what a dataclass does, and so does what is below them."""

    def change(part: Core, *, was: Core, made: bool) -> Core:
        del was, made
        # pydantic has handed the configuration of a model down to the dataclasses and TypedDicts below it.
        if part["type"] in _WITH_FIELDS:
            part = {**part, "extra_behavior": "forbid"}
        return {**part, "config": {**part.get("config", {}), **config}} if part["type"] in _CONFIGURED else part

    return rebuilt(core, change)


def _serializer(made: TypeAdapter[Any], core: Core) -> SchemaSerializer:
    """What pydantic made, or one that writes a string enum by its value, in a union whose other members take any `str`.

    The serializer of a path or an address writes the `str()` of the enum, which is the name of the member.
    """
    definitions = core_definitions(core)

    def change(part: Core, *, was: Core, made: bool) -> Core:
        del was, made
        if part["type"] != "union":
            return part
        # The order in which a serializer tries the members; it does not matter to the validator.
        enums = [choice for choice, inner in zip(part["choices"], choices_of(part), strict=True) if _is_enum(inner)]
        return {**part, "choices": [*enums, *(choice for choice in part["choices"] if choice not in enums)]}

    def _is_enum(choice: Core) -> bool:
        return bool(innermost(choice, definitions)["type"] == "enum")

    written = rebuilt(core, change)
    return made.serializer if written == made.core_schema else serializer_of(written, core_config())


def core_config(*, recheck: bool = False) -> CoreConfig:
    """The configuration of a core schema that `closed_adapter` has made; parts of it are to be built with the same."""
    return {**_CORE, "revalidate_instances": _RECHECK} if recheck else _CORE


def agreeing(core: Core, config: CoreConfig, *, published: bool = False) -> Core:
    """The core schema of a validator that takes what the JSON Schema of `core` says.

    Args:
        core: what pydantic made of a type.
        config: the configuration of the type.
        published: whether an enum takes the values of the schema alone, and none that its `_missing_` knows beside.
    """
    definitions = core_definitions(core)

    def change(part: Core, *, was: Core, made: bool) -> Core:
        # Keys are compared after they are read, so that a shared part is needed here in full.
        keys = part.get("keys_schema")
        if keys is not None and keys["type"] == "definition-ref":
            part = {**part, "keys_schema": rebuilt(definitions[keys["schema_ref"]], change)}
        if part["type"] == "union":
            return {**part, "choices": _numbers_first(_labelled(part, was, definitions))}
        return _agreeing_part(part, config, made=made, published=published)

    return rebuilt(core, change)


def _agreeing_part(core: Core, config: CoreConfig, *, made: bool, published: bool) -> Core:
    steps = _steps_instead(core, config, published=published)
    if not steps:
        return core
    # A value that a function has made is not JSON, which is all that the first of several steps takes.
    parsed = core_schema.chain_schema(steps[-1:] if made else steps)
    return replacing(core, core_schema.json_or_python_schema(parsed, without_name(core)))


def _steps_instead(core: Core, config: CoreConfig, *, published: bool) -> list[CoreSchema]:
    """What parses JSON in the place of a part of a core schema; none if pydantic takes what its JSON Schema says.

    The step before or behind a function says how exact the match is, by which pydantic chooses among a union.
    """
    kind = core["type"]
    if kind in _TEXTS:
        return [_NUMBER_OR_TEXT if kind in _NUMBERS else _TEXT, _from_text(core, config, *_TEXTS[kind])]
    if kind == "literal" and not all(isinstance(value, str) for value in core["expected"]):
        return [_from_choice(core, "literal_error", {_typed(each): each for each in core["expected"]})]
    if kind == "enum" and not _is_read_as_published(core, published=published):
        choices = {_typed(each.value): each for each in core["members"]}
        from_choice = _from_choice(core, "enum", choices, published=published)
        # Behind the function, a step that takes anything: the match is then less exact than that of a string or a
        # number.
        return [core_schema.chain_schema([from_choice, core_schema.any_schema()])]
    if kind in _MAPPINGS and _may_fall_together(core.get("keys_schema")):
        return [_with_distinct_keys(core, config)]
    return []


def _is_read_as_published(core: Core, *, published: bool) -> bool:
    """Whether pydantic takes the values of an enum that its schema lists, or those that its `_missing_` knows too."""
    cls: type[Enum] = core["cls"]
    is_text = all(isinstance(each.value, str) for each in core["members"])
    return is_text and not (published and _missing_of(cls) is not _missing_of(Enum))


def _missing_of(cls: type[Enum]) -> object:
    return getattr(cls._missing_, "__func__", cls._missing_)


def _labelled(union: Core, was: Core, definitions: Mapping[str, Core]) -> list[Any]:
    """The choices of a union, each with the name of its type: pydantic's own is made of the parts of a core schema.

    The names are in the locations of faults. Those of scalars and classes are what these are called in Python already.
    """
    pairs = zip(choices_of(union), choices_of(was), strict=True)
    return [
        (choice, label_of(original, definitions)) if is_labelled(original, definitions) else choice
        for choice, original in pairs
    ]


def _numbers_first(choices: list[Any]) -> list[Any]:
    """The choices of a union, so that a number stays one where a `Decimal`, which takes numbers too, is declared first.

    pydantic's own decimal is a less exact match for a number; its replacement is as exact.
    """
    parts = [cast("Core", choice[0] if isinstance(choice, tuple) else choice) for choice in choices]
    if not any(part["type"] == "json-or-python" and part["python_schema"]["type"] in _NUMBERS for part in parts):
        return choices
    paired = list(zip(parts, choices, strict=True))
    numbers = [choice for part, choice in paired if _is_number(part)]
    return [*numbers, *(choice for part, choice in paired if not _is_number(part))]


def _is_number(part: Core) -> bool:
    if part["type"] == "json-or-python":
        part = part["python_schema"]
    is_literal = part["type"] == "literal" and any(isinstance(each, int) for each in part["expected"])
    return is_literal or part["type"] in _PLAIN_NUMBERS


# -------------------------------------------------------------------------------------------------------------- texts


def _from_text(core: Core, config: CoreConfig, form: str, fault: LiteralString) -> CoreSchema:
    """Parses strings of one form, where pydantic takes others too; and the values that a validator before has made."""
    validator = validator_of(cast("Core", without_name(core)), config)
    fits = re.compile(form).match
    read: Callable[..., object] = validator.validate_strings
    is_number = core["type"] in _NUMBERS
    is_explained = re.compile(_NO_NUMBER if is_number else _NO_TIMESTAMP).match

    def parsed(value: object) -> object:
        if type(value) is str:
            does_fit = fits(value)
            if not does_fit and not is_explained(value):
                raise PydanticCustomError("form", fault)
            # Before the form is refused: the fault that pydantic finds says more than that the form is another one.
            made = read(value, strict=True)
            if not does_fit:
                raise PydanticCustomError("form", fault)
            return made
        if type(value) is float and value in _INEXACT.get():
            raise PydanticCustomError("digits", _SEND_TEXT)
        # By its shortest decimal text, so that 0.1 is the decimal 0.1 and not the binary fraction.
        if is_number and type(value) in {int, float}:
            return read(repr(value), strict=True)
        return validator.validate_python(value, strict=True)

    return core_schema.no_info_plain_validator_function(parsed)


def with_digits(validate: Callable[..., Any]) -> Callable[..., Any]:
    """A `validate_json` that refuses a number for a decimal or a fraction if pydantic's reader may have rounded it."""

    def read(data: str | bytes | bytearray, **options: Any) -> object:  # noqa: ANN401 - pydantic's
        token = _INEXACT.set(inexact_numbers(data))
        try:
            return validate(data, **options)
        finally:
            _INEXACT.reset(token)

    return read


def inexact_numbers(data: str | bytes | bytearray, *, whole: bool = False) -> frozenset[float]:
    """The numbers of a text with a fraction or an exponent that a float may not hold, as floats.

    A float holds any 15 digits. More are counted also if it happens to hold them: decoded arguments are written with up
    to 17 digits, and do not say how many there were.

    Args:
        data: the text.
        whole: whether the numbers are to be integers: those of which the float is another number.
    """
    is_exact = _is_whole if whole else _is_exact
    text = data if isinstance(data, str) else data.decode(errors="replace")
    if not whole and re.search(_LONG_NUMBER, text) is None:
        return frozenset()
    numbers = (
        match[1] for match in re.finditer(_EACH_NUMBER, text) if match[1] and not match[1].lstrip("-").isdecimal()
    )
    return frozenset(float(number) for number in numbers if not is_exact(number))


def _is_exact(number: str) -> bool:
    try:
        _FLOAT.create_decimal(number)
    except DecimalException:
        return False
    return True


def _is_whole(number: str) -> bool:
    try:
        return Decimal(number) == Decimal(float(number))
    except DecimalException:
        return False


# ------------------------------------------------------------------------------------------------------------ choices


def _typed(value: object) -> tuple[type[Any], object]:
    """A value that differs from those of other types which Python holds for equal."""
    return type(value), value


def _from_choice(
    core: Core,
    error: Any,  # noqa: ANN401 - a name of pydantic's
    choices: Mapping[tuple[type[Any], object], object],
    *,
    published: bool = True,
) -> CoreSchema:
    """Parses one of the choices; a number is that of equal value, written with a fraction of zero or without."""
    cls: type[Enum] | None = None if published else core.get("cls")
    # Where all are integers, `Codec` writes 1 for 1.0 as it does for `int`, so that a union takes both for the same.
    is_whole = all(kind is int for kind, _ in choices)
    expected = " or ".join(json.dumps(value) for _, value in choices)

    def parsed(value: object) -> object:
        # A function of the program before this step may have made the member already.
        if isinstance(value, Enum):
            value = value.value
        if not (is_whole and type(value) is float):
            for form in _forms(value):
                if form in choices:
                    return choices[form]
            if cls is not None and not isinstance(value, bool):
                with suppress(ValueError):
                    return cls(value)  # which may know more values than it has members
        raise PydanticKnownError(error, {"expected": expected})

    return core_schema.no_info_plain_validator_function(parsed)


def _forms(value: object) -> tuple[tuple[type[Any], object], ...]:
    if not isinstance(value, str | int | float | None):
        return ()
    # Equal numbers are one value in JSON; beyond 2**53 a float stands for several integers.
    if type(value) is float and value.is_integer():
        return _typed(value), (int, int(value))
    return (_typed(value), (float, float(value))) if type(value) is int and abs(value) < 2**53 else (_typed(value),)


# --------------------------------------------------------------------------------------------------------------- keys


# Without `==` and hash of its own: two keys that mean the same both stay in the mapping that pydantic fills, until
# `_distinct` compares them.
class _Key:
    """A key, beside others that are equal."""

    __slots__ = ("text", "value")

    def __init__(self, text: object, value: object) -> None:
        self.text = text
        self.value = value


def _may_fall_together(keys: Core | None) -> bool:
    if keys is None or keys["type"] in _DISTINCT_AS_WRITTEN:
        return False
    return keys["type"] != "str" or any(keys.get(flag) for flag in _CHANGING)


def _with_distinct_keys(core: Core, config: CoreConfig) -> CoreSchema:
    """Parses a mapping whose keys are not strings, and refuses those that mean the same."""
    keys: Core = core["keys_schema"]
    form, fault = _KEYS.get(innermost(keys, {})["type"], ("", ""))
    fits = re.compile(form).match
    validator = validator_of(cast("Core", without_name(keys)), config)

    def parsed(text: object) -> _Key:
        if not isinstance(text, str):  # from a validator before
            return _Key(text, validator.validate_python(text, strict=True))
        if not fits(text):
            raise PydanticCustomError("form", fault)
        # In strict mode a string is not a number, and every key is a string. The form above is as strict.
        return _Key(text, validator.validate_json(json.dumps(text), strict=not form))

    as_pairs = {**without_name(core), "keys_schema": core_schema.no_info_plain_validator_function(parsed)}
    return core_schema.no_info_after_validator_function(_distinct, cast("CoreSchema", as_pairs))


def _distinct(found: Mapping[_Key, object]) -> object:
    texts: dict[object, object] = {}
    made: dict[object, object] = {}
    for key, item in found.items():
        # Compared as values: `1.0` and `1` are one number.
        if key.value in made:
            one, other = quote(str(texts[key.value])), quote(str(key.text))
            raise PydanticCustomError(
                "keys", "two of its keys mean the same: {one} and {other}", {"one": one, "other": other}
            )
        texts[key.value] = key.text
        made[key.value] = item
    make: Any = type(found)
    return made if make is dict else make(made)
