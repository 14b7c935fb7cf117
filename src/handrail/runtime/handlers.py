"""Step 9: the handler runs, for so long and no longer."""

from __future__ import annotations

import inspect
from datetime import timedelta
from functools import partial
from typing import Any

from handrail.crash_points import reached
from handrail.errors import DeadlineExceededError
from handrail.limits import Deadline
from handrail.prompt import Tool, ToolContext, ToolResult
from handrail.runtime.calls import Step
from handrail.runtime.execution import OverranError, awaited, drop_unawaited, run_to_end
from handrail.runtime.failures import Refusal, overran, wrong_handler
from handrail.runtime.invocation import Invocation
from handrail.runtime.ledger.claim import Claim, is_result
from handrail.runtime.outcomes import unknown_because

_RESULT: type[object] = ToolResult
"""What nearly all handlers return."""


async def run_handler(run: Invocation, tool: Tool[Any, Any], claim: Claim) -> ToolResult[Any]:
    """Run the handler and check what it returns; tells the claim what is known of the effect.

    What a `def` handler returns to be awaited is awaited, within the same time. Where the claim holds the result
    already, the handler is not run.

    Raises:
        Refusal: there is no handler, it overran its timeout, or it returned something else than it declares.
        DeadlineExceededError: it overran the deadline.
        BaseException: what the handler raises.
    """
    run.step = Step.HANDLER
    if claim.stored is not None:
        return claim.stored
    if tool.handler is None:
        raise Refusal(f"{tool.name} is declared without a handler, so it cannot be run here. Do without it.")
    now = run.environment.clock.monotonic
    started = now()
    try:
        context = run.context(claim)
        reached("before-handler")
        if tool.timeout is None and run.environment.deadline is None and run.way.inline and not tool.is_async:
            returned: object = _call(run, tool, context)
            if type(returned) is not _RESULT and inspect.isawaitable(returned):
                returned = await awaited(run.way, returned, seconds=None)
        else:
            returned = await _run_bounded(run, tool, claim, context)
        reached("after-handler")
    except BaseException as error:
        _say_if_unknown(run, tool, claim, error)
        raise
    finally:
        run.handler_seconds = now() - started
    if not is_result(returned):
        raise _no_result(tool, claim, returned)
    if claim.effect is not None:
        claim.happened(returned)
    fits = type(returned.value) is tool.result_type and type(returned.message) is str  # as nearly all do
    fault = None if fits else tool.fault_of(returned)
    if fault:
        raise Refusal(f"{tool.name} did its work wrongly: {fault}. Its changes were undone; do without it.")
    return returned


def _say_if_unknown(run: Invocation, tool: Tool[Any, Any], claim: Claim, error: BaseException) -> None:
    """Tell the claim that the effect may have happened, if the exception does not prove the contrary."""
    why = None if claim.effect is None else unknown_because(error, tool, entered=run.entered)
    if why is not None:
        claim.outcome_unknown(why)


async def _run_bounded(run: Invocation, tool: Tool[Any, Any], claim: Claim, context: ToolContext) -> object:
    seconds, by_deadline = _bound(tool.timeout, run.environment.deadline)
    if by_deadline and not seconds:
        raise DeadlineExceededError("the deadline has passed; it was not run")
    body = partial(_call, run, tool, context)
    heard = None if claim.effect is None else claim.ended_late
    try:
        return await run_to_end(run.way, body, is_async=tool.is_async, seconds=seconds, late=heard)
    except OverranError as overrun:
        run.entered = True  # its thread may not have come to the handler yet, and will
        if heard is not None:
            claim.left_behind = True
        if by_deadline:
            late = "the deadline passed while the handler ran; its changes were undone"
            raise DeadlineExceededError(late) from overrun
        raise overran(tool, tool.timeout or timedelta(0)) from overrun


def _no_result(tool: Tool[Any, Any], claim: Claim, returned: object) -> Refusal:
    """What to say of a handler that returned something else than a result."""
    drop_unawaited(returned)
    claim.happened(returned)
    return Refusal(
        f"{tool.name} did its work wrongly: its handler returned a {type(returned).__name__} where a ToolResult is "
        "due. Its changes were undone; do without it."
    )


def _call(run: Invocation, tool: Tool[Any, Any], context: ToolContext) -> Any:  # noqa: ANN401 - whatever a handler returns
    handler: Any = tool.handler
    run.entered = True
    try:
        return handler(run.params, context=context)
    except TypeError as error:
        traceback = error.__traceback__
        if traceback is not None and traceback.tb_next is None:  # raised before the handler's first line
            run.entered = False
            raise wrong_handler(tool, error) from error
        raise


def _bound(timeout: timedelta | None, deadline: Deadline | None) -> tuple[float | None, bool]:
    """How many seconds the handler has, and whether it is the deadline that says so."""
    seconds = None if timeout is None else timeout.total_seconds()
    if deadline is None:
        return seconds, False
    remaining = deadline.remaining().total_seconds()
    return (remaining, True) if seconds is None or remaining < seconds else (seconds, False)
