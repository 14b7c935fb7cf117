"""Building of the validator, the serializer and the JSON Schema of a type; or why they cannot be built.

Arguments are read for keys by a reader of their own, in which defaults that a `default_factory` makes anew for each
call, as an id or a time, are `None`: two equal requests would differ by them. No `__post_init__` and no validator of a
whole record runs there: they have run when the arguments were read.

| a place is secret | by |
|---|---|
| if its type is or contains `SecretStr`, `SecretBytes` or another `Secret` of pydantic's | the type |
| if its field is declared with `field(metadata={"secret": True})` | a mark |
| if its type is `Annotated[T, Field(json_schema_extra={"writeOnly": True})]`, or says `"format": "password"` | a mark |
| if `handrail.redaction` lists the name of its field | the operator |

pydantic writes the first kind as asterisks. The others are written as `MASK`. Results, records and messages have the
mask there, and are read with it, whatever the type of the place. Only null stays null. Parameters of a tool are read as
they are.
"""

from __future__ import annotations

import copy
import dataclasses
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import is_dataclass
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar, cast, get_args, get_origin

from pydantic.errors import PydanticInvalidForJsonSchema
from pydantic_core import CoreSchema, core_schema, to_json
from pydantic_core import SchemaError as CoreSchemaError

from handrail.errors import SchemaError
from handrail.redaction import MASK, current_redaction
from handrail.serde.adapter import BUILD_ERRORS, Adapter, agreeing, closed_adapter, core_config
from handrail.serde.annotations import (
    TypePlace,
    TypeWalk,
    accept_type,
    is_record,
    is_union,
    options_around,
    refuse_first,
    strip_annotated,
)
from handrail.serde.core_schemas import (
    OF_CLASSES,
    OF_FIELDS,
    Core,
    check_read_unions,
    core_definitions,
    is_bound,
    iter_parts,
    iter_places,
    list_choices,
    list_fields,
    make_label,
    make_serializer,
    make_validator,
    makes_secret,
    rebuilt,
    replacing,
    secret_parts,
    whole,
)
from handrail.serde.formatting import shorten, type_name
from handrail.serde.json_schema import (
    MEMBERS,
    Node,
    SchemaMode,
    TypeFault,
    find_facts,
    is_object,
    is_secret_schema,
    json_schema,
)

_MARKS = (b'"writeOnly"', b'"password"')
_LONGEST_REASON = 200


class Built(NamedTuple):
    """The parts of a codec that pydantic made."""

    kind: object
    adapter: Adapter  # its validator and serializer
    facts: tuple[int, bool, bool]  # of its JSON Schema, as `find_facts` returns them
    schema: Node  # the JSON Schema of what is parsed, by which faults are explained
    shown_json: bytes  # that for the model, as JSON: `schema` for parameters, that of what is dumped for results
    hides: bool = False  # whether a place is secret by its type or by a mark
    is_marked: bool = False  # whether a field is secret, and pydantic does not know it


def build(kind: object, mode: SchemaMode) -> Built:
    """Builds the parts of a codec; `"validation"` for parameters, `"serialization"` for results.

    Raises:
        SchemaError: the type cannot be closed, or JSON cannot restore it; `path` says where in it.
    """
    _check_root(kind, mode)
    # Before pydantic sees the type: it would take much of what is refused here.
    accept_type(kind)
    try:
        adapter = closed_adapter(kind)
        _check_parts(kind, adapter, mode)
        schema, shown_json = _make_schemas(adapter, mode)
    except SchemaError:
        raise
    except BUILD_ERRORS as error:
        raise _blamed(kind, error) from error
    # Only now: pydantic's own type is what the schemas and the checks are made of.
    masked = adapter if mode == "validation" else masking_adapter(adapter)
    hides = any(mark in shown_json for mark in _MARKS)
    is_marked = hides and has_marks(adapter.core)
    return Built(kind, masked, find_facts(schema), schema, shown_json, hides, is_marked)


def _make_schemas(adapter: Adapter, mode: SchemaMode) -> tuple[Node, bytes]:
    # From what pydantic made: the rebuilt core schema holds functions, of which no JSON Schema can be made.
    schema = json_schema(adapter.core, mode="validation")
    shown_json = schema if mode == "validation" else json_schema(adapter.core, mode=mode)
    # Only in the schema by which faults are explained; the model gets `shown`.
    members = _member_schemas(adapter.core) if "union" in adapter.kinds else {}
    return {**schema, MEMBERS: members}, to_json(shown_json)


