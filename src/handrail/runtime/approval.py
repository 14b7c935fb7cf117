"""Steps POLICY and APPROVAL: policies decide about a call, and where one asks, the approver; calls that wait.

A decision of a policy against the call is a `FinalRefusal`. If a policy raises, the call is refused as well, but a
repeat of it is judged anew. The question of a policy becomes, whatever the entry point:

| the question has | the call |
|---|---|
| been answered before an earlier attempt, which has started the effect of the call | is answered from the ledger |
| an answer that a person has recorded in the store | runs, or is refused |
| a no that is recorded, and the call lacks its secrets after a restart | is refused with it in PARSE |
| one that is recorded while the approver is asked | the same, whatever the approver answers |
| no such answer, and no approver | is refused; a repeat of it is judged anew |
| an approver that approves | runs |
| an approver that refuses | is refused |
| an approver that raises an `Exception` | is refused; a repeat of it is judged anew |
| an approver that raises `CallPostponed`, or returns `Approval.later()` | is postponed: it stays open |
| such an approver, and the caller of the run says yes with the repeat | runs, with the words of the question |
| an approver that is interrupted: Ctrl-C, `SystemExit`, `CancelledError` | stays open, and the interrupt is raised |

A call that stays open has no record. In a stored session it is listed among the open calls with its question, so that a
person can answer it from another process (`handrail.session.open_calls`), and the program can close it with an answer
of its own. A recorded answer holds for the next attempt of that call: the same identity, tool and arguments, and no
question that was not shown with it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from handrail.errors import (
    CallPostponed,
    DeadlineExceededError,
    DumpError,
    InvalidReturnError,
    ModelVisibleError,
    RunAbortedError,
    SchemaError,
    ToolValidationError,
)
from handrail.errors.developer import mistakes_in
from handrail.limits import seconds_left
from handrail.prompt import Approval, ApprovalRequest, PolicyDecision, PolicyQuestion, ToolPolicy, ToolResult
from handrail.prompt.signature import is_async
from handrail.redaction import redacted, redacted_logger
from handrail.runtime.call import CallState, announce_alone
from handrail.runtime.calls import Step, ToolInvoked, ToolMessage, reused_id, written_arguments
from handrail.runtime.environment import Environment
from handrail.runtime.execution import ExecutionMode, ExecutionTimeoutError, drop_unawaited, run_to_end
from handrail.runtime.failures import CallRefusedError, FinalRefusal, describe_error
from handrail.serde import digest
from handrail.serde.canonical import bytes_digest
from handrail.session import Session, open_calls
from handrail.session.calls import CallRef, ToolCall, masked_call
from handrail.session.open_calls import CallQuestion, GivenAnswer, PostponedCall
from handrail.transaction import current

if TYPE_CHECKING:
    from handrail.prompt import Approver, Tool, ToolContext

_log = redacted_logger("handrail.runtime")

_DECISIONS = "PolicyDecision.allow(), PolicyDecision.deny(reason) or PolicyDecision.ask(question)"


async def check_policies(run: CallState, tool: Tool[Any, Any]) -> tuple[PolicyQuestion, ...] | None:
    """Has every policy of the tool decide; returns the questions of those that ask.

    A call that reads may run beside an earlier call that is about to change the reason of a denial: the policies are
    asked again when all earlier calls have ended. A denial comes too late for an effect that an earlier attempt has
    started: then `None` is returned.

    Raises:
        FinalRefusal: a policy denies. The message names it.
        CallRefusedError: one could not decide.
        DeveloperMistake: one returned no decision, or requested an unbound resource.
    """
    if run.environment.settles is not None:
        return ()  # the effect has happened: it is too late to decide
    context = run.context()
    try:
        return await _ask_each(run, tool, context)
    except CallRefusedError:
        from handrail.runtime.claim_step import has_started  # noqa: PLC0415

        if await has_started(run, tool):
            return None
        if not run.turn.shared:
            raise
    await run.turn.wait_for_earlier_calls(run.mode, run.environment.deadline)
    return await _ask_each(run, tool, context)


async def _ask_each(run: CallState, tool: Tool[Any, Any], context: ToolContext) -> tuple[PolicyQuestion, ...]:
    questions = [await ask_policy(policy, tool, run.params, context, run.by_policy) for policy in run.plan.policies]
    return tuple(question for question in questions if question is not None)


async def ask_policy(
    policy: ToolPolicy,
    tool: Tool[Any, Any],
    params: Any,  # noqa: ANN401 - of the tool's parameter type
    context: ToolContext,
    by_policy: Callable[[ToolPolicy, Callable[[], PolicyDecision]], Awaitable[PolicyDecision]],
) -> PolicyQuestion | None:
    """Asks a policy about a call, through `by_policy`; returns its question, or `None` if it allows the call.

    Raises:
        FinalRefusal: it denies. The message names it.
        CallRefusedError: it could not decide.
        DeveloperMistake: it returned no decision, or requested an unbound resource.
    """
    try:
        decision = await by_policy(policy, partial(policy.check, tool, params, context=context))
    except RunAbortedError:
        raise
    except ModelVisibleError as error:
        kind = FinalRefusal if isinstance(error, ToolValidationError) else CallRefusedError
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
        kind = FinalRefusal if decision.final else CallRefusedError
        raise kind(f"policy {policy.name} denies {tool.name}: {decision.reason}")
    return PolicyQuestion(policy.name, redacted(decision.reason)) if decision.verdict == "ask" else None


async def request_approval(run: CallState, tool: Tool[Any, Any], questions: tuple[PolicyQuestion, ...] | None) -> bool:
    """Asks the approver, if a question has no recorded answer; no transaction is open meanwhile.

    Returns `False` if it is too late to decide, because an earlier attempt has started the effect of the call.

    Raises:
        FinalRefusal: the answer is no.
        CallRefusedError: there is no answer, or no approver.
        CallPostponed: the question is left open.
        DeveloperMistake: the approver answered neither yes nor no, or requested an unbound resource.
    """
    if not questions:
        return questions is not None
    from handrail.runtime.claim_step import has_started  # noqa: PLC0415

    if await has_started(run, tool):
        return False
    session_id = run.environment.session.session_id
    request = ApprovalRequest(run.call.id, tool, run.params, questions, session_id, run.ref.reply)
    answer = await recorded_answer(run, tool, request)
    if answer is None:
        approver = run.environment.approver
        if approver is None:
            texts = "; ".join(_asks(request))
            raise CallRefusedError(
                f"{tool.name} needs approval ({texts}), and no approver is available here. Do without it."
            )
        began = run.environment.clock.monotonic()
        with run.ask_approver(request):
            answer = await _answer(run, approver, request)
        run.approval_seconds = run.environment.clock.monotonic() - began
        # Of two answers the first stands: one that was recorded while the approver was asked.
        answer = await recorded_answer(run, tool, request) or answer
    run.notify("question_answered")
    verdict = "approved" if answer.approved else "denied"
    run.decisions = tuple(map(redacted, (*_asks(request), f"{verdict}: {answer.reason}" if answer.reason else verdict)))
    if not answer.approved:
        raise approval_refusal(tool.name, answer)
    return True


def approval_refusal(tool_name: str, answer: Approval) -> CallRefusedError:
    """The refusal of a call that was not approved; the model reads its reason."""
    reason = f": {answer.reason.removesuffix('.')}" if answer.reason else ""
    message = f"approval of {tool_name} was refused{reason}. Do not request it again; do without it."
    return FinalRefusal(message) if answer.final else CallRefusedError(message)


async def _answer(run: CallState, approver: Approver, request: ApprovalRequest) -> Approval:
    tool, answer, postponed = request.tool, None, None
    seconds = seconds_left(run.environment.deadline)
    try:
        answer = await run_to_end(run.mode, lambda: approver(request), is_async=is_async(approver), seconds=seconds)
    except CallPostponed as error:
        postponed = error
    except Exception as error:
        if isinstance(error, ExecutionTimeoutError):
            raise DeadlineExceededError("the deadline passed while approval was awaited; it was not run") from None
        if isinstance(error, RunAbortedError) or mistakes_in(error):
            raise
        _log.exception("the approver failed on %s", tool.name)
        raise CallRefusedError(f"{tool.name} was not approved: asking failed with {describe_error(error)}") from error
    if isinstance(answer, Approval) and answer.left_open:
        postponed = CallPostponed(answer.reason or f"{tool.name} waits for approval")
    if postponed is not None:
        return await _caller_answer(run, request, postponed)
    if isinstance(answer, bool):
        return Approval(answer)
    if isinstance(answer, Approval):
        return answer
    raise invalid_answer("the approver", tool, answer, "True, False or an Approval")


async def _caller_answer(run: CallState, request: ApprovalRequest, postponed: CallPostponed) -> Approval:
    by_caller, tool = run.environment.caller_answer(request), request.tool
    if by_caller is not None:
        # A yes is for the words that were shown: those of a call in an edited history are others.
        if not by_caller.approved or await _words_of_question(run) in {"", _digest(run, tool, words_only=True)}:
            return by_caller
        postponed = CallPostponed(f"{tool.name} waits for approval: its arguments have changed since the question")
    postponed.question = request
    raise postponed


async def _words_of_question(run: CallState) -> str:
    """The digest of the model's words in the question that was left open; empty if the session does not know it."""
    session = run.environment.session
    if session.store is None:
        return str(session.attached.get((CallQuestion, run.ref), ""))
    find = partial(open_calls.postponed_call, session[PostponedCall], run.ref.storable)
    item = await run.mode.write_to(session.store, find)
    return "" if item is None or item.question is None else item.question.written


