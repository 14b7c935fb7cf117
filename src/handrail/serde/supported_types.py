"""Which types Handrail takes: dataclasses, pydantic models, TypedDicts, and below them what JSON can restore.

`accept_type` walks the annotations of a type before pydantic sees it, because pydantic takes much that would leave a
schema open (models of unknown fields, and dataclasses with a configuration of their own) or that JSON could not restore
(a field that the constructor does not take, an enum of tuples), and names no field when it gives up. Every refusal says
where, and what to write instead.

The fields of a dataclass are looked at one by one: their annotations, options and defaults.
"""

from __future__ import annotations

import enum
import sys
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Collection,
    Generator,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from collections.abc import Set as AbstractSet
from dataclasses import MISSING, Field, InitVar, fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from types import NoneType
from typing import Any, Final, Literal, NamedTuple, cast, get_args, get_origin, get_type_hints
from uuid import UUID

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError, from_json

from handrail.errors import SchemaError
from handrail.serde.adapter import BUILD_ERRORS, Adapter, closed_adapter
from handrail.serde.annotations import (
    bindings_by_class,
    is_model,
    is_record,
    is_union,
    known_type,
    model_fault,
    model_hints,
    options_around,
    strip_annotated,
    substitute_variables,
    typed_dict_hints,
)
from handrail.serde.constraints import (
    ConstraintFault,
    joint_fault,
    metadata_fault,
    option_fault,
    unsupported_field,
)
from handrail.serde.core_schemas import BoundedCache
from handrail.serde.formatting import shorten, type_name
from handrail.serde.json_values import escape_surrogates, parts_of_value

_KEYS = (str, int, float, bool, bytes, Decimal, UUID, date, datetime, time, timedelta, Any, object)
_HASHED = (str, bytes, frozenset)
_HASHED_INSTEAD: tuple[tuple[type[Any], str], ...] = (
    (Sequence, "use tuple"),
    (AbstractSet, "use frozenset"),
    (object, "use a dataclass with @dataclass(frozen=True)"),
)
_STREAMS = (Iterable, Iterator, Generator, AsyncIterable, AsyncIterator, AsyncGenerator)
_DEEPEST = 60
_LONGEST_PATH = 60

_FIELD_MODULE = "pydantic.fields"  # not imported, because it takes longer than all the rest here

_RENAMING: Final[Mapping[str, tuple[str, str]]] = {
    **{
        name: (f"{name} is not taken, because one field has one name everywhere", "rename the field")
        for name in ("alias", "validation_alias", "serialization_alias")
    },
    "exclude": (
        "exclude is not taken, because a value that is written without the field could not be read back",
        "remove it; declare SecretStr for what is not to be shown",
    ),
}
"""What gives a field a second name or hides it: what is wrong, and what to write instead."""


class AcceptedType(NamedTuple):
    """A dataclass, a pydantic model or a TypedDict that stands somewhere in a type.

    Attributes:
        cls: the class.
        path: where it was met first.
        hints: the types of its fields, with type variables replaced.
    """

    cls: type[Any]
    path: str
    hints: Mapping[str, Any]


def accept_type(kind: object) -> tuple[AcceptedType, ...]:
    """The dataclasses in `kind`, outermost first, once all of it has been found fit.

    Raises:
        SchemaError: something in it cannot be closed, or JSON cannot give it back; `path` says where.
    """
    return _accepted.get(kind, lambda: _walked(kind))


_accepted: Final[BoundedCache[tuple[AcceptedType, ...]]] = BoundedCache()
_types: Final[BoundedCache[Mapping[str, Any]]] = BoundedCache()
_adapters: Final[BoundedCache[Adapter]] = BoundedCache()


def _walked(kind: object) -> tuple[AcceptedType, ...]:
    walk = _Walk()
    walk.visit(kind, "$")
    return tuple(walk.found)


