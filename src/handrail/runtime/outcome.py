"""The end of a call that a step has failed, beside the table of `handrail.runtime.failures`.

Two failures are not the last word. A commit is refused because another call has applied the result of the effect
meanwhile; or a handler has ended in doubt, and the reconciler of the tool says that the effect has happened. Then the
call is answered from the ledger.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from handrail.errors import DeadlineExceededError, ToolValidationError, VisibilityExpansionRequired
from handrail.errors.developer import PromptRenderError, mistakes_in
from handrail.errors.outcomes import AppliedMeanwhileError, DeveloperMistake
from handrail.errors.storage import SessionError, SessionLostError, StoreError, StoreUnavailableError
from handrail.prompt import Tool, ToolResult
from handrail.prompt.disclosure import OpenSections
from handrail.redaction import redacted_logger
from handrail.runtime.call import CallState
from handrail.runtime.calls import Step, ToolInvoked, ToolMessage
from handrail.runtime.execution import CancelledElsewhereError, cancellations, is_cancelled_elsewhere
from handrail.runtime.failures import CallRefusedError, failure_of, is_final_refusal, is_for_model, safe_refusal
from handrail.runtime.ledger.replays import NO_CLAIM, Claim, leave_unread
from handrail.runtime.messages import answer_from_record
from handrail.transaction import Transaction
from handrail.transaction.transaction import return_to

if TYPE_CHECKING:
    from handrail.store.protocol import EffectRow

_log = redacted_logger("handrail.runtime")

Ended: TypeAlias = ToolResult[Any] | ToolMessage
"""The result of a call that is to be recorded; or a message, if the same call was recorded meanwhile."""

CarryOut: TypeAlias = Callable[[CallState, Tool[Any, Any], Claim], Awaitable[Ended]]
"""Takes steps 8 to 11 of a call, with its claim (`handrail.runtime.invoke`)."""


async def settle_failure(
    run: CallState, error: BaseException, step: Step, again: Callable[[], Awaitable[Ended]] | None = None
) -> Ended:
    """The outcome of an exception that a step has let through; see `handrail.runtime.failures`.

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
    if not isinstance(error, Exception) and not cancellations():
        run.environment.end_reply(run.reply)
    claim, tool = run.claim, run.tool
    # It was answered from the ledger, and its commit was to mark the effect.
    if again is not None and isinstance(error, AppliedMeanwhileError) and claim.stored is not None and claim.enlisted:
        return await again()
    result, answer = await _fail(run, error, step)
    # The model would read that its effect is unknown.
    in_doubt = run.raises is None and claim.unsettled and run.turn.is_first
    if again is not None and in_doubt and claim.effect and tool is not None and tool.reconcile is not None:
        from handrail.runtime.claim_step import settle_at_once  # noqa: PLC0415

        row: EffectRow | None = None
        try:
            row = await settle_at_once(run, tool, claim.effect)
        except BaseException as mistake:  # noqa: BLE001 - decided as any other
            result, answer = await _fail(run, mistake, step)
        if row is not None and row.status == "done":
            return await again()
        if row is not None:
            result = run.not_taken_effect(result)
    return result if answer is None else answer


async def _fail(run: CallState, error: BaseException, step: Step) -> tuple[ToolResult[Any], ToolMessage | None]:
    """Determine the outcome of an exception, and wait until earlier calls have been recorded.

    Returns the failed result, and the message of the same call if that was recorded meanwhile. What ends the run is
    noted in `raises`.
    """
    return_to(run.turn.caller)
    run.stop_at(step, safe_refusal(error) if step is Step.HANDLER and isinstance(error, ToolValidationError) else None)
    error = _lost_store(run, _opening_of(run, error), step)
    result, raises = failure_of(error, run.call.name)
    run.end_run(raises, is_final=raises is None and is_final_refusal(error, step))
    if raises is None and not is_for_model(error):
        _notify_raised(run, error)
    answer: ToolMessage | None = None
    if raises is None or run.opening is not None or mistakes_in(raises):
        result = run.with_aftermath(result)
        # A call that failed before step 3 takes its turn here, so that records are in the order of arrival.
        try:
            await run.turn.acquire(run.mode, run.environment.deadline)
            await run.turn.wait_for_earlier_calls(run.mode, run.environment.deadline)
            answer = await answer_from_record(run)
            if run.opening is not None and answer is None:
                await _commit_opening(run, result)
            elif run.opening is not None:  # the same call has opened them
                run.end_run(None)
        except DeadlineExceededError:
            pass  # recorded out of order rather than not at all
        except BaseException as later:  # noqa: BLE001 - recorded first, raised after
            ends = run.undone(later) if isinstance(later, StoreUnavailableError | SessionLostError) else later
            result, raises = failure_of(ends, run.call.name)
            run.end_run(raises, is_final=False)
    return result, None if run.raises is not None or run.claim.unsettled else answer


