"""Step 10, for a tool with `External.apply`: write what belongs to an effect that has happened.

It runs as a handler does: on the thread of the synchronous entry, on a thread of its own through the asynchronous one,
bounded by the timeout of the tool and the deadline. What it writes is committed with the call, in one unit with the
mark on the row of the effect (`handrail.runtime.ledger.replays`), and undone with it.
"""

from __future__ import annotations

import inspect
from datetime import timedelta
from functools import partial
from typing import Any

from handrail.crash_points import reached
from handrail.errors import DeadlineExceededError
from handrail.interrupts import allow_interrupts
from handrail.limits import time_limit
from handrail.prompt import Tool, ToolResult
from handrail.prompt.context import CALL_CONTEXT
from handrail.runtime.call import CallState
from handrail.runtime.execution import ExecutionTimeoutError, await_result, run_to_end
from handrail.runtime.failures import CallRefusedError
from handrail.runtime.ledger.records import started_params
from handrail.runtime.ledger.replays import Claim, UnappliedResult


async def apply_effect(run: CallState, claim: Claim, result: ToolResult[Any]) -> None:
    """Run the tool's `apply`, with the parameters that the effect was begun with.

    Raises:
        CallRefusedError: it overran its timeout, or the parameters cannot be restored from their record.
        DeadlineExceededError: it overran the deadline.
        BaseException: what it raises.
    """
    tool, apply = run.tool, claim.apply
    if tool is None or apply is None:  # pragma: no cover - a claim with `apply` is of a tool
        return
    params = _params_of(run, tool, claim)
    context = run.context(claim)
    body: partial[Any] = partial(apply, params, result, context=context)
    token = CALL_CONTEXT.set(context)
    try:
        await _run(run, tool, body, is_async=inspect.iscoroutinefunction(apply))
        reached("after-apply")
    finally:
        CALL_CONTEXT.reset(token)


def _params_of(run: CallState, tool: Tool[Any, Any], claim: Claim) -> object:
    if not isinstance(claim, UnappliedResult):
        return run.params
    found = started_params(claim.row.arguments, run.call, run.params, tool)
    if found is None:
        raise CallRefusedError(
            f"{tool.name} was not applied: the parameters that it started with cannot be restored from their record."
        )
    return found[0]


async def _run(run: CallState, tool: Tool[Any, Any], body: partial[Any], *, is_async: bool) -> None:
    seconds, by_deadline = time_limit(tool.timeout, run.environment.deadline)
    if seconds is None and run.mode.inline and not is_async:
        returned: object = allow_interrupts(body)
        if inspect.isawaitable(returned):
            await await_result(run.mode, returned, seconds=None)
        return
    if by_deadline and not seconds:
        raise DeadlineExceededError("the deadline has passed; the result was not applied")
    try:
        await run_to_end(run.mode, body, is_async=is_async, seconds=seconds)
    except ExecutionTimeoutError as overrun:
        if by_deadline:
            msg = "the deadline passed while the result was applied; its changes to session and files were undone"
            raise DeadlineExceededError(msg) from overrun
        limit = (tool.timeout or timedelta(0)).total_seconds()
        raise CallRefusedError(
            f"applying the result of {tool.name} was stopped after its timeout of {limit:g} s, and its changes to "
            "session and files were undone."
        ) from overrun
