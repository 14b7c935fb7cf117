"""Calls that wait, in a loop of the program: the message of such a call, and when its reply may not be repeated."""

from __future__ import annotations

from collections.abc import Sequence

from handrail.errors import CallPostponed
from handrail.prompt import ApprovalRequest, ToolResult
from handrail.runtime.calls import ToolInvoked, ToolMessage, reused_id
from handrail.session import Session
from handrail.session.call_ref import CallRef, ToolCall
from handrail.session.postponed_calls import PostponedCall


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
