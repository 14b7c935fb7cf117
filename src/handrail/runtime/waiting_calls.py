"""Calls that wait: their question as the session stores it, and the answer of a person, or of the program.

A recorded answer holds for one call of one session: the same identity, the same tool and the same arguments, and no
question that was not shown with it. It is used by the next attempt of that call. Once an attempt has been recorded, a
further one is asked about anew, as it is by an approver. An answer that was given while this process held the session
is a row of the store (`handrail.session.open_calls`), and is appended to the session here.

The program may answer a call that waits itself, so that no handler of it runs any more. The call is closed by a final
record, as any other that has come to its end: it is no longer open, no person is asked about it, and a repeat of it is
answered from the record. Only a stored session lists calls that wait.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from handrail.errors import CallPostponed, DumpError, SchemaError, SessionBusyError, StoreError
from handrail.prompt import Approval, ApprovalRequest, Tool, ToolResult
from handrail.redaction import redacted, redacted_logger
from handrail.runtime.call import CallState
from handrail.runtime.calls import Step, ToolInvoked, written_arguments
from handrail.runtime.environment import Environment
from handrail.runtime.execution import ExecutionMode
from handrail.runtime.failures import CallRefusedError, describe_error
from handrail.runtime.ledger.records import recorded_arguments
from handrail.runtime.messages import reused_id
from handrail.serde import digest
from handrail.serde.canonical import bytes_digest
from handrail.session import Session
from handrail.session.call_masking import masked_call
from handrail.session.call_ref import CallRef, ToolCall
from handrail.session.open_calls import (
    CallAnswer,
    CallQuestion,
    PostponedCall,
    call_answer,
    find_answer,
    last_postponed,
    note_postponed,
    own_items,
    postponed_call,
    recorded_as,
)
from handrail.transaction import current

_log = redacted_logger("handrail.runtime")


def calls_that_wait(session: Session) -> Iterator[PostponedCall]:
    """The calls of a session that were postponed, and have no final record.

    Raises:
        StoreError: the store cannot be read.
    """
    items: list[PostponedCall] = own_items(session[PostponedCall].all(), session.session_id)
    for ref, item in last_postponed(items).items():
        record = session.recorded_call(ref)
        if record is None or not record.final:
            yield item


async def record_outside_answer(
    environment: Environment, mode: ExecutionMode, ref: CallRef, call: ToolCall, result: ToolResult[Any]
) -> None:
    """Record a call that waited with the answer of the program. Within a call nothing is done: it may be undone.

    A reducer or subscriber that fails is logged.

    Args:
        environment: the run.
        mode: how to wait for the store.
        ref: the identity of the call.
        call: the call, as the model wrote it.
        result: what the model reads; for a refusal, why.

    Raises:
        SessionError: the session is closed.
    """
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
    await mode.write_to(session.store, partial(session.log_event, event, ref))
    try:
        session.announce(event)
    except SessionBusyError:  # another call holds it: subscribers are notified, and reducers are not
        session.dispatcher.dispatch(event)
    except Exception:  # noqa: BLE001 - logged, because the call is over
        _log.exception("%s was recorded, but a reducer or subscriber failed", call.name)


def has_pending(session: Session) -> bool:
    """Whether calls of a stored session have been left open; it reads nothing."""
    return session.store is not None and len(session[PostponedCall]) > 0


def check_made_once(session: Session, calls: Sequence[ToolCall]) -> None:
    """Refuse to repeat the calls of a reply without a name, some of which wait, before any of them runs.

    Those that have a record could not be answered from it, so that the message of one that runs now would be lost.

    Args:
        session: the session.
        calls: the calls of a reply that has no name.

    Raises:
        CallIdReusedError: one of them has a final record. None has been run.
        StoreError: the store cannot be read.
    """
    for call in calls if has_pending(session) else ():
        record = session.recorded_call(CallRef(None, call.id)) if call.id else None
        if isinstance(record, ToolInvoked) and record.final:
            raise reused_id(record)


async def recorded_answer(run: CallState, tool: Tool[Any, Any], request: ApprovalRequest | None) -> Approval | None:
    """The answer that a person has recorded; `None` if there is none that covers the call.

    Args:
        run: the call.
        tool: its tool.
        request: what is asked about it; `None` of a call that cannot run, because its secrets are not stored. The
            answer to that is a no, or `None`.

    Raises:
        CallRefusedError: the store cannot be read.
    """
    session = run.environment.session
    # The common case costs no reading, and so no thread.
    if not has_pending(session) or not run.ref.is_named:
        return None
    try:
        answer = await run.mode.write_to(session.store, partial(_recorded, run, tool, request))
    except StoreError as error:
        raise CallRefusedError(
            f"{tool.name} was not run, because the store cannot be read for its approval: {describe_error(error)}"
        ) from error
    return None if answer is None or (request is None and answer.approved) else Approval(answer.approved, answer.reason)


def _recorded(run: CallState, tool: Tool[Any, Any], request: ApprovalRequest | None) -> CallAnswer | None:
    session = run.environment.session
    item = postponed_call(session, run.ref.stored)
    question = None if item is None else item.question
    if item is None or question is None or item.tool != tool.name:
        return None
    # A policy that asks something else asks again, and so does a call with other arguments. The digest has the secrets.
    if request is not None and (question.digest != _digest(run, tool) or not set(_asks(request)) <= set(question.asks)):
        return None
    record = session.recorded_call(recorded_as(run.ref))
    last_attempt = record.at if isinstance(record, ToolInvoked) else None
    answer = item.answer
    if answer is None and session.store is not None:  # it may have been given while this process held the session
        row = find_answer(session.store, session.session_id, run.ref)
        if row is None or not row.is_about(question.digest, question.asks, last_attempt, first_asked=item.at):
            return None
        answer = call_answer(row.given, last_attempt)
        # Within the handler of another call the answer would be part of that one, which may be undone; the row stays.
        if request is not None and run.turn.outer is None:
            session[PostponedCall].append(replace(item, answer=answer))
    # Compared for equality: the process that has answered may have had another clock.
    return answer if answer is not None and answer.last_attempt == last_attempt else None


async def note_open_call(run: CallState, raised: BaseException) -> None:
    """List a call that stays open among the open calls of a stored session, with the question that was left open.

    A nested call is repeated with its parent, and listed only if it is the one that was asked about. There is no
    question if the call waits for something else, or if the approver records its questions itself.
    """
    session, tool, request, question = run.environment.session, run.tool, run.open_question, None
    is_postponed = isinstance(raised, CallPostponed)
    if request is not None and tool is not None and not run.environment.records_questions:
        question = CallQuestion(
            arguments=recorded_arguments(run.call, run.params, tool.masking).decode(),
            digest=_digest(run, tool),
            asks=_asks(request),
            effect=tool.effect,
            description=tool.description,
            reason=redacted(str(raised)) if is_postponed else "",
        )
    if question is None and (run.turn.outer is not None or not is_postponed):
        return
    try:
        at = run.environment.clock.now()
        await run.mode.write_to(session.store, partial(note_postponed, session, run.ref, run.call.name, at, question))
    except Exception:  # noqa: BLE001 - logged; the caller must be notified that the call stays open
        _log.exception("%s was postponed, and could not be listed among the open calls", run.call.name)


def _asks(request: ApprovalRequest) -> tuple[str, ...]:
    return tuple(f"{question.policy}: {question.text}" for question in request.questions)


def _digest(run: CallState, tool: Tool[Any, Any]) -> str:
    """Names the tool, its arguments as they were parsed, and what the model wrote; never raises.

    Parsed arguments show a secret as asterisks, so the arguments that are parsed count as well.
    """
    call, params = run.call, tool.key_params(run.call.arguments, run.params)
    given = written_arguments(ToolCall(call.id, call.name, call.arguments))
    named = {"tool": call.name, "parsed": params, "given": given, "written": written_arguments(call)}
    # With the key of the store, a short secret cannot be found out from the digest.
    key = run.environment.effect_ledger.store.hash_key() if tool.masking.hides else None
    try:
        return digest(named, key=key)
    except (DumpError, SchemaError, RecursionError):  # not JSON
        return bytes_digest(repr(named).encode(errors="backslashreplace"), key)
