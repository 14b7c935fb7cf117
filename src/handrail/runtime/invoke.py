"""The pipeline: the only code that runs a handler. Every entry point calls `invoke`.

Theory of operation. A call whose identity has a final record is answered from it: nothing runs and nothing is recorded.
This is checked on arrival, and again after each wait, because the same call may have been made concurrently. Any other
call runs in thirteen steps:

| # | step | a refusal or failure here |
|---|---|---|
| 1 | look the tool up in the rendered prompt | failed message: known names, near miss |
| 2 | parse the arguments, strictly | failed message: every fault with its path, and the tool's first example |
| 3 | take its turn, queued for on arrival; failed calls wait too | cancelled, past the deadline: it leaves the queue |
| 4 | policies, each must allow; one that raises denies | failed message naming the policy |
| 5 | approval, only where a policy said ask; no transaction is open yet | `handrail.runtime.approval` |
| 6 | deadline; a stored session is open | `PromptEvaluationError(phase="tool")`; failed message |
| 7 | store reply and undo; claim the effect key | hit: skip the handler; busy, conflict, unknown: failed message |
| 8 | begin the transaction; resources join with their first write | a participant without snapshot: failed message |
| 9 | run the handler, unless the ledger has a result | `handrail.runtime.failures`; 10 and 11 are skipped |
| 10 | on success: the tool's `apply`, policies' `on_result`, reducers, subscribers | rolled back but for the effect |
| 11 | close resources of the call; commit, or roll back (default); settle the claim | rolled back, failed message |
| 12 | append one `ToolInvoked`, unless the commit did; release the turn | open, or reused identity: not recorded |
| 13 | render the message, with feedback that is due | a call that ends the run raises here |

Most calls need nothing but their turn, their transaction and their record: no policy, effect outside, timeout, secret
or untrusted content, no store, deadline or feedback (`ToolPlan.is_straight`), and no other call has the turn. They
leave out steps 1 and 3 to 7. `HANDRAIL_FAST=0` has all calls take the long way; the tests of the pipeline run both.

`handrail.runtime.failures` decides the outcome of an exception that a step lets through; policies and approvers that
raise deny the call. Everything a call may wait for (its turn, a person, another call's effect, its handler) goes
through an `ExecutionMode`, so that one coroutine serves both entry points.

The step that fails is recorded with the call. Leaving a block, in any way, rolls back the transaction with the claim
enlisted in it (steps 7 and 8), and releases the ticket (step 3). Committing is explicit: `run.commit(...)`. Two
failures are not the last word: the commit is refused because another call has applied the result of the effect
meanwhile (`AppliedMeanwhileError`), or a handler ends in doubt, and the reconciler of its tool says that the effect has
happened. Then steps 7 to 11 are taken once more, with the result in the ledger.

A second Ctrl-C in one call is raised at once (`handrail.interrupts`): it is like a kill. The session says that it has
to be opened again if it was being written to then. An interrupt that comes when the record is written appends another
one, `replayed` and not final, so that a repeat of the call is not answered from the first.

A call whose effect an earlier attempt has started was decided before that, and is answered from the ledger: what steps
4 and 5 say comes too late. If step 7 finds out that the effect has not happened, steps 4 to 7 are repeated.
"""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from handrail.errors import (
    DeadlineExceededError,
    DeveloperMistake,
    RecordingError,
    SessionError,
    ToolValidationError,
    VisibilityExpansionRequired,
)
from handrail.errors.developer import PromptRenderError, mistakes_in
from handrail.errors.outcomes import AppliedMeanwhileError
from handrail.errors.storage import SessionLostError, StoreError, StoreUnavailableError
from handrail.prompt import Tool, ToolResult
from handrail.redaction import redacted_logger
from handrail.runtime.call import CallState
from handrail.runtime.calls import Step, ToolInvoked, ToolMessage, ToolRaised, notify_subscribers
from handrail.runtime.environment import Environment
from handrail.runtime.execution import (
    CancelledElsewhereError,
    ExecutionMode,
    cancellations,
    is_cancelled_elsewhere,
    raise_interrupt,
)
from handrail.runtime.failures import CallRefusedError, describe_outcome, is_final_refusal, is_for_model, safe_refusal
from handrail.runtime.ledger.replays import NO_CLAIM, Claim, leave_unread
from handrail.runtime.observation import find_observer
from handrail.runtime.steps import (
    answer_from_record,
    apply_result,
    parse_arguments,
    read_params,
    record_call,
    render_message,
    run_handler,
    unknown_tool,
)
from handrail.session.calls import ToolCall
from handrail.transaction.transaction import return_to
from handrail.waiting import wait_for_budget