class _Walk:
    """One walk through a type; remembers what it has seen, because types may be recursive."""

    __slots__ = ("_seen", "found")

    def __init__(self) -> None:
        self.found: list[AcceptedType] = []
        self._seen: list[object] = []

    def visit(self, kind: object, path: str, depth: int = 0) -> None:
        # A generic type that holds itself with ever larger arguments, `Node[list[T]]`, is new at every level.
        if depth > _DEEPEST:
            unsupported_field(
                kind,
                shorten(path, _LONGEST_PATH),
                "its types nest without end",
                "let a recursive type refer to itself as it is",
            )
        inner = _without_options(kind, path)
        # An alias may hold itself without a dataclass between.
        if inner is not kind and not self._is_new(kind):
            return
        if is_union(inner):
            for option in get_args(inner):
                self.visit(option, path, depth + 1)
        elif get_origin(inner) is Literal:
            _check_literal(inner, path)
        elif isinstance(cls := get_origin(inner) or inner, type):
            self._class(cls, inner, path, depth + 1)

    def _is_new(self, kind: object) -> bool:
        # A list, because an annotation may hold options that have no hash.
        if kind in self._seen:
            return False
        self._seen.append(kind)
        return True

    def _class(self, cls: type[Any], kind: object, path: str, depth: int) -> None:
        args = get_args(kind)
        _check_class(cls, kind, path)
        if is_record(cls):
            # By the type with its arguments: `Page[A]` and `Page[B]` have fields of different types.
            if self._is_new(kind):
                hints = record_types(kind, path)
                self.found.append(AcceptedType(cls, path, hints))
                for name, hint in hints.items():
                    self.visit(hint, f"{path}.{name}", depth)
        elif issubclass(cls, Mapping):
            if args:
                _without_options(args[0], f"{path}.*")
                _check_key(args[0], path)
                self.visit(args[-1], f"{path}.*", depth)
        # Before `Collection`, which a tuple is too: each position has a type of its own.
        elif issubclass(cls, tuple) and args[-1:] != (...,):
            for position, arg in enumerate(args):
                self.visit(arg, f"{path}[{position}]", depth)
        elif issubclass(cls, Collection) and args:
            if issubclass(cls, AbstractSet):
                _check_item(args[0], f"{path}[*]")
            self.visit(args[0], f"{path}[*]", depth)


def _without_options(kind: object, path: str) -> object:
    """The type without what is written around it, once that has been found fit."""
    options, inner = options_around(kind)
    check_options(options, kind, path)
    if fault := joint_fault({}, kind):
        unsupported_field(kind, path, *fault)
    return inner


def _check_class(cls: type[Any], kind: object, path: str) -> None:
    name = type_name(cls)
    plain = "write it as a plain @dataclass(frozen=True, slots=True)"
    if is_model(cls):
        _check_model(cls, path)
        return
    if hasattr(cls, "_fields") and issubclass(cls, tuple):
        unsupported_field(kind, path, f"{name} is a NamedTuple", plain)
    # A pydantic dataclass has these, and so has a plain one with `__pydantic_config__`: the alias of `closed_adapter`
    # does not reach into them.
    if any(hasattr(cls, own) for own in ("__pydantic_config__", "__pydantic_validator__")):
        unsupported_field(kind, path, f"{name} carries a pydantic configuration of its own", plain)
    if issubclass(cls, enum.Enum):
        _check_enum(cls, path)
    if cls is type:
        unsupported_field(
            kind, path, "a class has no form in JSON", "use a Literal or an Enum of the names to choose from"
        )
    if cls is Hashable:
        unsupported_field(
            kind, path, "Hashable does not say what JSON is taken", "use Any, or a union of the types that are meant"
        )
    if cls in _STREAMS:
        unsupported_field(kind, path, f"{name} can be read only once", "use list or tuple")


def _check_model(cls: type[BaseModel], path: str) -> None:
    fault = model_fault(cls)
    if fault is not None:
        unsupported_field(cls, f"{path}.{fault[0]}" if fault[0] else path, *fault[1:])
    for name, info in cls.model_fields.items():
        here = f"{path}.{name}"
        _check_renaming({word: getattr(info, word) for word in _RENAMING}, info.annotation, here)
        _refuse_shared(info.default, info.annotation, here)


def _check_enum(cls: type[enum.Enum], path: str) -> None:
    if issubclass(cls, enum.Flag):
        unsupported_field(
            cls, path, f"{cls.__name__} is a Flag, whose combinations JSON cannot name", "use a frozenset of an Enum"
        )
    if not len(cls):
        unsupported_field(cls, path, f"{cls.__name__} has no members, so that no value fits", "give it members")
    for member in cls:
        # Exact types: a `bool`, or a subclass, would come back as a value that is not that of the member.
        if type(member.value) not in {str, int, float}:
            unsupported_field(
                cls,
                path,
                f"{cls.__name__}.{member.name} has the value {member.value!r}, which JSON cannot restore",
                "give every member a string or a number",
            )


def _check_literal(kind: object, path: str) -> None:
    for value in get_args(kind):
        if value is not None and type(value) not in {str, int, bool}:
            unsupported_field(
                kind,
                path,
                f"its choice {value!r} is nothing that JSON can restore",
                "use strings, or the Enum itself",
            )


