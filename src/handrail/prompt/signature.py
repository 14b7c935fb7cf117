"""Signatures of callables: how a tool calls its functions, and the types that annotations state.

A certain mismatch is refused; an annotation that cannot be resolved, or a type variable, is accepted. The rest is left
to type checkers: a parameter of a subclass, or a union that is too wide.

`Tool[P, R]`, `MarkdownSection[P]` and `PromptTemplate[Out]` check their types at creation. The alias that `typing`
makes of a subscripted class sets the types only after `__init__`; a `TypedAlias` sets them before.

`dataclasses.replace` creates its copy by the class without brackets, from the fields. So each of these classes has a
field `given_types`, which is set to the types at creation and passed to the copy.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from types import GenericAlias, MappingProxyType, NoneType, SimpleNamespace
from typing import (
    Any,
    Concatenate,
    Final,
    Literal,
    Never,
    NoReturn,
    Protocol,
    TypeAlias,
    TypeGuard,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from handrail.errors import PromptValidationError
from handrail.prompt.context import ToolContext
from handrail.prompt.tool_result import ToolResult
from handrail.serde.annotations import is_union, options_around, strip_annotated
from handrail.serde.formatting import type_name

P = TypeVar("P")
R = TypeVar("R")
P_contra = TypeVar("P_contra", contravariant=True)
R_contra = TypeVar("R_contra", contravariant=True)

Effect = Literal["read", "state", "external"]
"""The effect of a call: it observes, changes the session or bound resources, changes the world outside."""

DAY = timedelta(hours=24)
"""The default time for which a result is replayed."""

MINUTE = timedelta(minutes=1)
"""The default lease of a claim."""


_Answer: TypeAlias = ToolResult[R] | Awaitable[ToolResult[R] | None] | None
Reconcile = Callable[[P, str], _Answer[R]] | Callable[Concatenate[P, str, ...], _Answer[R]]
"""Determines, by parameters and idempotency key, whether an effect happened; may take `context`, and only reads.

