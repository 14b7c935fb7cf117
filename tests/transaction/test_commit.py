"""What is enlisted is settled together: all of it or nothing, tried again when a store fails."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence

import pytest

from handrail.errors import (
    CommitInDoubtError,
    RollbackError,
    SecondStoreError,
    StoreUnavailableError,
)
from handrail.store import MemoryStore
from handrail.transaction import (
    CommitParticipant,
    RecordCommit,
    Transaction,
    check_write,
    current,
    is_rolling_back,
)
from handrail.transaction.commit import ATTEMPTS, Apply, commit_participants, notify_participants
from handrail.turns import draw_ticket
from handrail.waiting import await_shielded, run_blocking, run_in_thread
from tests.session.faulty_stores import FaultyStore, Point
from tests.transaction.notebooks import Notebook, Receipt, call, raising
from tests.wording import Wording


@pytest.fixture
def store() -> FaultyStore:
    """A store that fails when it is told to."""
    return FaultyStore(MemoryStore())


class StoredReceipt(Receipt):
    """One that names a store, and gets ready before the unit."""

    def __init__(self, store: FaultyStore, *, refuses: bool = False) -> None:
        super().__init__(refuses=refuses)
        self.store = store

    def prepare(self) -> None:
        self.settled.append("prepare")

    def write(self) -> Sequence[object]:
        super().write()
        return (RecordCommit("j1"),)


def commit(parts: Sequence[CommitParticipant], *, apply: Apply | None = None, attempts: int = ATTEMPTS) -> None:
    """Commit parts, as a transaction does."""
    run_blocking(commit_participants(parts, apply=apply, attempts=attempts))


@pytest.mark.parametrize("point", ["begin", "commit", "committed"])
def test_a_store_that_fails_is_tried_again(store: FaultyStore, point: Point) -> None:
    """The same unit is applied once more; the parts get ready, and say what they write, only once."""
    parts = [StoredReceipt(store), Receipt()]
    store.lose(point, ATTEMPTS - 1)
    commit(parts)
    assert [part.settled for part in parts] == [["prepare", "write", "after_commit"], ["write", "after_commit"]]


def test_who_can_wait_for_the_next_unit_tries_once(store: FaultyStore) -> None:
    """Unless it is in doubt whether it is kept: then the store is asked again."""
    part = StoredReceipt(store)
    store.lose("commit")
    with pytest.raises(StoreUnavailableError):
        commit([part], attempts=1)
    store.lose("committed")
    commit([part], attempts=1)
    assert part.settled == ["prepare", "write", "prepare", "write", "after_commit"]


def test_a_store_that_was_lost_while_committing_and_stays_away_leaves_a_doubt(
    store: FaultyStore, wording: Wording
) -> None:
    """What was lost before or after that moment does not take the doubt away; recovery settles it."""
    part = StoredReceipt(store)
    store.lose("committed")
    store.lose("begin")
    store.at("begin", lambda: None)
    store.go_down("begin")
    with call() as transaction:
        transaction.enlist(part)
        with pytest.raises(CommitInDoubtError) as caught:
            transaction.commit()
    assert str(caught.value) == wording
    assert part.settled == ["prepare", "write", "in_doubt"]
    assert isinstance(caught.value.__cause__, StoreUnavailableError)


def test_a_doubt_stays_if_the_next_attempt_is_refused(store: FaultyStore) -> None:
    """As when somebody else has taken the session over meanwhile."""
    store.lose("committed")
    store.at("commit", lambda: None, raising(ValueError("refused")))
    with pytest.raises(CommitInDoubtError) as caught:
        commit([StoredReceipt(store)])
    assert isinstance(caught.value.__cause__, ValueError)


@pytest.mark.parametrize("kept, word", [(True, "after_commit"), (False, "in_doubt")])
def test_everybody_is_told(kept: bool, word: str, caplog: pytest.LogCaptureFixture, wording: Wording) -> None:
    """Also when one before has failed, which is logged, or was interrupted, which goes on in the end."""

    class Failing(Receipt):
        def after_commit(self) -> None:
            raise ValueError("no note taken")

        in_doubt = after_commit

    class Interrupted(Receipt):
        def after_commit(self) -> None:
            raise KeyboardInterrupt

        in_doubt = after_commit

    last = Receipt()
    notify_participants([Failing(), last], is_committed=kept)
    assert last.settled == [word]
    assert caplog.messages == wording
    with pytest.raises(KeyboardInterrupt):
        notify_participants([Interrupted(), last], is_committed=kept)
    assert last.settled == [word, word]


def test_an_interrupt_while_parts_write_undoes_it(store: FaultyStore) -> None:
    """Ctrl-C before the store has been told to commit: nothing is kept anywhere."""

    class Interrupted(Receipt):
        def write(self) -> Sequence[object]:
            raise KeyboardInterrupt

    part = StoredReceipt(store)
    with call() as transaction:
        transaction.enlist(part)
        transaction.enlist(Interrupted())
        with pytest.raises(KeyboardInterrupt):
            transaction.commit()
    assert part.settled == ["prepare", "write", "after_rollback"]
    assert not transaction.committed


@pytest.mark.parametrize("point", ["begun", "commit", "committed"])
def test_an_interrupt_in_the_moment_of_the_commit_waits_for_its_end(store: FaultyStore, point: Point) -> None:
    """Whether the store had committed by then: it is written once more, and then the interrupt goes on."""
    part = StoredReceipt(store)
    store.at(point, raising(KeyboardInterrupt()))
    with call() as transaction:
        transaction.enlist(part)
        with pytest.raises(KeyboardInterrupt):
            transaction.commit()
    assert part.settled == ["prepare", "write", "after_commit"]
    assert transaction.committed


def test_an_interrupted_commit_that_cannot_be_finished_is_in_doubt(store: FaultyStore) -> None:
    """Nothing is put back, and the interrupt goes on."""
    part = StoredReceipt(store)
    store.at("committed", raising(KeyboardInterrupt()), raising(KeyboardInterrupt()))
    with call() as transaction:
        transaction.enlist(part)
        with pytest.raises(KeyboardInterrupt):
            transaction.commit()
    assert part.settled == ["prepare", "write", "in_doubt"]
    assert not transaction.committed


def test_a_second_store_is_refused(wording: Wording) -> None:
    """A commit over two stores could be half done. The call is rolled back, and nothing is written to either."""
    near, far = FaultyStore(MemoryStore()), FaultyStore(MemoryStore())
    first, second = StoredReceipt(near), StoredReceipt(far)
    with call() as transaction:
        transaction.enlist(first)
        transaction.enlist(StoredReceipt(near))
        transaction.enlist(Receipt())
        with pytest.raises(SecondStoreError) as caught:
            transaction.enlist(second)
        assert str(caught.value) == wording
    assert (caught.value.store, caught.value.second) == (near, far)
    assert (first.settled, second.settled) == (["after_rollback"], [])


def test_a_nested_call_writes_to_the_store_of_the_outer_one() -> None:
    """They commit together."""
    near, far = FaultyStore(MemoryStore()), FaultyStore(MemoryStore())
    with call() as outer, call(parent=outer) as inner:
        outer.enlist(StoredReceipt(near))
        with pytest.raises(SecondStoreError):
            inner.enlist(StoredReceipt(far))


def write_to(*notebooks: Notebook, enlisting: tuple[Receipt, ...] = (), error: Exception | None = None) -> None:
    """A call that writes to all, and fails."""
    with call(*notebooks) as transaction:
        for receipt in enlisting:
            transaction.enlist(receipt)
        for notebook in notebooks:
            notebook.write("a")
        if error is not None:
            raise error


def test_a_restore_that_fails_does_not_keep_the_others_from_being_restored(wording: Wording) -> None:
    """The error names who could not be undone, and holds what each raised."""
    first, broken, torn, last = Notebook(), Notebook(), Notebook(), Notebook()
    failures = [OSError("disk"), ValueError("torn")]
    broken.on_restore, torn.on_restore = map(raising, failures)
    receipt = Receipt()
    error = ValueError("handler")
    with pytest.raises(RollbackError) as caught:
        write_to(first, broken, torn, last, enlisting=(receipt,), error=error)
    assert (first.lines, last.lines) == ((), ())
    assert receipt.settled == ["after_rollback"]
    assert caught.value.failures == ((torn, failures[1]), (broken, failures[0]))
    assert caught.value.__cause__ is failures[1]
    assert failures[1].__context__ is error
    assert (str(caught.value)) == wording


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


def test_a_restore_may_write_as_from_outside() -> None:
    """Whatever call it is made in: its way back is never refused, joins nothing, and can tell that it is an undoing."""
    notebook = Notebook("a")
    seen: list[tuple[bool, Transaction | None]] = []

    def go_back() -> None:
        check_write(notebook, "go back")
        seen.append((is_rolling_back(), current()))

    notebook.on_restore = go_back
    with call(tool="look", writes=False) as outer:
        ticket = draw_ticket((notebook.turn,), exclusive=True, inside=outer.ticket)
        with Transaction("edit", ticket=ticket, writes=True):
            notebook.write("b")
        ticket.release()
        assert (outer.participants, seen, is_rolling_back()) == ((), [(True, None)], False)
    assert notebook.lines == ("a",)