def _check_root(kind: object, mode: SchemaMode) -> None:
    inner = strip_annotated(kind)
    members = [strip_annotated(member) for member in (get_args(inner) if is_union(inner) else [inner])]
    expected, cure = "a dataclass, a pydantic model or a TypedDict", "declare @dataclass(frozen=True, slots=True)"
    is_fit = mode == "serialization" or (len(members) == 1 and is_record(get_origin(members[0]) or members[0]))
    # pydantic takes a variable for any type, and cannot resolve a name here.
    if is_fit and any(isinstance(member, str | TypeVar) for member in members):
        is_fit, expected, cure = False, "a type", "write the type itself"
    if is_dataclass(kind) and not isinstance(kind, type):
        is_fit, expected, cure = False, "a type", f"pass {type(kind).__name__} itself"
    if not is_fit:
        raise SchemaError(f"{shorten(type_name(kind), _LONGEST_REASON)} is not {expected}; {cure}", type=kind)


def _member_schemas(core: Core) -> dict[str, Node]:
    definitions = core_definitions(core)
    schemas: dict[str, Node] = {}
    for _, part in iter_places(core, definitions):
        for choice in list_choices(part) if part["type"] == "union" else ():
            # One schema serves for a member that stands in several unions. Within a type of pydantic's own, such as
            # SecretStr, a member may be an instance, which has no schema.
            label = make_label(choice, definitions)
            if label not in schemas:
                with suppress(PydanticInvalidForJsonSchema):
                    schemas[label] = json_schema(whole(choice, definitions), mode="validation")
    return schemas


def _blamed(kind: object, error: Exception) -> SchemaError:
    for place in reversed(TypeWalk(kind, "$").places):
        # As the only field of a dataclass.
        part = dataclasses.make_dataclass("Part", [("part", place.kind, dataclasses.field(metadata=place.metadata))])
        try:
            to_json(json_schema(closed_adapter(part).core, mode="validation"))
        except BUILD_ERRORS as reason:
            return _unfit(place, reason)
    return _unfit(TypePlace("$", kind, {}), error)


def _unfit(place: TypePlace, error: Exception) -> SchemaError:
    options, inner = options_around(place.kind)
    lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    # A fault of a core schema is explained in its last line, and the other errors in the first sentence.
    reason = lines[-1].strip() if isinstance(error, CoreSchemaError) else lines[0].partition(". ")[0]
    constraints = [part for option in options for part in getattr(option, "metadata", None) or [option]]
    words = ", ".join(re.sub(r"^_\w+", "Field", repr(part)) for part in (*constraints, *place.metadata))
    text = f"{shorten(words, _LONGEST_REASON)} of {type_name(inner)}" if words else type_name(inner)
    cure = "correct it, rename metadata not meant for pydantic, or use a plain dataclass, or a type that JSON can say"
    text = f"{place.path}: {text} cannot be used here ({shorten(reason, _LONGEST_REASON)}); {cure}"
    return SchemaError(text, type=place.kind, path=place.path)


# ---------------------------------------------------------------------------------------------------------------- parts


_NATIVE: Final = frozenset({"int", "float", "bool", "str", "date", "datetime", "time", "timedelta", "enum", "union"})
"""Types to which pydantic applies the constraints that they can have, and no others: each value fails by those."""


def _check_parts(kind: object, adapter: Adapter, mode: SchemaMode) -> None:
    for path, part in iter_places(adapter.core, core_definitions(adapter.core)):
        refuse_first(_part_faults(part), kind, path)
    if "union" in adapter.kinds:
        check_read_unions(kind, adapter.core, parameters=mode == "validation")


def _part_faults(part: Core) -> Iterator[TypeFault]:
    if part["type"] == "complex":
        yield "JSON has no complex numbers", "use two floats"
    if part["type"] == "json":
        fault = "Json reads a text that holds JSON, and writes what the text holds, which it could not read again"
        yield fault, "declare the type of what the text holds; a model writes it as it is"
    is_after = part["type"] == "function-after" and is_bound(part["function"])
    if part["type"] == "chain" and "str" in {step.get("schema", {}).get("type") for step in part["steps"][1:]}:
        is_after, part = True, {"schema": part["steps"][0]}
    if is_after and part["schema"]["type"] in _NATIVE:
        yield (
            "a constraint cannot be applied to the type that it stands on",
            "leave it out, or write it where it fits",
        )