Returns the result if it did, and `None` if it certainly did not; raises if that cannot be determined.
"""


class ApplyEffect(Protocol[P_contra, R_contra]):
    """Writes what belongs to an effect that has happened: a plain function, an `async` one, or any callable object."""

    def __call__(
        self, params: P_contra, result: ToolResult[R_contra], /, *, context: ToolContext
    ) -> Awaitable[None] | None:
        """Applies the result, in the transaction of the call that commits it."""
        ...


if sys.version_info >= (3, 14):
    from typing_extensions import Format  # pragma: no cover - as `inspect.signature` takes it since then


_Types: TypeAlias = tuple[Any, ...]
AnyCallable = Callable[..., object]
"""A callable with an unknown signature."""

UNRESOLVED: Final = (NameError, AttributeError, TypeError, SyntaxError)
"""The exceptions of annotations that cannot be evaluated, as a name that only type checkers know."""

MANY: Final = frozenset({inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD})
"""The kinds of `*args` and `**kwargs`."""

_NO_NAMES: Mapping[str, Any] = MappingProxyType({})
_GIVEN = "type_arguments"
_COPIED = "given_types"


CallableRole = Literal["handler", "reconcile", "apply", "undo", "capture", "preview"]
"""The role of a callable of a tool."""


def role_fault(role: CallableRole, function: AnyCallable, params_type: Any, result_type: Any) -> str | None:  # noqa: ANN401 - types
    """The reason why a callable cannot have a role of a tool of these types, of which `None` is none; `None` if it can.

    | role | is called as | returns |
    |---|---|---|
    | `handler` | `handler(params, *, context)` | `ToolResult[R]`, or an awaitable of it |
    | `reconcile` | `reconcile(params, key)`, with `context` if it takes it | the same, or `None` |
    | `apply` | `apply(params, result, *, context)` | `None`, or an awaitable |

    `handrail.prompt.undo` has those of `undo`, `capture` and `preview`.
    """
    generic: Any = ToolResult  # untyped, because the type in its brackets is a value here
    result = generic[result_type]
    roles: Mapping[CallableRole, tuple[Mapping[str, object], tuple[object, ...]]] = {
        "handler": ({}, (result,)),
        "reconcile": ({"key": str}, (result, None)),
        "apply": ({"result": result}, (None,)),
        "undo": ({"result": result, "before": Any}, (Any,)),
        "capture": ({}, (Any,)),
        "preview": ({}, (result,)),
    }
    more, results = roles[role]
    positional = {"params": params_type, **more}
    keywords = {"context": ToolContext} if role in {"handler", "apply"} or takes_context(function) else {}
    fault = calling_fault(function, tuple(positional.values()), keywords) or return_fault(function, results)
    if fault is None:
        return None
    name = getattr(function, "__name__", "")
    name = name if isinstance(name, str) and name.isidentifier() else role
    parameters = ", ".join(f"{parameter}: {annotation_name(kind)}" for parameter, kind in positional.items())
    context = ", *, context: ToolContext" if keywords else ""
    returns = " | ".join(map(annotation_name, results))
    subject = "the handler" if role == "handler" else role
    return f"{subject} {fault}. Write: def {name}({parameters}{context}) -> {returns}: ..."


def handler_types(handler: AnyCallable | None) -> tuple[object, object] | None:
    """The types of parameters and result that a handler is annotated with; `None` if it does not say both."""
    signature = None if handler is None else callable_signature(handler)
    if handler is None or signature is None:
        return None
    first = next(iter(signature.parameters.values()), None)
    params = Any if first is None else _resolve_or_any(handler, first.annotation)
    result = make_union([kind for member in returned_members(returned_type(handler)) for kind in value_types(member)])
    return None if params is Any or result is Any else (params, result)


def returned_members(hint: object) -> Sequence[Any]:
    """The types that a return annotation means: the members of a union, and of what is awaited."""
    members: list[object] = []
    for member in union_members(hint):
        is_awaited = _is_awaitable(member)
        members.extend(returned_members((get_args(member) or (Any,))[-1]) if is_awaited else (member,))
    return members


def union_members(hint: object) -> Sequence[Any]:
    """The members of a union; of any other type the type itself."""
    inner = options_around(hint)[1]
    return get_args(inner) if is_union(inner) else (hint,)


def value_types(member: object) -> Iterator[Any]:
    """The types of the values that a returned type means: those in a `ToolResult`, or the type itself."""
    if get_origin(member) is ToolResult:
        yield from (kind for kind in union_members(get_args(member)[0]) if kind not in (Never, NoReturn))
    elif isinstance(member, type) and issubclass(member, ToolResult):
        yield Any
    elif member not in (Never, NoReturn):
        yield member


def make_union(kinds: Sequence[Any]) -> Any:  # noqa: ANN401 - a type
    """The type of all of some types; `None` if there is no value."""
    if Any in kinds or object in kinds:
        return Any
    members = [NoneType if kind is None else kind for kind in kinds]
    if not members or members == [NoneType]:
        return None
    union: Any = Union  # untyped, because checkers want to see the members written out
    return union[tuple(members)]


def takes_context(function: AnyCallable) -> bool:
    """Returns whether a callable accepts the keyword `context=...`."""
    signature = callable_signature(function)
    parameter = None if signature is None else signature.parameters.get("context")
    return parameter is not None and parameter.kind not in {*MANY, inspect.Parameter.POSITIONAL_ONLY}


def calling_fault(function: AnyCallable, positional: tuple[object, ...], keywords: Mapping[str, object]) -> str | None:
    """The reason why a callable cannot be called with values of these types; `None` if it can."""
    if (signature := callable_signature(function)) is None:
        return None
    # Calling a generator function runs nothing of its body: the call would succeed without an effect.
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        return "is a generator, which returns nothing to send to the model"
    try:
        bound = signature.bind(*positional, **keywords)
    except TypeError as error:
        return f"takes {signature}, which does not fit: {error}"
    for name, argument in bound.arguments.items():
        parameter = signature.parameters[name]
        # `bind` collects the arguments of `*args` in a tuple, whose type is not that of a single argument.
        if parameter.kind in MANY:
            continue
        annotation = _resolve_or_any(function, parameter.annotation)
        if not _fits(annotation, argument):
            return f"takes {name}: {annotation_name(annotation)}, but is called with {annotation_name(argument)}"
    return None


def is_async(function: AnyCallable) -> bool:
    """Returns whether the callable returns an awaitable, according to its definition or its annotation."""
    # The second test is for objects with `async def __call__`.
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__):
        return True
    return _is_awaitable(returned_type(function))


def returned_type(function: AnyCallable) -> object:
    """The return annotation of a callable; `Any` if it is not known."""
    signature = callable_signature(function)
    return Any if signature is None else _resolve_or_any(function, signature.return_annotation)


def return_fault(function: AnyCallable, kinds: tuple[object, ...]) -> str | None:
    """The fault of a return annotation; `None` if it may be, or await, one of `kinds`."""
    annotation = returned_type(function)
    fits = any(_fits(member, kind) for member in returned_members(annotation) for kind in kinds)
    return None if fits else f"is annotated to return {annotation_name(annotation)}"


def callable_signature(function: AnyCallable) -> inspect.Signature | None:
    """The signature of a callable, with annotations as they are written; `None` if it has none."""
    try:
        if sys.version_info >= (3, 14):  # pragma: no cover - annotations are lazy there, and may not resolve
            return inspect.signature(function, annotation_format=Format.FORWARDREF)
        return inspect.signature(function)
    except ValueError:  # a builtin without a signature
        return None


def resolve_annotation(annotation: object, function: AnyCallable, around: Mapping[str, Any] = _NO_NAMES) -> Any:  # noqa: ANN401 - a type
    """The type that an annotation of a callable means.

    Raises:
        NameError, AttributeError, TypeError, SyntaxError: it cannot be resolved, see `UNRESOLVED`.
    """
    while isinstance(function, partial):
        function = cast("partial[object]", function).func
    # `inspect.signature` follows `__wrapped__`, so its annotations use the names of the wrapped function's module.
    inner = inspect.unwrap(function if inspect.isroutine(function) else type(function).__call__)
    names: dict[str, Any] = getattr(getattr(inner, "__func__", inner), "__globals__", {})
    # One annotation at a time: `get_type_hints` of the function raises for all if one name cannot be resolved.
    holder = SimpleNamespace(__annotations__={"it": annotation})
    return get_type_hints(holder, names, dict(around), include_extras=True)["it"]


def _resolve_or_any(function: AnyCallable, annotation: object) -> object:
    if annotation is inspect.Parameter.empty:
        return Any
    try:
        return strip_annotated(resolve_annotation(annotation, function))
    except UNRESOLVED:
        return Any


def _fits(annotation: object, kind: object) -> bool:
    if annotation == kind or Any in (annotation, kind):
        return True
    if is_union(annotation):
        # One matching member is enough: which one a value has is known only at the call.
        return any(_fits(member, kind) for member in get_args(annotation))
    if get_origin(annotation) is ToolResult and get_origin(kind) is ToolResult:
        # `ToolResult.error(...)` without a value is a `ToolResult[Never]`, and every tool may return one.
        value_type = get_args(annotation)[0]
        return value_type in (Never, NoReturn, NoneType) or _fits(value_type, get_args(kind)[0])
    return _is_subclass(annotation, kind) or _is_subclass(kind, annotation)


def _is_subclass(kind: object, parent: object) -> bool:
    kind, parent = (NoneType if member is None else get_origin(member) or member for member in (kind, parent))
    if not isinstance(kind, type) or not isinstance(parent, type):
        return True
    try:
        return issubclass(kind, parent)
    except TypeError:  # a protocol that does not support `issubclass`
        return True


def _is_awaitable(annotation: object) -> bool:
    cls = get_origin(annotation) or annotation
    return isinstance(cls, type) and issubclass(cls, Awaitable)


class TypedAlias(GenericAlias):
    """A class with its type arguments, to be called or used in an annotation."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - whatever the class takes, and an object of it
        """Creates an object that has the types during `__init__`."""
        # As `type.__call__` does, with the types set before `__init__`, whose checks need them.
        instance = object.__new__(cast("type[Any]", self.__origin__))  # made by `typed_alias`, so it is a class
        object.__setattr__(instance, _GIVEN, self.__args__)
        instance.__init__(*args, **kwargs)
        return instance


