"""Sessions are deleted, and expired effects removed, over every store: whole, and by a process that is killed."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest

import handrail.store
from handrail.clock import SYSTEM_CLOCK
from handrail.errors import SessionLostError, SessionNotFoundError
from handrail.session.persistence.protocol import AnswerChange, AnswerRow
from handrail.store import Store
from handrail.store.sql.database import remove_expired
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
    store.delete_session(lock)
    store.release(lock)
    assert not stands(store, "s1")
    assert list(store.entries("s1")) == []
    assert (store.checkpoint("s1"), store.answers("s1")) == (None, ())
    assert sorted(row.key for row in store.rows() if row.partition != "s2") == ["shop:pay:s1", "shop:pay:s2"]
    assert stands(store, "s2")
    # A new session of the same id has nothing of the old one.
    assert store.create(kit.session_row(clock))
    again = store.acquire("s1", wait=kit.NOW)
    assert (again.row, store.answers("s1")) == (kit.session_row(clock), ())
    kit.append(store, again, 0, kit.entries(1, 1), None)
    assert list(store.entries("s1")) == kit.entries(1, 1)


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


def test_reader_of_a_session_that_is_deleted_is_told_so(database: Store, clock: FakeClock) -> None:
    """It does not take the missing entries for damage."""
    lock = kit.fill(database, clock)
    reading = database.entries("s1", until=kit.ENTRIES)
    with kit.at_point("unit-after-commit", lambda: None):
        database.delete_session(lock)
    with pytest.raises(SessionNotFoundError):
        list(reading)


@pytest.mark.parametrize("at", ["unit-before-commit", "unit-after-commit"])
@pytest.mark.short(1)
def test_session_whose_deletion_is_killed_is_whole_or_absent(url: str, at: str) -> None:
    """A deletion is one transaction, and leaves nothing that a new session of the same id could find."""
    assert fork_to_crash(kit.delete_session, url, "s1", at=at) == Crashed(at)
    with handrail.store.open(url) as store:
        assert stands(store, "s1") is (at == "unit-before-commit")
        assert stands(store, "s2")
        if store.find("s1") is None:
            assert [row.key for row in store.rows() if row.partition == "s1"] == []
            assert store.create(kit.session_row(SYSTEM_CLOCK))
            kit.append(store, store.acquire("s1", wait=kit.NOW), 0, kit.entries(1, 1), None)
            assert list(store.entries("s1")) == kit.entries(1, 1)


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
    assert (store.expired(clock.now()), store.expired(now)) == (0, 5)
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
        assert store.expired(store.now()) == 3
        assert store.remove_expired(store.now()) == 3
        assert list(store.rows()) == []
