"""What is written around a type, and what stands for the type variables in it.

`Annotated`, `Final`, `NewType` and type aliases decorate or name a type; `strip_annotated` looks through them, and
`options_around` collects what they say. Type variables stand for what `Page[Item]` makes of the annotations that
`Page`, and the classes above it, wrote with `T`.

Classes whose values are written as objects with named fields are dataclasses, pydantic models and TypedDicts. A
dataclass is resolved by `supported_types`, which looks at its fields one by one. Of a model pydantic has resolved the
fields already; a TypedDict resolves its own annotations.
"""

from __future__ import annotations

import builtins
import sys
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import FrozenInstanceError, is_dataclass
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

from pydantic import BaseModel, PydanticUndefinedAnnotation
from typing_extensions import ReadOnly, TypeAliasType, is_typeddict

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
        if not annotation.isidentifier():
            return None
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
    """The options of every `Annotated` around a type, and the type without what only decorates or names it."""
    # Most types are classes, and all below takes longer.
    if type(kind) is type:
        return (), kind
    options: tuple[object, ...] = ()
    while True:
        origin = get_origin(kind)
        if origin is Annotated:
            kind, *own = get_args(kind)
            options = (*options, *own)
        elif origin is Final:
            kind = get_args(kind)[0]
        elif isinstance(kind, NewType):
            kind = kind.__supertype__
        elif isinstance(kind, _ALIASES):
            kind = cast("Any", kind).__value__
        elif isinstance(origin, _ALIASES):
            alias = cast("Any", origin)
            kind = substitute_variables(alias.__value__, dict(zip(alias.__type_params__, get_args(kind), strict=False)))
        else:
            return options, kind


def quoted_alias(kind: object) -> object | None:
    """The type alias around a type whose value is text, as in `TypeAliasType("Many", "list[T]")`; `None` for others."""
    if type(kind) is type:
        return None
    while True:
        origin = get_origin(kind)
        alias = kind if isinstance(kind, _ALIASES) else origin if isinstance(origin, _ALIASES) else None
        if alias is not None and isinstance(cast("Any", alias).__value__, str):
            return kind
        if alias is not None:
            kind = cast("Any", alias).__value__
        elif origin in {Annotated, Final}:
            kind = get_args(kind)[0]
        elif isinstance(kind, NewType):
            kind = kind.__supertype__
        else:
            return None


def unquoted(kind: object) -> object:
    """The type that the text of a type alias means, with its arguments in place.

    Args:
        kind: what `quoted_alias` has found. The text is evaluated with the names of the module of the alias.

    Raises:
        Exception: the text cannot be evaluated there.
    """
    alias = cast("Any", kind if isinstance(kind, _ALIASES) else get_origin(kind))
    # The alias itself too, because it may be recursive and defined in a function.
    names = {**vars(sys.modules[alias.__module__]), alias.__name__: alias}
    parameters = {parameter.__name__: parameter for parameter in alias.__type_params__}
    holder = type("Holder", (), {"__annotations__": {"value": alias.__value__}})
    value = get_type_hints(holder, globalns=names, localns=parameters, include_extras=True)["value"]
    return substitute_variables(value, dict(zip(alias.__type_params__, get_args(kind), strict=False)))


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


def model_fault(model: type[BaseModel]) -> tuple[str, str, str] | None:
    """The first thing in a model that JSON could not restore; its field, the fault, and the cure."""
    name = model.__name__
    if model.__pydantic_root_model__:
        return "", f"{name} is a RootModel", "declare the type of its root"
    if model.model_config.get("extra") == "allow":
        return (
            "",
            f'{name} takes unknown fields (extra="allow")',
            "remove the option, and declare a dict for what has no name",
        )
    computed = next(iter(model.model_computed_fields), None)
    if computed is not None:
        return (
            computed,
            "a computed field is written, and could not be read back",
            "make it a property without @computed_field",
        )
    return None


def model_hints(model: type[BaseModel]) -> Mapping[str, Any]:
    """The types of the fields of a model, each with its constraints around it.

    Raises:
        NameError: an annotation cannot be resolved.
    """
    # A model that refers to a later class is completed when it is first used.
    try:
        model.model_rebuild()
    except PydanticUndefinedAnnotation as error:
        raise NameError(f"name {error.name!r} is not defined") from error
    hints: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        options = tuple(field.metadata)
        hints[name] = Annotated[(field.annotation, *options)] if options else field.annotation
    return hints


def typed_dict_hints(kind: object) -> Mapping[str, Any]:
    """The types of the fields of a TypedDict, without what says whether they may be left out.

    Args:
        kind: the class, with its arguments if it is generic.

    Raises:
        NameError: an annotation cannot be resolved.
    """
    cls: Any = get_origin(kind) or kind
    bindings: dict[object, object] = dict(zip(getattr(cls, "__parameters__", ()), get_args(kind), strict=False))
    hints = get_type_hints(cls, include_extras=True)
    return {name: substitute_variables(_unqualified(hint), bindings) for name, hint in hints.items()}


def field_values(value: BaseModel) -> Iterator[tuple[str, object]]:
    """The fields of a model with their values."""
    return ((name, getattr(value, name)) for name in type(value).model_fields)


def _unqualified(hint: Any) -> Any:  # noqa: ANN401 - an annotation may be any object
    while get_origin(hint) in _QUALIFIERS:
        (hint,) = get_args(hint)
    return hint
