"""What a transcript says, in words: the outcomes of calls, waits for people, breaks, and who speaks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from handrail.readable import clean, fit_text, format_call, format_duration, format_json, format_when
from handrail.serde.formatting import count_noun
from handrail.transcript.messages import (
    ApprovalWait,
    CallOutcome,
    ConversationId,
    TranscriptBreak,
    TranscriptCall,
    TranscriptMessage,
)

OUTCOMES: Final[Mapping[CallOutcome, str]] = {
    "ok": "ok",
    "refused": "refused",
    "failed": "failed, rolled back",
    "undone": "rolled back with its caller",
    "unknown": "outcome unknown",
    "unapplied": "its effect happened, the result is not applied",
    "running": "running",
    "waiting": "waits for an approval",
    "answered": "answered, without a record",
    "open": "not carried out",
}
"""Each outcome in words."""

MODEL: Final = "assistant"
"""The role of a message of the model."""

_MOST_OF_CALL = 120


def call_text(call: TranscriptCall) -> str:
    """A call on one line: its tool with its arguments."""
    arguments: Any = call.arguments
    if isinstance(arguments, Mapping):
        return format_call(call.tool, cast("Mapping[str, Any]", arguments))
    text = "" if arguments is None else format_json(arguments)
    return f"{call.tool}({fit_text(clean(text), _MOST_OF_CALL)})"


def outcome_text(call: TranscriptCall) -> str:
    """The outcome of a call, with how long it took, and what it waited for."""
    wait = "" if call.wait is None else wait_text(call.wait)
    outcome = "failed" if call.outcome == "failed" and call.has_effect else OUTCOMES[call.outcome]
    # One that waits says so once, with since when.
    parts = [wait if call.outcome == "waiting" and wait else outcome]
    parts += [f"claimed by {call.owner}"] if call.outcome == "running" and call.owner else []
    parts += ["replayed"] if call.replayed else []
    parts += [] if call.seconds is None else [f"{call.seconds:.1f} s"]
    parts += [] if wait in {"", parts[0]} else [wait]
    parts += [f"in session {call.child}"] if call.child else []
    return ", ".join(parts)


def wait_text(wait: ApprovalWait) -> str:
    """A wait for a person, and how it has ended."""
    if wait.approved is None:
        return "waits for an approval" + ("" if wait.since is None else f" since {format_when(wait.since)}")
    verdict = "approved" if wait.approved else "denied"
    if wait.duration is None:
        return f"{verdict} by {wait.by or 'a person'}"
    return f"waited {format_duration(wait.duration)} for {wait.by or 'an approval'}: {verdict}"


def break_text(item: TranscriptBreak) -> str:
    """A break of a conversation."""
    if item.kind == "removed":
        return f"Removed here: {count_noun(item.count, 'part')} of the conversation."
    whose = "" if item.conversation is None else conversation_text(item.conversation)
    begins = f"The conversation{f' of {whose}' if whose else ''} begins anew"
    return f"{begins}; not shown again: {count_noun(item.count, 'message')}." if item.count else f"{begins}."


def speaker_text(message: TranscriptMessage) -> str:
    """Who says a message, and to which agent or prompt."""
    speaker = conversation_text(message.conversation)
    if message.role != MODEL:
        speaker = f"{message.role} to {speaker}" if speaker else message.role
    return clean(speaker or MODEL)


def conversation_text(conversation: ConversationId) -> str:
    """The agent or prompt whose conversation it is; empty for that of a loop."""
    speaker, name = conversation
    return f"prompt {name}" if speaker == "prompt" else name
