"""Sessions are deleted, and expired effects removed, over every store: whole, and by a process that is killed."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest

import handrail.store
from handrail.clock import SYSTEM_CLOCK
from handrail.errors import SessionLostError, SessionNotFoundError
from handrail.session.persistence.protocol import AnswerChange, AnswerRow, SessionSize
from handrail.store import Store
from handrail.store.protocol import ExpiredEffects
from handrail.store.sql.database import finish_deletion, remove_expired
from handrail.testing import Crashed, FakeClock
from handrail.transaction import UnitOfWork
from tests.crash.forks import fork_to_crash
from tests.kit import raises
from tests.store import kit
from tests.store.processes import another_process
from tests.store.stores import sqlite
from tests.wording import Wording

HOUR = timedelta(hours=1)


@pytest.fixture
def url(url: str) -> str:
    """A store that several processes open, with the sessions `s1` and `s2`."""
    with handrail.store.open(url) as store:
        fill_both(store)
    return url


def fill_both(store: Store) -> None:
    """Put both sessions into a store, and release them."""
    for session_id in ("s1", "s2"):
        store.release(kit.fill(store, SYSTEM_CLOCK, session_id))


def stands(store: Store, session_id: str) -> bool:
    """Whether a session is there whole; if not, nothing of it can be seen."""
    row = store.find(session_id)
    assert (row is not None) == (session_id in {row.session_id for row in store.sessions()})
    if row is None:
        with pytest.raises(SessionNotFoundError):
            store.acquire(session_id, wait=kit.NOW)
        return False
    assert row.head == kit.ENTRIES
    assert list(store.entries(session_id)) == kit.entries(1, kit.ENTRIES)
    return True


def test_deleted_session_takes_along_what_belongs_to_it_alone(store: Store, clock: FakeClock) -> None:
    """Its row, entries, checkpoints, and effects; what sessions share, and other sessions, stay."""
    lock = kit.fill(store, clock)
    store.release(kit.fill(store, clock, "s2"))
    answer = AnswerChange(None, AnswerRow("s1", "r1", "c1", clock.now(), b"{}"))
    assert store.apply(UnitOfWork((answer,))) is None
    size = SessionSize(kit.ENTRIES, kit.ENTRIES, 2, kit.ENTRIES * len(kit.entry(1).items))
    assert store.session_size("s1") == size
    store.delete_session(lock)
    store.release(lock)
    assert not stands(store, "s1")
    assert list(store.entries("s1")) == []
    assert (store.checkpoint("s1"), store.answers("s1")) == (None, ())
    assert sorted(row.key for row in store.rows() if row.partition != "s2") == ["shop:pay:s1", "shop:pay:s2"]
    assert store.session_size("s1") == SessionSize(0, 0, 0, 0)
    assert (store.unfinished_deletions(), store.finish_deletion("s1")) == ((), False)
    assert stands(store, "s2")
    # A new session of the same id has nothing of the old one.
    assert store.create(kit.session_row(clock))
    again = store.acquire("s1", wait=kit.NOW)
    assert (again.row, store.answers("s1")) == (kit.session_row(clock), ())
    kit.append(store, again, 0, kit.entries(1, 1), None)
    assert store.session_size("s1").entries == 1


def test_only_the_holder_deletes_a_session(store: Store, clock: FakeClock, wording: Wording) -> None:
    """With a lock that has been released, or replaced, nothing is deleted."""
    lock = kit.fill(store, clock)
    store.release(lock)
    with pytest.raises(SessionLostError):
        store.delete_session(lock)
    other = store.acquire("s1", wait=kit.NOW)
    with pytest.raises(SessionLostError):
        store.delete_session(lock)
    assert stands(store, "s1")
    store.delete_session(other)
    with raises(SessionLostError, wording):
        store.delete_session(other)
    with raises(SessionLostError, wording):
        store.check_lock(other, kit.ENTRIES)


def test_sessions_that_another_process_holds_are_known_to_readers(url: str) -> None:
    """As long as the process lives; a process that dies releases nothing, and its session is free."""
    with another_process(url, "hold") as holder, handrail.store.open(url, read_only=True) as store:
        assert store.held_sessions() == {"s1"}
        holder.kill()
        holder.wait()
        while store.held_sessions():  # a server notices the death of a process at its next look
            pass
        assert stands(store, "s2")
    with handrail.store.open(url) as store:
        assert store.held_sessions() == frozenset()
        assert not store.acquire("s1", wait=HOUR).was_released


def test_session_cannot_be_opened_while_it_is_deleted(database: Store, clock: FakeClock) -> None:
    """After each transaction of a deletion the session does not exist: no half of it can be read."""
    lock = kit.fill(database, clock)
    answers: list[bool] = []

    def look() -> None:
        with pytest.raises(SessionNotFoundError):
            database.acquire("s1", wait=HOUR)
        with pytest.raises(SessionNotFoundError):
            database.create(kit.fork_row(clock, "fork", "s1", 2))
        answers.append(database.find("s1") is None and not list(database.sessions()))

    with kit.at_point("unit-after-commit", look):
        kit.delete_by_twos(database, lock)
    assert answers == [True] * 6
    assert database.unfinished_deletions() == ()


def test_reader_of_a_session_that_is_deleted_is_told_so(database: Store, clock: FakeClock) -> None:
    """It does not take the missing entries for damage."""
    lock = kit.fill(database, clock)
    reading = database.entries("s1", until=kit.ENTRIES)
    with kit.at_point("unit-after-commit", lambda: None):
        database.delete_session(lock)
    with pytest.raises(SessionNotFoundError):
        list(reading)


@pytest.mark.parametrize(
    "at, nth",
    [("unit-before-commit", 1), ("unit-after-commit", 1), ("unit-before-commit", 4), ("unit-after-commit", 6)],
)
@pytest.mark.short(2)
def test_deletion_that_is_killed_leaves_a_session_absent(url: str, at: str, nth: int) -> None:
    """It is absent once it is marked, before its rows are removed; what is left of them, the next deletion removes."""
    assert fork_to_crash(kit.delete_in_steps, url, "s1", at=at, nth=nth) == Crashed(at, nth)
    with handrail.store.open(url) as store:
        ended = (at, nth) == ("unit-after-commit", 6)
        assert not stands(store, "s1")
        assert store.unfinished_deletions() == (() if ended else ("s1",))
        assert store.finish_deletion("s1") is not ended
        assert not stands(store, "s1")
        assert stands(store, "s2")


@pytest.mark.short(1)
def test_session_of_an_id_whose_deletion_was_killed_begins_empty(url: str) -> None:
    """`create` removes what is left of the old one first."""
    fork_to_crash(kit.delete_in_steps, url, "s1", at="unit-after-commit", nth=2)
    with handrail.store.open(url) as store:
        assert store.create(kit.session_row(SYSTEM_CLOCK))
        assert not store.create(kit.session_row(SYSTEM_CLOCK))
        assert [row.key for row in store.rows() if row.partition == "s1"] == []
        lock = store.acquire("s1", wait=kit.NOW)
        kit.append(store, lock, 0, kit.entries(1, 1), None)
        assert store.finish_deletion("s1") is False
        assert list(store.entries("s1")) == kit.entries(1, 1)


@pytest.mark.short(1)
def test_two_that_finish_a_deletion_leave_a_new_session_alone(url: str) -> None:
    """The second one finds nothing to do, although the session was begun anew meanwhile."""
    fork_to_crash(kit.delete_in_steps, url, "s1", at="unit-after-commit", nth=1)
    with handrail.store.open(url) as store, handrail.store.open(url) as other:
        calls: list[bool] = []

        def meanwhile() -> None:
            if not calls:
                calls.append(True)
                assert other.create(kit.session_row(SYSTEM_CLOCK))
                kit.append(other, other.acquire("s1", wait=kit.NOW), 0, kit.entries(1, 3), None)

        with kit.at_point("unit-after-commit", meanwhile):
            assert finish_deletion(kit.database_of(store), "s1", most=2)
        assert list(store.entries("s1")) == kit.entries(1, 3)


def test_expired_effects_are_removed(store: Store, clock: FakeClock) -> None:
    """Done or failed, and expired by then. The others stay, and so does what is running, unknown or done for ever."""
    gone = [kit.ended_row(clock, number, expires=HOUR) for number in range(5)]
    stay = [
        kit.ended_row(clock, 5, expires=2 * HOUR),
        kit.ended_row(clock, 6, expires=None),
        kit.ended_row(clock, 7, expires=HOUR)._replace(status="unknown"),
        kit.ended_row(clock, 8, expires=HOUR)._replace(status="running"),
    ]
    for row in (*gone, *stay):
        kit.insert(store, row)
    now = clock.now() + HOUR
    assert store.expired(clock.now()) == ExpiredEffects(0, 0)
    assert store.expired(now) == ExpiredEffects(5, 5 * len(b"12"))
    assert store.remove_expired(now) == 5
    assert sorted(store.rows()) == sorted(stay)
    assert store.remove_expired(now) == 0


@pytest.mark.parametrize("page", [1, 2, 3, 4, 5, 9, 10, 11])
def test_expired_effects_are_removed_page_by_page(database: Store, clock: FakeClock, page: int) -> None:
    """No transaction looks at more than a page, whether it has expired rows or not, and none is passed over."""
    for number in range(10):
        kit.insert(database, kit.ended_row(clock, number, expires=HOUR if number % 2 else None))
    commits: list[int] = []
    with kit.at_point("unit-after-commit", lambda: commits.append(sum(1 for _ in database.rows()))):
        assert remove_expired(kit.database_of(database), clock.now() + HOUR, page=page) == 5
    assert len(commits) == 10 // page + 1
    assert all(before - after <= page for before, after in zip([10, *commits], commits, strict=False))
    assert {row.expires_at for row in database.rows()} == {None}


def test_others_write_between_the_pages(clock: FakeClock) -> None:
    """On SQLite a transaction keeps all others from writing: after each one there is a pause in which they can."""
    store = sqlite(clock)
    for number in range(6):
        kit.insert(store, kit.ended_row(clock, number, expires=HOUR))
    paused: list[bool] = []

    def write(seconds: float) -> None:
        assert seconds <= 0.05
        writer = threading.Thread(target=store.create, args=(kit.session_row(clock, f"s{len(paused)}"),))
        writer.start()
        writer.join()
        paused.append(store.find(f"s{len(paused)}") is not None)

    assert remove_expired(kit.database_of(store), clock.now() + HOUR, page=2, pause=write) == 6
    assert paused == [True, True, True]


@pytest.mark.short(1)
def test_removal_that_is_killed_is_completed_by_the_next(url: str) -> None:
    """What was removed stays removed; the rest is there whole."""
    with handrail.store.open(url) as store:
        for row in store.rows():
            kit.delete(store, row)
        for number in range(5):
            kit.insert(store, kit.ended_row(SYSTEM_CLOCK, number, expires=-HOUR))
    assert fork_to_crash(kit.remove_in_steps, url, at="unit-after-commit") == Crashed("unit-after-commit")
    with handrail.store.open(url) as store:
        assert store.expired(store.now()).rows == 3
        assert store.remove_expired(store.now()) == 3
        assert list(store.rows()) == []
