"""Checks whether a callable can be called as a handler, and whether its annotations match the tool's types.

A certain mismatch is refused; an annotation that cannot be resolved, or a type variable, is accepted.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from types import NoneType, SimpleNamespace, UnionType
from typing import Any, NamedTuple, Never, NoReturn, Union, cast, get_args, get_origin, get_type_hints

from handrail.prompt.context import ToolContext
from handrail.prompt.tool_result import ToolResult
from handrail.prompt.type_parameters import annotation_name
from handrail.serde.annotations import known_type

if sys.version_info >= (3, 14):
    from typing_extensions import Format  # pragma: no cover - as `inspect.signature` takes it since then

AnyCallable = Callable[..., object]
"""A callable with an unknown signature."""


class HandlerContract(NamedTuple):
    """The types that the callables of a tool must match.

    Attributes:
        params_type: the type of the parameters; `None` for a tool without parameters.
        result_type: the type of the value in the returned `ToolResult`; `None` for a tool without a value.
    """

    params_type: object
    result_type: object


def handler_fault(handler: AnyCallable, contract: HandlerContract) -> str | None:
    """Why a callable cannot be called as `handler(params, *, context)`; `None` if it can."""
    wanted = (
        f"def {_name(handler, or_else='handler')}(params: {annotation_name(contract.params_type)}, *, "
        f"context: ToolContext) -> ToolResult[{annotation_name(contract.result_type)}]"
    )
    fault = calling_fault(handler, (contract.params_type,), {"context": ToolContext})
    if fault is None:
        fault = _return_fault(handler, contract.result_type, optional=False)
    return None if fault is None else f"the handler {fault}. Write: {wanted}: ..."


def handler_types(handler: AnyCallable | None) -> tuple[object, object] | None:
    """The types of parameters and result that a handler is annotated with; `None` if it does not say both."""
    signature = None if handler is None else callable_signature(handler)
    if handler is None or signature is None:
        return None
    annotations = _Annotations(handler)
    first = next(iter(signature.parameters.values()), None)
    result = _value_type(annotations.returned)
    params = Any if first is None else annotations.of(first)
    return None if params is Any or result is Any else (params, result)


def _value_type(returned: object) -> object:
    """The type of the value in the `ToolResult` of a return annotation; `Any` if it is not known."""
    members = get_args(returned) if _is_union(returned) else (returned,)
    found: list[object] = []
    for member in members:
        arguments = get_args(member)
        if _is_awaitable(member) and arguments:
            found.append(_value_type(arguments[-1]))
        elif get_origin(member) is ToolResult:
            found.append(arguments[0])
        else:
            return Any
    kinds = [kind for kind in found if not _is_never(kind)]
    # A result of another type could be any of them, so that nothing is certain.
    return kinds[0] if kinds and all(kind == kinds[0] for kind in kinds) else Any


def _is_never(kind: object) -> bool:
    return any(kind is each for each in (Never, NoReturn))


def reconcile_fault(reconcile: AnyCallable, contract: HandlerContract) -> str | None:
    """Why a callable cannot be called as `reconcile(params, key)`, with or without `context`; `None` if it can."""
    wanted = (
        f"def {_name(reconcile, or_else='reconcile')}(params: {annotation_name(contract.params_type)}, key: str"
        f"{', *, context: ToolContext' if takes_context(reconcile) else ''}) "
        f"-> ToolResult[{annotation_name(contract.result_type)}] | None"
    )
    named: dict[str, object] = {"context": ToolContext} if takes_context(reconcile) else {}
    # `context` is passed only to a function that takes it, both here and in `runtime/claim_step.py`.
    fault = calling_fault(reconcile, (contract.params_type, str), named)
    if fault is None:
        fault = _return_fault(reconcile, contract.result_type, optional=True)
    return None if fault is None else f"reconcile {fault}. Write: {wanted}: ..."


def apply_fault(apply: AnyCallable, contract: HandlerContract) -> str | None:
    """Why a callable cannot be called as `apply(params, result, *, context)`; `None` if it can."""
    result = annotation_name(contract.result_type)
    wanted = (
        f"def {_name(apply, or_else='apply')}(params: {annotation_name(contract.params_type)}, "
        f"result: ToolResult[{result}], *, context: ToolContext) -> None"
    )
    fault = calling_fault(apply, (contract.params_type, ToolResult), {"context": ToolContext})
    if fault is None:
        fault = return_fault(apply, (NoneType,))
    return None if fault is None else f"apply {fault}. Write: {wanted}: ..."


def takes_context(function: AnyCallable) -> bool:
    """Whether a callable accepts the keyword `context=...`."""
    signature = callable_signature(function)
    if signature is None:
        return False
    parameter = signature.parameters.get("context")
    return parameter is not None and parameter.kind in {
        inspect.Parameter.KEYWORD_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    }


def calling_fault(function: AnyCallable, positional: tuple[object, ...], named: dict[str, object]) -> str | None:
    """Why a callable cannot be called with values of these types; `None` if it can. `Any` matches all."""
    annotations = _Annotations(function)
    signature = annotations.signature
    if signature is None:
        return None
    # Calling a generator function runs nothing of its body: the call would succeed without an effect.
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        return "is a generator, which returns nothing to send to the model"
    try:
        bound = signature.bind(*positional, **named)
    except TypeError as error:
        return f"takes {signature}, which does not fit: {error}"
    for name, given in bound.arguments.items():
        parameter = signature.parameters[name]
        # `bind` collects these in a tuple or dict, whose type is not that of a single argument.
        if parameter.kind in {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}:
            continue
        annotation = annotations.of(parameter)
        if not _takes(annotation, given):
            return f"takes {name}: {annotation_name(annotation)}, but is called with {annotation_name(given)}"
    return None


def is_async(function: AnyCallable) -> bool:
    """Whether the callable returns an awaitable, according to its definition or its annotation."""
    while isinstance(function, partial):
        function = cast("partial[object]", function).func
    # The second test is for objects with `async def __call__`.
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__):
        return True
    return _is_awaitable(_Annotations(function).returned)


def returned_type(function: AnyCallable) -> object:
    """The return annotation of a callable; `Any` if it is not known."""
    return _Annotations(function).returned


def return_fault(function: AnyCallable, kinds: tuple[type[object], ...]) -> str | None:
    """The fault of a return annotation; `None` if it may be, or await, one of `kinds`."""
    returned = _Annotations(function).returned
    return None if _may_be(returned, kinds) else f"is annotated to return {annotation_name(returned)}"


def _may_be(annotation: object, kinds: tuple[type[object], ...]) -> bool:
    """Whether a value with this annotation may be of one of some types; false only if that is impossible."""
    if annotation is Any:
        return True
    if _is_union(annotation):
        # One matching member is enough: which one is returned is known only at the call.
        return any(_may_be(member, kinds) for member in get_args(annotation))
    if _is_awaitable(annotation):
        arguments = get_args(annotation)
        return not arguments or _may_be(arguments[-1], kinds)
    return any(_is_subclass(annotation, kind) or _is_subclass(kind, annotation) for kind in kinds)


def _name(function: AnyCallable, *, or_else: str) -> str:
    name = getattr(function, "__name__", "")
    return name if isinstance(name, str) and name.isidentifier() else or_else


class _Annotations:
    """The signature of a callable, with each annotation resolved if possible."""

    def __init__(self, function: AnyCallable) -> None:
        self.signature = callable_signature(function)
        self._names = annotation_names(function)

    def of(self, parameter: inspect.Parameter) -> object:
        return self._resolve(parameter.annotation)

    @property
    def returned(self) -> object:
        return Any if self.signature is None else self._resolve(self.signature.return_annotation)

    def _resolve(self, annotation: object) -> object:
        """The resolved annotation; `Any` if it cannot be resolved."""
        if annotation is inspect.Parameter.empty:
            return Any
        # A class alone, because in what has parts the options of `Annotated` are left out.
        if isinstance(known := known_type(annotation, self._names), type):
            return known
        try:
            # One annotation at a time: `get_type_hints` of the function raises for all if one name cannot be resolved,
            # as under `if TYPE_CHECKING`.
            return get_type_hints(SimpleNamespace(__annotations__={"it": annotation}), self._names)["it"]
        except (NameError, AttributeError, TypeError, SyntaxError):
            return Any


def callable_signature(function: AnyCallable) -> inspect.Signature | None:
    """The signature of a callable, with annotations as they are written; `None` if it has none."""
    try:
        if sys.version_info >= (3, 14):  # pragma: no cover - annotations are lazy there, and may not resolve
            return inspect.signature(function, annotation_format=Format.FORWARDREF)
        return inspect.signature(function)
    except ValueError:  # a builtin without a signature
        return None


def annotation_names(function: AnyCallable) -> dict[str, Any]:
    """The names that a callable's annotations may use."""
    while isinstance(function, partial):
        function = cast("partial[object]", function).func
    # `inspect.signature` follows `__wrapped__`, so its annotations use the names of the wrapped function's module.
    inner = inspect.unwrap(function if inspect.isroutine(function) else type(function).__call__)
    return getattr(getattr(inner, "__func__", inner), "__globals__", {})


