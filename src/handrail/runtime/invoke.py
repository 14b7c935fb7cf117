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
| 9 | run the handler, unless the ledger has a result | `handrail.runtime.failures`; 10 and 11 are skipped |
| 10 | on success: the tool's `apply`, policies' `on_result`, reducers, subscribers | rolled back but for the effect |
| 11 | close resources of the call; commit, or roll back (default); settle the claim | rolled back, failed message |
| 12 | append one `ToolInvoked`, unless the commit did; release the turn | open, or reused identity: not recorded |
| 13 | render the message, with feedback that is due | a call that ends the run raises here |

`handrail.runtime.failures` decides the outcome of an exception that a step lets through; policies and approvers that
raise deny the call. Everything a call may wait for (its turn, a person, another call's effect, its handler) goes
through an `ExecutionMode`, so that one coroutine serves both entry points.

The step that fails is recorded with the call. Leaving a block, in any way, rolls back the transaction with the claim
enlisted in it (steps 7 and 8), and releases the ticket (step 3). Committing is explicit: `run.commit(...)`. Where
another call has applied the result of the effect meanwhile, the commit is refused (`AppliedMeanwhileError`), and steps
7 to 11 are taken once more, with the result in the ledger. So they are if a handler ends in doubt, and the reconciler
of its tool says that the effect has happened (`handrail.runtime.claim_step`).

A second Ctrl-C in one call is raised at once (`handrail.interrupts`): it is like a kill. The session says that it has
to be opened again if it was being written to then. An interrupt that comes when the record is written appends another
one, `replayed` and not final, so that a repeat of the call is not answered from the first.

A call whose effect an earlier attempt has started was decided before that, and is answered from the ledger: what steps
4 and 5 say comes too late. If step 7 finds out that the effect has not happened, steps 4 to 7 are repeated.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from handrail.prompt import Tool
from handrail.runtime import fast
from handrail.runtime.call import CallState
from handrail.runtime.calls import Step, ToolMessage
from handrail.runtime.environment import Environment
from handrail.runtime.execution import ExecutionMode, raise_interrupt
from handrail.runtime.ledger.replays import NO_CLAIM, Claim
from handrail.runtime.messages import answer_from_record, render_message
from handrail.runtime.outcome import Ended, leave_unread_effects, settle_failure
from handrail.runtime.steps import apply_result, parse_arguments, record_call, run_handler, unknown_tool
from handrail.session.calls import ToolCall
from handrail.waiting import wait_for_budget

# Bound once: reading a member from its enumeration takes eight times as long as a global, ten times a call.
LOOK_UP, PARSE, TURN, POLICY, APPROVAL, DEADLINE, CLAIM, BEGIN, HANDLER, APPLY, COMMIT, _RECORD, _RENDER = Step


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
        await wait_for_budget()  # the loop does other work first, if many calls have begun in this iteration of it
    run = CallState(call, reply, environment, mode)  # draws the ticket of step 3
    try:
        if run.tool is not None and fast.is_straight(run):
            ended = await fast.run_straight(run, run.tool, _carry_out)
        else:
            ended = await _decide(run)
        if not ended.success and run.raises is None:
            await leave_unread_effects(run, has_message=True)
        if not isinstance(ended, ToolMessage):
            await record_call(run, ended)  # step 12
        run.close()
        # Step 13; a message is that of the same call, which has a final record.
        message = ended if isinstance(ended, ToolMessage) else render_message(run, ended)
        if run.plan.feedback is not None and run.turn.outer is None:  # what is nested is read by a program
            message = await run.plan.feedback(message, call, run.ref, mode)
        if run.claim is not NO_CLAIM or run.nested_calls:
            await raise_interrupt(mode)  # while it can still be said that the message was not given
        return message
    except BaseException as error:
        run.close()  # once more, or for the first time
        await leave_unread_effects(run, is_ending=isinstance(error, GeneratorExit))
        raise


async def _decide(run: CallState) -> Ended:
    """Steps 1 to 7, and what follows from them: the result of a call, or the message of its final record."""
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
    except BaseException as error:  # noqa: BLE001 - the table of `failures` decides its outcome
        return await settle_failure(run, error, step)
    return await _carry_out(run, tool, claim)


async def _carry_out(
    run: CallState, tool: Tool[Any, Any], claim: Claim, *, only_replay: BaseException | None = None
) -> Ended:
    """Steps 8 to 11. With `only_replay` the handler does not run: it is raised if the ledger has no result."""
    step = BEGIN
    try:
        with run.begin(tool, claim) as transaction:
            try:
                if only_replay is not None and claim.stored is None:
                    raise only_replay
                step = HANDLER
                result = await run_handler(run, tool, claim)
                if run.turn.shared:
                    await run.turn.wait_for_earlier_calls(run.mode, run.environment.deadline)
                    if (answer := await answer_from_record(run)) is not None:
                        return answer  # the same call has run concurrently
                if not result.success:
                    return run.note_failed_result(result)
                step = APPLY
                await apply_result(run, tool, result, claim, transaction)
                step = COMMIT
                await run.commit(result, claim, transaction)  # without this line, the call is rolled back
            finally:
                if transaction.must_roll_back:
                    await run.roll_back(transaction)
    except BaseException as error:  # noqa: BLE001 - as above
        return await settle_failure(run, error, step, partial(_answer_anew, run, tool, error))
    return result


async def _answer_anew(run: CallState, tool: Tool[Any, Any], error: BaseException) -> Ended:
    """Steps 7 to 11 once more, for a call whose effect has happened; `error` is what it had ended with."""
    try:
        run.reopen()
        from handrail.runtime.claim_step import claim_effect  # noqa: PLC0415

        claim = await claim_effect(run, tool) or NO_CLAIM  # it is decided, so there is one
    except BaseException as again:  # noqa: BLE001 - as above
        return await settle_failure(run, again, CLAIM)
    return await _carry_out(run, tool, claim, only_replay=error)
