"""Steps 4 and 5: policies say allow, deny or ask; where they ask, a person or a rule of the program decides.

A decision is a `Denial`. Where nobody has decided, because a policy or the approver raised or there is no approver, the
call is refused as well, but the same call is judged anew when it is asked again. An answer that is none is a mistake of
the program, and is raised to the developer.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Any, cast

from handrail.errors import (
    CallPostponed,
    DeadlineExceededError,
    DeveloperMistake,
    EndsRun,
    InvalidReturnError,
    ToldToModel,
    ToolValidationError,
)
from handrail.prompt import Approval, ApprovalRequest, Approver, PolicyDecision, PolicyQuestion, Tool, ToolContext
from handrail.prompt.signature import is_async
from handrail.runtime.calls import Step
from handrail.runtime.execution import OverranError, drop_unawaited, run_to_end
from handrail.runtime.failures import Denial, Refusal, told
from handrail.runtime.invocation import Invocation

_log = logging.getLogger("handrail.runtime")

_DECISIONS = "PolicyDecision.allow(), PolicyDecision.deny(reason) or PolicyDecision.ask(question)"


async def judge(run: Invocation, tool: Tool[Any, Any]) -> tuple[PolicyQuestion, ...]:
    """Let every policy of the tool decide; returns what they want to have asked.

    A call that reads may run beside others that have not ended. If a policy denies it, the reason may be what one of
    those is about to change, so the policies are asked once more when all earlier ones have ended: the outcome is that
    of running the calls one by one.

    Raises:
        Denial: a policy denies. The message names it.
        Refusal: one could not decide.
        DeveloperMistake: one returned no decision, or asked for what is not there.
    """
    run.step = Step.POLICY
    context = run.context()
    try:
        return await _ask_each(run, tool, context)
    except Refusal:
        if not run.place.shared:
            raise
    await run.take_first_turn()
    return await _ask_each(run, tool, context)


async def approve(run: Invocation, tool: Tool[Any, Any], questions: tuple[PolicyQuestion, ...]) -> None:
    """Ask the approver, if there is anything to ask; nothing is open while it thinks.

    Raises:
        Denial: the answer is no.
        Refusal: there is no answer, or nobody to ask.
        DeveloperMistake: the approver answered neither yes nor no, or asked for what is not there.
    """
    if not questions:
        return
    run.step = Step.APPROVAL
    asked = "; ".join(f"{question.policy}: {question.text}" for question in questions)
    approver = run.environment.approver
    if approver is None:
        raise Refusal(f"{tool.name} needs approval ({asked}), and there is nobody here who could give it. Do without.")
    session_id = run.environment.session.session_id
    request = ApprovalRequest(run.call.id, tool, run.params, questions, session_id, run.ref.reply)
    answer = await _answer(run, approver, request)
    if not answer.approved:
        reason = f": {answer.reason}" if answer.reason else ""
        refused = f"approval of {tool.name} was refused{reason}. Do not ask for the same again; do without."
        raise Denial(refused) if answer.final else Refusal(refused)


async def _ask_each(run: Invocation, tool: Tool[Any, Any], context: ToolContext) -> tuple[PolicyQuestion, ...]:
    questions: list[PolicyQuestion] = []
    for policy in run.policies:
        try:
            with run.place.judged():
                decision = await run.by_policy(policy, partial(policy.check, tool, run.params, context=context))
        except (EndsRun, DeveloperMistake):
            raise
        except ToldToModel as error:
            kind = Denial if isinstance(error, ToolValidationError) else Refusal
            raise kind(f"policy {policy.name} denies {tool.name}: {error}") from error
        except Exception as error:
            _log.exception("policy %s failed on %s", policy.name, tool.name)
            raise Refusal(
                f"policy {policy.name} could not decide on {tool.name}, so it was not run ({told(error)})"
            ) from error
        if not isinstance(cast("object", decision), PolicyDecision):
            raise _no_answer(f"policy {policy.name}", tool, decision, _DECISIONS)
        if decision.verdict == "deny":
            kind = Denial if decision.final else Refusal
            raise kind(f"policy {policy.name} denies {tool.name}: {decision.reason}")
        if decision.verdict == "ask":
            questions.append(PolicyQuestion(policy.name, decision.reason))
    return tuple(questions)


async def _answer(run: Invocation, approver: Approver, request: ApprovalRequest) -> Approval:
    tool = request.tool
    deadline = run.environment.deadline
    seconds = None if deadline is None else deadline.remaining().total_seconds()
    try:
        with run.place.judged():
            answer = await run_to_end(run.way, lambda: approver(request), is_async=is_async(approver), seconds=seconds)
    except OverranError:
        raise DeadlineExceededError("the deadline passed while approval was awaited; it was not run") from None
    except (EndsRun, CallPostponed, DeveloperMistake):
        raise
    except Exception as error:
        _log.exception("the approver failed on %s", tool.name)
        raise Refusal(f"{tool.name} was not approved: asking failed with {told(error)}") from error
    if isinstance(answer, Approval):
        return answer
    if isinstance(answer, bool):
        return Approval(answer)
    raise _no_answer("the approver", tool, answer, "True, False or an Approval")


def _no_answer(function: str, tool: Tool[Any, Any], returned: object, expected: str) -> InvalidReturnError:
    drop_unawaited(returned)
    return InvalidReturnError(function=function, tool=tool.name, returned=returned, expected=expected)