def pending_message(call: ToolCall, postponed: CallPostponed) -> ToolMessage:
    """The message of a call that waits: it says what for, and whether the call has begun."""
    question = postponed.question
    if isinstance(question, ApprovalRequest) and question.tool.name == call.name:
        why = f" has not run yet: {postponed}. Its result follows when it has."
    else:  # its handler has postponed it, or a call that this has made
        why = f" waits, and what it had changed was undone: {postponed}. Its result follows when it has run to its end."
    result = ToolResult[None].error(f"{call.name}{why}")
    return ToolMessage(call.id, result.render(), result.success, result, pending=True)


def invalid_answer(function: str, tool: Tool[Any, Any], answer: object, expected: str) -> InvalidReturnError:
    """The error for a function of the program that returned something else than it must."""
    drop_unawaited(answer)
    return InvalidReturnError(function=function, tool=tool.name, value=answer, expected=expected)


# ------------------------------------------------------------------------------------- calls that wait


def calls_that_wait(session: Session) -> Iterator[PostponedCall]:
    """The calls of a session that were postponed, and have no final record; raises `StoreError`."""
    items: list[PostponedCall] = open_calls.own_items(session[PostponedCall].all(), session.session_id)
    for ref, item in open_calls.last_postponed(items).items():
        record = session.calls.find(ref)
        if record is None or not record.final:
            yield item


