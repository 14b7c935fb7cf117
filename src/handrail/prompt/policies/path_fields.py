"""The paths that a call is about, by the names of the fields of its parameters."""

from __future__ import annotations

import types
import typing
from collections.abc import Collection, Mapping, Sequence
from pathlib import PurePath
from typing import Annotated, Any, Literal, NewType, Union, cast, get_args, get_origin

from typing_extensions import TypeAliasType

from handrail.prompt.type_parameters import name_of
from handrail.serde.supported_types import field_types

AnyPath = str | PurePath
"""A path as the parameters have it."""

_FIELDS = ("path", "file_path")
"""The first of these that the parameters have."""

_NEW = "new_path"
"""What a move calls its target."""

_UNIONS = (Union, types.UnionType)
_ALIASES: tuple[type[Any], ...] = (TypeAliasType, getattr(typing, "TypeAliasType", TypeAliasType))


def path_in(params: object) -> AnyPath | Sequence[AnyPath] | None:
    """The field `path`, or else `file_path`, of the parameters, and `new_path` if they have that, too; else `None`."""
    found: AnyPath | Sequence[AnyPath] | None = getattr(params, "path", None)
    if found is None:
        found = getattr(params, "file_path", None)
    new_path: AnyPath | None = getattr(params, _NEW, None)
    return (found, new_path) if isinstance(found, str | PurePath) and new_path is not None else found


def path_fields(params_type: type[Any] | None) -> Mapping[str, object]:
    """The fields of a tool's parameters that `path_in` reads, with their types."""
    cls = get_origin(params_type) or params_type
    if cls is None:
        return {}
    kinds = field_types(cls, get_args(params_type), "$")
    found = [name for name in _FIELDS if name in kinds]
    return {name: kinds[name] for name in (*found, *([_NEW] if found and _NEW in kinds else []))}


def fault_of_path_field(name: str, kind: object) -> str | None:
    """What keeps a field from holding a path or several, in words; `None` if nothing certainly does."""
    if _may_be_path(kind, several=name != _NEW):
        return None
    return f"its field {name} is {name_of(kind)}, and a path is a str or a pathlib.Path"


def _may_be_path(kind: object, *, several: bool) -> bool:
    inside = _inside(kind)
    if inside is not None:
        return any(_may_be_path(member, several=several) for member in inside)
    cls: object = get_origin(kind) or kind
    if not isinstance(cls, type) or cls in {object, Any} or issubclass(cls, str | PurePath):
        return True  # what anything but a class will hold cannot be known here
    if not several or not issubclass(cls, Collection) or issubclass(cls, Mapping | bytes):
        return False
    members = [member for member in get_args(kind) if member is not ...]
    return not members or any(_may_be_path(member, several=False) for member in members)


def _inside(kind: Any) -> Sequence[object] | None:  # noqa: ANN401 - an annotation, in one of its many forms
    """The types of which a value of this one is of at least one; `None` for a type that does not stand for others."""
    if isinstance(kind, _ALIASES):
        return (kind.__value__,)
    if isinstance(kind, NewType):
        return (kind.__supertype__,)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return arguments[:1]
    if origin is Literal:
        return [cast("object", type(value)) for value in arguments]
    return arguments if origin in _UNIONS else None
