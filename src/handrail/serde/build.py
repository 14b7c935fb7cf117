"""What is built once for a type: its validator, its serializer, its JSON Schema; or why it cannot be built.

Arguments are read for keys by a reader of their own, in which what a default makes up for each call, and the model did
not send, is `None`. A `default_factory` makes another value for each call, an id or a time, and two equal requests
would differ by it. One that makes equal values (`list`, or the copy of a default) is like any other default.

pydantic hands a factory the fields of its record that are read already. That dictionary becomes the fields of the
instance, which identifies the record that a factory was called for. The values are replaced when all has been read:
until then the program's own validators see what the factories made.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import partial
from types import NoneType
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeVar, get_args, get_origin
from uuid import UUID

from pydantic import BaseModel
from pydantic.errors import PydanticInvalidForJsonSchema
from pydantic_core import SchemaError as CoreSchemaError
from pydantic_core import core_schema, to_json

from handrail.errors import SchemaError
from handrail.serde.adapter import BUILD_ERRORS, Adapter, agreeing, closed_adapter, core_config
from handrail.serde.annotations import is_record, is_union, quoted_alias, strip_annotated
from handrail.serde.constraints import (
    CONSTRAINING,
    ConstraintFault,
    check_applicable,
    joint_fault,
    option_fault,
    unsupported_field,
)
from handrail.serde.core_schemas import (
    Core,
    check_read_unions,
    choices_of,
    core_definitions,
    is_labelled,
    label_of,
    places_of,
    rebuilt,
    replacing,
    validator_of,
    whole,
    without_name,
)
from handrail.serde.faults import MEMBERS
from handrail.serde.formatting import shorten, type_name
from handrail.serde.json_schema import (
    Node,
    SchemaFacts,
    SchemaMode,
    core_json_schema,
    facts_of,
    inlined,
    is_surely_simple,
    json_schema,
)
from handrail.serde.secret_types import has_marks, masking_adapter
from handrail.serde.supported_types import AcceptedType, accept_type

_SCALARS = (str, int, float, bool, NoneType, bytes, Decimal, UUID, datetime, date, time, timedelta)
_MOST_SHAPES = 64
_MARKS = (b'"writeOnly"', b'"password"')
_LONGEST_REASON = 200


class Shapes(NamedTuple):
    """The types that the fields of a well typed value can have, for a dataclass of scalars and unions of them.

    Attributes:
        cls: the dataclass.
        names: its fields, one at least.
        types: for each well typed value, the types of its fields in their order.
    """

    cls: type[Any]
    names: tuple[str, ...]
    types: frozenset[tuple[type[Any], ...]]


class Schemas(NamedTuple):
    """The JSON Schemas of a type.

    Attributes:
        parsed: that of what is parsed, by which faults are explained.
        shown: that for the model, as JSON: `parsed` for parameters, that of what is dumped for results.
    """

    parsed: Node
    shown: bytes


class Built(NamedTuple):
    """What pydantic made of a type.

    Attributes:
        kind: the type.
        adapter: its validator and serializer.
        facts: what is known of its JSON Schema.
        schemas: its JSON Schemas.
        hides: whether a place is secret by its type or by a mark.
        is_marked: whether a field is secret, and pydantic does not know it.
        shapes: for a dataclass of scalars, by what a value is known to be well typed at little cost.
    """

    kind: object
    adapter: Adapter
    facts: SchemaFacts
    schemas: Callable[[], Schemas]
    shapes: Shapes | None
    hides: bool = False
    is_marked: bool = False


def can_be_deferred(kind: object) -> bool:
    """Whether a type of parameters is known to have no fault, so that `build` may be called when it is first read.

    Raises:
        SchemaError: as `build`.
    """
    _check_root(kind, "validation")
    found = accept_type(kind)
    is_class = isinstance(kind, type) and get_origin(kind) is None
    return is_class and len(found) == 1 and is_surely_simple(found[0].cls, found[0].hints)


def build(kind: object, *, mode: SchemaMode) -> Built:
    """Builds what `kind` needs; `"validation"` for parameters, `"serialization"` for results.

    Raises:
        SchemaError: the type cannot be closed, or JSON cannot give it back; `path` says where in it.
    """
    _check_root(kind, mode)
    # Before pydantic sees the type: it would take much of what is refused here.
    found = accept_type(kind)
    try:
        adapter = closed_adapter(kind, published=mode == "validation")
        # From what pydantic made: the rebuilt core schema holds functions, of which no JSON Schema can be made.
        parsed = json_schema(adapter.core, kind, mode="validation")
        shown = parsed if mode == "validation" else json_schema(adapter.core, kind, mode=mode)
        # After the schema: a constraint that pydantic left in it is reported as such, with its own words.
        if not adapter.kinds.isdisjoint(CONSTRAINING):
            check_applicable(kind, adapter.core)
        _check_parts(kind, adapter, mode)
    except SchemaError:
        raise
    except BUILD_ERRORS as error:
        raise _blamed(found, kind, error) from error
    # Only in the schema by which faults are explained; the model gets `shown`, which is made before.
    members = _member_schemas(adapter.core) if "union" in adapter.kinds else {}
    schemas = Schemas({**parsed, MEMBERS: members}, to_json(shown))
    # Only now: pydantic's own type is what the schemas and the checks are made of.
    held = adapter if mode == "validation" else masking_adapter(adapter)
    hides = any(mark in schemas.shown for mark in _MARKS)
    return Built(
        kind, held, facts_of(parsed), lambda: schemas, _shapes(kind, found), hides, hides and has_marks(adapter.core)
    )


def _check_root(kind: object, mode: SchemaMode) -> None:
    inner = strip_annotated(kind)
    members: Sequence[object] = get_args(inner) if is_union(inner) else [kind]
    kinds = [strip_annotated(member) for member in members]
    if mode == "validation" and (len(kinds) > 1 or not is_record(_class_of(kinds[0]))):
        cure = "declare @dataclass(frozen=True, slots=True) and name its fields"
        _refuse_root(kind, "a dataclass, a pydantic model or a TypedDict", cure)
    # pydantic takes a variable for any type, and cannot resolve a name here. The text of an alias it does resolve.
    unnamed = [option for member, option in zip(members, kinds, strict=True) if quoted_alias(member) is None]
    if any(isinstance(option, str | TypeVar) for option in unnamed):
        _refuse_root(kind, "a type", "write the type itself")


def check_sayable(hints: Mapping[str, Any]) -> None:
    """Holds the parameters of a function that others describe to a model to what those of a tool are held to.

    What pydantic cannot build is left to those others, and so is what a model of pydantic says of itself.

    Args:
        hints: the types of the parameters, by their names.

    Raises:
        SchemaError: a model could not say a value of one, or not which of two it means; `path` says where.
    """
    # First, because the check below ends where pydantic cannot build one of the types.
    for name, hint in hints.items():
        if fault := _fault_within(hint):
            unsupported_field(hint, f"$.{name}", *fault)
    try:
        # As one dataclass, because the places in a core schema begin at its fields.
        held = dataclasses.make_dataclass("Arguments", hints.items())
        adapter = closed_adapter(held)
    except BUILD_ERRORS:
        return
    _check_parts(held, adapter, "validation")


def _fault_within(hint: object) -> ConstraintFault | None:
    inner = strip_annotated(hint)
    held = () if is_union(inner) or get_origin(inner) is Literal else get_args(inner)
    options = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    faults = (joint_fault({}, hint), *(option_fault(option, inner) for option in options), *map(_fault_within, held))
    return next(filter(None, faults), None)


def _check_parts(kind: object, adapter: Adapter, mode: SchemaMode) -> None:
    """Refuses what JSON cannot say, and unions as `check_read_unions` does."""
    if adapter.kinds.isdisjoint({"complex", "json", "union"}):
        return
    definitions = core_definitions(adapter.core)
    for path, part in places_of(adapter.core, definitions):
        if part["type"] == "complex":
            unsupported_field(kind, path, "JSON has no complex numbers", "use two floats")
        if part["type"] == "json":
            unsupported_field(
                kind,
                path,
                "Json reads a text that holds JSON, and writes what the text holds, which it could not read again",
                "declare the type of what the text holds; a model writes it as it is",
            )
    check_read_unions(kind, adapter.core, parameters=mode == "validation")


def _member_schemas(core: Core) -> dict[str, Node]:
    """The JSON Schemas of the members of unions, by the labels that they have in the locations of faults."""
    definitions = core_definitions(core)
    unions = [part for _, part in places_of(core, definitions) if part["type"] == "union"]
    members = {
        label_of(choice, definitions): choice
        for union in unions
        for choice in choices_of(union)
        if is_labelled(choice, definitions)
    }
    # By label, so that one schema serves for a member that stands in several unions.
    schemas: dict[str, Node] = {}
    for label, choice in members.items():
        # Within a type of pydantic's own, such as SecretStr, a member may be an instance, which has no schema.
        with suppress(PydanticInvalidForJsonSchema):
            schemas[label] = inlined(core_json_schema(whole(choice, definitions), mode="validation"))
    return schemas


def _class_of(kind: object) -> type[Any] | None:
    cls = get_origin(kind) or kind
    return cls if isinstance(cls, type) else None


def _refuse_root(kind: object, wanted: str, cure: str) -> None:
    if is_dataclass(kind) and not isinstance(kind, type):
        wanted, cure = "a type", f"pass {type(kind).__name__} itself"
    raise SchemaError(f"{shorten(type_name(kind), _LONGEST_REASON)} is not {wanted}; {cure}", type=kind)


def _shapes(kind: object, found: Sequence[AcceptedType]) -> Shapes | None:
    # The first that was found is the outermost; it is not `kind` where that is a collection or a union of dataclasses.
    if not found or found[0].cls is not _class_of(kind) or not found[0].hints or not is_dataclass(found[0].cls):
        return None
    names, options = zip(*((name, _scalars(hint)) for name, hint in found[0].hints.items()), strict=True)
    # Each union multiplies the number of shapes; beyond the limit the lookup would cost more than it saves.
    if not 0 < math.prod(map(len, options)) <= _MOST_SHAPES:
        return None
    return Shapes(found[0].cls, names, frozenset(itertools.product(*options)))


def _scalars(hint: object) -> tuple[Any, ...]:
    """The scalar types that a field of this type may hold; none, if it may hold anything else."""
    inner = strip_annotated(hint)
    options = [strip_annotated(option) for option in get_args(inner)] if is_union(inner) else [inner]
    known = [isinstance(each, type) and (each in _SCALARS or issubclass(each, Enum)) for each in options]
    return tuple(options) if all(known) else ()


def _blamed(found: Sequence[AcceptedType], kind: object, error: Exception) -> SchemaError:
    """The error that names the field at fault: each is tried alone, those that hold no other dataclass first."""
    fields = [(admitted, name, hint) for admitted in reversed(found) for name, hint in admitted.hints.items()]
    # Inner dataclasses first: a field that holds one fails with it, and would be blamed in its place.
    # One field at a time, because the error of pydantic names none. It takes milliseconds each, on the way to an error
    # only.
    for admitted, name, hint in sorted(fields, key=lambda each: bool(accept_type(each[2]))):
        path = f"{admitted.path}.{name}"
        metadata = _metadata_of(admitted.cls, name)
        reason = _fault_alone(name, hint, metadata)
        if reason is None:
            continue
        # Without its metadata the field is sound, so the metadata is at fault.
        if metadata and _fault_alone(name, hint, {}) is None:
            words = ", ".join(map(repr, metadata))
            return SchemaError(
                f"{path}: pydantic cannot take its metadata {words} ({_reason(reason)}); rename what is not meant for "
                "pydantic, and give the rest in the form that it has as an argument of Field",
                type=hint,
                path=path,
            )
        return _unfit(hint, path, reason)
    return _unfit(kind, "$", error)


def _metadata_of(cls: type[Any], name: str) -> Mapping[str, Any]:
    """The metadata of a field of a dataclass; a model and a TypedDict have none."""
    found = {each.name: each.metadata for each in dataclasses.fields(cls)} if is_dataclass(cls) else {}
    return found.get(name, {})


def _fault_alone(name: str, hint: object, metadata: Mapping[str, Any]) -> Exception | None:
    """What is wrong with a field as the only one of a dataclass."""
    part = dataclasses.make_dataclass("Part", [(name, hint, dataclasses.field(metadata=metadata))])
    try:
        json_schema(closed_adapter(part).core, hint, mode="validation")
    except BUILD_ERRORS as reason:
        return reason
    return None


def _reason(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    # A fault of a core schema is explained in its last line, and the other errors in the first sentence.
    reason = lines[-1].strip() if isinstance(error, CoreSchemaError) else lines[0].partition(". ")[0]
    return shorten(reason, _LONGEST_REASON)


def _unfit(kind: object, path: str, error: Exception) -> SchemaError:
    return SchemaError(
        f"{path}: {type_name(kind)} cannot be used here ({_reason(error)}); "
        "use a plain dataclass, or a type that JSON can say",
        type=kind,
        path=path,
    )


# ----------------------------------------------------------------------------------------------------------------- keys


_CONSTANT: Final = (dict, frozenset, list, set, tuple)


class _Reading:
    """The names of the fields that one text of arguments leaves out."""

    __slots__ = ("by_fields", "dataclasses", "records")

    def __init__(self) -> None:
        self.by_fields: dict[int, tuple[object, list[str]]] = {}
        self.dataclasses: list[Sequence[str]] = []  # of those whose fields are read, and that are not made yet
        self.records: list[tuple[object, Sequence[str]]] = []


_READING: Final = ContextVar[_Reading]("reading")


def reader_for_keys(adapter: Adapter) -> Callable[..., Any] | None:
    """The `validate_json` of a parameter type for keys; `None` if no default of the type is made up.

    Args:
        adapter: the adapter of the type.
    """
    made_up: list[str] = []

    def change(part: Core, *, was: Core, made: bool) -> Core:
        del was, made
        kind = part["type"]
        if kind == "dataclass-field" and is_made_up(part["schema"].get("default_factory")):
            made_up.append(part["name"])
            return {**part, "schema": _recording(part["name"], part["schema"])}
        if kind == "model":
            made_up.extend(_factories(part["cls"]))
        after = _AFTER.get(kind)
        if after is None:
            return part
        return replacing(part, core_schema.no_info_after_validator_function(after, without_name(part)))

    if "default" not in adapter.kinds:
        return None
    core = rebuilt(agreeing(adapter.core, core_config(), published=True), change)
    if not made_up:
        return None
    return partial(_read, adapter.guarded(validator_of(core, core_config()).validate_json))


def is_made_up(factory: object) -> bool:
    """Whether a `default_factory` may make another value for each call."""
    is_copy = isinstance(factory, partial) and factory.func is copy.deepcopy
    # `list[str]` makes what `list` makes.
    return factory is not None and not is_copy and not any((get_origin(factory) or factory) is x for x in _CONSTANT)


def _factories(model: type[BaseModel]) -> list[str]:
    return [name for name, field in model.model_fields.items() if is_made_up(field.default_factory)]


def _read(validate: Callable[..., Any], data: str | bytes | bytearray, **options: Any) -> Any:  # noqa: ANN401 - any type
    reading = _Reading()
    token = _READING.set(reading)
    try:
        value = validate(data, **options)
    finally:
        _READING.reset(token)
    for record, names in reading.records:
        for name in names:
            object.__setattr__(record, name, None)  # it may be frozen, and is of this reading alone
    return value


def _recording(name: str, default: Core) -> Core:
    factory, takes_data = default["default_factory"], default.get("default_factory_takes_data", False)

    def make(fields: dict[str, Any]) -> object:
        # With the fields, so that no other record gets their identity.
        _READING.get().by_fields.setdefault(id(fields), (fields, []))[1].append(name)
        return factory(fields) if takes_data else factory()

    return {**default, "default_factory": make, "default_factory_takes_data": True}


def _take_fields(fields: tuple[Any, ...]) -> tuple[Any, ...]:
    reading = _READING.get()
    reading.dataclasses.append(reading.by_fields.get(id(fields[0]), (None, ()))[1])
    return fields


def _take_dataclass(value: object) -> object:
    reading = _READING.get()
    reading.records.append((value, reading.dataclasses.pop()))
    return value


def _take_model(value: BaseModel) -> BaseModel:
    sent = value.model_fields_set
    _READING.get().records.append((value, [name for name in _factories(type(value)) if name not in sent]))
    return value


_AFTER: Final[dict[str, Callable[..., Any]]] = {
    "dataclass-args": _take_fields,
    "dataclass": _take_dataclass,
    "model": _take_model,
}
