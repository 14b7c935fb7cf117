"""Type variables: what `Page[Item]` makes of the annotations that `Page`, and the classes above it, wrote with `T`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, get_args, get_origin

Bindings = Mapping[object, object]
"""What stands for each type variable inside one class."""


def bound(hint: Any, bindings: Bindings) -> object:  # noqa: ANN401 - an annotation may be any object
    """`hint` with its type variables replaced; those that are not bound stay."""
    if isinstance(hint, TypeVar):
        return bindings.get(hint, hint)
    parameters: tuple[object, ...] = getattr(hint, "__parameters__", ())
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
    for base in vars(cls).get("__orig_bases__", cls.__bases__):
        origin = get_origin(base) or base
        if isinstance(origin, type) and origin is not object:
            found |= bindings_by_class(origin, [bound(arg, own) for arg in get_args(base)])
    return found