def _check_item(kind: object, path: str) -> None:
    """Refuses an item of a set that has no hash: what the schema takes could not be read."""
    inner = strip_annotated(kind)
    found = get_origin(inner) or inner
    cls: type[Any] = found if isinstance(found, type) else object
    if is_union(inner) or issubclass(cls, tuple):
        for part in get_args(inner):
            _check_item(part, path)
    elif not issubclass(cls, _HASHED) and _lacks_hash(cls):
        cure = next(words for kinds, words in _HASHED_INSTEAD if issubclass(cls, kinds))
        unsupported_field(kind, path, f"{type_name(kind)} has no hash, so that it cannot be an item of a set", cure)


def _lacks_hash(cls: type[Any]) -> bool:
    """Whether values of a class have no hash, or are read as values of such a class."""
    # `Sequence` and its like have the hash of `object`, but are read as a list, which has none.
    return cls.__hash__ is None or issubclass(cls, Sequence | Mapping | AbstractSet)


def _check_key(kind: object, path: str) -> None:
    key = strip_annotated(kind)
    values = get_args(key) if get_origin(key) is Literal else ()
    if isinstance(key, type) and issubclass(key, enum.Enum):
        _check_enum(key, path)
        values = tuple(member.value for member in key)
    if not any(key is known for known in _KEYS) and not (values and all(isinstance(value, str) for value in values)):
        unsupported_field(
            kind, path, f"its keys are of type {type_name(kind)}, but a key in JSON is a string", "use str keys"
        )


def field_types(cls: type[Any], args: Iterable[object], path: str) -> Mapping[str, Any]:
    """The types of the fields of `cls[args]`, each field having been found fit.

    Raises:
        SchemaError: an annotation that cannot be resolved, or a field that JSON cannot fill or restore.
    """
    bindings = bindings_by_class(cls, tuple(args))
    _refuse_init_only(cls, path)
    found: dict[str, Any] = {}
    for field in fields(cls):
        owner = _owner(cls, field)
        hint = substitute_variables(_resolved(field, owner, path), bindings.get(owner, {}))
        _check(field, hint, f"{path}.{field.name}")
        found[field.name] = hint
    return found


def record_types(kind: object, path: str = "$") -> Mapping[str, Any]:
    """The types of the fields of a dataclass, a model or a TypedDict.

    Args:
        kind: the class, with its arguments if it is generic.
        path: where it stands.

    Raises:
        SchemaError: as `field_types`; for a model or a TypedDict, an annotation cannot be resolved.
    """
    return _types.get(kind, lambda: _made_types(kind, path))


def _made_types(kind: object, path: str) -> Mapping[str, Any]:
    cls = cast("type[Any]", get_origin(kind) or kind)
    if is_dataclass(cls):
        return field_types(cls, get_args(kind), path)
    try:
        return model_hints(cls) if is_model(cls) else typed_dict_hints(kind)
    except (NameError, AttributeError, SyntaxError, TypeError) as error:
        raise SchemaError(
            f"{path}: an annotation of {cls.__name__} cannot be resolved ({error}); define or import the type at the "
            f"top level of {cls.__module__}, outside functions and TYPE_CHECKING blocks",
            type=cls,
            path=path,
        ) from error


def check_options(options: Iterable[object], kind: object, path: str) -> None:
    """Refuses an option inside `Annotated[...]` that gives a field a second name, hides it, or constrains nothing.

    Raises:
        SchemaError: it does.
    """
    for option in options:
        _check_renaming({name: getattr(option, name, None) for name in _RENAMING}, kind, path)
        if fault := option_fault(option, kind):
            unsupported_field(kind, path, *fault)


def _refuse_init_only(cls: type[Any], path: str) -> None:
    # Not `fields(cls)`, which leaves an InitVar out.
    for name, field in cls.__dataclass_fields__.items():
        if isinstance(field.type, InitVar) or (isinstance(field.type, str) and "InitVar" in field.type):
            unsupported_field(
                cls,
                f"{path}.{name}",
                "an InitVar is not stored in the value, so it could not be restored",
                "make it a field",
            )


def _owner(cls: type[Any], field: Field[Any]) -> type[Any]:
    """The class that wrote the field: its module gives the annotation its names, its variables their meaning."""
    # A subclass holds the very same `Field` object as the base, so that the topmost class with it has written it.
    return next(base for base in reversed(cls.__mro__) if _fields_of(base).get(field.name) is field)


