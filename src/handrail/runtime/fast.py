"""The straight way: calls that need nothing but their turn, their transaction and their record.

Most calls are so: of a tool with no policy, effect outside, timeout, secret or untrusted content, in a session in
memory, by a run without a deadline or feedback (`ToolPlan.is_straight`), and neither nested nor made while another call
has the turn (`Call.is_straight`). Nothing is waited for but the handler, so what is left of the thirteen steps stands
on this page, in the order of `handrail.runtime.invoke` and made of the same functions. What is raised here is decided
there. `HANDRAIL_FAST=0` in the environment has all calls take the long way; the tests of the pipeline run both.
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
from handrail.runtime.call import Call
from handrail.runtime.calls import Step, ToolInvoked, ToolMessage
from handrail.runtime.execution import await_result
from handrail.runtime.failures import raise_as_meant
from handrail.runtime.steps import apply_value, call_handler, checked_result, notify_listeners, read_arguments
from handrail.transaction import Transaction

IS_ON: bool = os.environ.get("HANDRAIL_FAST") != "0"
"""Whether calls may take the straight way."""

PARSE, BEGIN, HANDLER, APPLY, COMMIT = Step.PARSE, Step.BEGIN, Step.HANDLER, Step.APPLY, Step.COMMIT


async def run_straight(run: Call, tool: Tool[Any, Any]) -> ToolResult[Any] | ToolMessage:
    """Run a call whose turn has come, up to its commit; returns a message if the same call was recorded meanwhile.

    Raises:
        BaseException: a step refuses the call, or fails. It is rolled back.
    """
    run.step = PARSE
    read_arguments(run, tool)
    run.step = BEGIN
    with run.begin_plain(tool) as transaction:
        try:
            run.step = HANDLER
            result = await _result_of(run, tool, transaction)
            if run.turn.shared and (answer := await run.take_first_turn()) is not None:
                return answer
            if not result.success:
                return run.note_failed_result(result)
            run.step = APPLY
            session = run.environment.session
            if not transaction.writes:
                transaction.open_for_results(session)
            apply_value(session, result.value)
            run.step = COMMIT
            run.resources.close()
            reached("before-commit")
            if transaction.waits:
                await run.mode.commit(transaction)
            else:
                transaction.commit()
            reached("after-commit")
        finally:
            if transaction.must_roll_back:
                await run.roll_back(transaction)
    return result


def record_straight(run: Call, result: ToolResult[Any]) -> None:
    """Append the event of a call that has come the straight way to the log; see `handrail.runtime.steps.record_call`."""
    session, event = run.environment.session, run.event(result)
    session.log_event(event, run.ref)
    reached("after-record")
    if session.listens(ToolInvoked):
        notify_listeners(run, event)


async def _result_of(run: Call, tool: Tool[Any, Any], transaction: Transaction) -> ToolResult[Any]:
    environment = run.environment
    context = ToolContext(environment, run.resources, run.ref, None, None, None, transaction)
    started = environment.clock.monotonic()
    token = CALL_CONTEXT.set(context)
    try:
        reached("before-handler")
        body = partial(call_handler, tool, run.params, context)
        if tool.is_async:
            returned: object = await run.mode.run(body, is_async=True, seconds=None)
        else:
            returned = allow_interrupts(body)
            if type(returned) is not ToolResult and isawaitable(returned):
                returned = await await_result(run.mode, returned, seconds=None)
        reached("after-handler")
    except BaseException as error:
        raise_as_meant(error, tool.name)
        raise
    finally:
        CALL_CONTEXT.reset(token)
        run.note_handler(environment.clock.monotonic() - started)
    return checked_result(tool, returned)
