"""Handlers that outlive their call: whatever they still write is refused, or undone, and never lands."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import copy_context

import pytest

from handrail.errors import TransactionClosedError
from handrail.transaction import Transaction
from tests.transaction.notebooks import PATIENCE, Notebook, call, nothing
from tests.wording import Wording


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
