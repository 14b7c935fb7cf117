"""Type arguments of `Tool[P, R]`, `MarkdownSection[P]` and `PromptTemplate[Out]` at creation.

The alias that `typing` makes of a subscripted class sets the types on the object only after `__init__`, which is too
late to check them. A `TypedAlias` passes them first; in annotations it is used like any other alias.

`dataclasses.replace` creates its copy by the class without brackets, from the fields. So each of these classes has a
field `given_types`, which is set to the types at creation and passed to the copy.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from types import GenericAlias, NoneType
from typing import Any, TypeGuard, TypeVar, cast

from handrail.errors import PromptValidationError
from handrail.serde.formatting import type_name

_GIVEN = "type_arguments"
_COPIED = "given_types"


class TypedAlias(GenericAlias):
    """A class with its type arguments, to be called or used in an annotation."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - whatever the class takes, and an object of it
        """Create an object that has the types during `__init__`."""
        # As `type.__call__` does, with the types set before `__init__`, whose checks need them.
        made = object.__new__(cast("type[Any]", self.__origin__))  # made by `typed_alias`, so it is a class
        object.__setattr__(made, _GIVEN, self.__args__)
        made.__init__(*args, **kwargs)
        return made

    def __getitem__(self, types: Any, /) -> TypedAlias:  # noqa: ANN401 - types, in one of their many forms
        """The alias with its type variables replaced."""
        filled = super().__getitem__(types)
        return TypedAlias(cast("type[Any]", filled.__origin__), filled.__args__)


def typed_alias(cls: type[Any], types: Any, *, wanted: str) -> TypedAlias:  # noqa: ANN401 - types, in their many forms
    """The alias of a class for the types in its brackets.

    Args:
        cls: the class.
        types: the types in the brackets.
        wanted: the expected types, as written, e.g. `"Params, Result"`.

    Raises:
        PromptValidationError: there are too many types, or too few.
    """
    alias = TypedAlias(cls, types)
    given = alias.__args__
    if len(given) != len(wanted.split(", ")):
        shown = ", ".join(annotation_name(kind) for kind in given)
        raise PromptValidationError(
            f"{cls.__name__}[{shown}] has {len(given)} type(s); write {cls.__name__}[{wanted}]."
        )
    return alias


def type_arguments(
    made: object, *, or_else: Callable[[], tuple[Any, ...] | None] | None = None
) -> tuple[Any, ...] | None:
    """The types with which an object was created, retained for copies.

    They are those of its own brackets, of the object that it is a copy of, or of a base class. `None` if there are
    none, or only type variables.

    Args:
        made: the object.
        or_else: finds the types where no brackets say them.
    """
    # An object that was created without brackets lacks the attribute, or has an empty slot for it; both need the
    # default.
    given: tuple[Any, ...] | None = getattr(made, _GIVEN, None) or getattr(made, _COPIED)
    if given is None:
        for cls in type(made).__mro__:
            bases: tuple[object, ...] = vars(cls).get("__orig_bases__", ())
            inherited = [base.__args__ for base in bases if isinstance(base, TypedAlias)]
            # A generic subclass has only type variables in its bases; its types are in its own brackets.
            if inherited and not _open(inherited[0]):
                given = inherited[0]
                break
    if given is None and or_else is not None:
        given = or_else()
    # In an annotation both are written `None`; the checks compare with `None`.
    types = None if given is None else tuple(None if kind is NoneType else kind for kind in given)
    object.__setattr__(made, _COPIED, types)
    # Also where no brackets have set it, so that `copy.copy` finds every field.
    object.__setattr__(made, _GIVEN, given)
    return types


def is_dataclass_type(kind: object) -> TypeGuard[type[Any]]:
    """Whether it is a dataclass: a class without type arguments, and not an instance."""
    return isinstance(kind, type) and dataclasses.is_dataclass(kind)


def annotation_name(kind: object) -> str:
    """A type as written in code, without its module."""
    if kind is None or kind is NoneType:
        return "None"
    return repr(kind) if isinstance(kind, str) else type_name(kind)


def _open(types: tuple[object, ...]) -> bool:
    return any(isinstance(kind, TypeVar) for kind in types)