async def record_outside_answer(
    environment: Environment, mode: ExecutionMode, ref: CallRef, call: ToolCall, result: ToolResult[Any]
) -> None:
    """Records a call that waited with the answer of the program; does nothing within a call, which may be undone."""
    session = environment.session
    if current() is not None:
        return
    for masking in session.call_masking.of(call.name):
        call = masked_call(call, masking)
    event = ToolInvoked(
        call,
        None,
        replace(result, message=redacted(result.message)),
        session.session_id,
        environment.run_context,
        environment.clock.now(),
        ref.reply,
        None if result.success else Step.APPROVAL,
    )
    await mode.write_to(session.store, partial(session.slices.record, event, ref))
    announce_alone(session, event)


def has_pending(session: Session) -> bool:
    """True if calls of a stored session have been left open; reads nothing."""
    return session.store is not None and len(session[PostponedCall]) > 0


def check_made_once(session: Session, calls: Sequence[ToolCall]) -> None:
    """Refuses to repeat the calls of a reply without a name, some of which wait, before any of them runs.

    Raises:
        CallIdReusedError: one of them has a final record. None has been run.
    """
    for call in calls if has_pending(session) else ():
        record = session.calls.find(CallRef(None, call.id)) if call.id else None
        if isinstance(record, ToolInvoked) and record.final:
            raise reused_id(record)


