"""`handrail sessions show`: its options over stores in files, its text and its JSON."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import starmap
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from handrail.cli.screen import Screen
from handrail.cli.sessions.show import item_json, print_conversation
from handrail.runtime import ToolCall
from handrail.session.calls import CallRef
from handrail.session.conversation import Conversation, ConversationPart
from handrail.transcript import (
    ApprovalWait,
    ConversationId,
    MessageBlock,
    TranscriptBreak,
    TranscriptCall,
    TranscriptItem,
    TranscriptMessage,
)
from tests.cli.desk import Command, Terminal
from tests.transcript.desks import Desk, desk, order
from tests.wording import Wording

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
    made: dict[str, Any] = {"conversation": LOOP, "call": CallRef("r1", "c1"), "tool": "pay", "outcome": "ok"}
    made |= {"arguments": {"order": "A-17", "cents": 4990}, "content": "A-17 is paid", "seconds": 0.2, "at": EVENING}
    return TranscriptCall(**(made | changed))


by_clerk = partial(called, conversation=CLERK)


INNER: Final = called(tool="inner", arguments=None, seconds=0.1)
BLOCKS: Final = (("thinking", "Hm."), ("refusal", "I cannot."), ("data", '{"type": "image"}'))
EVERYTHING: Final[tuple[TranscriptItem, ...]] = (
    said("Be brief.", role="system", conversation=CLERK),
    said("Pay A-17.\nThen stop.", role="user", conversation=CLERK),
    TranscriptMessage(conversation=CLERK, role="assistant", blocks=tuple(starmap(MessageBlock, BLOCKS))),
    by_clerk(wait=ApprovalWait(duration=timedelta(hours=3), by="anna", approved=True, since=EVENING)),
    by_clerk(outcome="ok", replayed=True, wait=ApprovalWait(approved=True)),
    by_clerk(outcome="refused", content="pay was not run: $.cents: expected an integer"),
    by_clerk(outcome="failed", content="pay failed: ConnectionError: no answer"),
    by_clerk(outcome="unknown", content="it may have happened", seconds=3.0),
    by_clerk(outcome="running", owner="process 4711 on desk-host", seconds=None, content=""),
    by_clerk(outcome="waiting", wait=ApprovalWait(since=EVENING), seconds=None, content=""),
    by_clerk(outcome="waiting", wait=ApprovalWait(), seconds=None, content=""),
    by_clerk(outcome="unapplied", seconds=None, content=""),
    by_clerk(outcome="unknown", wait=ApprovalWait(since=EVENING), seconds=None, content=""),
    by_clerk(outcome="refused", wait=ApprovalWait(duration=timedelta(minutes=5), approved=False), content="no"),
    by_clerk(outcome="answered", seconds=None),
    called(outcome="open", seconds=None, content="", conversation=None),
    by_clerk(tool="clerk", arguments={}, child="desk/r1/c1", nested=(INNER,)),
    by_clerk(arguments="not json"),
    by_clerk(arguments=[1, 2]),
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


@pytest.fixture
def url(tmp_path: Path) -> str:
    """The URL of a store with a conversation: two replies of the program's own loop, and a word of an agent."""
    url = f"sqlite:///{tmp_path / 'talk.db'}"
    with desk(url) as at_desk:
        at_desk.ask("Pay.")
        at_desk.turn(("pay", order("A-1")), text="I pay.")
        at_desk.clock.advance(timedelta(hours=1))
        at_desk.turn(("fail", order("A-2")))
        Conversation(at_desk.session[ConversationPart], at_desk.session.calls, *CLERK, clock=at_desk.clock).add(
            ConversationPart(({"role": "user", "content": "Hello."},))
        )
        at_desk.say("Done.")
    return url


@pytest.fixture
def held(url: str) -> Iterator[Desk]:
    """The desk, while its session is held."""
    with desk(url) as at_desk:
        yield at_desk


def test_a_conversation_is_shown(handrail: Command, wording: Wording) -> None:
    """Nothing is printed beside it."""
    ran = handrail("sessions", "show", "desk")
    assert (ran.code, ran.out, ran.err) == (0, wording, "")


def test_the_last_messages_alone(handrail: Command) -> None:
    """With their calls."""
    shown = handrail.document("sessions", "show", "desk")["conversation"]
    assert len(shown) == 7
    assert handrail.document("sessions", "show", "desk", "--last", "1")["conversation"] == shown[-1:]


def test_no_conversation_is_said(handrail: Command, held: Desk, wording: Wording) -> None:
    """To people."""
    with held.session.child(session_id="empty"):
        ran = handrail("sessions", "show", "empty")
    assert (ran.code, ran.out, ran.err) == (0, wording, "")


def _without_durations(text: str, found: str) -> list[str]:
    """The lines that have a text, without how long calls took."""
    return [re.sub(r"\d\.\d s", "N s", line.strip()) for line in text.splitlines() if found in line]


