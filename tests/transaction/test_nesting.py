"""Calls made inside calls: savepoints, what is lent, and what becomes of an inner call when the outer one ends."""

from __future__ import annotations

import threading
from contextvars import copy_context

import pytest

from handrail.errors import TransactionClosedError, TurnConflictError
from handrail.transaction import Transaction
from handrail.turns import draw_ticket, find_turn
from tests.transaction.notebooks import PATIENCE, Notebook, Receipt, Shelf, call
from tests.wording import Wording


def nested(outer: Transaction, tool: str = "inner") -> Transaction:
    """A transaction inside another, to be entered by hand."""
    ticket = draw_ticket((find_turn(outer),), exclusive=True, inside=outer.ticket)
    return Transaction(tool, ticket=ticket, writes=True, parent=outer)


def test_what_joins_the_inner_call_joins_the_outer_ones_with_one_snapshot() -> None:
    """Nobody else could have written to it meanwhile."""
    notebook = Notebook("a")
    with call(notebook) as outer, call(notebook, parent=outer) as middle, call(notebook, parent=middle) as inner:
        notebook.write("b")
        inner.commit()
        assert notebook.snapshots == 1
        assert outer.participants == middle.participants == (notebook,)
    assert notebook.lines == ("a",)


def test_those_that_cannot_tell_are_kept_again_for_an_inner_call() -> None:
    """The outer call may have changed them since they joined."""
    shelf = Shelf("a")
    with call(shelf) as outer:
        outer.join(shelf)
        shelf.things.append("b")
        with call(shelf, parent=outer):
            shelf.things.append("c")
        assert shelf.things == ["a", "b"]
    assert shelf.things == ["a"]


def test_the_outer_call_writes_nothing_while_an_inner_one_does(wording: Wording) -> None:
    """The inner rollback would take it away; the message says what to wait for."""
    notebook = Notebook()
    with call(notebook, tool="outer") as outer:
        context = copy_context()
        with call(notebook, tool="inner", parent=outer):
            with pytest.raises(TurnConflictError) as raised:
                context.run(notebook.write, "a")
            assert str(raised.value) == wording
        notebook.write("b")
        outer.commit()
    assert notebook.lines == ("b",)


def test_two_inner_calls_do_not_write_at_once(wording: Wording) -> None:
    """They take turns among themselves; one that does not is refused."""
    with call(tool="outer") as outer, call(tool="one", parent=outer):
        other = Transaction("other", ticket=draw_ticket((), exclusive=True), writes=True, parent=outer)
        with pytest.raises(TurnConflictError) as raised, other:
            pass
        assert str(raised.value) == wording
    assert find_turn(outer) is find_turn(outer)


def test_an_inner_call_that_only_reads_gives_nothing_back() -> None:
    """What is lent to another one stays lent."""
    notebook = Notebook()
    with call(notebook, tool="outer") as outer:
        context = copy_context()
        with call(tool="one", parent=outer):
            with Transaction("look", ticket=draw_ticket((), exclusive=False), writes=False, parent=outer):
                pass
            with pytest.raises(TurnConflictError):
                context.run(notebook.write, "a")


def test_an_outer_call_does_not_end_while_an_inner_one_runs(wording: Wording) -> None:
    """Half of what the inner one wrote would be kept; leaving undoes both."""
    notebook = Notebook("a")
    with call(notebook) as outer:
        inner = nested(outer)
        context = copy_context()
        context.run(inner.__enter__)
        context.run(notebook.write, "b")
        with pytest.raises(TurnConflictError) as raised:
            outer.commit()
        assert str(raised.value) == wording
    assert notebook.lines == ("a",)
    context.run(inner.__exit__, None, None, None)
    assert notebook.lines == ("a",)


def test_an_inner_call_takes_what_nobody_uses_for_the_outermost_one() -> None:
    """It is undone with that one, so until then nobody else may write to it."""
    notebook = Notebook()
    with call() as outer, call(parent=outer) as inner:
        notebook.write("a")
        inner.commit()
        assert outer.holds(notebook.turn)
    assert notebook.lines == ()


def test_no_call_begins_inside_one_that_has_ended(wording: Wording) -> None:
    """A handler that was left behind makes no more calls."""
    with call(tool="outer") as outer:
        inner = nested(outer)
        outer.commit()
    with pytest.raises(TransactionClosedError) as raised, inner:
        pass
    assert str(raised.value) == wording


def test_an_inner_call_is_closed_with_the_outer_one() -> None:
    """It may still run in a thread that was left behind: it neither writes, nor commits, nor undoes any more."""
    notebook, receipt = Notebook("a"), Receipt()
    with call(notebook) as outer:
        notebook.write("b")
        inner = nested(outer)
        context = copy_context()
        context.run(inner.__enter__)
        context.run(notebook.write, "c")
        inner.enlist(receipt)
    assert notebook.lines == ("a",)
    assert (inner.state, inner.is_open()) == ("open", False)
    with pytest.raises(TransactionClosedError):
        context.run(notebook.write, "d")
    with pytest.raises(TransactionClosedError):
        inner.commit()
    context.run(inner.__exit__, None, None, None)
    assert notebook.lines == ("a",)
    assert receipt.settled == ["after_rollback"]


def test_an_outer_call_that_is_undone_waits_for_an_inner_one_that_is_being_undone() -> None:
    """What the inner one puts back is older than the end, and newer than the beginning, of the outer one."""
    notebook = Notebook("a")
    undoing, go_on = threading.Event(), threading.Event()

    def pause() -> None:
        notebook.on_restore = lambda: None
        undoing.set()
        assert go_on.wait(PATIENCE)

    with call(notebook) as outer:
        notebook.write("b")
        inner = nested(outer)
        context = copy_context()
        context.run(inner.__enter__)
        context.run(notebook.write, "c")
        notebook.on_restore = pause
        left_behind = threading.Thread(target=context.run, args=(inner.__exit__, None, None, None))
        left_behind.start()
        assert undoing.wait(PATIENCE)
        rolling_back = threading.Thread(target=outer.rollback)
        rolling_back.start()
        go_on.set()
        left_behind.join(PATIENCE)
        rolling_back.join(PATIENCE)
    assert notebook.lines == ("a",)
