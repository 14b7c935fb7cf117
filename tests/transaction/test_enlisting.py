"""What is enlisted is settled together: all of it or nothing, tried again when a store fails."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

import pytest

from handrail import errors
from handrail.store import MemoryStore
from handrail.transaction import (
    CommitParticipant,
    RecordCommit,
    Transaction,
    UnitStore,
    check_write,
    current,
    enlist,
    is_rolling_back,
)
from handrail.transaction.commit import ATTEMPTS, Apply, commit_participants, notify_participants
from handrail.transaction.unit_of_work import WriteQueue
from handrail.turns import draw_ticket
from handrail.waiting import await_shielded, run_blocking, run_in_thread
from tests.session.faulty_stores import FaultyStore, Point
from tests.transaction.notebooks import Notebook, Receipt, call, raising
from tests.wording import Wording


class Shop:
    """A participant of a program, which remembers how it is settled."""

    def __init__(self, settled: list[str], name: str = "", *, store: UnitStore | None = None, fails: str = "") -> None:
        self.store = store
        self._settled = settled
        self._name = name
        self._fails = fails

    def _do(self, what: str) -> None:
        self._settled.append(f"{self._name}{what}")
        if what == self._fails:
            raise ValueError(f"{what} has failed")

    def prepare(self) -> None:
        self._do("prepare")

    def write(self) -> Sequence[object]:
        self._do("write")
        return () if self.store is None else (RecordCommit(f"shop:{self._name}"),)

    def after_commit(self) -> None:
        self._do("after_commit")

    def in_doubt(self) -> None:
        self._do("in_doubt")

    def after_rollback(self) -> None:
        self._do("after_rollback")


@pytest.fixture
def store() -> FaultyStore:
    """A store that fails when it is told to."""
    return FaultyStore(MemoryStore())


@pytest.mark.parametrize("has_unit", [True, False])
def test_all_prepare_before_the_unit_and_commit_after_it(store: FaultyStore, has_unit: bool) -> None:
    """Each step of all participants comes before the next one of any; a session in memory has no unit."""
    settled: list[str] = []
    with call() as transaction:
        enlist(Shop(settled, "a ", store=store if has_unit else None))
        enlist(Shop(settled, "b "))
        store.at("commit", lambda: settled.append("the unit"))
        transaction.commit()
    steps = [f"{name} {step}" for step in ("prepare", "write", "after_commit") for name in "ab"]
    steps[4:4] = ["the unit"] * has_unit
    assert (settled, store.is_committed("shop:a ")) == (steps, has_unit)


@pytest.mark.parametrize("fails", ["prepare", "write"])
def test_one_that_refuses_rolls_the_call_and_all_others_back(store: FaultyStore, fails: str) -> None:
    """Nothing is written, what was is undone, and the exception fails the call."""
    settled: list[str] = []
    notebook = Notebook()
    with call(notebook) as transaction:
        notebook.write("a")
        enlist(Shop(settled, "a ", store=store))
        enlist(Shop(settled, "b ", fails=fails))
        with pytest.raises(ValueError, match="has failed"):
            transaction.commit()
        with pytest.raises(errors.TransactionClosedError):
            transaction.commit()
    assert settled.count("a prepare") == 1
    assert settled[-2:] == ["b after_rollback", "a after_rollback"]
    assert "a after_commit" not in settled
    assert not store.is_committed("shop:a ")
    assert notebook.lines == ()


@pytest.mark.parametrize("fails", ["nobody", "inner", "outer"])
def test_a_nested_call_commits_with_its_parent(fails: str) -> None:
    """If it fails, its own participants alone are rolled back, and if its parent fails, they are too."""
    settled: list[str] = []
    with call() as outer:
        with suppress(ValueError), call(parent=outer) as inner:
            enlist(Shop(settled))
            if fails == "inner":
                raise ValueError
            inner.commit()
        assert settled == ["after_rollback"] * (fails == "inner")
        if fails != "outer":
            outer.commit()
    assert settled == (["prepare", "write", "after_commit"] if fails == "nobody" else ["after_rollback"])


def test_what_cannot_be_enlisted_is_refused(store: FaultyStore, wording: Wording) -> None:
    """Outside of calls, in one that reads or has ended, over a second store; and what is not a participant."""
    settled: list[str] = []
    with pytest.raises(errors.SessionUseError) as outside:
        enlist(Shop(settled))
    with call(writes=False), pytest.raises(errors.ReadOnlyViolation) as reading:
        enlist(Shop(settled))
    with call(), pytest.raises(errors.InvalidArgumentError) as wrong:
        enlist(Receipt)  # type: ignore[arg-type]  # the class of one
    assert (wrong.value.function, wrong.value.argument) == ("transaction.enlist", "participant")
    with call() as transaction:
        transaction.enlist(_stored(store))
        with pytest.raises(errors.SecondStoreError):
            enlist(Shop(settled, store=FaultyStore(MemoryStore())))
        transaction.commit()
        with pytest.raises(errors.TransactionClosedError):
            enlist(Shop(settled))
    assert settled == []
    assert [str(outside.value), str(reading.value), str(wrong.value)] == wording


def _stored(store: FaultyStore) -> Receipt:
    receipt = Receipt()
    receipt.store = store
    return receipt


def test_a_participant_is_enlisted_once() -> None:
    """Also by a nested call: it would be prepared and committed twice, or rolled back in part."""
    settled: list[str] = []
    shop = Shop(settled)
    with call() as outer:
        enlist(shop)
        with pytest.raises(errors.InvalidArgumentError) as raised:
            enlist(shop)
        assert raised.value.argument == "participant"
        with call(parent=outer), pytest.raises(errors.InvalidArgumentError):
            enlist(shop)
        outer.commit()
    assert settled == ["prepare", "write", "after_commit"]


def test_a_failure_after_the_commit_is_logged(
    store: FaultyStore, caplog: pytest.LogCaptureFixture, wording: Wording
) -> None:
    """The call is committed, and the other participants are."""
    settled: list[str] = []
    with call() as transaction:
        enlist(Shop(settled, "a ", store=store, fails="after_commit"))
        enlist(Shop(settled, "b "))
        transaction.commit()
    assert transaction.committed
    assert settled[-2:] == ["a after_commit", "b after_commit"]
    assert caplog.messages == wording


def test_a_thread_waits_for_its_turn() -> None:
    """The next one gets it when the block ends."""
    queue, order, asked = WriteQueue(), list[str](), threading.Event()

    def write() -> None:
        asked.set()
        with queue.turn():
            order.append("second")

    other = threading.Thread(target=write)
    with queue.turn():
        other.start()
        asked.wait()
        order.append("first")
    other.join()
    assert order == ["first", "second"]
    assert queue.enter("third") is None


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
    with pytest.raises(errors.StoreUnavailableError):
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
        with pytest.raises(errors.CommitInDoubtError) as caught:
            transaction.commit()
    assert str(caught.value) == wording
    assert part.settled == ["prepare", "write", "in_doubt"]
    assert isinstance(caught.value.__cause__, errors.StoreUnavailableError)


def test_a_doubt_stays_if_the_next_attempt_is_refused(store: FaultyStore) -> None:
    """As when somebody else has taken the session over meanwhile."""
    store.lose("committed")
    store.at("commit", lambda: None, raising(ValueError("refused")))
    with pytest.raises(errors.CommitInDoubtError) as caught:
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
        with pytest.raises(errors.SecondStoreError) as caught:
            transaction.enlist(second)
        assert str(caught.value) == wording
    assert (caught.value.store, caught.value.second) == (near, far)
    assert (first.settled, second.settled) == (["after_rollback"], [])


def test_a_nested_call_writes_to_the_store_of_the_outer_one() -> None:
    """They commit together."""
    near, far = FaultyStore(MemoryStore()), FaultyStore(MemoryStore())
    with call() as outer, call(parent=outer) as inner:
        outer.enlist(StoredReceipt(near))
        with pytest.raises(errors.SecondStoreError):
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
    with pytest.raises(errors.RollbackError) as caught:
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
    with pytest.raises(errors.RollbackError) as raised:
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
    assert isinstance(caught.value.__cause__, errors.RollbackError)


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
        assert isinstance(cause, errors.RollbackError)
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
