"""The pipeline: the only code that runs a handler. Every door calls `invoke`.

Theory of operation. A call is carried out in thirteen steps:

| # | step | a refusal or failure here |
|---|---|---|
| 1 | look the tool up in the rendered prompt | failed message: known names, near miss |
| 2 | parse the arguments, strictly | failed message: every fault with its path, and the tool's first example |
| 3 | take its turn; its place was drawn on arrival | cancelled, or past the deadline: it leaves the queue |
| 4 | policies, each must allow; one that raises denies | failed message naming the policy |
| 5 | approval, only where a policy said ask; no transaction is open yet | failed message; no approver means deny |
| 6 | deadline; the store of a stored session answers | `PromptEvaluationError(phase="tool")`; failed message |
| 7 | claim the effect key | hit: skip the handler; busy, conflict, unknown: failed message |
| 8 | begin the transaction | a participant that cannot be kept: failed message |
| 9 | run the handler, bounded by its timeout and the deadline | `handrail.runtime.failures` |
| 10 | on success: policies' `on_result`, reducers, subscribers | rolled back, failed message |
| 11 | commit, or roll back (default); complete, fail or give up the claim | rolled back, failed message |
| 12 | append exactly one `ToolInvoked`, whatever the outcome; give up the turn | postponed: not recorded yet |
| 13 | render the message | |

What can be raised at any step, and what becomes of it, stands in `handrail.runtime.failures`: there is no other place
that decides it. What a call may wait for (its turn, a person, another call's effect, its handler) goes through a
`ExecutionMode`, so that one coroutine serves both entries.

Two things are undone by leaving a `with` block, whatever leaves it: the transaction, with the claim that is enlisted in
it (steps 7 and 8), and the place in the queue (step 3). Keeping is explicit: `run.commit(...)`.
"""

from __future__ import annotations

from handrail.runtime.calls import ToolCall, ToolMessage
from handrail.runtime.claim_step import claim_effect
from handrail.runtime.environment import Environment
from handrail.runtime.execution import ExecutionMode
from handrail.runtime.invocation import Invocation
from handrail.runtime.ledger.claim import NO_CLAIM
from handrail.runtime.steps import (
    apply_result,
    check_policies,
    parse_arguments,
    record_call,
    request_approval,
    run_handler,
    unknown_tool,
)


async def invoke(call: ToolCall, reply: str | None, environment: Environment, mode: ExecutionMode) -> ToolMessage:
    """Carry a call out, from request to message. The table of this module says what each line does.

    Args:
        call: what the model asked for.
        reply: the reply of the model that asked for it; every adapter states it. With the session and the id of the
            call it names the call for good.
        environment: what all calls of the run share.
        mode: how to wait and to run what may take long.

    Raises:
        DeveloperMistake: the program is at fault. The call is rolled back and recorded first. Adapters raise it when
            the other calls of the reply have ended.
        CallIdReusedError: one of these: the identity of the call stands for another one. Nothing was run or recorded.
        RunAbortedError: the run is over: the deadline has passed, or a handler or policy says so.
        CallPostponed: the call waits for an approval. It is undone, not recorded, and made again another time.
        BaseException: what is not an `Exception` passes. In either case the call is rolled back and recorded first.
    """
    with Invocation(call, reply, environment, mode) as run:  #             its ticket is drawn here
        try:
            if run.is_known and (answer := run.recorded()) is not None:
                return answer  #                                           the call has a final record
            tool = run.tool or unknown_tool(run)  #                        1
            parse_arguments(run, tool)  #                                  2
            if run.turn.waits and (answer := await run.take_turn()) is not None:  #  3
                return answer  #                                           the same call ran before this one
            if run.policies:
                questions = await check_policies(run, tool)  #             4
                await request_approval(run, tool, questions)  #            5
            if environment.deadline is not None:
                run.check_deadline(environment.deadline)  #                6
            if run.is_stored:
                run.check_store()
            claim = await claim_effect(run, tool) if tool.claims else NO_CLAIM  #  7
            with run.begin(tool, claim) as transaction:  #                 8
                result = await run_handler(run, tool, claim)  #            9
                if run.turn.shared and (answer := await run.take_first_turn()) is not None:
                    return answer  #                                       the same call ran beside this one
                if result.success:
                    await apply_result(run, result, claim, transaction)  # 10
                    run.commit(result, claim, transaction)  #              11: without this line, all is rolled back
                else:
                    result = run.refuse(result)
        except BaseException as error:  # noqa: BLE001 - the table of `failures` decides what becomes of it
            result = await run.fail(error)
        record_call(run, result)  #                                        12
    return run.message(result)  #                                          13
