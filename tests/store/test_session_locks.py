"""Who holds a session: across threads, stores and processes."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

import handrail.store
from handrail.errors import SessionLockedError, SessionLostError, StoreUnavailableError
from handrail.session.persistence.protocol import SessionLock
from handrail.store import Store
from handrail.store.session_locks import NoLockBackend, SessionLockTable
from handrail.testing import FakeClock
from tests.crash.forks import Fork, start
from tests.store.session_rows import NOW, entries, held, session_row
from tests.store.sqlite_files import written
from tests.store.units import append
from tests.wording import Wording

ROOT = Path(__file__).parents[2]
PATIENCE = timedelta(seconds=60)


@pytest.fixture
def url(url: str) -> str:
    """Where processes meet, and where one session is."""
    with handrail.store.open(url) as store:
        store.create(session_row(FakeClock()))
    return url


@contextmanager
def another_process(url: str, *what: str) -> Generator[Fork]:
    """Holds the session, or has a unit open, until it is killed; a child that it forked lives until the block ends."""
    with start("tests.store.child", url, "s1", *what) as child:
        assert child.stdout.readline() == "ready\n"
        yield child


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

    holds = SessionLockTable(NoLockBackend(), clock=clock, store="memory:", jitter=jitter)
    holds.acquire("s1", wait=NOW)
    started = clock.now()
    with pytest.raises(SessionLockedError) as raised:
        holds.acquire("s1", wait=timedelta(seconds=3))
    assert str(raised.value) == wording
    assert clock.now() - started == timedelta(seconds=3)


@pytest.mark.short(1)
def test_another_process_keeps_its_session_until_it_dies(url: str, wording: Wording) -> None:
    """Then the session is free at once; nothing has to run out."""
    with handrail.store.open(url) as store, another_process(url, "hold") as holder:
        with pytest.raises(SessionLockedError) as raised:
            store.acquire("s1", wait=NOW)
        assert str(raised.value).replace(store.url, "<store>") == wording
        holder.kill()
        append(store, store.acquire("s1", wait=PATIENCE), 0, entries(1, 1), None)


@pytest.mark.short(1)
def test_forked_child_does_not_keep_the_session_of_a_dead_parent(url: str, wording: Wording) -> None:
    """A worker that a handler has forked outlives the kill; the session is free at once all the same."""
    with handrail.store.open(url) as store, another_process(url, "hold", "fork") as holder:
        with pytest.raises(SessionLockedError) as raised:
            store.acquire("s1", wait=NOW)
        assert str(raised.value).replace(store.url, "<store>") == wording
        holder.kill()
        append(store, store.acquire("s1", wait=PATIENCE), 0, entries(1, 1), None)


@pytest.mark.short(1)
def test_process_that_dies_in_a_unit_leaves_nothing_behind(url: str) -> None:
    """Others write as soon as it is gone."""
    with handrail.store.open(url, busy=PATIENCE) as store:
        hold = store.acquire("s1", wait=NOW)
        with another_process(url, "unit") as writer:
            writer.kill()
            append(store, hold, 0, entries(1, 1), None)
        assert list(store.entries("s1")) == entries(1, 1)


def test_two_stores_of_one_process_exclude_each_other(url: str) -> None:
    """As two processes do."""
    with handrail.store.open(url) as one, handrail.store.open(url) as other:
        hold = one.acquire("s1", wait=NOW)
        with pytest.raises(SessionLockedError):
            other.acquire("s1", wait=NOW)
        one.release(hold)
        append(other, other.acquire("s1", wait=NOW), 0, entries(1, 1), None)
        with pytest.raises(SessionLostError):
            append(one, hold, 0, entries(1, 1), None)


def test_closing_a_store_frees_its_sessions(url: str) -> None:
    """So does the end of a process that does not close it."""
    with handrail.store.open(url) as one:
        one.acquire("s1", wait=NOW)
    with handrail.store.open(url) as other:
        other.acquire("s1", wait=NOW)


def test_hold_that_cannot_be_recorded_is_not_kept(clock: FakeClock, tmp_path: Path) -> None:
    """A store that fails in between leaves the session free."""
    url = f"sqlite:///{tmp_path}/desk.db"
    with handrail.store.open(url, busy=NOW) as store:
        store.create(session_row(clock))
        with written(tmp_path / "desk.db"), pytest.raises(StoreUnavailableError, match="locked"):
            store.acquire("s1", wait=NOW)
        store.check_lock(store.acquire("s1", wait=NOW), 0)