if TYPE_CHECKING:
    from handrail.store.protocol import EffectRow

_log = redacted_logger("handrail.runtime")

MAY_BE_STRAIGHT: bool = os.environ.get("HANDRAIL_FAST") != "0"
"""Whether calls may take the straight way, as the environment says when this module is imported; tests set it."""

CallAnswer: TypeAlias = ToolResult[Any] | ToolMessage
"""The result of a call that is to be recorded; or a message, if the same call was recorded meanwhile."""

# Bound once: reading a member from its enumeration takes eight times as long as a global, ten times a call.
LOOK_UP, PARSE, TURN, POLICY, APPROVAL, DEADLINE, CLAIM, BEGIN, HANDLER, APPLY, COMMIT, _RECORD, _RENDER = Step


async def invoke(call: ToolCall, reply: str | None, environment: Environment, mode: ExecutionMode) -> ToolMessage:
    """Runs a call, from request to message. The table of this module describes each step.

    Raises:
        DeveloperMistake: the program is at fault. The call is rolled back and recorded first. Adapters raise it after
            the other calls of the reply have ended.
        CallIdReusedError: a `DeveloperMistake`: the identity belongs to another call. Nothing was run or recorded.
        RunAbortedError: the run is over: the deadline has passed, or a handler or policy has ended it.
        CallPostponed: the call waits for an approval. It is rolled back, not recorded, and repeated later.
    """
    if not mode.inline:
        await wait_for_budget()  # the loop does other work first, if many calls have begun in this iteration of it
    run = CallState(call, reply, environment, mode)  # draws the ticket of step 3
    run.observer = find_observer(run)
    try:
        answer = await (_run_straight(run, run.tool) if run.tool is not None and _is_straight(run) else _decide(run))
        if not answer.success and run.raises is None:
            await _leave_unread_effects(run, has_message=True)
        if not isinstance(answer, ToolMessage):
            await record_call(run, answer)  # step 12
        run.close()
        # Step 13; a message is that of the same call, which has a final record.
        message = answer if isinstance(answer, ToolMessage) else render_message(run, answer)
        # What is nested is read by a program.
        if (feedback := run.environment.feedback) is not None and run.turn.outer is None:
            message = await feedback(message, call, run.ref, mode)
        if run.observer is not None:
            observer, run.observer = run.observer, None
            observer.end(message, None)
        if run.claim is not NO_CLAIM or run.nested_calls:
            await raise_interrupt(mode)  # while it can still be said that the message was not given
        return message
    except BaseException as error:
        is_ending = isinstance(error, GeneratorExit)  # the coroutine is closed with its loop: nothing can be awaited
        try:
            if run.claim.is_open and not is_ending:  # interrupted before its transaction began
                end = partial(run.claim.close, nested=run.turn.outer is not None)
                await run.mode.write_to(run.environment.find_ledger().units, end)
        finally:
            run.close()  # once more, or for the first time
            if run.observer is not None:
                run.observer.end(None, error)
        await _leave_unread_effects(run, is_ending=is_ending)
        raise


def _is_straight(run: CallState) -> bool:
    plan, turn = run.plan, run.turn
    if not (plan.is_straight and MAY_BE_STRAIGHT) or turn.caller is not None or turn.waits:
        return False
    # A handler that does not run on this thread is waited for, and calls of its reply may come meanwhile.
    if run.mode.inline is plan.is_async:
        return False
    return not run.has_identity or run.environment.session.calls.find(run.ref) is None


