"""Calls that wait: the message of such a call, when its reply may not be repeated, and its record by the program.

The program may answer a call that waits itself, so that no handler of it runs any more. The call is closed by a final
record, as any other that has come to its end: it is no longer open, no person is asked about it, and a repeat of it is
answered from the record. Only a stored session lists calls that wait.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from handrail.errors import CallPostponed, SessionBusyError
from handrail.prompt import ApprovalRequest, ToolResult
from handrail.redaction import redacted, redacted_logger
from handrail.runtime.calls import Step, ToolInvoked, ToolMessage, reused_id
from handrail.runtime.environment import Environment
from handrail.runtime.execution import ExecutionMode
from handrail.session import Session
from handrail.session.call_masking import masked_call
from handrail.session.call_ref import CallRef, ToolCall
from handrail.session.open_calls import PostponedCall, last_postponed, own_items
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
        call=call,
        params=None,
        result=replace(result, message=redacted(result.message)),
        refused_at=None if result.success else Step.APPROVAL,
        handler_seconds=None,
        total_seconds=0.0,
        effect_key=None,
        replayed=False,
        session_id=session.session_id,
        run_context=environment.run_context,
        at=environment.clock.now(),
        reply=ref.reply,
    )
    await mode.write_to(session.store, partial(session.log_event, event, ref))
    if not session.listens(ToolInvoked):
        return
    try:
        session.announce(event)
    except SessionBusyError:  # another call holds it: subscribers are notified, and reducers are not
        session.dispatcher.dispatch(event)
    except Exception:  # noqa: BLE001 - logged, because the call is over
        _log.exception("%s was recorded, but a reducer or subscriber failed", call.name)


def pending_message(call: ToolCall, postponed: CallPostponed) -> ToolMessage:
    """The message of a call that waits: it says what for, and whether the call has begun."""
    asked = postponed.question
    if isinstance(asked, ApprovalRequest) and asked.tool.name == call.name:
        why = f" waits, and has not run yet: {postponed}. Its result follows when it has."
        if str(postponed) == waits_for_approval(call.name):
            why = " waits for approval, and has not run yet. Its result follows when it has."
    else:  # its handler has postponed it, or a call that this has made
        why = f" waits, and what it had changed was undone: {postponed}. Its result follows when it has run to its end."
    result = ToolResult[None].error(f"{call.name}{why}")
    return ToolMessage(call.id, result.render(), result.success, result, pending=True)


def waits_for_approval(tool_name: str) -> str:
    """What a call waits for whose approver has given no reason."""
    return f"{tool_name} waits for approval"


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
    for call in calls:
        record = session.recorded_call(CallRef(None, call.id)) if call.id else None
        if isinstance(record, ToolInvoked) and record.final:
            raise reused_id(record)
