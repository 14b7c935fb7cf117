"""One call's transaction: what joins it, what it refuses, and how it ends."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import copy_context

import pytest

from handrail.errors import ReadOnlyViolation, TransactionClosedError, TurnConflictError
from handrail.transaction import Transaction, current
from handrail.turns import draw_ticket, find_turn
from tests.transaction.notebooks import PATIENCE, Notebook, Receipt, Shelf, call, nothing, raising
from tests.wording import Wording


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt(), SystemExit(1), GeneratorExit()])
def test_whatever_leaves_the_block_undoes_everything(error: BaseException) -> None:
    """`BaseException` too: a cancelled call leaves nothing behind."""
    notebook = Notebook("a")

    def work() -> None:
        with call(notebook):
            notebook.write("b")
            raise error

    with pytest.raises(type(error)):
        work()
    assert notebook.lines == ("a",)


def test_what_was_committed_stays_whatever_leaves_the_block_after() -> None:
    """A transaction ends once."""
    notebook = Notebook()

    def work() -> None:
        with call(notebook) as transaction:
            notebook.write("a")
            transaction.commit()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work()
    assert notebook.lines == ("a",)


def test_joining_twice_is_once() -> None:
    """The oldest snapshot is the one to come back to."""
    shelf = Shelf("a")
    with call(shelf) as transaction:
        transaction.join(shelf)
        shelf.things.append("b")
        transaction.join(shelf)
        shelf.things.append("c")
    assert shelf.things == ["a"]


def test_those_that_cannot_tell_join_when_a_writing_call_begins() -> None:
    """A participant that asks nobody must be kept before the handler can reach it."""
    shelf = Shelf("a")
    with Transaction("edit", ticket=draw_ticket((), exclusive=True), writes=True, untracked=(shelf,)) as transaction:
        assert transaction.participants == (shelf,)
        shelf.things.append("b")
    assert shelf.things == ["a"]
    with Transaction("look", ticket=draw_ticket((), exclusive=False), writes=False, untracked=(shelf,)) as transaction:
        assert transaction.participants == ()


def test_a_call_whose_participant_cannot_be_kept_does_not_begin() -> None:
    """Its error goes on, nothing is current, and what is enlisted is told."""

    class Broken(Shelf):
        def snapshot(self) -> tuple[str, ...]:
            raise OSError("full")

    receipt, ticket = Receipt(), draw_ticket((), exclusive=True)
    transaction = Transaction("edit", ticket=ticket, writes=True, untracked=(Broken(),), enlisted=(receipt,))
    with pytest.raises(OSError, match="full"), transaction:
        pass
    assert current() is None
    assert transaction.state == "ended"
    assert receipt.settled == ["after_rollback"]


def test_a_write_whose_snapshot_fails_is_not_made() -> None:
    """What cannot be undone is not done."""
    notebook = Notebook()
    notebook.on_snapshot = raising(OSError("full"))
    with call(notebook) as transaction, pytest.raises(OSError, match="full"):
        notebook.write("a")
    assert notebook.lines == ()
    assert transaction.participants == ()


def test_a_reading_call_writes_nothing(wording: Wording) -> None:
    """The refusal names the tool, the act and the cure. Its results are written to its session, and to nothing else."""
    session, notebook = Notebook(), Notebook()
    with call(session, notebook, tool="look", writes=False) as transaction:
        with pytest.raises(ReadOnlyViolation) as caught:
            notebook.write("a")
        transaction.open_for_results(session)
        session.write("a")
        with pytest.raises(ReadOnlyViolation):
            notebook.write("b")
        transaction.commit()
    assert (session.lines, notebook.lines) == (("a",), ())
    assert str(caught.value) == wording


def test_a_participant_that_no_call_uses_is_taken_in_with_its_turn() -> None:
    """It was reached by closure; until the call has ended, it is the call's."""
    notebook = Notebook()
    with call() as transaction:
        notebook.write("a")
        assert transaction.holds(notebook.turn)
        assert notebook.turn.queue == [transaction.ticket]
        transaction.commit()
    assert notebook.turn.queue == []
    assert notebook.lines == ("a",)


