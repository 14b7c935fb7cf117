"""The handler of a tool that is a function: passes the arguments by name, injects, and makes a result of the value.

What is to be done is decided when the handler is made. A call of a function without injected parameters costs one call
of Python more than a handler that is written by hand.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from handrail.errors import UnboundResourceError
from handrail.prompt.content_parts import TextPart, parts_of_files
from handrail.prompt.context import ToolContext
from handrail.prompt.function_signature import FunctionSignature, InjectedParameter
from handrail.prompt.signature import AnyCallable
from handrail.prompt.tool_result import ToolResult

_RESULT: type[object] = ToolResult


def handler_of(function: AnyCallable, signature: FunctionSignature, *, takes_data: bool = False) -> Callable[..., Any]:
    """The handler that calls a function.

    Args:
        function: what is called: that of the signature, or a method that is bound to its object.
        signature: the signature, as `read_signature` has read it.
        takes_data: as for `read_signature`.
    """
    call = _call_of(function, signature, takes_data=takes_data)
    kind = signature.result_type
    as_result = _files_or_result if signature.may_return_files else _as_result

    async def handle_async(params: Any, /, *, context: ToolContext) -> Any:  # noqa: ANN401 - the arguments, and a result
        return as_result(await call(params, context))

    async def finish_async(value: Awaitable[object]) -> Any:  # noqa: ANN401 - as above
        return as_result(await value)

    def finish(value: object) -> Any:  # noqa: ANN401 - as above
        # Whatever is declared: a decorator may have put an `async` function behind a plain one.
        if not isinstance(value, _RESULT) and inspect.isawaitable(value):
            return finish_async(value)
        return as_result(value)

    def handle(params: Any, /, *, context: ToolContext) -> Any:  # noqa: ANN401 - as above
        return finish(call(params, context))

    def handle_fields(params: Any, /, *, context: ToolContext) -> Any:  # noqa: ANN401, ARG001 - as above
        # The same for the commonest function, which needs nothing but the arguments: each call between costs time.
        value = function(**vars(params))
        return ToolResult("", value) if type(value) is kind else finish(value)

    if signature.is_async:
        return handle_async
    is_plain = signature.fields and not (signature.injected or takes_data or signature.may_return_files)
    return handle_fields if is_plain else handle


_Call = Callable[[Any, ToolContext], Any]
"""Calls the function with the arguments of a call and its context."""


def _call_of(function: AnyCallable, signature: FunctionSignature, *, takes_data: bool) -> _Call:
    inject = _injection(signature.injected)
    if takes_data:
        return lambda params, context: function(params, **inject(context))
    if not signature.fields:
        return lambda _params, context: function(**inject(context))
    if not signature.injected:
        return lambda params, _context: function(**vars(params))
    return lambda params, context: function(**vars(params), **inject(context))


def _injection(injected: Sequence[InjectedParameter]) -> Callable[[ToolContext], dict[str, object]]:
    """Makes what is injected, by the names of the parameters."""
    contexts = [each.name for each in injected if each.kind is ToolContext]
    resources = [each for each in injected if each.kind is not ToolContext]
    if not resources:
        return lambda context: dict.fromkeys(contexts, context)

    def inject(context: ToolContext) -> dict[str, object]:
        values: dict[str, object] = dict.fromkeys(contexts, context)
        for each in resources:
            values[each.name] = _resource(each, context)
        return values

    return inject


def _resource(parameter: InjectedParameter, context: ToolContext) -> object:
    if parameter.default is not inspect.Parameter.empty:
        return context.resources.get(parameter.kind, parameter.default)
    try:
        return context.resources.get(parameter.kind)
    except UnboundResourceError as error:
        # The type was perhaps meant to be filled by the model, and serde could not read it.
        error.add_note(f"Here {parameter.origin}.")
        raise


def _as_result(value: object) -> Any:  # noqa: ANN401 - a result of any value
    return value if isinstance(value, _RESULT) else ToolResult("", value)


def _files_or_result(value: object) -> Any:  # noqa: ANN401 - as above
    parts = parts_of_files(value)
    if not parts:
        return _as_result(value)
    # The text of a result stands before its parts.
    first, *others = parts
    text, files = (first.text, tuple(others)) if isinstance(first, TextPart) else ("", parts)
    made: ToolResult[None] = ToolResult(text, None, parts=files)
    return made