def _fields_of(cls: type[Any]) -> Mapping[str, Field[Any]]:
    return getattr(cls, "__dataclass_fields__", {})


def _resolved(field: Field[Any], owner: type[Any], path: str) -> object:
    # The class names itself where its module does not: in a function, or while the module is still being imported.
    names = {owner.__name__: owner} | {p.__name__: p for p in getattr(owner, "__type_params__", ())}
    module = sys.modules.get(owner.__module__)
    global_names = vars(module) if module else {}
    if (known := known_type(field.type, names, global_names)) is not None:
        return known
    # One field at a time: `get_type_hints` of the class would fail as a whole, and not say for which field.
    holder = type("Holder", (), {"__annotations__": {field.name: field.type}})
    try:
        return get_type_hints(holder, global_names, names, include_extras=True)[field.name]
    except (NameError, AttributeError, SyntaxError, TypeError) as error:
        raise SchemaError(
            f"{path}.{field.name}: its annotation {field.type!r} cannot be resolved ({error}); define or import the "
            f"type at the top level of {owner.__module__}, outside functions and TYPE_CHECKING blocks",
            type=owner,
            path=f"{path}.{field.name}",
        ) from error


def _check(field: Field[Any], hint: object, path: str) -> None:
    if not field.init:
        unsupported_field(
            hint,
            path,
            "the constructor does not take it (init=False), so it could not be restored",
            "make it a property",
        )
    _check_renaming(field.metadata, hint, path)
    if words := metadata_fault(field.metadata, hint) or joint_fault(field.metadata, hint):
        unsupported_field(hint, path, *words)
    if type(field.default).__module__ == _FIELD_MODULE:
        unsupported_field(
            hint, path, "a plain dataclass takes pydantic's Field(...) for its default", "use field(metadata={...})"
        )
    # A default factory is not called here: it may do anything, and its value is not in the schema.
    if field.default is not MISSING:
        if fault := default_fault(field.default, hint):
            unsupported_field(hint, path, *fault)
        _refuse_shared(field.default, hint, path)


def _check_renaming(options: Mapping[Any, object], kind: object, path: str) -> None:
    for name in _RENAMING:
        if options.get(name) is not None:
            unsupported_field(kind, path, *_RENAMING[name])


def _refuse_shared(default: object, hint: object, path: str) -> None:
    if not is_mutable(default):
        return
    try:
        hash(default)
    except TypeError:
        return  # pydantic copies it for each value
    cure = "use a default_factory, or make it immutable: a frozen dataclass, a tuple"
    unsupported_field(hint, path, "its default is mutable, and all values would share it", cure)


def is_mutable(value: object) -> bool:
    """Whether a default can be changed, itself or in what it holds; a hash by identity does not say that it cannot."""
    cls = type(value)
    if is_dataclass(cls):
        is_changed = not cast("Any", cls).__dataclass_params__.frozen
    else:
        has_identity = cls.__hash__ is object.__hash__ and hasattr(value, "__dict__") and not isinstance(value, type)
        is_changed = cls.__hash__ is None or has_identity
    return is_changed or any(is_mutable(part) for _, part in parts_of_value(value))


def default_fault(default: object, hint: object) -> ConstraintFault | None:
    """Why `default` cannot be what a field of this type holds; `None` if it can."""
    why = _unfit_default(default, hint)
    shown = type_name(strip_annotated(hint))
    return (f"its default does not fit {shown} ({why})", "change the default or the type") if why else None


def _unfit_default(default: object, hint: Any) -> str:  # noqa: ANN401 - an annotation may be any object
    """Why `default` cannot be what the field holds, or nothing; a contradiction here would reach the model's schema."""
    # The commonest defaults, for which no adapter has to be made.
    if type(default) is hint and any(hint is scalar for scalar in (str, int, bool)):
        is_sayable = not isinstance(default, str) or escape_surrogates(default) is default
        return "" if is_sayable else "JSON cannot say it"
    if default is None and NoneType in (hint, *get_args(hint)):
        return ""
    try:
        adapter = _adapters.get(hint, lambda: closed_adapter(hint))
        adapter.validator.validate_python(default, strict=True)
    except ValidationError as error:
        return error.errors(include_url=False, include_input=False)[0]["msg"]
    except BUILD_ERRORS:
        return ""  # the type itself is at fault, and building the whole reports it
    try:
        # A default is published in the schema, so it has to be JSON that others can read: NaN is not.
        from_json(adapter.serializer.to_json(default, warnings="error"), allow_inf_nan=False)
    except (PydanticSerializationError, ValueError):
        return "JSON cannot say it"
    return ""