# ----------------------------------------------------------------------------------------------------------------- keys


_CONSTANT: Final = (dict, frozenset, list, set, tuple)


def reader_for_keys(adapter: Adapter) -> Callable[..., Any] | None:
    """The `validate_json` of a parameter type for keys; `None` if no default of the type is made up."""
    made_up: list[Core] = []

    def change(part: Core, _was: Core, _coded: bool) -> Core:  # noqa: FBT001 - of an edit
        # The program's checks of a whole record need its values, and these have been checked already.
        if part["type"] == "function-after" and part["schema"]["type"] in OF_CLASSES:
            return replacing(part, part["schema"])
        if part["type"] != "default" or not is_made_up(part.get("default_factory")):
            return {key: value for key, value in part.items() if key != "post_init"}
        made_up.append(part)
        return replacing(part, core_schema.with_default_schema(part["schema"], default=None, validate_default=False))

    if "default" not in adapter.kinds:
        return None
    core = rebuilt(agreeing(adapter.core, core_config()), change)
    return make_validator(core, core_config()).validate_json if made_up else None


def is_made_up(factory: object) -> bool:
    """Returns whether a `default_factory` may make another value for each call."""
    is_copy = isinstance(factory, partial) and factory.func is copy.deepcopy
    # `list[str]` makes what `list` makes.
    return factory is not None and not is_copy and not any((get_origin(factory) or factory) is x for x in _CONSTANT)


# ------------------------------------------------------------------------------------------------------------- secrets


def has_marks(core: Core) -> bool:
    """Returns whether a field in a type, or all of it, is secret, and pydantic does not know it."""
    return _is_marked(core) or bool(_marked_fields(core)) or any(map(has_marks, iter_parts(core)))


def _marked_fields(part: Core) -> frozenset[str]:
    if part["type"] not in OF_FIELDS:
        return frozenset()
    hides, cls = current_redaction().hides_name, part.get("cls")
    own = dataclasses.fields(cls) if isinstance(cls, type) and is_dataclass(cls) else ()
    own_names = {field.name for field in own if field.metadata.get("secret")}
    return frozenset(
        name for name, field in list_fields(part).items() if name in own_names or hides(name) or _is_marked(field)
    )


def _is_marked(core: Core) -> bool:
    return _has_mark(core) or len({*secret_parts(core)}) > 1


def _has_mark(core: Core) -> bool:
    extra: object = core.get("metadata", {}).get("pydantic_js_extra")
    if is_object(extra) and is_secret_schema(extra):
        return True
    return core["type"] not in OF_FIELDS and any(map(_has_mark, iter_parts(core)))


def masking_adapter(adapter: Adapter) -> Adapter:
    """The adapter that writes the mask for marked places, and reads it back; the same one if there are none."""

    def change(part: Core, was: Core, _coded: bool) -> Core:  # noqa: FBT001 - of an edit
        mask = core_schema.literal_schema([MASK])
        if was["type"] == "function-after" and makes_secret(was["function"]["function"]):
            mask_value: object = MASK.encode() if part["schema"]["type"] == "bytes" else MASK
            read = core_schema.no_info_after_validator_function(lambda _: mask_value, mask)
            return {**part, "schema": core_schema.union_schema([read, part["schema"]], mode="left_to_right")}
        if names := _marked_fields(was):
            _mask_fields(part, names)
        return part

    if "function-after" not in adapter.kinds and not has_marks(adapter.core):
        return adapter
    core, config = rebuilt(adapter.core, change), core_config()
    core = _masked(core) if _is_marked(adapter.core) else core
    if core == adapter.core:
        return adapter
    agreed = agreeing(core, config)
    return adapter._replace(
        core=core, validator=make_validator(agreed, config), serializer=make_serializer(core, config)
    )


def _mask_fields(part: Core, names: Collection[str]) -> None:
    for name, field in list_fields(part).items():
        # A default is that of the field, so it stays outside.
        holder = field["schema"] if field["schema"]["type"] == "default" else field
        if name in names:
            holder["schema"] = _masked(holder["schema"])


def _masked(inner: Core) -> Core:
    write_mask = core_schema.plain_serializer_function_ser_schema(lambda _: MASK, when_used="unless-none")
    read = core_schema.no_info_wrap_validator_function(_read_mask, cast("CoreSchema", inner), serialization=write_mask)
    return cast("Core", read)


def _read_mask(value: object, read: Callable[[Any], object]) -> object:
    return MASK if value == MASK else read(value)