async def _run_straight(run: CallState, tool: Tool[Any, Any]) -> CallAnswer:
    try:
        read_params(run, tool)
    except BaseException as error:  # noqa: BLE001 - the table of `failures` decides its outcome
        return await _settle_failure(run, error, PARSE)
    return await _carry_out(run, tool, NO_CLAIM)


async def _decide(run: CallState) -> CallAnswer:
    """Step 1 to 7, and what follows from them: the result of a call, or the message of its final record."""
    step = LOOK_UP
    try:
        if (answer := await answer_from_record(run)) is not None:
            return answer
        tool = run.tool or await unknown_tool(run)
        step = PARSE
        await parse_arguments(run, tool)
        if run.turn.waits:
            step = TURN
            await run.take_turn()
            if (answer := await answer_from_record(run)) is not None:
                return answer  # the same call has run before this one
        claim: Claim | None = None
        while claim is None:  # once more for an effect that had been started, and is found not to have happened
            is_decided = True
            if run.plan.policies:
                from handrail.runtime.approval import check_policies, request_approval  # noqa: PLC0415

                step = POLICY
                questions = await check_policies(run, tool)
                step = APPROVAL
                is_decided = await request_approval(run, tool, questions)
            step = DEADLINE
            await run.check_ready()
            step = CLAIM
            if run.plan.claims:
                from handrail.runtime.claim_step import claim_effect  # noqa: PLC0415

                claim = await claim_effect(run, tool, is_decided=is_decided)
            else:
                claim = await run.store_deferred()
    except BaseException as error:  # noqa: BLE001 - as above
        return await _settle_failure(run, error, step)
    return await _carry_out(run, tool, claim)


async def _carry_out(
    run: CallState, tool: Tool[Any, Any], claim: Claim, *, only_replay: BaseException | None = None
) -> CallAnswer:
    """Step 8 to 11. With `only_replay` the handler does not run: it is raised if the ledger has no result."""
    step = BEGIN
    try:
        with run.begin(tool, claim) as transaction:
            try:
                if only_replay is not None and claim.result is None:
                    raise only_replay
                step = HANDLER
                result = await run_handler(run, tool, claim)
                if run.turn.shared:
                    await run.turn.wait_for_earlier_calls(run.mode, run.environment.deadline)
                    if (answer := await answer_from_record(run)) is not None:
                        return answer  # the same call has run concurrently
                if not result.success:
                    return run.fail_in_handler(result)
                step = APPLY
                await apply_result(run, tool, result, claim, transaction)
                step = COMMIT
                await run.commit(result, claim, transaction)  # without this line, the call is rolled back
            finally:
                if transaction.must_roll_back:
                    await run.roll_back(transaction)
    except BaseException as error:  # noqa: BLE001 - as above
        return await _settle_failure(run, error, step, may_replay=True)
    return result


async def _replay(run: CallState, tool: Tool[Any, Any], error: BaseException) -> CallAnswer:
    try:
        run.reopen()
        from handrail.runtime.claim_step import claim_effect  # noqa: PLC0415

        claim = await claim_effect(run, tool) or NO_CLAIM  # it is decided, so there is one
    except BaseException as later:  # noqa: BLE001 - as above
        return await _settle_failure(run, later, CLAIM)
    return await _carry_out(run, tool, claim, only_replay=error)


# ------------------------------------------------------------------------------------------------------------ failures


