"""What is enlisted is settled together: all of it or nothing, tried again when a store fails."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from handrail.errors import CommitInDoubtError, SecondStoreError, StoreUnavailableError, TransactionClosedError
from handrail.store import MemoryStore
from handrail.transaction import CommitParticipant, RecordCommit, UnitOfWork, UnitStore
from handrail.transaction.commit import ATTEMPTS, Apply, commit_participants, notify_participants
from handrail.waiting import run_blocking
from tests.session.faulty_stores import FaultyStore, Point
from tests.transaction.notebooks import Receipt, call, raising
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


def test_a_store_that_stays_away_is_told(store: FaultyStore, wording: Wording) -> None:
    """Nothing is kept, and the parts wait for `undone`."""
    store.go_down("commit")
    with pytest.raises(StoreUnavailableError) as raised:
        commit([StoredReceipt(store)])
    assert str(raised.value) == wording


def test_a_store_that_was_waited_for_is_tried_once(store: FaultyStore) -> None:
    """The commit has waited as long as it may in all; another attempt would wait as long again."""
    part = StoredReceipt(store)
    asked = list[UnitOfWork]()

    async def busy(_: UnitStore, unit: UnitOfWork) -> None:
        asked.append(unit)
        raise StoreUnavailableError("busy", store="tests", waited=True)

    with pytest.raises(StoreUnavailableError):
        commit([part], apply=busy)
    assert [unit.writes for unit in asked] == [(RecordCommit("j1"),)]


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
    """What was lost before or after that moment does not take the doubt away."""
    store.lose("committed")
    store.lose("begin")
    store.at("begin", lambda: None)
    store.go_down("begin")
    with pytest.raises(CommitInDoubtError) as caught:
        commit([StoredReceipt(store)])
    assert str(caught.value) == wording
    assert isinstance(caught.value.__cause__, StoreUnavailableError)


def test_a_doubt_stays_if_the_next_attempt_is_refused(store: FaultyStore) -> None:
    """As when somebody else has taken the session over meanwhile."""
    store.lose("committed")
    store.at("commit", lambda: None, raising(ValueError("refused")))
    with pytest.raises(CommitInDoubtError) as caught:
        commit([StoredReceipt(store)])
    assert isinstance(caught.value.__cause__, ValueError)


def test_a_part_that_refuses_is_not_tried_again(store: FaultyStore) -> None:
    """It knows why, and would again."""
    part = StoredReceipt(store)
    with pytest.raises(ValueError, match="refused"):
        commit([part, StoredReceipt(store, refuses=True)])
    assert part.settled == ["prepare", "write"]


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


@pytest.mark.parametrize("refuses", [True, False])
def test_the_state_of_a_transaction_never_goes_back(store: FaultyStore, refuses: bool) -> None:
    """After a commit that failed it takes no writes, and is rolled back when its block is left."""
    states: list[str] = []

    class Watching(StoredReceipt):
        def write(self) -> Sequence[object]:
            states.append(transaction.state)
            return super().write()

        def after_rollback(self) -> None:
            states.append(transaction.state)
            super().after_rollback()

    part = Watching(store, refuses=refuses)
    with call() as transaction:
        states.append(transaction.state)
        transaction.enlist(part)
        if refuses:
            with pytest.raises(ValueError, match="refused"):
                transaction.commit()
            with pytest.raises(TransactionClosedError):
                transaction.commit()
        else:
            transaction.commit()
    states.append(transaction.state)
    assert states == ["open", "closed", *["closed"] * refuses, "ended"]
    assert part.settled[-1] == ("after_rollback" if refuses else "after_commit")


def test_nothing_is_enlisted_in_a_transaction_that_is_ending(wording: Wording) -> None:
    """It would not be settled; whoever enlists it must not go on writing."""

    class Late(Receipt):
        def write(self) -> Sequence[object]:
            with pytest.raises(TransactionClosedError) as raised:
                transaction.enlist(Receipt())
            assert str(raised.value) == wording
            return super().write()

    late = Late()
    with call() as transaction:
        transaction.enlist(late)
        transaction.commit()
    assert late.settled == ["write", "after_commit"]
