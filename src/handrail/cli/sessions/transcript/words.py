"""The words of a transcript that all its formats share: who speaks, and a call with its outcome."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, TypeAlias, cast

from handrail.cli.call_format import format_call
from handrail.cli.cells import cut, cut_middle, width_of
from handrail.cli.screen import clean, format_duration, format_when
from handrail.serde.formatting import json_line
from handrail.session.persistence.protocol import SessionRow
from handrail.transcript import (
    ApprovalWait,
    ConversationId,
    TranscriptBreak,
    TranscriptCall,
    TranscriptItem,
    TranscriptMessage,
)
from handrail.transcript.items import CallOutcome

MODEL: Final = "assistant"
"""The role of the model in all forms."""

_MOST_OF_REASON = 200
_LEAST_ROOM = 20

_OUTCOMES: Mapping[CallOutcome, str] = {
    "ok": "ok",
    "refused": "refused",
    "failed": "failed, rolled back",
    "unknown": "outcome unknown",
    "unapplied": "its effect happened, the result is not applied",
    "running": "running",
    "waiting": "waits for an approval",
    "answered": "answered, without a record",
    "open": "not carried out",
}

ItemPlace: TypeAlias = Literal["first", "new", "below message", "after call"]
"""Where an item stands: it is the first one; it begins anew; it is a call below its message, or below another call."""

BAD_OUTCOMES: Final = frozenset[CallOutcome]({"refused", "failed", "unknown", "unapplied"})
"""The outcomes for which the text of the result is shown, because it is the reason."""

OUTCOME_STYLES: Mapping[CallOutcome, str] = {
    "refused": "red",
    "failed": "red",
    "unknown": "bold red",
    "unapplied": "bold red",
    "running": "yellow",
    "waiting": "yellow",
}
"""The styles of calls on a terminal."""


class TranscriptWriter(Protocol):
    """Prints a transcript in one format, item by item."""

    def begin(self, row: SessionRow) -> None:
        """Print what comes first."""
        ...

    def write(self, item: TranscriptItem) -> None:
        """Print an item."""
        ...

    def end(self) -> None:
        """Print what comes last."""
        ...


@dataclass(frozen=True, slots=True)
class CallText:
    """The outcome of a call, in words.

    Attributes:
        outcome: the outcome, how long it took, and what it waited for.
        reason: why it did not succeed; empty if it did.
    """

    outcome: str
    reason: str = ""

    @property
    def line(self) -> str:
        """Both in one line."""
        return f"{self.outcome}: {self.reason}" if self.reason else self.outcome


class ItemOrder:
    """Tracks which item is printed: a call that follows neither its message nor another call of it needs a heading."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: TranscriptItem | None = None

    def advance(self, item: TranscriptItem) -> ItemPlace:
        """Where an item stands that is printed next."""
        last, self._last = self._last, item
        if not isinstance(item, TranscriptCall):
            return "first" if last is None else "new"
        if last is None or isinstance(last, TranscriptBreak) or last.conversation != item.conversation:
            return "first" if last is None else "new"
        return "after call" if isinstance(last, TranscriptCall) else "below message"


def speaker_text(message: TranscriptMessage) -> str:
    """Who says a message, and to whom if it is not the program's own loop."""
    owner = _owner_text(message.conversation)
    if message.role == MODEL:
        return owner or MODEL
    return f"{message.role} to {owner}" if owner else message.role


def _owner_text(conversation: ConversationId) -> str:
    speaker, name = conversation
    return f"prompt {name}" if speaker == "prompt" else name


def heading(message: TranscriptMessage) -> str:
    """When a message was appended, and who says it."""
    return "  ".join(part for part in (format_when(message.at), speaker_text(message)) if part)


def calls_heading(conversation: ConversationId | None) -> str:
    """Whose calls follow, where they do not follow their message."""
    return "calls without a message" if conversation is None else f"calls of {_owner_text(conversation) or MODEL}"


def call_text(call: TranscriptCall, *, full: bool) -> CallText:
    """The outcome of a call, in words for all formats.

    Args:
        call: the call.
        full: whether the reason is shown whole. That of an unknown outcome always is: a person has to act on it.
    """
    wait = "" if call.wait is None else _wait_text(call.wait)
    # One that waits says so once, with since when.
    parts = [wait if call.outcome == "waiting" and wait else _OUTCOMES[call.outcome]]
    if call.outcome == "running" and call.owner:
        parts.append(f"claimed by {call.owner}")
    if call.replayed:
        parts.append("replayed")
    if call.seconds is not None:
        parts.append(f"{call.seconds:.1f} s")
    if wait not in {"", parts[0]}:
        parts.append(wait)
    if call.child:
        parts.append(f"in session {call.child}")
    outcome = ", ".join(parts)
    if call.outcome not in BAD_OUTCOMES or not (call.content or call.key):
        return CallText(outcome)
    # The tool is named at the start of the line already.
    reason = call.content.removeprefix(f"{call.tool} failed: ").removeprefix(f"{call.tool} was not run: ")
    joined = " ".join(reason.split())
    if call.outcome == "unknown":
        how = f"handrail ledger reconcile {shlex.quote(call.key)} records it" if call.key else ""
        return CallText(outcome, "; ".join(filter(None, (joined.removesuffix("."), how))))
    short = joined if full else cut(joined, _MOST_OF_REASON)
    return CallText(outcome, short if short == joined else f"{short} --full shows all")


def _wait_text(wait: ApprovalWait) -> str:
    if wait.approved is None:
        return "waits for an approval" + ("" if wait.since is None else f" since {format_when(wait.since)}")
    verdict = "approved" if wait.approved else "denied"
    if wait.duration is None:
        return f"{verdict} by {wait.by or 'a person'}"
    return f"waited {format_duration(wait.duration)} for {wait.by or 'an approval'}: {verdict}"


def call_label(call: TranscriptCall, *, room: int) -> str:
    """A call with its arguments shortened, in at most `room` cells if that is possible; without control characters."""
    arguments: Any = call.arguments
    room = max(room, _LEAST_ROOM)
    if isinstance(arguments, Mapping):
        return format_call(call.tool, cast("Mapping[str, Any]", arguments), room=room)
    if arguments is None:
        return f"{clean(call.tool)}()"
    tool, text = clean(call.tool), clean(arguments if isinstance(arguments, str) else json_line(arguments))
    return f"{tool}({cut_middle(text, max(room - width_of(tool) - 2, _LEAST_ROOM))})"


def break_text(item: TranscriptBreak) -> str:
    """Where a conversation begins anew, or lost parts, in a sentence."""
    if item.kind == "removed":
        what = "1 part of the conversation was" if item.count == 1 else f"{item.count:,} parts of the conversation were"
        return f"{what} removed here."
    whose = "" if item.conversation is None else _owner_text(item.conversation)
    begins = f"The conversation{f' of {whose}' if whose else ''} begins anew"
    if not item.count:
        return f"{begins}."
    return f"{begins}; {item.count:,} message{' is' if item.count == 1 else 's are'} repeated and not shown again."


def indented_json(value: object) -> str:
    """A value as JSON on several lines; text as it is."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2, default=repr)


def plain_lines(text: str) -> str:
    """Text with its lines and tabs, and an escape for every other control character."""
    if text.isprintable():  # the fast path: one line without any
        return text
    return "\n".join("\t".join(map(clean, line.split("\t"))) for line in text.split("\n"))