async def _settle_failure(run: CallState, error: BaseException, step: Step, *, may_replay: bool = False) -> CallAnswer:
    """The outcome of an exception that a step has let through, by the table of `handrail.runtime.failures`."""
    original = error
    if is_cancelled_elsewhere(error):
        error = CancelledElsewhereError()
        error.__cause__ = original
    # A cancellation of the call spares the others of its reply.
    if not isinstance(error, Exception) and not cancellations():
        run.environment.end_reply(run.reply)
    claim, tool = run.claim, run.tool
    if not may_replay or tool is None:
        return await _fail(run, error, step)
    # It was answered from the ledger, and its commit was to mark the effect.
    if isinstance(error, AppliedMeanwhileError) and claim.result is not None and claim.enlisted:
        return await _replay(run, tool, original)
    answer = await _fail(run, error, step)
    # The model would read that its effect is unknown.
    in_doubt = run.raises is None and claim.unsettled and run.turn.is_first
    if in_doubt and claim.effect and tool.reconcile is not None:
        from handrail.runtime.claim_step import settle_at_once  # noqa: PLC0415

        row: EffectRow | None = None
        try:
            row = await settle_at_once(run, tool, claim.effect)
        except BaseException as mistake:  # noqa: BLE001 - decided as any other
            answer = await _fail(run, mistake, step)
        if row is not None and row.status == "done":
            return await _replay(run, tool, original)
        if row is not None and isinstance(answer, ToolResult):
            answer = run.drop_claim(answer)
    return answer


async def _fail(run: CallState, error: BaseException, step: Step) -> CallAnswer:
    """Determines the outcome of an exception, and waits until earlier calls have been recorded."""
    return_to(run.turn.caller)
    session = run.environment.session
    run.refused_at, run.failure = step, type(error)
    # Of no other step: the handler refuses the call itself.
    run.refusal = safe_refusal(error) if step is HANDLER and isinstance(error, ToolValidationError) else run.refusal
    error, notes = _lost_store(run, _open_sections(run, error), step), run.effect_notes()
    if notes and isinstance(error, DeadlineExceededError):
        error = DeadlineExceededError(" ".join((f"{error}.", *notes)))
    result, raises = describe_outcome(error, run.call.name)
    if raises is not None and not isinstance(raises, RecordingError):  # which says it itself
        for note in notes:
            raises.add_note(note)
    run.end_run(raises, is_final=raises is None and is_final_refusal(error, step))
    if raises is None and not is_for_model(error):
        notify_subscribers(session, ToolRaised(session.session_id, *run.ref, run.call.name, error))
    answer: ToolMessage | None = None
    if raises is None or run.opening is not None or mistakes_in(raises):
        result = run.with_aftermath(result)
        # A call that failed before step 3 takes its turn here, so that records are in the order of arrival.
        try:
            await run.turn.acquire(run.mode, run.environment.deadline)
            await run.turn.wait_for_earlier_calls(run.mode, run.environment.deadline)
            answer = await answer_from_record(run)
            if run.opening is not None and answer is None:
                await run.commit_opening(result)
            elif run.opening is not None:  # the same call has opened them
                run.end_run(None)
        except DeadlineExceededError:
            pass  # recorded out of order rather than not at all
        except BaseException as later:  # noqa: BLE001 - recorded first, raised after
            ends = run.undone(later) if isinstance(later, StoreUnavailableError | SessionLostError) else later
            result, raises = describe_outcome(ends, run.call.name)
            run.end_run(raises, is_final=False)
    return result if answer is None or run.raises is not None or run.claim.unsettled else answer


def _lost_store(run: CallState, error: BaseException, step: Step) -> BaseException:
    if isinstance(error, DeveloperMistake) or not isinstance(error, SessionError | StoreError):
        return error
    # What policies, approvers and reconcilers raise has become a refusal by now.
    if step.number < BEGIN.number:
        _log.error("%s was not started: %s", run.call.name, error, exc_info=error)
        return run.recording_error(error, "was not run, because it could not be recorded")
    is_own = isinstance(error, SessionLostError) and error.session_id == run.environment.session.session_id
    return run.undone(error) if is_own else error


def _open_sections(run: CallState, error: BaseException) -> BaseException:
    if isinstance(error, VisibilityExpansionRequired):
        try:
            run.open(error)
        except PromptRenderError as fault:
            _log.error("%s asked for sections that cannot be rendered", run.call.name, exc_info=fault)
            sections = ", ".join(error.section_keys)
            return CallRefusedError(f"{sections} cannot be opened, because the program failed. Do without it.")
    return error


async def _leave_unread_effects(run: CallState, *, has_message: bool = False, is_ending: bool = False) -> None:
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
