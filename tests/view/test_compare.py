"""Two sessions beside each other: what both begin with, and how the rest is aligned."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from handrail import store as stores
from handrail.prompt import ToolContext, ToolResult
from handrail.runtime import Session, ToolCall
from handrail.store import MemoryStore
from handrail.testing import FakeClock
from handrail.view import compare
from handrail.view.compare import ComparedRow, Comparison, compare_sessions
from handrail.view.export import export_comparison
from handrail.view.run_page import CallView
from tests.kit import Note, echo, executor, tool
from tests.store.kit import stored

Turn = tuple[str, str, str]
"""What is said, the tool that is called then, and its argument."""

BEGIN: Sequence[Turn] = (("one", "look", "A"), ("two", "look", "B"))


def fail(params: Note, *, context: ToolContext) -> ToolResult[Note]:
    """Fail."""
    return ToolResult.error("the bank is closed")


def run(session: Session, turns: Sequence[Turn]) -> None:
    """A program's own loop that says and calls."""
    handlers: list[Any] = [tool("look"), tool("pay"), tool("pay_twice", fail)]
    desk = executor(*handlers, session=session)
    for said, name, text in turns:
        begin = len(session.conversation)
        call = ToolCall(f"c{begin}", name, {"text": text})
        reply = f"{session.session_id}-r{begin}"
        session.conversation.append({"role": "assistant", "content": said}, calls=[call], reply=reply)
        answer = desk.execute(call, reply=reply)
        session.conversation.append({"role": "tool", "tool_call_id": call.id, "content": answer.content})


def compared(left: Sequence[Turn], right: Sequence[Turn]) -> Comparison:
    """Two sessions that have run so."""
    store = MemoryStore(clock=FakeClock())
    for name, turns in (("left", left), ("right", right)):
        with Session.open(store, name) as session:
            run(session, turns)
    return compare_sessions(store, stored(store, "left"), stored(store, "right"))


def words(row: ComparedRow) -> tuple[str, str]:
    """What stands on both sides, in short."""
    texts: list[str] = []
    for one in (row.left, row.right):
        if isinstance(one, CallView):
            texts.append(f"{one.call.tool} {one.call.arguments['text']}")
        else:
            texts.append(getattr(one, "blocks", [])[0].text if one is not None else "")
    return texts[0], texts[1]


def test_what_both_begin_with_is_counted() -> None:
    """Ids of calls and replies, and times, are others in each run."""
    comparison = compared([*BEGIN, ("three", "pay", "7")], [*BEGIN, ("3", "pay", "8")])
    assert comparison.common == 4
    assert [words(row) for row in comparison.rows] == [("three", "3"), ("pay 7", "pay 8")]
    assert [row.changes for row in comparison.rows] == [[], ["arguments", "message"]]


def test_equal_sessions_have_no_rows() -> None:
    """All of it is what both begin with."""
    comparison = compared(BEGIN, BEGIN)
    assert (comparison.common, comparison.rows) == (4, [])


def test_equal_parts_are_aligned() -> None:
    """What only one has stands beside nothing."""
    more: Turn = ("more", "look", "C")
    comparison = compared([("a", "look", "1"), *BEGIN], [("b", "look", "1"), more, *BEGIN, more])
    assert [words(row) for row in comparison.rows] == [
        ("a", "b"),
        ("look 1", "look 1"),
        ("", "more"),
        ("", "look C"),
        *[(text, text) for text in ("one", "look A", "two", "look B")],
        ("", "more"),
        ("", "look C"),
    ]
    assert [row.is_same for row in comparison.rows] == [False, True, False, False, *[True] * 4, False, False]


def test_changed_calls_of_one_tool_are_aligned() -> None:
    """Between parts that are equal, calls of one tool belong together, whatever stands between them."""
    comparison = compared(
        [("x", "look", "A"), ("y", "pay", "7")], [("x", "look", "B"), ("z", "look", "C"), ("y", "pay", "8")]
    )
    pairs = [words(row) for row in comparison.rows]
    assert ("pay 7", "pay 8") in pairs
    assert ("look A", "look B") in pairs


def test_outcome_of_a_call_is_compared() -> None:
    """Its arguments may be the same."""
    comparison = compared([("x", "pay", "7")], [("x", "pay_twice", "7")])
    assert [row.changes for row in comparison.rows] == [[]]  # calls of two tools are two calls
    store = MemoryStore(clock=FakeClock())
    for name, handler in (("left", echo), ("right", fail)):
        with Session.open(store, name) as session:
            executor(tool("pay", handler), session=session).execute(ToolCall("c", "pay", {"text": "7"}), reply="r")
    rows = compare_sessions(store, stored(store, "left"), stored(store, "right")).rows
    assert [row.changes for row in rows] == [["outcome", "message"]]


def test_fork_begins_with_what_it_was_forked_from(tmp_path: Path) -> None:
    """Up to the fork all is the same."""
    with stores.open(f"sqlite:///{tmp_path}/desk.db") as store:
        with Session.open(store, "s") as session:
            run(session, BEGIN)
            with session.fork(session_id="fork") as fork:
                run(fork, [("other", "pay", "1")])
            run(session, [("mine", "pay", "2")])
        comparison = compare_sessions(store, stored(store, "s"), stored(store, "fork"))
    assert comparison.common == 4
    assert [words(row) for row in comparison.rows] == [("mine", "other"), ("pay 2", "pay 1")]


def test_comparison_is_a_page_that_needs_nothing_else() -> None:
    """As a replay writes it: both sides, and no link to another page."""
    store = MemoryStore(clock=FakeClock())
    for name, turns in (("left", BEGIN), ("right", (*BEGIN, ("three", "pay", "C")))):
        with Session.open(store, name) as session:
            run(session, turns)
    page = export_comparison(store, stored(store, "left"), stored(store, "right"))
    assert all(text in page for text in ("left", "right", "three", "only here"))
    assert not any(text in page for text in ("<form class", "<a href", "<nav", "/static/"))


def test_no_more_than_a_bound_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left out is counted; what both begin with does not count."""
    monkeypatch.setattr(compare, "MOST_COMPARED_PARTS", 2)
    comparison = compared([*BEGIN, ("a", "pay", "1")], [*BEGIN, ("b", "pay", "2"), ("c", "pay", "3")])
    assert (comparison.common, len(comparison.rows), comparison.left_out) == (4, 2, 2)


def test_store_of_a_comparison_is_not_changed(tmp_path: Path) -> None:
    """It may be open for reading alone."""
    url = f"sqlite:///{tmp_path}/desk.db"
    with stores.open(url) as store, Session.open(store, "s") as session:
        run(session, BEGIN)
    with stores.open(url, read_only=True) as read:
        row = stored(read, "s")
        assert compare_sessions(read, row, row).common == 4