def typed_alias(cls: type[Any], types: Any, *, parameters: str) -> TypedAlias:  # noqa: ANN401 - types, in their many forms
    """The alias of a class for the types in its brackets."""
    alias = TypedAlias(cls, types)
    arguments = alias.__args__
    if len(arguments) != len(parameters.split(", ")):
        text = ", ".join(annotation_name(kind) for kind in arguments)
        name = cls.__name__
        raise PromptValidationError(f"{name}[{text}] has {len(arguments)} type(s); write {name}[{parameters}].")
    return alias


def type_arguments(instance: object, *, or_else: Callable[[], _Types | None] = lambda: None) -> _Types | None:
    """The types with which an object was created, retained for copies.

    They are those of its own brackets, of the object that it is a copy of, of a base class, or of `or_else`; `None` for
    none, or only type variables.
    """
    # An object that was created without brackets lacks the attribute, or has an empty slot for it; both need the
    # default.
    arguments: _Types | None = getattr(instance, _GIVEN, None) or getattr(instance, _COPIED)
    if arguments is None:
        bases: Iterator[Any] = (base for cls in type(instance).__mro__ for base in vars(cls).get("__orig_bases__", ()))
        inherited = (base.__args__ for base in bases if isinstance(base, TypedAlias))
        # A generic subclass has only type variables in its bases; its types are in its own brackets.
        closed = (types for types in inherited if not any(isinstance(kind, TypeVar) for kind in types))
        arguments = next(closed, None) or or_else()
    # In an annotation both are written `None`; the checks compare with `None`.
    types = None if arguments is None else tuple(None if kind is NoneType else kind for kind in arguments)
    object.__setattr__(instance, _COPIED, types)
    # Also where no brackets have set it, so that `copy.copy` finds every field.
    object.__setattr__(instance, _GIVEN, arguments)
    return types


def is_dataclass_type(kind: object) -> TypeGuard[type[Any]]:
    """Returns whether it is a dataclass: a class without type arguments, and not an instance."""
    return isinstance(kind, type) and dataclasses.is_dataclass(kind)


def annotation_name(kind: object) -> str:
    """A type as written in code, without its module."""
    return repr(kind) if isinstance(kind, str) else type_name(kind).replace("NoneType", "None")