async def recorded_answer(run: CallState, tool: Tool[Any, Any], request: ApprovalRequest | None) -> Approval | None:
    """The answer of a person that covers the call, or `None`; only a no, if the call cannot run (no `request`)."""
    session = run.environment.session
    # The common case costs no reading, and so no thread.
    if not has_pending(session) or not run.ref.is_named:
        return None
    answer = await run.mode.write_to(session.store, partial(_find_answer, run, tool, request))
    return None if answer is None or (request is None and answer.approved) else Approval(answer.approved, answer.reason)


def _find_answer(run: CallState, tool: Tool[Any, Any], request: ApprovalRequest | None) -> GivenAnswer | None:
    session = run.environment.session
    item = open_calls.postponed_call(session[open_calls.PostponedCall], run.ref.storable)
    question = None if item is None else item.question
    if item is None or question is None or item.tool != tool.name:
        return None
    # A policy that asks something else asks again, and so does a call with other arguments. The digest has the secrets.
    if request is not None and (question.digest != _digest(run, tool) or not set(_asks(request)) <= set(question.asks)):
        return None
    record = session.calls.find(run.ref.outermost)
    last_attempt = record.at if isinstance(record, ToolInvoked) else None
    if item.answer is None and session.store is not None:  # it may have been given while this process held the session
        row = open_calls.find_answer(session.store, session.session_id, run.ref)
        if row is None or not row.is_about(question.digest, question.asks, last_attempt, first_asked=item.at):
            return None
        item = item.with_answer(row.given, last_attempt)
        # Within the handler of another call the answer would be part of that one, which may be undone; the row stays.
        if request is not None and run.turn.outer is None:
            session[PostponedCall].append(item)
    # Compared for equality: the process that has answered may have had another clock.
    return item.answer if item.last_attempt == last_attempt else None


async def record_open_call(run: CallState, error: BaseException) -> None:
    """Lists a call that stays open among the open calls of a stored session, with its question.

    A session in memory has only the words of the question. Nested calls are repeated with their parents. There is no
    question if the approver records its questions itself.
    """
    session, tool, request, question = run.environment.session, run.tool, run.open_question, None
    is_postponed = isinstance(error, CallPostponed)
    if session.store is None:
        if request is not None and tool is not None:
            session.attached[CallQuestion, run.ref] = _digest(run, tool, words_only=True)
        return
    if request is not None and tool is not None and not run.environment.records_questions:
        question = CallQuestion(
            arguments=run.plan.dump(run.call, run.params).decode(),
            digest=_digest(run, tool),
            written=_digest(run, tool, words_only=True),
            asks=_asks(request),
            effect=tool.effect,
            description=tool.description,
            reason=redacted(str(error)) if is_postponed else "",
        )
    if question is None and (run.turn.outer is not None or not is_postponed):
        return
    try:
        row = run.ref, run.call.name, run.environment.clock.now()
        await run.mode.write_to(
            session.store, partial(open_calls.record_postponed, session[open_calls.PostponedCall], *row, question)
        )
    except Exception:  # noqa: BLE001 - logged; the caller must be notified that the call stays open
        _log.exception("%s was postponed, and could not be listed among the open calls", run.call.name)


def _asks(request: ApprovalRequest) -> tuple[str, ...]:
    return tuple(f"{question.policy}: {question.text}" for question in request.questions)


def _digest(run: CallState, tool: Tool[Any, Any], *, words_only: bool = False) -> str:
    # Never raises. Parsed arguments show a secret as asterisks, so the arguments that are parsed count as well.
    call = run.call
    parts: dict[str, object] = {"tool": call.name, "written": written_arguments(call)}
    if not words_only:
        arguments = written_arguments(ToolCall(call.id, call.name, call.arguments))
        parts |= {"parsed": tool.key_params(call.arguments, run.params), "given": arguments}
    # With the key of the store, a short secret cannot be found out from the digest.
    key = run.environment.find_ledger().store.hash_key() if tool.masking.hides else None
    try:
        return digest(parts, key=key)
    except (DumpError, SchemaError, RecursionError):  # not JSON
        return bytes_digest(repr(parts).encode(errors="backslashreplace"), key)
