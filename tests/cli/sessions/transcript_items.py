"""Items of a transcript, and texts that try to be more than text."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from rich.console import Console

from handrail.cli.screen import Screen
from handrail.cli.sessions.show import print_conversation
from handrail.session.calls import CallRef
from handrail.transcript import (
    ApprovalWait,
    ConversationId,
    MessageBlock,
    TranscriptBreak,
    TranscriptCall,
    TranscriptItem,
    TranscriptMessage,
)

EVENING: Final = datetime(2026, 1, 5, 20, tzinfo=UTC)
LOOP: Final = ConversationId("loop")
CLERK: Final = ConversationId("agent", "clerk")

CONTROLS: Final = re.compile(
    "[\\x00-\\x09\\x0b-\\x1f\\x7f-\\x9f\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069\\ud800-\\udfff]"
)
"""Characters that a terminal obeys, without the end of a line."""

HOSTILE: Final = (
    "\x1b[31mred\x1b]0;title\x07 \x08\x9b2J",
    "\u202etxt.exe\u2066 \u2028",
    "a\rb\r\nc\td\x00",
    "a\n\n\nb \ud800",
)
"""Texts of models and tools that must stay texts."""


def said(*texts: str, role: str = "assistant", conversation: ConversationId = LOOP) -> TranscriptMessage:
    """A message."""
    blocks = tuple(MessageBlock("text", text) for text in texts)
    return TranscriptMessage(conversation=conversation, role=role, blocks=blocks, at=EVENING)


def called(**changed: Any) -> TranscriptCall:
    """A call."""
    fields: dict[str, Any] = {
        "conversation": LOOP,
        "call": CallRef("r1", "c1"),
        "tool": "pay",
        "arguments": {"order": "A-17", "cents": 4990},
        "outcome": "ok",
        "content": "A-17 is paid",
        "seconds": 0.2,
        "at": EVENING,
    }
    return TranscriptCall(**(fields | changed))


EVERYTHING: Final[tuple[TranscriptItem, ...]] = (
    said("Be brief.", role="system", conversation=CLERK),
    said("Pay A-17.\nThen stop.", role="user", conversation=CLERK),
    TranscriptMessage(
        conversation=CLERK,
        role="assistant",
        blocks=(
            MessageBlock("thinking", "Hm."),
            MessageBlock("refusal", "I cannot."),
            MessageBlock("data", '{"type": "image"}'),
        ),
    ),
    called(conversation=CLERK, wait=ApprovalWait(duration=timedelta(hours=3), by="anna", approved=True, since=EVENING)),
    called(conversation=CLERK, outcome="ok", replayed=True, wait=ApprovalWait(approved=True)),
    called(conversation=CLERK, outcome="refused", content="pay was not run: $.cents: expected an integer"),
    called(conversation=CLERK, outcome="failed", content="pay failed: ConnectionError: no answer"),
    called(conversation=CLERK, outcome="unknown", content="it may have happened", seconds=3.0),
    called(conversation=CLERK, outcome="running", owner="process 4711 on desk-host", seconds=None, content=""),
    called(conversation=CLERK, outcome="waiting", wait=ApprovalWait(since=EVENING), seconds=None, content=""),
    called(conversation=CLERK, outcome="waiting", wait=ApprovalWait(), seconds=None, content=""),
    called(conversation=CLERK, outcome="unapplied", seconds=None, content=""),
    called(conversation=CLERK, outcome="unknown", wait=ApprovalWait(since=EVENING), seconds=None, content=""),
    called(
        conversation=CLERK,
        outcome="refused",
        wait=ApprovalWait(duration=timedelta(minutes=5), approved=False),
        content="no",
    ),
    called(conversation=CLERK, outcome="answered", seconds=None),
    called(outcome="open", seconds=None, content="", conversation=None),
    called(
        conversation=CLERK,
        tool="clerk",
        arguments={},
        child="desk/r1/c1",
        nested=(called(tool="inner", arguments=None, seconds=0.1),),
    ),
    called(conversation=CLERK, arguments="not json"),
    called(conversation=CLERK, arguments=[1, 2]),
    said("Done.", conversation=ConversationId("prompt", "shop/desk")),
    TranscriptBreak(conversation=CLERK, kind="restarted", count=12),
    TranscriptBreak(conversation=LOOP, kind="restarted", count=1),
    TranscriptBreak(conversation=LOOP, kind="restarted"),
    TranscriptBreak(conversation=None, kind="removed", count=1),
    TranscriptBreak(conversation=None, kind="removed", count=2),
)
"""Each kind of item, and each outcome."""


def printed(items: Iterable[TranscriptItem], *, full: bool = False, width: int | None = None) -> str:
    """What is printed of items; with a width on a terminal, without colours."""
    file = io.StringIO()
    console = Console(
        file=file, width=width or 80, force_terminal=width is not None, color_system=None, highlight=False, markup=False
    )
    print_conversation(Screen(console, console), items, full=full)
    return file.getvalue()
