"""Steps 4 and 5 of the pipeline: policies decide about a call, and where one asks, the approver.

In step 4 policies allow, deny or ask. A decision against the call is a `Denial`. If there is no decision, because a
policy raised, the call is refused as well, but a repeat of it is judged anew. An invalid answer is a mistake of the
program, and is raised to the developer. In step 5 the question of a policy becomes, whatever the entry point:

| the question has | the call |
|---|---|
| been answered before an earlier attempt, which has started the effect of the call | is answered from the ledger |
| an answer that a person has recorded in the store | runs, or is refused |
| a no that is recorded, and the call lacks its secrets after a restart | is refused with it in step 2 |
| one that is recorded while the approver is asked | the same, whatever the approver answers |
| no such answer, and no approver | is refused; a repeat of it is judged anew |
| an approver that approves | runs |
| an approver that refuses | is refused |
| an approver that raises an `Exception` | is refused; a repeat of it is judged anew |
| an approver that raises `CallPostponed`, or returns `Approval.later()` | is postponed: it stays open |
| such an approver, and the caller of the run says yes with the repeat | runs |
| an approver that is interrupted: Ctrl-C, `SystemExit`, `CancelledError` | stays open, and the interrupt is raised |

A call that stays open is not recorded, because it has no outcome yet. In a stored session it is listed among the open
calls with its question, so that a person can answer it from another process. Calls of the reply that wait for their
turn behind it when the approver is interrupted are not recorded either: nothing of them has run.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from handrail.errors import (
    CallPostponed,
    DeadlineExceededError,
    InvalidReturnError,
    ModelVisibleError,
    RunAbortedError,
    ToolValidationError,
)
from handrail.errors.developer import mistakes_in
from handrail.limits import seconds_left
from handrail.prompt import Approval, ApprovalRequest, PolicyDecision, PolicyQuestion, ToolPolicy, ToolResult
from handrail.prompt.signature import is_async
from handrail.redaction import redacted, redacted_logger
from handrail.runtime.call import CallState
from handrail.runtime.calls import ToolMessage
from handrail.runtime.claim_step import has_started
from handrail.runtime.execution import ExecutionTimeoutError, drop_unawaited, run_to_end
from handrail.runtime.failures import CallRefusedError, Denial, describe_error
from handrail.session.call_ref import ToolCall

if TYPE_CHECKING:
    from handrail.prompt import Approver, Tool, ToolContext

_log = redacted_logger("handrail.runtime")

_DECISIONS = "PolicyDecision.allow(), PolicyDecision.deny(reason) or PolicyDecision.ask(question)"


ByPolicy = Callable[[ToolPolicy, Callable[[], PolicyDecision]], Awaitable[PolicyDecision]]
"""Calls a method of a policy, off the event loop if that may block it."""


async def check_policies(run: CallState, tool: Tool[Any, Any]) -> tuple[PolicyQuestion, ...] | None:
    """Let every policy of the tool decide; returns the questions of those that ask, `None` if it is too late to decide.

    A call that reads may run concurrently with earlier calls. If a policy denies it, an earlier call may be about to
    change the reason, so the policies are asked again when all earlier calls have ended: the outcome is the same as for
    sequential calls.

    A denial comes too late for an effect that an earlier attempt of the call has started: the call is answered from the
    ledger. Policies and approver decide anew if it turns out there that the effect has not happened.

    Raises:
        Denial: a policy denies. The message names it.
        CallRefusedError: one could not decide.
        DeveloperMistake: one returned no decision, or requested an unbound resource.
    """
    if run.environment.settles is not None:
        return ()  # the effect has happened: it is too late to decide
    context = run.context()
    try:
        return await _ask_each(run, tool, context)
    except CallRefusedError:
        if await has_started(run, tool):
            return None
        if not run.turn.shared:
            raise
    await run.turn.wait_for_earlier_calls(run.mode, run.environment.deadline)
    return await _ask_each(run, tool, context)


async def _ask_each(run: CallState, tool: Tool[Any, Any], context: ToolContext) -> tuple[PolicyQuestion, ...]:
    with run.turn.judged():
        asked = [await ask_policy(policy, tool, run.params, context, run.by_policy) for policy in run.plan.policies]
    return tuple(question for question in asked if question is not None)


async def ask_policy(
    policy: ToolPolicy,
    tool: Tool[Any, Any],
    params: Any,  # noqa: ANN401 - of the tool's parameter type
    context: ToolContext,
    by_policy: ByPolicy,
) -> PolicyQuestion | None:
    """Have a policy decide about a call; returns its question, or `None` if it allows the call.

    Raises:
        Denial: it denies. The message names it.
        CallRefusedError: it could not decide.
        DeveloperMistake: it returned no decision, or requested an unbound resource.
    """
    try:
        decision = await by_policy(policy, partial(policy.check, tool, params, context=context))
    except RunAbortedError:
        raise
    except ModelVisibleError as error:
        kind = Denial if isinstance(error, ToolValidationError) else CallRefusedError
        raise kind(f"policy {policy.name} denies {tool.name}: {error}") from error
    except Exception as error:
        if mistakes_in(error):
            raise
        _log.exception("policy %s failed on %s", policy.name, tool.name)
        raise CallRefusedError(
            f"policy {policy.name} could not decide on {tool.name}, so it was not run ({describe_error(error)})"
        ) from error
    if not isinstance(cast("object", decision), PolicyDecision):
        raise invalid_answer(f"policy {policy.name}", tool, decision, _DECISIONS)
    if decision.verdict == "deny":
        kind = Denial if decision.final else CallRefusedError
        raise kind(f"policy {policy.name} denies {tool.name}: {decision.reason}")
    return PolicyQuestion(policy.name, redacted(decision.reason)) if decision.verdict == "ask" else None


async def request_approval(run: CallState, tool: Tool[Any, Any], questions: tuple[PolicyQuestion, ...] | None) -> bool:
    """Ask the approver, if there is a question that no recorded answer covers; no transaction is open meanwhile.

    Returns:
        Whether it is decided that the call may run. It is not if an earlier attempt has started its effect, so that it
        is too late to decide; `questions` are `None` if the policies have found that out.

    Raises:
        Denial: the answer is no.
        CallRefusedError: there is no answer, or no approver.
        CallPostponed: the question is left open.
        DeveloperMistake: the approver answered neither yes nor no, or requested an unbound resource.
    """
    if not questions:
        return questions is not None
    if await has_started(run, tool):
        return False
    from handrail.runtime.waiting_calls import recorded_answer  # noqa: PLC0415

    asked = "; ".join(f"{question.policy}: {question.text}" for question in questions)
    session_id = run.environment.session.session_id
    request = ApprovalRequest(run.call.id, tool, run.params, questions, session_id, run.ref.reply)
    answer = await recorded_answer(run, tool, request)
    if answer is None:
        approver = run.environment.approver
        if approver is None:
            raise CallRefusedError(
                f"{tool.name} needs approval ({asked}), and no approver is available here. Do without it."
            )
        run.ask(request)
        answer = await _answer(run, approver, request)
        run.ask(None)
        # Of two answers the first stands: one that was recorded while the approver was asked.
        answer = await recorded_answer(run, tool, request) or answer
    if not answer.approved:
        raise refusal_of(tool.name, answer)
    return True


def refusal_of(tool_name: str, answer: Approval) -> CallRefusedError:
    """What a no makes of a call; the model reads its reason."""
    reason = f": {answer.reason.removesuffix('.')}" if answer.reason else ""
    refused = f"approval of {tool_name} was refused{reason}. Do not request it again; do without it."
    return Denial(refused) if answer.final else CallRefusedError(refused)


async def _answer(run: CallState, approver: Approver, request: ApprovalRequest) -> Approval:
    """The answer of the approver; the question is no longer open if it fails."""
    tool, answer, postponed = request.tool, None, None
    seconds = seconds_left(run.environment.deadline)
    try:
        with run.turn.judged(), run.environment.asking(run.ref):
            answer = await run_to_end(run.mode, lambda: approver(request), is_async=is_async(approver), seconds=seconds)
    except CallPostponed as error:
        postponed = error
    except Exception as error:
        run.ask(None)
        if isinstance(error, ExecutionTimeoutError):
            raise DeadlineExceededError("the deadline passed while approval was awaited; it was not run") from None
        if isinstance(error, RunAbortedError) or mistakes_in(error):
            raise
        _log.exception("the approver failed on %s", tool.name)
        raise CallRefusedError(f"{tool.name} was not approved: asking failed with {describe_error(error)}") from error
    if isinstance(answer, Approval) and answer.left_open:
        postponed = CallPostponed(answer.reason or f"{tool.name} waits for approval")
    if postponed is not None:
        if (by_caller := run.environment.caller_answer(request)) is not None:
            return by_caller
        postponed.question = request
        raise postponed
    if isinstance(answer, bool):
        return Approval(answer)
    if isinstance(answer, Approval):
        return answer
    run.ask(None)
    raise invalid_answer("the approver", tool, answer, "True, False or an Approval")


def pending_message(call: ToolCall, postponed: CallPostponed) -> ToolMessage:
    """The message of a call that waits: it says what for, and whether the call has begun."""
    asked = postponed.question
    if isinstance(asked, ApprovalRequest) and asked.tool.name == call.name:
        why = f" has not run yet: {postponed}. Its result follows when it has."
    else:  # its handler has postponed it, or a call that this has made
        why = f" waits, and what it had changed was undone: {postponed}. Its result follows when it has run to its end."
    result = ToolResult[None].error(f"{call.name}{why}")
    return ToolMessage(call.id, result.render(), result.success, result, pending=True)


def invalid_answer(function: str, tool: Tool[Any, Any], returned: object, expected: str) -> InvalidReturnError:
    """The error for a function of the program that returned something else than it must."""
    drop_unawaited(returned)
    return InvalidReturnError(function=function, tool=tool.name, returned=returned, expected=expected)
