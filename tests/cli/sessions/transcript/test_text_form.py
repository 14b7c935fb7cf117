"""A transcript as text, for terminals and pipes."""

from __future__ import annotations

import io
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from handrail.cli.screen import Screen
from handrail.cli.sessions.transcript.text_form import MOST_LINES, TextTranscript
from handrail.transcript import MessageBlock, TranscriptMessage
from tests.cli.sessions.transcript.items import CONTROLS, EVERYTHING, HOSTILE, LOOP, called, printed, said
from tests.wording import Wording

TEXT = partial(TextTranscript, full=False)
FULL = partial(TextTranscript, full=True)


def test_everything_in_a_pipe(wording: Wording) -> None:
    """Who says what with time, and each call on one line with its outcome."""
    assert printed(TEXT, EVERYTHING) == wording


@pytest.mark.parametrize("width", [80, 120])
def test_everything_on_a_terminal(width: int, wording: Wording) -> None:
    """The same, and every line fits."""
    shown = printed(TEXT, EVERYTHING, width=width)
    assert shown == wording
    assert max(map(cell_len, shown.splitlines())) <= width


def test_calls_in_full(wording: Wording) -> None:
    """With the arguments and what the model reads, whole."""
    assert printed(FULL, [said("I pay."), called(nested=(called(content=""),)), called(outcome="failed")]) == wording


def test_a_long_text_is_shortened_on_a_terminal(wording: Wording) -> None:
    """By lines, and it says by how many; not in a pipe, and not in full."""
    message = said("\n".join(f"line {number}" for number in range(100)))
    lines = printed(TEXT, [message], width=80).splitlines()
    assert len(lines) == 1 + MOST_LINES
    assert lines[-2:] == ["  line 38", wording]
    assert printed(TEXT, [message]).splitlines()[-1] == "  line 99"
    assert printed(FULL, [message], width=80).splitlines()[-1] == "  line 99"
    fitting = said("\n".join(f"line {number}" for number in range(MOST_LINES)))
    assert printed(TEXT, [fitting], width=80).splitlines()[-1] == f"  line {MOST_LINES - 1}"


def test_json_of_other_forms_is_shortened() -> None:
    """An image may have megabytes."""
    block = MessageBlock("data", '{"data": "' + "x" * 1000 + '"}')
    message = TranscriptMessage(conversation=LOOP, role="user", blocks=(block,))
    assert len(printed(TEXT, [message])) < 300
    assert "…" in printed(TEXT, [message])
    assert block.text in printed(FULL, [message])


def test_arguments_are_shortened_and_figures_are_not() -> None:
    """With an ellipsis, so that the outcome stands on the same line."""
    call = called(arguments={"note": "a long note " * 20, "cents": 123_456_789, "order": "A-17"})
    heading, line = printed(TEXT, [call], width=80).splitlines()
    assert heading == "calls of assistant"
    assert "…" in line
    assert "cents=123456789" in line
    assert line.endswith("ok, 0.2 s")


def test_the_outcome_has_a_colour_where_there_are_colours() -> None:
    """What went wrong is red, and headings are bold."""
    file = io.StringIO()
    console = Console(file=file, width=80, force_terminal=True, color_system="standard", highlight=False)
    writer = TextTranscript(Screen(console, console), full=False)
    for item in (said("Hi."), called(), called(outcome="failed")):
        writer.write(item)
    heading, text, ok, failed = file.getvalue().splitlines()
    assert heading == "\x1b[1m2026-01-05 20:00:00 UTC  assistant\x1b[0m"
    assert (text, ok) == ("  Hi.", '  pay(order="A-17", cents=4990) ok, 0.2 s')
    assert failed.startswith("  \x1b[31mpay(")


@pytest.mark.parametrize("width", [None, 40])
@given(text=st.sampled_from(HOSTILE) | st.text())
def test_no_text_moves_the_cursor(width: int | None, text: str) -> None:
    """In a message, a name, an argument, a result or an owner."""
    call = called(
        tool=text, arguments={text: text}, outcome="failed", content=text, owner=text, child=text, nested=(called(),)
    )
    message = TranscriptMessage(
        conversation=LOOP._replace(speaker="prompt", name=text),
        role=text,
        blocks=tuple(MessageBlock(kind, text) for kind in ("text", "thinking", "refusal", "data")),
    )
    for make in (TEXT, FULL):
        shown = printed(make, [message, call, called(arguments=text)], width=width)
        assert not CONTROLS.search(shown if width else shown.replace("\t", ""))
