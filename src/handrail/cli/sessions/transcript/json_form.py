"""A transcript as JSON: one document, or an object a line for a program that follows a run."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from handrail.cli.screen import Screen
from handrail.cli.sessions.rows import session_json
from handrail.session.persistence.protocol import SessionRow
from handrail.transcript import ConversationId, TranscriptCall, TranscriptItem, TranscriptMessage


class JsonTranscript:
    """Prints a transcript as JSON; nothing of it is held in memory.

    Args:
        screen: where to.
        lines: whether each item is an object on its own line, after one for the session; else all is one document.
    """

    __slots__ = ("_has_items", "_lines", "_screen")

    def __init__(self, screen: Screen, *, lines: bool) -> None:
        self._screen = screen
        self._lines = lines
        self._has_items = False

    def begin(self, row: SessionRow) -> None:
        """Print what is known of the session, and open the list of items."""
        if self._lines:
            self._screen.json({"type": "session"} | session_json(row), lines=True)
            return
        document = self._screen.json_text(session_json(row))
        # The list is written after the last field, in place of the closing brace.
        self._screen.raw(f'{document.removesuffix("}").rstrip()},\n  "conversation": [', end="")

    def write(self, item: TranscriptItem) -> None:
        """Print an item."""
        if self._lines:
            self._screen.json(item_json(item), lines=True)
            return
        text = self._screen.json_text(item_json(item), lines=True)
        self._screen.raw(f"{',' if self._has_items else ''}\n    {text}", end="")
        self._has_items = True

    def end(self) -> None:
        """Close the document."""
        if not self._lines:
            self._screen.raw("\n  ]\n}" if self._has_items else "]\n}")


def item_json(item: TranscriptItem) -> dict[str, Any]:
    """An item of a transcript, for programs; `type` says which kind it is."""
    if isinstance(item, TranscriptCall):
        return {"type": "call"} | _whose(item.conversation) | _call_json(item)
    if isinstance(item, TranscriptMessage):
        blocks = [{"kind": block.kind, "text": block.text} for block in item.blocks]
        said = {"role": item.role, "at": _moment(item.at), "blocks": blocks}
        return {"type": "message"} | _whose(item.conversation) | said
    return {"type": item.kind} | _whose(item.conversation) | {"count": item.count, "at": _moment(item.at)}


def _call_json(call: TranscriptCall) -> dict[str, Any]:
    wait = call.wait
    return {
        "reply": call.call.reply,
        "call_id": call.call.call_id,
        "tool": call.tool,
        "arguments": call.arguments,
        "outcome": call.outcome,
        "rolled_back": call.outcome == "failed",
        "replayed": call.replayed,
        "content": call.content,
        "seconds": call.seconds,
        "at": _moment(call.at),
        "wait": None
        if wait is None
        else {
            "since": _moment(wait.since),
            "seconds": None if wait.duration is None else wait.duration.total_seconds(),
            "by": wait.by,
            "approved": wait.approved,
        },
        "owner": call.owner,
        "effect_key": call.key or None,
        "child_session": call.child or None,
        "nested": [_call_json(nested) for nested in call.nested],
    }


def _whose(conversation: ConversationId | None) -> dict[str, str | None]:
    speaker, name = (None, None) if conversation is None else conversation
    return {"speaker": speaker, "name": name}


def _moment(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat()
