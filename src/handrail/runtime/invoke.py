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
| 7 | store the reply; claim the effect key | hit: skip the handler; busy, conflict, unknown: failed message |
| 8 | begin the transaction; resources join with their first write | a participant without snapshot: failed message |
| 9 | run the handler, bounded by its timeout and the deadline | `handrail.runtime.failures`; 10 and 11 are skipped |
| 10 | on success: the tool's `apply`, policies' `on_result`, reducers, subscribers | rolled back, failed message |
| 11 | close resources of the call; commit, or roll back (default); settle the claim | rolled back, failed message |
| 12 | append one `ToolInvoked`, unless the commit did; release the turn | open, or reused identity: not recorded |
| 13 | render the message, with feedback that is due | a call that ends the run raises here |

`handrail.runtime.failures` decides the outcome of an exception that a step lets through; policies and approvers that
raise deny the call. Everything a call may wait for (its turn, a person, another call's effect, its handler) goes
through an `ExecutionMode`, so that one coroutine serves both entry points.

`run.step` is the current step; it is set only here, and recorded with a call that fails. Leaving a block, in any way,
rolls back the transaction with the claim enlisted in it (steps 7 and 8), and releases the ticket (step 3). Committing
is explicit: `run.commit(...)`. Where another call has applied the result of the effect meanwhile, the commit is refused
(`AppliedMeanwhileError`), and steps 7 to 11 are repeated once, with the result in the ledger. So they are if a handler
ends in doubt, and the reconciler of its tool says that the effect has happened.

A call whose effect an earlier attempt has started was decided before that, and is answered from the ledger: what steps
4 and 5 say comes too late. If step 7 finds out that the effect has not happened, steps 4 to 7 are repeated.
"""

from __future__ import annotations

from typing import Any

from handrail.errors import AppliedMeanwhileError
from handrail.prompt import Tool, ToolResult
from handrail.runtime.approval import request_approval
from handrail.runtime.calls import Step, ToolMessage
from handrail.runtime.claim_step import claim_effect
from handrail.runtime.environment import Environment
from handrail.runtime.execution import (
    CancelledElsewhereError,
    ExecutionMode,
    is_being_cancelled,
    is_cancelled_elsewhere,
)
from handrail.runtime.call import Call
from handrail.runtime.fast import IS_ON, record_straight, run_straight
from handrail.runtime.ledger.claim import NO_CLAIM, Claim
from handrail.runtime.steps import (
    apply_result,
    check_policies,
    is_plain,
    message_with_feedback,
    parse_arguments,
    record_call,
    run_handler,
    unknown_tool,
)
from handrail.runtime.unknown_effects import leave_unread_effects, settle_at_once
from handrail.session.call_ref import ToolCall

# Bound once: reading a member from its enumeration takes eight times as long as a global, thirteen times a call.
LOOK_UP, PARSE, TURN, POLICY, APPROVAL, DEADLINE, CLAIM, BEGIN, HANDLER, APPLY, COMMIT, RECORD, RENDER = Step


async def invoke(call: ToolCall, reply: str | None, environment: Environment, mode: ExecutionMode) -> ToolMessage:
    """Run a call, from request to message. The table of this module describes each step.

    Args:
        call: what the model asked for.
        reply: the reply of the model that asked for it; every adapter states it. With the session and the id of the
            call it identifies the call permanently.
        environment: what all calls of the run share.
        mode: how to wait and to run what may take long.

    Raises:
        DeveloperMistake: the program is at fault. The call is rolled back and recorded first. Adapters raise it after
            the other calls of the reply have ended.
        CallIdReusedError: a `DeveloperMistake`: the identity belongs to another call. Nothing was run or recorded.
        RunAbortedError: the run is over: the deadline has passed, or a handler or policy has ended it.
        CallPostponed: the call waits for an approval. It is rolled back, not recorded, and repeated later.
        BaseException: what is not an `Exception` propagates. In either case the call is rolled back and recorded first.
    """
    if not mode.inline:
        await mode.begin()
    run = Call(call, reply, environment, mode)  # draws the ticket of step 3
    try:
        ended = await _run(run)
        if not ended.success and run.raises is None:
            await leave_unread_effects(run, has_message=True)
        run.close()
        if isinstance(ended, ToolMessage):
            return ended
        run.step = RENDER
        return run.message(ended) if is_plain(run) else await message_with_feedback(run, ended)
    except BaseException as error:
        run.close()  # once more, or for the first time
        await leave_unread_effects(run, is_ending=isinstance(error, GeneratorExit))
        raise


async def _run(run: Call) -> ToolResult[Any] | ToolMessage:
    """Steps 1 to 12: the result of a call, or the message of the same call that has a final record."""
    is_straight = IS_ON and run.is_straight
    try:
        if is_straight and run.tool is not None:
            result = await run_straight(run, run.tool)
        else:
            result = await _take_steps(run)
        if isinstance(result, ToolMessage):
            return result
    except BaseException as error:  # noqa: BLE001 - the table of `failures` decides its outcome
        is_straight = False
        result, answer = await _outcome_of(run, error)
        if answer is not None:
            return answer  # the same call was recorded meanwhile
    run.step = RECORD
    if is_straight:
        record_straight(run, result)
    else:
        await record_call(run, result)
    return result


async def _take_steps(run: Call) -> ToolResult[Any] | ToolMessage:
    """Steps 1 to 11."""
    run.note_interrupts()
    if run.has_identity and (answer := await run.answer_from_record()) is not None:
        return answer  # the call has a final record
    tool = run.tool or await unknown_tool(run)
    run.step = PARSE
    await parse_arguments(run, tool)
    if run.turn.waits:
        run.step = TURN
        if (answer := await run.take_turn()) is not None:
            return answer  # the same call has run before this one
    if run.plan.policies:
        run.step = POLICY
        questions = await check_policies(run, tool)
        run.step = APPROVAL
        await request_approval(run, tool, questions)
    run.step = DEADLINE
    await run.check_ready(tool)
    run.step = CLAIM
    claim = await _claim(run, tool) if tool.claims or run.has_deferred else NO_CLAIM
    run.step = BEGIN
    with run.begin(tool, claim) as transaction:
        try:
            run.step = HANDLER
            result = await run_handler(run, tool, claim)
            if run.turn.shared and (answer := await run.take_first_turn()) is not None:
                return answer  # the same call has run concurrently
            if not result.success:
                return run.note_failed_result(result)
            run.step = APPLY
            await apply_result(run, result, claim, transaction)
            run.step = COMMIT
            await run.commit(result, claim, transaction)  # without this line, the call is rolled back
        finally:
            if transaction.must_roll_back:
                await run.roll_back(transaction)
    return result


async def _claim(run: Call, tool: Tool[Any, Any]) -> Claim:
    """Step 7; and steps 4 to 7 once more for an effect that had been started, and is found not to have happened."""
    claim = await claim_effect(run, tool)
    if claim is not None:
        return claim
    run.step = POLICY
    questions = await check_policies(run, tool)
    run.step = APPROVAL
    await request_approval(run, tool, questions)
    run.step = DEADLINE
    await run.check_ready(tool)
    run.step = CLAIM
    return await _claim(run, tool)


async def _outcome_of(run: Call, error: BaseException) -> tuple[ToolResult[Any], ToolMessage | None]:
    """The outcome of an exception; see `Call.fail`."""
    if is_cancelled_elsewhere(error):
        cause, error = error, CancelledElsewhereError()
        error.__cause__ = cause
    # A cancellation of the call spares the others of its reply.
    if not isinstance(error, Exception) and not is_being_cancelled():
        run.environment.questions.end(run.reply)
    try:
        if isinstance(error, AppliedMeanwhileError) and run.replays_unapplied:
            return await _answer_anew(run, error), None
    except BaseException as again:  # noqa: BLE001 - decided as any other
        error = again
    result, answer = await run.fail(error)
    if run.ended_in_doubt:
        result, answer = await _ask_at_once(run, result, error)
    return result, answer


async def _ask_at_once(
    run: Call, failed: ToolResult[Any], error: BaseException
) -> tuple[ToolResult[Any], ToolMessage | None]:
    """The outcome of a call whose handler has ended in doubt, once its reconciler was asked."""
    tool = run.tool or await unknown_tool(run)
    try:
        row = await settle_at_once(run, tool)
        if row is None:
            return failed, None
        if row.status == "done":
            return await _answer_anew(run, error), None
    except BaseException as again:  # noqa: BLE001 - decided as any other
        return await run.fail(again)
    message = failed.message.removesuffix(run.claim.unresolved_note())
    run.claim = NO_CLAIM
    return ToolResult.error(f"{message}{tool.name} has not taken effect."), None


async def _answer_anew(run: Call, error: BaseException) -> ToolResult[Any]:
    """Steps 7 to 11 once more, for a call whose effect has happened; its handler does not run.

    Raises:
        BaseException: as in these steps; `error` if the effect has been claimed or removed meanwhile.
    """
    tool = run.tool or await unknown_tool(run)
    run.reopen()
    run.step = CLAIM
    claim = await claim_effect(run, tool)
    if claim is None:
        raise error
    run.step = BEGIN
    with run.begin(tool, claim) as transaction:
        try:
            if claim.stored is None:
                raise error
            run.step = APPLY
            await apply_result(run, claim.stored, claim, transaction)
            run.step = COMMIT
            await run.commit(claim.stored, claim, transaction)
        finally:
            if transaction.must_roll_back:
                await run.roll_back(transaction)
    return claim.stored
