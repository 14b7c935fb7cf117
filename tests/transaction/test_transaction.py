"""One call's transaction: what joins it, what it refuses, and how it ends."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from contextvars import copy_context

import pytest

from handrail.errors import ReadOnlyViolation, TransactionClosedError, TurnConflictError
from handrail.transaction import Snapshotable, Transaction, check_write, current
from handrail.turns import draw_ticket
from tests.transaction.notebooks import PATIENCE, Notebook, Receipt, Shelf, call, nothing, raising
from tests.wording import Wording


def test_a_commit_keeps_what_was_written() -> None:
    """Committing is the act."""
    notebook = Notebook("a")
    with call(notebook) as transaction:
        notebook.write("b")
        transaction.commit()
    assert notebook.lines == ("a", "b")
    assert (transaction.state, transaction.committed) == ("ended", True)


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


def test_a_transaction_is_current_in_its_block_only() -> None:
    """That is how a participant knows to which call a write belongs."""
    assert current() is None
    with call() as outer:
        assert current() is outer
        with call(parent=outer) as inner:
            assert current() is inner
        assert current() is outer
    assert current() is None


def test_a_participant_joins_with_its_first_write() -> None:
    """Reading costs no snapshot, and writing costs one however often it is done."""
    notebook = Notebook()
    with call(notebook) as transaction:
        before = transaction.participants
        notebook.write("a")
        notebook.write("b")
        assert (before, transaction.participants) == ((), (notebook,))
    assert notebook.snapshots == 1


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
    """The refusal names the tool, the act and the cure."""
    notebook = Notebook()
    with call(notebook, tool="look", writes=False), pytest.raises(ReadOnlyViolation) as caught:
        notebook.write("a")
    assert notebook.lines == ()
    assert str(caught.value) == wording


def test_the_results_of_a_reading_call_are_written_to_its_session_alone() -> None:
    """From `open_for_results` on, and to nothing else."""
    session, notebook = Notebook(), Notebook()
    with call(session, notebook, writes=False) as transaction:
        transaction.open_for_results(session)
        session.write("a")
        with pytest.raises(ReadOnlyViolation):
            notebook.write("b")
    assert session.lines == ()


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


@pytest.mark.parametrize("participant", [Notebook(), Shelf()])
def test_a_participant_that_another_call_uses_is_refused(
    participant: Snapshotable[tuple[str, ...]], wording: Wording
) -> None:
    """Two calls must not undo each other's writes; the message says how to make them take turns."""
    other = draw_ticket((), exclusive=True)
    with call(participant, tool="first"), Transaction("edit", ticket=other, writes=True) as transaction:
        with pytest.raises(TurnConflictError) as raised:
            transaction.join(participant)
        assert str(raised.value) == wording
        assert transaction.participants == ()


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


def test_a_transaction_may_be_rolled_back_before_its_block_ends() -> None:
    """Doing it twice is once, no write is taken after it, and what is enlisted is told once."""
    notebook, receipt = Notebook("a"), Receipt()
    with call(notebook) as transaction:
        transaction.enlist(receipt)
        notebook.write("b")
        transaction.rollback()
        assert notebook.lines == ("a",)
        with pytest.raises(TransactionClosedError):
            notebook.write("c")
        transaction.rollback()
    assert (notebook.lines, receipt.settled) == (("a",), ["after_rollback"])


@pytest.mark.parametrize("enlists", [False, True], ids=["nothing enlisted", "something enlisted"])
def test_a_transaction_has_nothing_to_roll_back_once_it_is_committed(enlists: bool) -> None:
    """Leaving its block does nothing then, and it stays ended."""
    seen: list[tuple[bool, str]] = []
    with call() as transaction:
        if enlists:
            transaction.enlist(Receipt())
        seen.append((transaction.must_roll_back, transaction.state))
        transaction.commit()
        seen.append((transaction.must_roll_back, transaction.state))
    assert seen == [(True, "open"), (False, "ended")]
    assert (transaction.must_roll_back, transaction.state) == (False, "ended")


def test_snapshots_are_let_go_of_when_the_call_has_ended() -> None:
    """A store that keeps what a snapshot needs can see that nobody needs it; who had joined stays known."""

    class Moment:
        pass

    class Store:
        def __init__(self) -> None:
            self.taken: list[weakref.ref[Moment]] = []

        def snapshot(self) -> Moment:
            moment = Moment()
            self.taken.append(weakref.ref(moment))
            return moment

        def restore(self, snapshot: Moment) -> None:
            assert self.taken[-1]() is snapshot

    store = Store()
    with call(store) as committed:
        committed.join(store)
        committed.commit()
    with call(store) as undone:
        undone.join(store)
    gc.collect()
    assert [moment() for moment in store.taken] == [None, None]
    assert committed.participants == undone.participants == (store,)


def test_an_ended_transaction_is_freed_at_once() -> None:
    """One is made for each call, so it must be part of no circle, which only a garbage collection would free."""
    notebook = Notebook()
    seen = weakref.ref(notebook)
    gc.disable()
    try:
        with call(notebook) as transaction:
            notebook.write("a")
        del transaction, notebook
        assert seen() is None
    finally:
        gc.enable()


def test_check_write_is_all_that_a_participant_needs() -> None:
    """Anything with a snapshot and a way back can take part, whatever its class."""
    shelf = Shelf("a")
    with call(shelf):
        check_write(shelf, "put b")
        shelf.things.append("b")
    assert shelf.things == ["a"]


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
    notebook, late = Notebook(), LeftBehind()

    def work() -> None:
        late.stop_here()
        notebook.write("late")

    with call(notebook) as transaction:
        notebook.write("in time")
        late.start(work)
        end(transaction, committing=committing)
    late.join()
    assert notebook.lines == (("in time",) if committing else ())
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
