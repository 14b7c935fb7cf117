"""Putting everything back: the order, what fails, and what participants can tell meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial

import pytest

from handrail.errors import RollbackError
from handrail.transaction import Transaction, check_write, current, is_rolling_back
from handrail.turns import draw_ticket
from handrail.waiting import await_shielded, run_in_thread
from tests.transaction.notebooks import Notebook, Receipt, call, raising
from tests.wording import Wording


def write_to(*notebooks: Notebook, enlisting: tuple[Receipt, ...] = (), error: Exception | None = None) -> None:
    """A call that writes to all, and fails."""
    with call(*notebooks) as transaction:
        for receipt in enlisting:
            transaction.enlist(receipt)
        for notebook in notebooks:
            notebook.write("a")
        if error is not None:
            raise error


def test_the_last_to_join_is_the_first_to_be_restored() -> None:
    """Teardown goes in reverse."""
    notebooks = {name: Notebook() for name in "abc"}
    restored: list[str] = []
    with call(*notebooks.values()):
        for name, notebook in notebooks.items():
            notebook.on_restore = partial(restored.append, name)
            notebook.write(name)
    assert restored == ["c", "b", "a"]


def test_a_restore_that_fails_does_not_keep_the_others_from_being_restored(wording: Wording) -> None:
    """The error names who could not be undone, and holds what each raised."""
    first, broken, torn, last = Notebook(), Notebook(), Notebook(), Notebook()
    failures = [OSError("disk"), ValueError("torn")]
    broken.on_restore, torn.on_restore = map(raising, failures)
    receipt = Receipt()
    with pytest.raises(RollbackError) as caught:
        write_to(first, broken, torn, last, enlisting=(receipt,))
    assert (first.lines, last.lines) == ((), ())
    assert receipt.settled == ["after_rollback"]
    assert caught.value.failures == ((torn, failures[1]), (broken, failures[0]))
    assert caught.value.__cause__ is failures[1]
    assert (str(caught.value)) == wording


def test_a_rollback_that_fails_tells_what_led_to_it() -> None:
    """The handler's own error is the context of the `RollbackError`."""
    notebook = Notebook()
    disk, error = OSError("disk"), ValueError("handler")
    notebook.on_restore = raising(disk)
    with pytest.raises(RollbackError) as caught:
        write_to(notebook, error=error)
    assert caught.value.__cause__ is disk
    assert disk.__context__ is error


def test_what_is_enlisted_and_cannot_be_settled_is_a_failure_too(wording: Wording) -> None:
    """The others are settled all the same."""

    class Torn(Receipt):
        def after_rollback(self) -> None:
            raise OSError("ledger")

    torn, receipt = Torn(), Receipt()
    with pytest.raises(RollbackError) as raised:
        write_to(enlisting=(torn, receipt))
    assert str(raised.value) == wording
    assert receipt.settled == ["after_rollback"]


def test_an_interrupt_during_a_restore_goes_on_when_all_are_restored(wording: Wording) -> None:
    """Ctrl-C is not swallowed, and does not stop the undoing; a note says what it met."""
    first, interrupted, last = Notebook(), Notebook(), Notebook()
    interrupted.on_restore = raising(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt) as caught:
        write_to(first, interrupted, last)
    assert (first.lines, last.lines) == ((), ())
    assert caught.value.__notes__ == [wording]
    assert caught.value.__cause__ is None


def test_an_interrupt_comes_before_the_failures_that_it_met() -> None:
    """They are its cause."""
    interrupted, broken = Notebook(), Notebook()
    interrupted.on_restore = raising(KeyboardInterrupt())
    broken.on_restore = raising(OSError("disk"))
    with pytest.raises(KeyboardInterrupt) as caught:
        write_to(interrupted, broken)
    assert isinstance(caught.value.__cause__, RollbackError)


class OnDisk(Notebook):
    """Restoring it waits for a disk."""

    restore_waits = True


@pytest.mark.anyio
@pytest.mark.parametrize("failures", [(), (OSError("disk"),)], ids=["restored", "not restored"])
async def test_a_cancelled_rollback_says_what_could_not_be_restored(failures: tuple[OSError, ...]) -> None:
    """All are tried. The failures are the cause of the cancellation, which has no cause if there are none."""
    first, on_disk, last = Notebook(), OnDisk(), Notebook()
    for failure in failures:
        on_disk.on_restore = raising(failure)

    async def cancelled_meanwhile(act: Callable[[], object]) -> object:
        cancelled = threading.Event()

        def act_then() -> object:
            assert cancelled.wait(60)
            return act()

        loop = asyncio.get_running_loop()
        for callback in (task.cancel, cancelled.set):  # called when the task waits
            loop.call_soon(callback)
        return await await_shielded(run_in_thread(act_then))

    async def roll_back() -> BaseException | None:
        with call(first, on_disk, last) as transaction:
            for notebook in (first, on_disk, last):
                notebook.write("a")
            with pytest.raises(asyncio.CancelledError) as caught:
                await transaction.rollback_by(cancelled_meanwhile)
        return caught.value.__cause__

    task = asyncio.ensure_future(roll_back())
    cause = await task
    assert (first.lines, last.lines) == ((), ())
    if failures:
        assert isinstance(cause, RollbackError)
        assert cause.failures == ((on_disk, failures[0]),)
    else:
        assert cause is None


def test_a_restore_can_tell_that_it_is_an_undoing() -> None:
    """No transaction is current, and `is_rolling_back()` is true, there and nowhere else."""
    notebook = Notebook()
    seen: list[tuple[bool, Transaction | None]] = []
    notebook.on_restore = lambda: seen.append((is_rolling_back(), current()))
    with call() as outer, call(notebook, parent=outer):
        notebook.write("a")
        assert not is_rolling_back()
    assert seen == [(True, None)] * 2
    assert not is_rolling_back()


def test_a_restore_may_write_as_from_outside() -> None:
    """Whatever call it is made in: a participant's way back is never refused, nor does it join anything."""
    notebook = Notebook("a")
    notebook.on_restore = lambda: check_write(notebook, "go back")
    with call(tool="look", writes=False) as outer:
        ticket = draw_ticket((notebook.turn,), exclusive=True, inside=outer.ticket)
        with Transaction("edit", ticket=ticket, writes=True):
            notebook.write("b")
        ticket.release()
        assert outer.participants == ()
    assert notebook.lines == ("a",)