def _return_fault(function: AnyCallable, result_type: object, *, optional: bool) -> str | None:
    returned = _Annotations(function).returned
    if _returns(returned, result_type, optional=optional):
        return None
    return f"is annotated to return {annotation_name(returned)}"


def _takes(annotation: object, given: object) -> bool:
    """Whether a parameter with this annotation may take a value of this type; false only if that is impossible."""
    if annotation == given or annotation is Any or given is Any:
        return True
    if _is_union(annotation):
        # For a parameter one member that takes the value is enough; for a result (`_returns`) every member must match,
        # because any of them may be returned.
        return any(_takes(member, given) for member in get_args(annotation))
    return _is_subclass(NoneType if given is None else given, annotation)


def _returns(annotation: object, result_type: object, *, optional: bool) -> bool:
    """Whether a value with this annotation may be such a `ToolResult`; false only if that is impossible."""
    if _is_union(annotation):
        return all(_returns(member, result_type, optional=optional) for member in get_args(annotation))
    if annotation is Any or annotation is NoneType:
        return annotation is Any or optional
    arguments = get_args(annotation)
    if _is_awaitable(annotation):
        return not arguments or _returns(arguments[-1], result_type, optional=optional)
    if get_origin(annotation) is ToolResult:
        return _holds(arguments[0], result_type)
    return _is_subclass(annotation, ToolResult)


def _holds(declared: object, result_type: object) -> bool:
    """Whether the type argument of `ToolResult[...]` matches the result type of the tool."""
    # `ToolResult.error(...)` without a value is a `ToolResult[Never]`, and every tool may return one.
    if declared in (Any, Never, NoReturn, NoneType, result_type):
        return True
    if _is_union(declared):
        return all(_holds(member, result_type) for member in get_args(declared))
    return _is_subclass(declared, NoneType if result_type is None else result_type)


def _is_union(annotation: object) -> bool:
    return get_origin(annotation) in {Union, UnionType}


def _is_awaitable(annotation: object) -> bool:
    cls = get_origin(annotation) or annotation
    return isinstance(cls, type) and issubclass(cls, Awaitable)


def _is_subclass(kind: object, parent: object) -> bool:
    """Whether one type is a subclass of another; true also if that cannot be determined."""
    kind, parent = get_origin(kind) or kind, get_origin(parent) or parent
    if not isinstance(kind, type) or not isinstance(parent, type):
        return True
    try:
        return issubclass(kind, parent)
    except TypeError:  # a protocol that does not support `issubclass`
        return True
