"""What is written around a type, and what stands for the type variables in it.

`Annotated`, `Final`, `NewType` and type aliases decorate or name a type; `strip_annotated` looks through them, and
`options_around` collects what they say. Type variables stand for what `Page[Item]` makes of the annotations that
`Page`, and the classes above it, wrote with `T`.

Classes whose values are written as objects with named fields are dataclasses, pydantic models and TypedDicts;
`record_types` resolves the annotations of their fields.
"""

from __future__ import annotations

import builtins
import sys
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import Field, FrozenInstanceError, fields, is_dataclass
from typing import (
    Annotated,
    Any,
    Final,
    NewType,
    NotRequired,
    Required,
    TypeGuard,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import BaseModel
from typing_extensions import ReadOnly, TypeAliasType, is_typeddict

from handrail.errors import SchemaError
from handrail.serde.core_schemas import cached

_ALIASES: tuple[type[Any], ...] = (TypeAliasType, getattr(typing, "TypeAliasType", TypeAliasType))
_UNIONS = (Union, types.UnionType)

Bindings = Mapping[object, object]
"""What stands for each type variable inside one class."""


C = TypeVar("C", bound=type[Any])


def subscriptable(cls: C) -> C:
    """Lets a frozen, slotted, generic dataclass be made by its subscripted name, as in `ToolResult[str](...)`."""
    # `typing` sets `__orig_class__` on what it makes, and expects an `AttributeError` if it cannot. On Python 3.11 the
    # `__setattr__` of such a dataclass raises a `TypeError`: its `super` refers to the class without slots.
    cast("Any", cls).__setattr__ = _refuse_attribute  # of the class, where checkers see that of an object
    return cls


def _refuse_attribute(_: object, name: str, _value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def known_type(annotation: object, *names: Mapping[str, Any]) -> Any:  # noqa: ANN401 - a type
    """The type that an annotation means, if that is seen without evaluating it; `None` for any other annotation.

    `typing.get_type_hints`, which returns the same, takes longer than all else that is done with most annotations.

    Args:
        annotation: a type, or its text.
        names: the names that text may refer to, those first that hide the others.
    """
    if isinstance(annotation, str):
        found = next((scope[annotation] for scope in (*names, vars(builtins)) if annotation in scope), None)
        return found if _is_class(found) else None
    return annotation if _is_resolved(annotation) else None


def _is_resolved(hint: object) -> bool:
    """Whether a type is known to hold no text."""
    if _is_class(hint):
        return True
    args = get_args(hint)
    # What is written beside a type in `Annotated` is never evaluated.
    return bool(args) and all(map(_is_resolved, args[:1] if get_origin(hint) is Annotated else args))


def _is_class(hint: object) -> bool:
    return isinstance(hint, type) and get_origin(hint) is None


def strip_annotated(kind: object) -> object:
    """`kind` without what only decorates or names it: `Annotated`, `Final`, `NewType`, type aliases."""
    return options_around(kind)[1]


def options_around(kind: object) -> tuple[tuple[object, ...], object]:
    """The options of every `Annotated` around a type, and the type without what only decorates or names it.

    The text of an alias, as in `TypeAliasType("Many", "list[T]")`, is evaluated; one that cannot be stays a text.
    """
    # Most types are classes, and all below takes longer.
    if type(kind) is type:
        return (), kind
    options: tuple[object, ...] = ()
    while True:
        origin = get_origin(kind)
        alias: Any = origin if isinstance(origin, _ALIASES) else kind
        if origin is Annotated:
            kind, *own = get_args(kind)
            options = (*options, *own)
        elif origin is Final:
            kind = get_args(kind)[0]
        elif isinstance(kind, NewType):
            kind = kind.__supertype__
        elif isinstance(alias, _ALIASES):
            kind = substitute_variables(
                _alias_value(alias), dict(zip(alias.__type_params__, get_args(kind), strict=False))
            )
        else:
            return options, kind


def _alias_value(alias: Any) -> object:  # noqa: ANN401 - an alias of either module
    if not isinstance(alias.__value__, str):
        return alias.__value__
    # The alias itself too, because it may be recursive and defined in a function.
    names = {**vars(sys.modules[alias.__module__]), alias.__name__: alias}
    parameters = {parameter.__name__: parameter for parameter in alias.__type_params__}
    try:
        return _evaluated("value", alias.__value__, names, parameters)
    except _UNRESOLVED:
        return alias.__value__


def is_union(kind: object) -> bool:
    """Whether `kind` is written `A | B`, `Union[A, B]` or `Optional[A]`."""
    return type(kind) is not type and get_origin(kind) in _UNIONS


def substitute_variables(hint: Any, bindings: Bindings) -> object:  # noqa: ANN401 - an annotation may be any object
    """`hint` with its type variables replaced; those that are not bound stay."""
    if isinstance(hint, TypeVar):
        return bindings.get(hint, hint)
    parameters: tuple[object, ...] = getattr(hint, "__parameters__", ())
    # A generic class without arguments has parameters too, but they are its own and not those of the class around it.
    if isinstance(hint, type) or not any(parameter in bindings for parameter in parameters):
        return hint
    return hint[tuple(bindings.get(parameter, parameter) for parameter in parameters)]


def bindings_by_class(cls: type[Any], args: Sequence[object]) -> Mapping[type[Any], Bindings]:
    """For `cls[args]` and each generic class above it, what stands for that class's own type variables.

    One variable may mean different things in a class and in its base (`class B(A[list[T]], Generic[T])`), so each class
    has bindings of its own.
    """
    own: Bindings = dict(zip(getattr(cls, "__parameters__", ()), args, strict=False))
    found: dict[type[Any], Bindings] = {cls: own}
    # From `vars`: a subclass that is not generic inherits the attribute of its base, which says nothing about its own
    # bases.
    for base in vars(cls).get("__orig_bases__", cls.__bases__):
        origin = get_origin(base) or base
        if isinstance(origin, type) and origin is not object:
            found |= bindings_by_class(origin, [substitute_variables(arg, own) for arg in get_args(base)])
    return found


_QUALIFIERS: Final = frozenset({Required, NotRequired, ReadOnly})
"""What a TypedDict writes around the type of a field."""


def is_record(kind: object) -> TypeGuard[type[Any]]:
    """Whether it is a class of objects with named fields; a generic one without its arguments."""
    cls = cast("type[object]", kind)  # if it is a class
    return isinstance(kind, type) and (is_dataclass(cls) or is_model(cls) or is_typeddict(cls))


def is_model(kind: object) -> TypeGuard[type[BaseModel]]:
    """Whether it is a class of pydantic models."""
    return isinstance(kind, type) and issubclass(kind, BaseModel)


@cached
def record_types(kind: object, path: str = "$") -> Mapping[str, Any]:
    """The types of the fields of a dataclass, a model or a TypedDict, with type variables replaced.

    Args:
        kind: the class, with its arguments if it is generic.
        path: where it stands.

    Raises:
        SchemaError: an annotation cannot be resolved.
    """
    cls = cast("type[Any]", get_origin(kind) or kind)
    if is_dataclass(cls):
        bindings = bindings_by_class(cls, get_args(kind))
        types: dict[str, Any] = {}
        for field in fields(cls):
            owner = _owner(cls, field)
            types[field.name] = substitute_variables(_field_type(field, owner, path), bindings.get(owner, {}))
        return types
    try:
        return _model_types(cls) if is_model(cls) else _typed_dict_types(cls, get_args(kind))
    except _UNRESOLVED as error:
        raise _unresolved(f"an annotation of {cls.__name__}", cls, path, error) from error


def _owner(cls: type[Any], field: Field[Any]) -> type[Any]:
    """The class that wrote the field: its module gives the annotation its names, its variables their meaning."""
    # A subclass holds the very same `Field` object as the base, so that the topmost class with it has written it.
    return next(
        base for base in reversed(cls.__mro__) if vars(base).get("__dataclass_fields__", {}).get(field.name) is field
    )


def _field_type(field: Field[Any], owner: type[Any], path: str) -> object:
    # The class names itself where its module does not: in a function, or while the module is still being imported.
    names = {owner.__name__: owner} | {p.__name__: p for p in getattr(owner, "__type_params__", ())}
    module = sys.modules.get(owner.__module__)
    global_names = vars(module) if module else {}
    if (known := known_type(field.type, names, global_names)) is not None:
        return known
    # One field at a time: `get_type_hints` of the class would fail as a whole, and not say for which field.
    try:
        return _evaluated(field.name, field.type, global_names, names)
    except _UNRESOLVED as error:
        raise _unresolved(f"its annotation {field.type!r}", owner, f"{path}.{field.name}", error) from error


_UNRESOLVED: Final = (NameError, AttributeError, SyntaxError, TypeError)
"""What an annotation raises that cannot be evaluated."""


def _evaluated(name: str, annotation: object, names: dict[str, Any], inner: dict[str, Any]) -> object:
    holder = type("Holder", (), {"__annotations__": {name: annotation}})
    return get_type_hints(holder, names, inner, include_extras=True)[name]


def _unresolved(what: str, owner: type[Any], path: str, error: Exception) -> SchemaError:
    reason, cure = str(error).splitlines()[0], "outside functions and TYPE_CHECKING blocks"
    text = f"{path}: {what} cannot be resolved ({reason}); define or import the type at the top level of "
    return SchemaError(f"{text}{owner.__module__}, {cure}", type=owner, path=path)


def _model_types(model: type[BaseModel]) -> Mapping[str, Any]:
    model.model_rebuild()  # one that refers to a later class is completed when it is first used
    return {
        name: Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation
        for name, field in model.model_fields.items()
    }


def _typed_dict_types(cls: Any, args: Sequence[object]) -> Mapping[str, Any]:  # noqa: ANN401 - a TypedDict
    bindings: dict[object, object] = dict(zip(getattr(cls, "__parameters__", ()), args, strict=False))
    hints = get_type_hints(cls, include_extras=True)
    return {name: substitute_variables(_unqualified(hint), bindings) for name, hint in hints.items()}


def field_values(value: BaseModel) -> Iterator[tuple[str, object]]:
    """The fields of a model with their values."""
    return ((name, getattr(value, name)) for name in type(value).model_fields)


def _unqualified(hint: Any) -> Any:  # noqa: ANN401 - an annotation may be any object
    while get_origin(hint) in _QUALIFIERS:
        (hint,) = get_args(hint)
    return hint
