"""The outcome of a plan, and the message about it in the conversations of the session.

Which calls are undone is earlier from their records, so the message of an `apply` that died before it could write it is
written by the next one. A conversation whose last reply waits for answers takes no message: one of PydanticAI gets the
answers with it, and in that of a program's own loop they are the program's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from handrail.runtime.calls import ToolInvoked, ToolMessage
from handrail.session import Session, SlicePolicy, stored_as
from handrail.session.calls import CallRef
from handrail.session.conversation import Conversation, ConversationPart, OpenReply, Speaker, open_reply
from handrail.undo.records import UNDO, UNDO_TOOL
from handrail.undo.steps import UndoPlan, UndoStep


@stored_as("handrail.undo_message")
@dataclass(frozen=True, slots=True)
class UndoMessage:
    """The message in the conversations of a session that calls are undone. Its slice is a LOG.

    Attributes:
        calls: the calls that undid others, as text.
    """

    slice_policy: ClassVar[SlicePolicy] = SlicePolicy.LOG
    survives_reset: ClassVar[bool] = True

    calls: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UndoReport:
    """The outcome of a plan.

    Attributes:
        plan: the plan.
        undone: the calls that are undone, with the messages of their undos, the newest first.
        failed: the call whose undo failed or is unknown, and its message; older ones have not been tried.
        message: what the conversation says of it; a program with messages of its own appends it there.
        in_conversation: whether the conversations of the session have the message; not if a reply of the program's
            own loop waits for answers. The next `apply` appends it then.
    """

    plan: UndoPlan
    undone: tuple[tuple[UndoStep, ToolMessage], ...]
    failed: tuple[UndoStep, ToolMessage] | None = None
    message: str = ""
    in_conversation: bool = True

    @property
    def complete(self) -> bool:
        """True if every call of the plan is undone."""
        return len(self.undone) == len(self.plan.steps)


def undo_record(session: Session, ref: CallRef) -> ToolInvoked | None:
    """The record of the call that has undone a call; `None` if none has."""
    event = session.calls.find(CallRef(ref.reply, f"{UNDO}{ref.call_id}"))
    return event if isinstance(event, ToolInvoked) and event.success else None


def with_message(report: UndoReport) -> UndoReport:
    """Appends to the conversations what was undone and is not in them yet, and returns the report with it.

    Raises:
        StoreError: the store does not take it.
    """
    session = report.plan.session
    earlier = {call for item in session[UndoMessage].all() for call in item.calls}
    events = [
        event for event in session[ToolInvoked].all() if _undoes(event, session) and str(event.ref) not in earlier
    ]
    if not events:
        return report
    text = _text(events, report)
    own: dict[tuple[Speaker, str], list[ConversationPart]] = {}
    for part in session[ConversationPart].all():
        own.setdefault((part.speaker, part.name), []).append(part)
    if any(speaker == "loop" and open_reply(reversed(parts)).calls for (speaker, _), parts in own.items()):
        return replace(report, message=text, in_conversation=False)
    for (speaker, name), parts in own.items():
        conversation = Conversation(session[ConversationPart], session.calls, speaker, name)
        reply = open_reply(reversed(parts))
        message = {"role": "user", "content": text} if speaker == "loop" else _request(session, reply, text)
        conversation.add(ConversationPart((message,), ended=not parts[-1].is_unfinished), write="deferred")
    # In one unit with the messages.
    session[UndoMessage].log(UndoMessage(tuple(str(event.ref) for event in events)), write="surely")
    return replace(report, message=text)


def _undoes(event: ToolInvoked, session: Session) -> bool:
    is_undo = event.call_id.startswith(UNDO) and event.name.startswith(UNDO_TOOL)
    return is_undo and event.success and event.session_id == session.session_id


def _text(events: Sequence[ToolInvoked], report: UndoReport) -> str:
    lines = ["Calls of this conversation have been undone. Their results do not hold any more:"]
    for event in reversed(events):
        ref = CallRef(event.reply, event.call_id.removeprefix(UNDO))
        lines.append(f"- {event.name.removeprefix(UNDO_TOOL)} (call {ref}): {event.result.message}")
    undone = {step.ref for step, _ in report.undone}
    stays = [step for step in report.plan.steps if step.ref not in undone]
    if stays:
        lines.append("These calls have not been undone:")
    lines += [f"- {step.tool} (call {step.ref})" for step in stays]
    return "\n".join(lines)


def _request(session: Session, reply: OpenReply, text: str) -> dict[str, Any]:
    """A request of PydanticAI with a message of the user, after the answers of the open calls."""
    answers: Iterable[dict[str, Any]] = (
        {
            "part_kind": "tool-return",
            "tool_name": call.name,
            "tool_call_id": call.id,
            "content": _answer(session, ref),
        }
        for ref, call in reply.calls
    )
    return {"kind": "request", "parts": [*answers, {"part_kind": "user-prompt", "content": text}]}


def _answer(session: Session, ref: CallRef) -> str:
    event = session.calls.find(ref)
    return event.result.render() if isinstance(event, ToolInvoked) else "It was not carried out."