def test_the_reason_of_an_unknown_outcome_is_whole(
    held: Desk, handrail: Command, terminal: Terminal, wording: Wording
) -> None:
    """A person has to act on it; the other reasons are whole in a pipe, and elsewhere it is said how to see them."""
    for reply, (tool, name) in {"r7": ("doubt", "A-8"), "r8": ("fail", "A-9 " * 90)}.items():
        held.conversation.append({"role": "assistant"}, calls=[ToolCall("c", tool, order(name))], reply=reply)
        held.executor.answer()
        held.conversation.append({"role": "user", "content": "Go on."})
    ran = handrail("sessions", "show", "desk")
    assert _without_durations(ran.out, "A-8") == wording
    assert "A-9 A-9 cannot be paid" in ran.out
    assert terminal.run("sessions", "show", "desk", width=80) == 0
    assert "handrail ledger reconcile call:r7/c" in " ".join(" ".join(terminal.lines).split())
    document = handrail.document("sessions", "show", "desk")
    keys = [item["effect_key"] for item in document["conversation"] if item["type"] == "call"]
    assert keys == [None, None, "call:r7/c", None]


def test_effect_is_never_said_to_be_rolled_back(held: Desk, handrail: Command) -> None:
    """Neither while it is unknown, nor when a person has found out that it did not happen."""
    held.conversation.append({"role": "assistant"}, calls=[ToolCall("c", "doubt", order("A-8"))], reply="r7")
    held.executor.answer()
    unknown = handrail("sessions", "show", "desk").out
    assert handrail("ledger", "reconcile", "call:r7/c", "--not-happened", "--why", "the bank says so").code == 0
    settled = handrail("sessions", "show", "desk").out
    lines = [line for shown in (unknown, settled) for line in shown.splitlines() if "A-8" in line and "doubt(" in line]
    assert [line.split(") ")[1].split(",")[0] for line in lines] == ["outcome unknown", "failed"]
    assert not any("rolled back" in line for line in lines)


def test_a_held_session_can_be_read(held: Desk, handrail: Command, wording: Wording) -> None:
    """And it says where to follow it; not to programs."""
    held.ask("And now?")
    ran = handrail("sessions", "show", "desk", "--last", "1")
    assert (ran.code, "And now?" in ran.out, ran.err) == (0, True, "")
    assert ran.out.splitlines()[-1] == wording
    assert ran.out.splitlines()[-1] not in handrail("sessions", "show", "desk", "--format", "json").out


def test_everything_in_a_pipe_and_on_a_terminal(wording: Wording) -> None:
    """Who says what with time, and each call on one line with its outcome; on a terminal every line fits."""
    assert printed(EVERYTHING) == wording
    assert max(map(cell_len, printed(EVERYTHING, width=80).splitlines())) <= 80


@pytest.mark.parametrize("width", [None, 40])
@given(text=st.sampled_from(HOSTILE) | st.text())
def test_no_text_moves_the_cursor(width: int | None, text: str) -> None:
    """In a message, a name, an argument, a result or an owner."""
    call = called(
        tool=text, arguments={text: text}, outcome="failed", content=text, owner=text, child=text, nested=(called(),)
    )
    blocks = tuple(MessageBlock(kind, text) for kind in ("text", "thinking", "refusal", "data"))
    message = TranscriptMessage(conversation=ConversationId("prompt", text), role=text, blocks=blocks)
    for full in (False, True):
        shown = printed([message, call, called(arguments=text)], full=full, width=width)
        assert not CONTROLS.search(shown if width else shown.replace("\t", ""))


def test_a_call_has_all_that_is_known_of_it() -> None:
    """And the calls within it."""
    told: dict[str, object]
    told = {"type": "call", "speaker": "agent", "name": "clerk", "reply": "r1", "call_id": "c1", "tool": "pay"}
    told |= {"arguments": {"order": "A-17", "cents": 4990}, "outcome": "ok", "content": "A-17 is paid", "at": EVENING}
    told |= {"rolled_back": False, "replayed": False, "owner": "", "effect_key": None, "child_session": None}
    wait = {"since": EVENING, "seconds": timedelta(hours=3), "by": "anna", "approved": True}
    assert item_json(EVERYTHING[3]) == told | {"seconds": 0.2, "wait": wait, "nested": []}
    parent = item_json(called(nested=(called(outcome="failed"),)))
    assert {"type": "restarted", "count": 12}.items() <= item_json(EVERYTHING[20]).items()
    assert [(inner["outcome"], inner["rolled_back"]) for inner in parent["nested"]] == [("failed", True)]
    hi = {"type": "message", "speaker": "loop", "name": "", "role": "user", "at": EVENING}
    assert item_json(said("Hi.", role="user")) == hi | {"blocks": [{"kind": "text", "text": "Hi."}]}
