"""What the fields of a dataclass may be, seen one by one: their annotations, options and defaults."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, InitVar, fields
from types import NoneType
from typing import Any, NoReturn, get_args, get_type_hints

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError, from_json

from handrail.errors import SchemaError
from handrail.serde.adapter import BUILD_ERRORS, closed_adapter
from handrail.serde.constraints import metadata_fault, option_fault
from handrail.serde.formatting import type_name
from handrail.serde.generics import bindings_by_class, bound

_FIELD_MODULE = "pydantic.fields"  # not imported, because it takes longer than all the rest here
_RENAMING = ("alias", "validation_alias", "serialization_alias", "exclude")


def refuse(kind: object, path: str, fault: str, cure: str) -> NoReturn:
    """Raises the `SchemaError` that names the place, what is wrong there, and what to write instead."""
    raise SchemaError(f"{path}: {fault}; {cure}", type=kind, path=path)


def field_types(cls: type[Any], args: Iterable[object], path: str) -> Mapping[str, Any]:
    """The types of the fields of `cls[args]`, each field having been found fit.

    Raises:
        SchemaError: an annotation that cannot be resolved, or a field that JSON cannot fill or give back.
    """
    bindings = bindings_by_class(cls, tuple(args))
    _refuse_init_only(cls, path)
    found: dict[str, Any] = {}
    for field in fields(cls):
        owner = _owner(cls, field)
        hint = bound(_resolved(field, owner, path), bindings.get(owner, {}))
        _check(field, hint, f"{path}.{field.name}")
        found[field.name] = hint
    return found


def check_options(options: Iterable[object], kind: object, path: str) -> None:
    """Refuses an option inside `Annotated[...]` that gives a field a second name, hides it, or constrains nothing.

    Raises:
        SchemaError: it does.
    """
    for option in options:
        _check_renaming({name: getattr(option, name, None) for name in _RENAMING}, kind, path)
        if fault := option_fault(option, kind):
            refuse(kind, path, *fault)


def _refuse_init_only(cls: type[Any], path: str) -> None:
    for name, field in cls.__dataclass_fields__.items():
        if isinstance(field.type, InitVar) or (isinstance(field.type, str) and "InitVar" in field.type):
            refuse(
                cls,
                f"{path}.{name}",
                "an InitVar is not kept in the value, so it could not be given back",
                "make it a field",
            )


def _owner(cls: type[Any], field: Field[Any]) -> type[Any]:
    """The class that wrote the field: its module gives the annotation its names, its variables their meaning."""
    return next(base for base in reversed(cls.__mro__) if _fields_of(base).get(field.name) is field)


def _fields_of(cls: type[Any]) -> Mapping[str, Field[Any]]:
    return getattr(cls, "__dataclass_fields__", {})


def _resolved(field: Field[Any], owner: type[Any], path: str) -> object:
    names = {owner.__name__: owner} | {p.__name__: p for p in getattr(owner, "__type_params__", ())}
    module = sys.modules.get(owner.__module__)
    holder = type("Holder", (), {"__annotations__": {field.name: field.type}})
    try:
        return get_type_hints(holder, vars(module) if module else {}, names, include_extras=True)[field.name]
    except (NameError, AttributeError, SyntaxError, TypeError) as error:
        raise SchemaError(
            f"{path}.{field.name}: its annotation {field.type!r} cannot be resolved ({error}); define or import the "
            f"type at the top level of {owner.__module__}, outside functions and TYPE_CHECKING blocks",
            type=owner,
            path=f"{path}.{field.name}",
        ) from error


def _check(field: Field[Any], hint: object, path: str) -> None:
    if not field.init:
        refuse(
            hint,
            path,
            "the constructor does not take it (init=False), so it could not be given back",
            "make it a property",
        )
    _check_renaming(field.metadata, hint, path)
    if words := metadata_fault(field.metadata, hint):
        refuse(hint, path, *words)
    if type(field.default).__module__ == _FIELD_MODULE:
        refuse(hint, path, "a plain dataclass takes pydantic's Field(...) for its default", "use field(metadata={...})")
    if field.default is not MISSING and (fault := _default_fault(field.default, hint)):
        refuse(hint, path, f"its default does not fit {type_name(hint)} ({fault})", "change the default or the type")


def _check_renaming(options: Mapping[Any, object], kind: object, path: str) -> None:
    for name in _RENAMING:
        if options.get(name) is not None:
            refuse(kind, path, f"{name} is not taken, because one field has one name everywhere", "rename the field")


def _default_fault(default: object, hint: Any) -> str:  # noqa: ANN401 - an annotation may be any object
    """Why `default` cannot be what the field holds, or nothing; a contradiction here would reach the model's schema."""
    if type(default) is hint and any(hint is scalar for scalar in (str, int, bool)):
        return ""
    if default is None and NoneType in (hint, *get_args(hint)):
        return ""
    try:
        adapter = closed_adapter(hint)
    except BUILD_ERRORS:
        return ""  # the type itself is at fault, and building the whole says so
    try:
        adapter.validator.validate_python(default, strict=True)
        from_json(adapter.serializer.to_json(default, warnings="error"), allow_inf_nan=False)
    except ValidationError as error:
        return error.errors(include_url=False, include_input=False)[0]["msg"]
    except (PydanticSerializationError, ValueError):
        return "JSON cannot say it"
    return ""
