"""Step 5 of the pipeline: what the question of a policy becomes, whatever the entry point.

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

from functools import partial
from typing import Any

from handrail.errors import CallIdReusedError, CallPostponed, DeadlineExceededError, InvalidReturnError, RunAbortedError
from handrail.errors.developer import mistakes_in
from handrail.limits import seconds_left
from handrail.prompt import Approval, ApprovalRequest, Approver, PolicyQuestion, Tool, ToolResult
from handrail.prompt.signature import is_async
from handrail.redaction import redacted_logger
from handrail.runtime.call import CallState
from handrail.runtime.calls import Step, ToolMessage
from handrail.runtime.claim_step import has_started
from handrail.runtime.execution import ExecutionTimeoutError, drop_unawaited, run_to_end
from handrail.runtime.failures import CallRefusedError, Denial, describe_error
from handrail.session.call_ref import ToolCall

_log = redacted_logger("handrail.runtime")


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
    answer = await recorded_answer(run, request)
    if answer is None:
        approver = run.environment.approver
        if approver is None:
            raise CallRefusedError(
                f"{tool.name} needs approval ({asked}), and no approver is available here. Do without it."
            )
        run.ask(request)
        answer = await _answer(run, approver, request)
        if answer.left_open:
            raise _postponed(answer, request)
        run.ask(None)
        # Of two answers the first stands: one that was recorded while the approver was asked.
        answer = await recorded_answer(run, request) or answer
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
    tool = request.tool
    seconds = seconds_left(run.environment.deadline)
    try:
        with run.turn.judged(), run.environment.questions.asking(run.reply):
            answer = await run_to_end(run.mode, lambda: approver(request), is_async=is_async(approver), seconds=seconds)
    except CallPostponed as postponed:
        if (said := run.environment.caller_answer(request)) is not None:
            return said
        postponed.question = request
        raise
    except Exception as error:
        run.ask(None)
        if isinstance(error, ExecutionTimeoutError):
            raise DeadlineExceededError("the deadline passed while approval was awaited; it was not run") from None
        if isinstance(error, RunAbortedError) or mistakes_in(error):
            raise
        _log.exception("the approver failed on %s", tool.name)
        raise CallRefusedError(f"{tool.name} was not approved: asking failed with {describe_error(error)}") from error
    if isinstance(answer, Approval):
        return (run.environment.caller_answer(request) or answer) if answer.left_open else answer
    if isinstance(answer, bool):
        return Approval(answer)
    run.ask(None)
    raise invalid_answer("the approver", tool, answer, "True, False or an Approval")


def _postponed(answer: Approval, request: ApprovalRequest) -> CallPostponed:
    postponed = CallPostponed(answer.reason or _waits_for_approval(request.tool.name))
    postponed.question = request
    return postponed


def pending_message(call: ToolCall, postponed: CallPostponed) -> ToolMessage:
    """The message of a call that waits: it says what for, and whether the call has begun."""
    asked = postponed.question
    if isinstance(asked, ApprovalRequest) and asked.tool.name == call.name:
        why = f" waits, and has not run yet: {postponed}. Its result follows when it has."
        if str(postponed) == _waits_for_approval(call.name):
            why = " waits for approval, and has not run yet. Its result follows when it has."
    else:  # its handler has postponed it, or a call that this has made
        why = f" waits, and what it had changed was undone: {postponed}. Its result follows when it has run to its end."
    result = ToolResult[None].error(f"{call.name}{why}")
    return ToolMessage(call.id, result.render(), result.success, result, pending=True)


def _waits_for_approval(tool_name: str) -> str:
    return f"{tool_name} waits for approval"


def invalid_answer(function: str, tool: Tool[Any, Any], returned: object, expected: str) -> InvalidReturnError:
    """The error for a function of the program that returned something else than it must."""
    drop_unawaited(returned)
    return InvalidReturnError(function=function, tool=tool.name, returned=returned, expected=expected)


def is_unrecorded(run: CallState, raised: BaseException) -> bool:
    """Whether a call that raises has no record: it is still open, or its identity belongs to another call."""
    if isinstance(raised, CallPostponed | CallIdReusedError):
        return True
    # Nothing of it has run by then, so that it was interrupted is not its outcome.
    return not isinstance(raised, Exception) and (
        run.open_question is not None
        or (run.refused_at is Step.TURN and run.environment.questions.held_back(run.reply, run.interrupts))
    )


async def note_open_call(run: CallState, raised: BaseException) -> None:
    """List a call that stays open among the open calls of a stored session, with the question that was left open.

    A nested call is repeated with its parent, and listed only if it is the one that was asked about.
    """
    session = run.environment.session
    is_postponed = isinstance(raised, CallPostponed)
    if session.store is None or isinstance(raised, CallIdReusedError) or not (is_postponed or run.open_question):
        return
    from handrail.runtime.waiting_calls import question_of  # noqa: PLC0415
    from handrail.session.open_calls import note_postponed  # noqa: PLC0415

    question = question_of(run, str(raised) if is_postponed else "")
    if question is None and (run.turn.outer is not None or not is_postponed):
        return
    try:
        at = run.environment.clock.now()
        await run.mode.write_to(session.store, partial(note_postponed, session, run.ref, run.call.name, at, question))
    except Exception:  # noqa: BLE001 - logged; the caller must be notified that the call stays open
        _log.exception("%s was postponed, and could not be listed among the open calls", run.call.name)
