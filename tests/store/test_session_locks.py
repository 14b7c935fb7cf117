"""Who holds a session: across threads, stores and processes."""

from __future__ import annotations

import asyncio
import gc
import signal
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import handrail.store
from handrail.errors import SessionLockedError, SessionLostError, SessionUseError
from handrail.session import Session
from handrail.session.persistence.protocol import SessionLock
from handrail.store import SqliteStore, Store
from handrail.store.locks import SessionLockTable, StoreOwner
from handrail.store.sql.driver import DriverConnection
from handrail.store.sql.store import SqlStore
from handrail.store.sqlite.store import SqliteDriver, SqliteFile
from handrail.testing import FakeClock
from tests.kit import raises
from tests.store.kit import NOW, append, entries, held, refused, session_row, written
from tests.store.processes import SESSION, another_process, in_the_handler
from tests.wording import Wording

PATIENCE = timedelta(seconds=60)


@pytest.fixture
def url(url: str) -> str:
    """Where processes meet, and where one session is."""
    with handrail.store.open(url) as store:
        store.create(session_row(FakeClock()))
    return url


class Interrupted(SqliteDriver):
    """A driver whose statement is interrupted when it has been executed."""

    is_interrupted = False

    def release(self, connection: DriverConnection) -> None:
        super().release(connection)
        if self.is_interrupted:
            raise KeyboardInterrupt


def test_waiting_holder_is_woken_by_the_release(store: Store, clock: FakeClock) -> None:
    """A second holder waits until the first lets go."""
    first = held(store, clock)
    got: list[SessionLock] = []
    waits = threading.Thread(target=lambda: got.append(store.acquire("s1", wait=timedelta(hours=1))))
    waits.start()
    store.release(first)
    waits.join()
    store.check_lock(got[0], 0)


def test_waiting_ends_with_the_time(wording: Wording) -> None:
    """Who has waited long enough is told."""
    clock = FakeClock()

    def jitter() -> float:
        clock.advance(timedelta(seconds=1))
        return 0.0

    locks = SessionLockTable(StoreOwner(), clock=clock, store="memory:", jitter=jitter)
    lock = locks.acquire("s1", lambda token, _: SessionLock("s1", token, session_row(clock)), wait=NOW)
    started = clock.now()
    with raises(SessionLockedError, wording):
        locks.acquire("s1", lambda _token, _seen: (lock.token, ""), wait=timedelta(seconds=3))
    assert clock.now() - started == timedelta(seconds=3)


@pytest.mark.short(1)
def test_process_that_dies_in_a_unit_leaves_nothing_behind(url: str) -> None:
    """Others write as soon as it is gone."""
    with handrail.store.open(url, busy=PATIENCE) as store:
        hold = store.acquire("s1", wait=NOW)
        with another_process(url, "unit") as writer:
            writer.kill()
            append(store, hold, 0, entries(1, 1), None)
        assert list(store.entries("s1")) == entries(1, 1)


def test_store_that_waits_for_another_one_of_its_process_would_stop_the_loop(url: str, wording: Wording) -> None:
    """As one that waits for itself: the holder may need the loop of this thread to come to its end."""

    async def wait(store: Store) -> None:
        with refused(SessionUseError, wording, store):
            store.acquire("s1", wait=PATIENCE)

    with handrail.store.open(url) as one, handrail.store.open(url) as other:
        one.acquire("s1", wait=NOW)
        asyncio.run(wait(one))
        asyncio.run(wait(other))


def test_session_of_a_holder_that_lives_is_taken_with_evict(store: Store, clock: FakeClock) -> None:
    """Over every store, also from a session of this process; what the old holder writes is refused."""
    first = held(store, clock)
    with pytest.raises(SessionLockedError):
        store.acquire("s1", wait=NOW)
    second = store.acquire("s1", wait=NOW, evict=True)
    with pytest.raises(SessionLostError):
        append(store, first, 0, entries(1, 1), None)
    store.release(first)
    assert store.held_sessions() == {"s1"}
    append(store, second, 0, entries(1, 1), None)
    store.release(second)
    assert store.acquire("s1", wait=NOW, evict=True).was_released