def _lost_store(run: CallState, error: BaseException, step: Step) -> BaseException:
    """The end of the run, if an exception says that its session is lost, or that no claim can be made."""
    if isinstance(error, DeveloperMistake) or not isinstance(error, SessionError | StoreError):
        return error
    # What policies, approvers and reconcilers raise has become a refusal by now.
    if step.number < Step.BEGIN.number:
        _log.error("%s was not started: %s", run.call.name, error, exc_info=error)
        return run.recording_error(error, "was not run, because it could not be recorded")
    is_own = isinstance(error, SessionLostError) and error.session_id == run.environment.session.session_id
    return run.undone(error) if is_own else error


def _opening_of(run: CallState, error: BaseException) -> BaseException:
    """Note which sections an exception opens; returns it, or the refusal if the prompt cannot be rendered so."""
    if isinstance(error, VisibilityExpansionRequired):
        try:
            run.open(run.environment.rendering.opening(error, run.ref.reply))
        except PromptRenderError as fault:
            _log.error("%s asked for sections that cannot be rendered", run.call.name, exc_info=fault)
            asked = ", ".join(error.section_keys)
            return CallRefusedError(f"{asked} cannot be opened, because the program failed. Do without it.")
    return error


async def _commit_opening(run: CallState, result: ToolResult[Any]) -> None:
    """Write which sections are open in one unit with the record of the call, whose own changes were rolled back.

    Raises:
        StoreUnavailableError: nothing was written.
        SessionLostError: the session has passed to another process.
    """
    session, turn, raises = run.environment.session, run.turn, run.raises
    if isinstance(raises, VisibilityExpansionRequired):
        # Once more, in the turn: an earlier call that ran at the same time may have opened others meanwhile.
        run.open(run.environment.rendering.opening(raises, run.ref.reply))
    event = run.event(result) if run.plan.is_stored and turn.outer is None else None
    with Transaction(
        run.call.name, ticket=turn.ticket, writes=not turn.shared, parent=turn.outer, call=run.ref
    ) as transaction:
        transaction.open_for_results(session)
        if run.opening is not None:
            session[OpenSections].append(run.opening)
        if event is not None:
            session.slices.record_with(event, run.ref, transaction)
        await run.mode.commit(transaction)
    run.commit_event(event)
    if isinstance(raises, VisibilityExpansionRequired):
        raises.open_sections = raises.section_keys


def _notify_raised(run: CallState, error: BaseException) -> None:
    session = run.environment.session
    if session.dispatcher.is_quiet:
        return
    from handrail.runtime.call_events import ToolRaised  # noqa: PLC0415

    try:
        session.dispatcher.dispatch(ToolRaised(session.session_id, *run.ref, run.call.name, error))
    except Exception:  # noqa: BLE001 - logged, because a subscriber must not fail the call
        _log.exception("a subscriber failed on the exception that %s raised", run.call.name)


async def leave_unread_effects(run: CallState, *, has_message: bool = False, is_ending: bool = False) -> None:
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


def _leave_unread(run: CallState, *, has_message: bool) -> None:
    session = run.environment.session
    try:
        leave_unread(NO_CLAIM, run.nested_calls)
        if run.claim.leave_unread() and run.turn.outer is None and not has_message:
            record = session.calls.find(run.ref)
            if isinstance(record, ToolInvoked) and record.final:  # else a repeat of the call would be answered from it
                session.slices.record(replace(record, final=False, replayed=True), run.ref)
    except Exception:  # noqa: BLE001 - logged, because the call is over
        _log.exception("what %s has done is not left to an equal call", run.call.name)