def test_an_ended_transaction_takes_nothing(wording: Wording) -> None:
    """Neither a write, nor a participant, nor another end."""
    notebook, shelf = Notebook(), Shelf()
    with call(notebook) as transaction:
        transaction.commit()
        with pytest.raises(TransactionClosedError) as raised:
            notebook.write("a")
        assert str(raised.value) == wording
        with pytest.raises(TransactionClosedError) as raised:
            transaction.join(shelf)
        assert str(raised.value) == wording
        with pytest.raises(TransactionClosedError) as raised:
            transaction.commit()
        assert str(raised.value) == wording
        transaction.rollback()
    assert transaction.committed
    assert notebook.lines == ()


class LeftBehind:
    """A thread that writes in a copy of the call's context, and stops on its way until it is told to go on.

    Attributes:
        errors: what its write raised.
    """

    def __init__(self) -> None:
        self.errors: list[BaseException] = []
        self._arrived, self._told = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, write: Callable[[], None]) -> None:
        """Begin to write; returns when the thread has stopped on its way."""
        self._thread = threading.Thread(target=copy_context().run, args=(self._work, write))
        self._thread.start()
        assert self._arrived.wait(PATIENCE)

    def stop_here(self) -> None:
        """Called by the thread, where it is to stop."""
        self._arrived.set()
        assert self._told.wait(PATIENCE)

    def go_on(self) -> None:
        """Let it go on."""
        self._told.set()

    def join(self) -> None:
        """Let it go on, and wait until it has ended."""
        self._told.set()
        assert self._thread is not None
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()

    def _work(self, write: Callable[[], None]) -> None:
        try:
            write()
        except TransactionClosedError as error:
            self.errors.append(error)


def end(transaction: Transaction, *, committing: bool) -> None:
    """End a call in one of the two ways."""
    if committing:
        transaction.commit()
    else:
        transaction.rollback()


@pytest.mark.parametrize("committing", [True, False])
def test_a_write_after_the_end_is_refused(committing: bool, wording: Wording) -> None:
    """The thread holds a closed transaction, by the context that it copied."""
    notebook, receipt, late = Notebook(), Receipt(), LeftBehind()

    def work() -> None:
        late.stop_here()
        notebook.write("late")

    with call(notebook) as transaction:
        transaction.enlist(receipt)
        notebook.write("in time")
        late.start(work)
        end(transaction, committing=committing)
    late.join()
    assert notebook.lines == (("in time",) if committing else ())
    assert receipt.settled == (["write", "after_commit"] if committing else ["after_rollback"])  # once
    assert str(late.errors[0]) == wording


def test_a_write_that_has_begun_is_undone_with_the_call() -> None:
    """It holds the participant's lock, so the undoing waits for it, and then takes it away too."""
    notebook, late = Notebook("a"), LeftBehind()
    with call(notebook) as transaction:
        notebook.write("b")
        notebook.meanwhile = late.stop_here
        late.start(lambda: notebook.write("late"))
        rolling_back = threading.Thread(target=transaction.rollback)
        rolling_back.start()
        late.join()
        rolling_back.join(PATIENCE)
    assert late.errors == []
    assert notebook.lines == ("a",)


def test_a_write_while_the_call_is_being_undone_is_refused() -> None:
    """The transaction is closed before the first participant is put back."""
    first, second, late = Notebook(), Notebook(), list[str]()

    def write_late() -> None:
        with pytest.raises(TransactionClosedError):
            context.run(first.write, "late")
        late.append(transaction.state)

    with call(first, second) as transaction:
        context = copy_context()
        first.write("a")
        second.write("b")
        second.on_restore = write_late
    assert late == ["closed"]
    assert first.lines == ()


@pytest.mark.parametrize("committing", [True, False])
def test_a_participant_that_joins_while_the_call_ends_is_not_written_to(committing: bool) -> None:
    """It was not among those to be put back, so the write is refused before it is made."""
    notebook, late = Notebook("a"), LeftBehind()
    notebook.on_snapshot = late.stop_here
    with call(notebook) as transaction:
        late.start(lambda: notebook.write("late"))
        end(transaction, committing=committing)
        late.join()
    assert len(late.errors) == 1
    assert notebook.lines == ("a",)


def test_a_write_that_a_commit_overtakes_comes_before_the_next_call() -> None:
    """The next call takes its snapshot under the participant's lock, when the write has been made."""
    notebook, late = Notebook("a"), LeftBehind()
    with call(notebook) as transaction:
        notebook.write("b")
        notebook.meanwhile = late.stop_here
        late.start(lambda: notebook.write("late"))
        transaction.commit()
    notebook.meanwhile = nothing
    with call(notebook):
        late.go_on()
        notebook.write("c")
    late.join()
    assert notebook.lines == ("a", "b", "late")


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