@pytest.mark.short(1)
def test_session_of_another_process_that_lives_is_taken_with_evict(url: str) -> None:
    """Its effects stay claimed, because their owner lives."""
    with handrail.store.open(url) as store, in_the_handler(url, "key-unknown"):
        with pytest.raises(SessionLockedError):
            store.acquire(SESSION, wait=NOW)
        lock = store.acquire(SESSION, wait=NOW, evict=True)
        assert not lock.was_released
        (row,) = store.rows()
        assert (row.status, store.owner_lives(row)) == ("running", True)
        assert [claim.key for claim in store.end_leases_of_dead(SESSION)] == [row.key]


def test_release_that_cannot_be_written_is_written_later(clock: FakeClock, tmp_path: Path) -> None:
    """In this process the session is free at once; for others, when the store is next used."""
    url = f"sqlite:///{tmp_path}/desk.db"
    with handrail.store.open(url, busy=NOW) as store, handrail.store.open(url, busy=NOW) as other:
        lock, beside = held(store, clock), held(store, clock, "s2")
        with written(tmp_path / "desk.db"):
            store.release(lock)
        assert store.held_sessions() == {"s2"}
        with pytest.raises(SessionLockedError):
            other.acquire("s1", wait=NOW)
        store.check_lock(beside, 0)
        again = other.acquire("s1", wait=NOW)
        assert again.was_released
        other.release(again)
        with written(tmp_path / "desk.db"):
            store.release(beside)
        assert store.acquire("s2", wait=NOW).was_released


def test_session_that_is_lost_in_the_moment_in_which_it_is_taken_is_free(tmp_path: Path, clock: FakeClock) -> None:
    """Ctrl-C behind the commit: the caller knows of no lock, and its token is removed from the row."""
    file = SqliteFile(tmp_path / "desk.db")
    with SqlStore(driver := Interrupted(file), clock=clock) as store, SqliteStore(file.path) as other:
        store.create(session_row(clock))
        driver.is_interrupted = True
        with pytest.raises(KeyboardInterrupt):
            store.acquire("s1", wait=NOW)
        driver.is_interrupted = False
        assert store.held_sessions() == frozenset()
        store.release(store.acquire("s1", wait=NOW))
        assert other.acquire("s1", wait=NOW).was_released


class Signalled(SqliteDriver):
    """A driver of which one statement comes with Ctrl-C."""

    at = 0

    def acquire(self, *, for_call: bool = False) -> DriverConnection:
        self.at -= 1
        if not self.at:
            signal.raise_signal(signal.SIGINT)
        return super().acquire(for_call=for_call)


class Late(Session):
    """A session at whose making Ctrl-C comes: the lock has been taken, and nothing but the opening has it."""

    def __init__(self, **options: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        super().__init__(**options)


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("at", [0, 1, 2])
def test_session_whose_opening_ctrl_c_ends_is_free_for_others(tmp_path: Path, clock: FakeClock, at: int) -> None:
    """The signal is held back while a session is opened; what was opened is collected, which releases it."""
    file = SqliteFile(tmp_path / "desk.db")
    with SqlStore(driver := Signalled(file), clock=clock) as store, SqliteStore(file.path) as other:
        store.create(session_row(clock))
        driver.at = at
        with pytest.raises(KeyboardInterrupt):
            (Session if at else Late).open(store, "s1").close()
        gc.collect()
        other.release(other.acquire("s1", wait=timedelta(seconds=20)))
        assert store.held_sessions() == frozenset()
        assert store.create(session_row(clock, "s2"))


@pytest.mark.short(1)
@pytest.mark.parametrize("then", [(), ("fork",)], ids=["alone", "with a forked child"])
def test_another_process_keeps_its_session_until_it_dies(url: str, then: tuple[str, ...], wording: Wording) -> None:
    """Then the session is free at once, also where a worker that a handler has forked outlives the kill."""
    with handrail.store.open(url) as store, another_process(url, "hold", *then) as holder:
        with refused(SessionLockedError, wording, store):
            store.acquire("s1", wait=NOW)
        holder.kill()
        append(store, store.acquire("s1", wait=PATIENCE), 0, entries(1, 1), None)
