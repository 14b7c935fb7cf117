"""What becomes of a call that a step has failed, beside the table of `handrail.runtime.failures`.

Two failures are not the last word. A commit is refused because another call has applied the result of the effect
meanwhile; or a handler has ended in doubt, and the reconciler of the tool says that the effect has happened. Then the
call is answered from the ledger.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

from handrail.errors import AppliedMeanwhileError
from handrail.prompt import ToolResult
from handrail.redaction import redacted_logger
from handrail.runtime.call import Call
from handrail.runtime.calls import Step, ToolInvoked, ToolMessage
from handrail.runtime.execution import CancelledElsewhereError, is_being_cancelled, is_cancelled_elsewhere
from handrail.runtime.ledger.claim import NO_CLAIM, leave_unread
from handrail.runtime.unknown_effects import settle_at_once
from handrail.store.protocol import EffectRow

_log = redacted_logger("handrail.runtime")

Ended: TypeAlias = ToolResult[Any] | ToolMessage
"""The result of a call that is to be recorded; or a message, if the same call was recorded meanwhile."""


async def settle_failure(
    run: Call, error: BaseException, step: Step, again: Callable[[], Awaitable[Ended]] | None = None
) -> Ended:
    """The outcome of an exception that a step has let through; see `Call.fail`.

    Args:
        run: the call, which is rolled back.
        error: the exception.
        step: the step.
        again: answers the call from the ledger; `None` where its effect cannot have happened.
    """
    if is_cancelled_elsewhere(error):
        cause, error = error, CancelledElsewhereError()
        error.__cause__ = cause
    # A cancellation of the call spares the others of its reply.
    if not isinstance(error, Exception) and not is_being_cancelled():
        run.environment.questions.end(run.reply)
    if again is not None and isinstance(error, AppliedMeanwhileError) and run.replays_unapplied:
        return await again()
    result, answer = await run.fail(error, step)
    if again is not None and run.tool is not None and run.ended_in_doubt:
        row: EffectRow | None = None
        try:
            row = await settle_at_once(run, run.tool)
        except BaseException as mistake:  # noqa: BLE001 - decided as any other
            result, answer = await run.fail(mistake, step)
        if row is not None and row.status == "done":
            return await again()
        if row is not None:
            result = run.not_taken_effect(result)
    return result if answer is None else answer


async def leave_unread_effects(run: Call, *, has_message: bool = False, is_ending: bool = False) -> None:
    """Leave what a call has done to the calls that equal it, because it fails, or ends without a message.

    A store that fails here is logged.

    Args:
        run: the call.
        has_message: whether it has a message, which says that it has failed.
        is_ending: whether its coroutine is being closed with its loop, so that nothing can be awaited.
    """
    if is_ending:
        _leave_unread(run, has_message=False)
    elif run.claim.is_done or run.nested_calls:
        await run.mode.in_thread(partial(_leave_unread, run, has_message=has_message))


def _leave_unread(run: Call, *, has_message: bool) -> None:
    session = run.environment.session
    try:
        leave_unread(NO_CLAIM, run.nested_calls)
        if run.claim.leave_unread() and run.turn.outer is None and not has_message:
            record = session.recorded_call(run.ref)
            if isinstance(record, ToolInvoked) and record.final:  # else a repeat of the call would be answered from it
                session.log_event(replace(record, final=False, replayed=True), run.ref)
    except Exception:  # noqa: BLE001 - logged, because the call is over
        _log.exception("what %s has done is not left to an equal call", run.call.name)
