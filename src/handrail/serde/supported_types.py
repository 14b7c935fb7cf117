"""Which types Handrail takes: plain dataclasses, and below them what JSON can say and give back.

`admit` walks the annotations of a type before pydantic sees it, because pydantic takes much that would leave a schema
open (models, and dataclasses with a configuration of their own) or that JSON could not give back (a field that the
constructor does not take, an enum of tuples), and names no field when it gives up. Every refusal says where, and what
to write instead.
"""

from __future__ import annotations

import enum
import types
import typing
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Collection,
    Generator,
    Iterable,
    Iterator,
    Mapping,
)
from dataclasses import dataclass, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, Final, Literal, NewType, Union, cast, get_args, get_origin
from uuid import UUID

from pydantic import BaseModel
from typing_extensions import TypeAliasType, is_typeddict

from handrail.serde.fields import check_options, field_types, refuse
from handrail.serde.formatting import shortened, type_name
from handrail.serde.generics import bound

_ALIASES: tuple[type[Any], ...] = (TypeAliasType, getattr(typing, "TypeAliasType", TypeAliasType))
_UNIONS = (Union, types.UnionType)
_KEYS = (str, int, float, bool, bytes, Decimal, UUID, date, datetime, time, timedelta, Any, object)
_STREAMS = (Iterable, Iterator, Generator, AsyncIterable, AsyncIterator, AsyncGenerator)
_DEEPEST = 60
_LONGEST_PATH = 60


@dataclass(frozen=True, slots=True)
class Admitted:
    """A dataclass that stands somewhere in a type.

    Attributes:
        cls: the dataclass.
        path: where it was met first.
        hints: the types of its fields, with type variables replaced.
    """

    cls: type[Any]
    path: str
    hints: Mapping[str, Any]


def admit(kind: object) -> tuple[Admitted, ...]:
    """The dataclasses in `kind`, outermost first, once all of it has been found fit.

    Raises:
        SchemaError: something in it cannot be closed, or JSON cannot give it back; `path` says where.
    """
    walk = _Walk()
    walk.visit(kind, "$")
    return tuple(walk.found)


def bare(kind: object) -> object:
    """`kind` without what only decorates or names it: `Annotated`, `Final`, `NewType`, type aliases."""
    while True:
        origin = get_origin(kind)
        if origin is Annotated or origin is Final:
            kind = get_args(kind)[0]
        elif isinstance(kind, NewType):
            kind = kind.__supertype__
        elif isinstance(kind, _ALIASES):
            kind = cast("Any", kind).__value__
        elif isinstance(origin, _ALIASES):
            alias = cast("Any", origin)
            kind = bound(alias.__value__, dict(zip(alias.__type_params__, get_args(kind), strict=False)))
        else:
            return kind


def is_union(kind: object) -> bool:
    """Whether `kind` is written `A | B`, `Union[A, B]` or `Optional[A]`."""
    return get_origin(kind) in _UNIONS


class _Walk:
    """One walk through a type; remembers what it has seen, because types may be recursive."""

    __slots__ = ("_seen", "found")

    def __init__(self) -> None:
        self.found: list[Admitted] = []
        self._seen: list[object] = []

    def visit(self, kind: object, path: str, depth: int = 0) -> None:
        if depth > _DEEPEST:
            refuse(
                kind,
                shortened(path, _LONGEST_PATH),
                "its types nest without end",
                "let a recursive type refer to itself as it is",
            )
        if get_origin(kind) is Annotated:
            check_options(get_args(kind)[1:], kind, path)
        inner = bare(kind)
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
        if kind in self._seen:
            return False
        self._seen.append(kind)
        return True

    def _class(self, cls: type[Any], kind: object, path: str, depth: int) -> None:
        args = get_args(kind)
        _check_class(cls, kind, path)
        if is_dataclass(cls):
            if self._is_new(kind):
                hints = field_types(cls, args, path)
                self.found.append(Admitted(cls, path, hints))
                for name, hint in hints.items():
                    self.visit(hint, f"{path}.{name}", depth)
        elif issubclass(cls, Mapping):
            if args:
                _check_key(args[0], path)
                self.visit(args[-1], f"{path}.*", depth)
        elif issubclass(cls, tuple) and args[-1:] != (...,):
            for position, arg in enumerate(args):
                self.visit(arg, f"{path}[{position}]", depth)
        elif issubclass(cls, Collection) and args:
            self.visit(args[0], f"{path}[*]", depth)


def _check_class(cls: type[Any], kind: object, path: str) -> None:
    name = type_name(cls)
    plain = "write it as a plain @dataclass(frozen=True, slots=True)"
    if issubclass(cls, BaseModel):
        refuse(kind, path, f"{name} is a pydantic model", plain)
    if is_typeddict(cls):
        refuse(kind, path, f"{name} is a TypedDict", plain)
    if hasattr(cls, "_fields") and issubclass(cls, tuple):
        refuse(kind, path, f"{name} is a NamedTuple", plain)
    if any(hasattr(cls, own) for own in ("__pydantic_config__", "__pydantic_validator__")):
        refuse(kind, path, f"{name} carries a pydantic configuration of its own", plain)
    if issubclass(cls, enum.Enum):
        _check_enum(cls, path)
    if cls is type:
        refuse(kind, path, "a class has no form in JSON", "use a Literal or an Enum of the names to choose from")
    if cls is complex:
        refuse(kind, path, "JSON has no complex numbers", "use two floats")
    if cls in _STREAMS:
        refuse(kind, path, f"{name} can be read only once", "use list or tuple")


def _check_enum(cls: type[enum.Enum], path: str) -> None:
    if issubclass(cls, enum.Flag):
        refuse(
            cls, path, f"{cls.__name__} is a Flag, whose combinations JSON cannot name", "use a frozenset of an Enum"
        )
    for member in cls:
        if type(member.value) not in {str, int, float}:
            refuse(
                cls,
                path,
                f"{cls.__name__}.{member.name} has the value {member.value!r}, which JSON cannot give back",
                "give every member a string or a number",
            )


def _check_literal(kind: object, path: str) -> None:
    for value in get_args(kind):
        if value is not None and type(value) not in {str, int, bool}:
            refuse(
                kind,
                path,
                f"its choice {value!r} is nothing that JSON can give back",
                "use strings, or the Enum itself",
            )


def _check_key(kind: object, path: str) -> None:
    key = bare(kind)
    values = get_args(key) if get_origin(key) is Literal else ()
    if isinstance(key, type) and issubclass(key, enum.Enum):
        _check_enum(key, path)
        values = tuple(member.value for member in key)
    if not any(key is known for known in _KEYS) and not (values and all(isinstance(value, str) for value in values)):
        refuse(kind, path, f"its keys are of type {type_name(kind)}, but a key in JSON is a string", "use str keys")
