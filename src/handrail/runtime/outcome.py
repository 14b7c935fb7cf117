"""The end of a call that a step has failed, beside the table of `handrail.runtime.failures`, and of an unknown effect.

Two failures are not the last word. A commit is refused because another call has applied the result of the effect
meanwhile; or a handler has ended in doubt, and the reconciler of the tool says that the effect has happened. Then the
call is answered from the ledger.

The reconciler of the tool asks the external system. It is asked when the handler has ended in doubt, before the model
reads anything (`settle_failure`); when a session is resumed (`handrail.adapters.settlement`); and by the next call of
the effect, or an equal one (`handrail.runtime.claim_step`). That it happened counts at once. That it did not counts at
once only if the tool declares `reconcile_proves_absence`, because a request whose answer was lost may still be on its
way; asked later, it counts. It never counts while a `def` handler of that effect, whose call was stopped or cancelled,
still runs in this process.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from handrail.errors import (
    AppliedMeanwhileError,
    DeadlineExceededError,
    DumpError,
    InvalidReturnError,
    PromptRenderError,
    RunAbortedError,
    SessionError,
    SessionLostError,
    StoreError,
    StoreUnavailableError,
    ToolValidationError,
    VisibilityExpansionRequired,
)
from handrail.errors.developer import DeveloperMistake, mistakes_in
from handrail.prompt import Tool, ToolResult
from handrail.prompt.disclosure import OpenSections
from handrail.prompt.effect import DAY
from handrail.prompt.signature import is_async, takes_context
from handrail.prompt.type_parameters import annotation_name
from handrail.redaction import redacted_logger
from handrail.runtime.call import CallState
from handrail.runtime.calls import Step, ToolInvoked, ToolMessage
from handrail.runtime.execution import (
    CancelledElsewhereError,
    ExecutionTimeoutError,
    cancellations,
    is_cancelled_elsewhere,
    run_to_end,
)
from handrail.runtime.failures import (
    CallRefusedError,
    describe_error,
    failure_of,
    is_final_refusal,
    is_for_model,
    safe_refusal,
)
from handrail.runtime.ledger.records import dump_result, started_params
from handrail.runtime.ledger.replays import NO_CLAIM, is_result, leave_unread
from handrail.runtime.messages import answer_from_record
from handrail.transaction import Transaction
from handrail.transaction.transaction import return_to

if TYPE_CHECKING:
    from handrail.runtime.ledger.effects import EffectResult, Finding
    from handrail.store.protocol import EffectRow

_log = redacted_logger("handrail.runtime")

_CURE = "A reconciler returns what it finds; `apply` of the tool writes."
"""What a reconciler does instead of a write; the end of the message that refuses one."""

Ended: TypeAlias = ToolResult[Any] | ToolMessage
"""The result of a call that is to be recorded; or a message, if the same call was recorded meanwhile."""


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
        row: EffectRow | None = None
        try:
            row = await _settle_at_once(run, tool, claim.effect)
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
            session.commit_event(event, run.ref, transaction)
        await run.mode.commit(transaction)
    run.commit_event(event)
    if isinstance(raises, VisibilityExpansionRequired):
        raises.opened = raises.section_keys


def _notify_raised(run: CallState, error: BaseException) -> None:
    session = run.environment.session
    if session.dispatcher.is_quiet:
        return
    from handrail.runtime.call_events import ToolRaised  # noqa: PLC0415

    try:
        session.dispatcher.dispatch(ToolRaised(session.session_id, *run.ref, run.call.name, error))
    except Exception:  # noqa: BLE001 - logged, because a subscriber must not fail the call
        _log.exception("a subscriber failed on the exception that %s raised", run.call.name)


async def standing_row(run: CallState, row: EffectRow) -> EffectRow | None:
    """The row as it stands now; `None` if it has been removed."""
    ledger = run.environment.effect_ledger
    return await run.mode.write_to(ledger.units, partial(ledger.row, row.key, partition=row.partition))


async def _settle_at_once(run: CallState, tool: Tool[Any, Any], effect: EffectRow) -> EffectRow | None:
    """The effect of a call whose handler has ended in doubt, once it is settled; `None` while it is unknown.

    Raises:
        DeveloperMistake: as for `settle_unknown`.
    """
    row = await standing_row(run, effect)
    if row is None or row.status != "unknown":
        return None
    try:
        return await settle_unknown(run, tool, row, at_once=True)
    except CallRefusedError:
        return None


async def settle_unknown(run: CallState, tool: Tool[Any, Any], row: EffectRow, *, at_once: bool = False) -> EffectRow:
    """Ask the reconciler about an unknown effect, and record what it says; returns the row, which is done or failed.

    Args:
        run: the call that asks.
        tool: the tool of the effect.
        row: the effect.
        at_once: whether the answer has only just been lost.

    Raises:
        CallRefusedError: the outcome stays unknown.
        DeveloperMistake: the reconciler requested an unbound resource, or returned what is not a result of the tool.
    """
    from handrail.runtime.ledger.effects import NotApplied, Unknown  # noqa: PLC0415
    from handrail.store.processes import RUNNING_HANDLERS  # noqa: PLC0415
    from handrail.store.protocol import UNTIL_APPLIED  # noqa: PLC0415

    ledger = run.environment.effect_ledger
    unknown = Unknown(row).message
    # In another process, which has left the session, or left behind by its call in this one.
    if row.status == "running" and (row.claim in RUNNING_HANDLERS or ledger.store.owner_lives(row)):
        raise CallRefusedError(unknown)
    runs = any(effect_id == row.effect_id for effect_id, _ in tuple(RUNNING_HANDLERS))
    finding: Finding = await _ask_reconciler(run, tool, row, unknown) or NotApplied("found out by its reconciler")
    proves = tool.external is not None and tool.external.reconcile_proves_absence
    if isinstance(finding, NotApplied) and (runs or (at_once and not proves)):
        raise CallRefusedError(unknown)
    # What belongs to it is applied by a later call, which may fail.
    ttl = UNTIL_APPLIED if tool.apply is not None else DAY if tool.idempotency is None else tool.idempotency.ttl
    await run.mode.write_to(ledger.units, partial(ledger.resolve, row, finding, ttl=ttl))
    # Read again: another caller may have resolved it meanwhile.
    standing = await standing_row(run, row)
    if standing is None:  # removed by force
        return row._replace(status="failed")
    if standing.status not in {"done", "failed"}:
        raise CallRefusedError(Unknown(standing).message)
    return standing


async def _ask_reconciler(run: CallState, tool: Tool[Any, Any], row: EffectRow, message: str) -> EffectResult | None:
    """The outcome of an unknown effect; `None` if it has not happened. Raises as `settle_unknown` does."""
    from handrail.limits import time_limit  # noqa: PLC0415

    # The message quotes how the effect failed, in whatever session, and what a reconciler raises.
    run.note_taint()
    reconcile: Any = tool.reconcile
    if reconcile is None:
        raise CallRefusedError(message)
    seconds, _ = time_limit(tool.timeout, run.environment.deadline)
    params = _params_of(row, run, tool, message)
    named = {"context": run.context()} if takes_context(reconcile) else {}
    # Never committed: a reconciler may only read, so there is nothing to keep.
    reading = Transaction(
        tool.name, ticket=run.turn.ticket, writes=False, parent=run.turn.outer, call=run.ref, cure=_CURE
    )
    try:
        with reading:
            asks = partial(reconcile, params, row.key, **named)
            answer: object = await run_to_end(run.mode, asks, is_async=is_async(reconcile), seconds=seconds)
    except ExecutionTimeoutError:
        raise CallRefusedError(f"{message} The reconciler took too long.") from None
    except Exception as error:
        if isinstance(error, RunAbortedError) or mistakes_in(error):
            raise
        _log.exception("reconcile of %s failed", tool.name)
        raise CallRefusedError(f"{message} The reconciler failed: {describe_error(error)}") from error
    if answer is None:
        return None
    result = _checked(answer, tool)
    if not result.success:
        _log.warning(
            "reconcile of %s could not determine whether %s took effect: %s", tool.name, row.key, result.message
        )
        raise CallRefusedError(f"{message} The reconciler could not determine it either.")
    return dump_result(tool, result)


def _checked(found: object, tool: Tool[Any, Any]) -> ToolResult[Any]:
    """What a reconciler has returned, if it is a result of the tool; a result without a value is one of any tool.

    Raises:
        InvalidReturnError: it is not. A plain value is not a result: `False` might mean that nothing has happened.
    """
    if not is_result(found):
        fault: str | None = f"returned a value of type {type(found).__name__}, which is not a ToolResult"
    elif (fault := _fault_of(found, tool)) is None:
        return found
    raise InvalidReturnError(
        function="reconcile",
        tool=tool.name,
        returned=found,
        expected=(
            f"ToolResult.ok(value) with a value of {annotation_name(tool.result_type)} if the effect has happened, and "
            "None if it certainly has not; it raises if it does not know"
        ),
        fault=fault,
    )


def _fault_of(result: ToolResult[Any], tool: Tool[Any, Any]) -> str | None:
    """The fault of a result, as text. The ledger would record one whose value does not fit without that."""
    value: object = result.value
    # A failure may lack a value, whatever the type.
    fault = tool.fault_of(replace(result, success=False) if value is None and result.success is True else result)
    if fault is not None or value is None or tool.value_codec is None:
        return fault
    try:
        tool.value_codec.dump_json(value)
    except DumpError as error:
        # `apply` reads the value from the ledger; without it, only the model would.
        if error.is_mistyped or tool.apply is not None:
            return f"returned a value that cannot be recorded: {error}"
    return None


def _params_of(row: EffectRow, run: CallState, tool: Tool[Any, Any], message: str) -> object:
    """The parameters that an unknown effect started with; see `started_params`.

    Raises:
        CallRefusedError: they cannot be restored.
    """
    found = started_params(row.arguments, run.call, run.params, tool)
    if found is not None:
        return found[0]
    why = "the parameters that it started with cannot be restored from their record"
    _log.error("the reconciler of %s was not asked about %s: %s", tool.name, row.key, why)
    raise CallRefusedError(f"{message} The reconciler was not asked: {why}.")


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
            record = session.recorded_call(run.ref)
            if isinstance(record, ToolInvoked) and record.final:  # else a repeat of the call would be answered from it
                session.log_event(replace(record, final=False, replayed=True), run.ref)
    except Exception:  # noqa: BLE001 - logged, because the call is over
        _log.exception("what %s has done is not left to an equal call", run.call.name)
