"""The straight way: calls that need nothing but their turn, their transaction and their record.

Most calls are so: of a tool with no policy, effect outside, timeout, secret or untrusted content, in a session in
memory, by a run without a deadline or feedback (`ToolPlan.is_straight`), and neither nested nor made while another call
has the turn (`CallState.is_straight`). Nothing is waited for but the handler, so what is left of the thirteen steps
stands on this page, in the order of `handrail.runtime.invoke` and made of the same functions. What is raised is decided
where that of all calls is (`handrail.runtime.outcome`). `HANDRAIL_FAST=0` in the environment has all calls take the
long way; the tests of the pipeline run both.
"""

from __future__ import annotations

import os
from functools import partial
from inspect import isawaitable
from typing import Any

from handrail.crash_points import reached
from handrail.interrupts import allow_interrupts
from handrail.prompt import Tool, ToolResult
from handrail.prompt.context import CALL_CONTEXT, ToolContext
from handrail.runtime.call import CallState
from handrail.runtime.calls import Step, ToolMessage
from handrail.runtime.execution import await_result
from handrail.runtime.failures import raise_as_meant
from handrail.runtime.ledger.replays import NO_CLAIM, is_result
from handrail.runtime.messages import answer_from_record
from handrail.runtime.outcome import settle_failure
from handrail.runtime.steps import apply_value, call_handler, checked_result, read_params, unknown_tool
from handrail.transaction import Transaction

MAY_BE_STRAIGHT: bool = os.environ.get("HANDRAIL_FAST") != "0"
"""Whether calls may take the straight way."""

LOOK_UP, PARSE, *_BETWEEN, BEGIN, HANDLER, APPLY, COMMIT, _RECORD, _RENDER = Step


async def run_straight(run: CallState) -> ToolResult[Any] | ToolMessage:
    """Run a call whose turn has come, up to its commit; see `CallState.is_straight`.

    Returns:
        The result, which is to be recorded; or a message, if the same call was recorded meanwhile.
    """
    step, tool = LOOK_UP, run.tool or await unknown_tool(run)
    try:
        step = PARSE
        read_params(run, tool)
        step = BEGIN
        with run.begin(tool, NO_CLAIM) as transaction:
            try:
                step = HANDLER
                result = await _result_of(run, tool, transaction)
                if run.turn.shared:
                    await run.turn.wait_for_earlier_calls(run.mode, run.environment.deadline)
                    if (answer := await answer_from_record(run)) is not None:
                        return answer
                if not result.success:
                    return run.note_failed_result(result)
                step = APPLY
                session = run.environment.session
                if not transaction.writes:
                    transaction.open_for_results(session)
                apply_value(session, result.value)
                step = COMMIT
                await run.commit(result, NO_CLAIM, transaction)
            finally:
                if transaction.must_roll_back:
                    await run.roll_back(transaction)
    except BaseException as error:  # noqa: BLE001 - the table of `failures` decides its outcome
        return await settle_failure(run, error, step)
    return result


async def _result_of(run: CallState, tool: Tool[Any, Any], transaction: Transaction) -> ToolResult[Any]:
    environment = run.environment
    context = ToolContext(environment, run.resources, run.ref, None, None, None, transaction)
    started = environment.clock.monotonic()
    token = CALL_CONTEXT.set(context)
    try:
        reached("before-handler")
        body = partial(call_handler, tool, run.params, context)
        if tool.is_async:
            returned: Any = await run.mode.run(body, is_async=True, seconds=None)
        else:
            returned = allow_interrupts(body)
            if not is_result(returned) and isawaitable(returned):
                returned = await await_result(run.mode, returned, seconds=None)
        reached("after-handler")
    except BaseException as error:
        raise_as_meant(error, tool.name)
        raise
    finally:
        CALL_CONTEXT.reset(token)
        run.end_handler(environment.clock.monotonic() - started)
    return checked_result(tool, returned)
