"""What every store promises of sessions, of who holds them, and of the answers of people to their calls."""

from __future__ import annotations

import asyncio
import gc
import signal
import threading
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

import handrail.store
from handrail import errors
from handrail.session import Session
from handrail.session.calls import CallRef
from handrail.session.open_calls import answer_in
from handrail.session.persistence.protocol import AnswerChange, AnswerRow, Checkpoint, SessionLock
from handrail.store import SqliteStore, Store
from handrail.store.locks import SessionLockTable, StoreOwner
from handrail.store.protocol import RefusedWrite
from handrail.store.sql.driver import DriverConnection
from handrail.store.sql.store import SqlStore
from handrail.store.sql.tables import read_answer
from handrail.store.sqlite.store import SqliteDriver, SqliteFile
from handrail.testing import FakeClock
from handrail.transaction import UnitOfWork
from tests.kit import raises
from tests.store.kit import NOW, append, entries, entry, fork_row, held, refused, session_row, stored, written
from tests.store.processes import SESSION, another_process, in_the_handler
from tests.wording import Wording


def test_all_that_a_session_is_comes_back(store: Store, clock: FakeClock) -> None:
    """Tags with any characters, the parent, and the time to the microsecond."""
    clock.advance(timedelta(microseconds=1))
    row = session_row(clock, "s2", parent="s1")._replace(tags={"ü\0\ud800": "'; --", "": ""})
    store.create(row)
    assert store.find("s2") == row


def test_sessions_follow_one_another_by_age_and_id(store: Store, clock: FakeClock) -> None:
    """A list goes on after any session, also after one that has been deleted since."""
    for session_id in ("s1", "s3", "s2"):
        store.create(session_row(clock, session_id))
    moment = clock.now()
    clock.advance(timedelta(microseconds=1))
    store.create(session_row(clock, "s0"))
    assert [row.session_id for row in store.sessions()] == ["s0", "s3", "s2", "s1"]
    assert [row.session_id for row in store.sessions(after=(clock.now(), "s0"))] == ["s3", "s2", "s1"]
    assert [row.session_id for row in store.sessions(after=(moment, "s3"))] == ["s2", "s1"]
    assert [row.session_id for row in store.sessions(after=(moment, "s20"))] == ["s2", "s1"]
    assert list(store.sessions(after=(moment, "s1"))) == []


def test_entries_come_back_in_order(store: Store, clock: FakeClock) -> None:
    """However many: what lies after one number and up to another, all of it or what is of one type."""
    hold = held(store, clock)
    others = [entry(2499, type_name="desk:Other"), entry(2500, items=b"\x00\xff")]
    append(store, hold, 0, entries(1, 2498), None)
    append(store, hold, 2498, others, None)
    assert list(store.entries("s1")) == [*entries(1, 2498), *others]
    assert [one.number for one in store.entries("s1", after=999, until=2001)] == list(range(1000, 2002))
    assert [one.number for one in store.entries("s1", type_name="desk:Note")] == [*range(1, 2499), 2500]
    assert [one.number for one in store.entries("s1", until=3, type_name="desk:Note")] == [1, 2, 3]
    assert list(store.entries("s1", after=2500)) == list(store.entries("nobody")) == []
    row = stored(store, "s1")
    assert row.head == 2500
    assert [one.number for one in store.contents(row)[1]] == list(range(1, 2501))


def test_large_entries_come_back(store: Store, clock: FakeClock) -> None:
    """Of any size, and whether compressing makes them smaller or not."""
    hold = held(store, clock)
    random = Random(7)  # noqa: S311 - no secret
    items = [b"[%s]" % (b"1," * 2046), b"[%s]" % (b"1," * 2047), b"a word " * 20_000, random.randbytes(9000)]
    large = [entry(number, items=data) for number, data in enumerate(items, 1)]
    append(store, hold, 0, large, None)
    assert list(store.entries("s1")) == large
    assert store.newest_changes("s1", "desk:Note", after=0, until=4, limit=2) == large[2:]


def test_entries_that_do_not_follow_are_refused(store: Store, clock: FakeClock, wording: Wording) -> None:
    """Numbers have no gaps, so entries are numbered from `head + 1` on."""
    hold = held(store, clock)
    with raises(errors.SessionError, wording):
        append(store, hold, 0, entries(2, 3), None)
    assert list(store.entries("s1")) == []


ONE, TWO, NO_REPLY = CallRef("r1", "c1"), CallRef("r1", "c2"), CallRef(None, "c1")


def test_record_of_a_call_is_its_newest_entry_in_a_log(store: Store, clock: FakeClock) -> None:
    """Where a fork at a call branches off. The changes of a call do not record it, nor does a LOG item without call."""
    change = entry(5, "c2", "desk:Plan")._replace(role="state", start=0)
    hold = held(store, clock)
    append(store, hold, 0, [entry(1), entry(2, "c2"), entry(3), entry(4, reply=""), change, entry(6, "")], None)
    assert [store.record_of_call("s1", call) for call in (ONE, TWO, NO_REPLY)] == [3, 2, 4]
    assert store.record_of_call("s1", CallRef("r2", "c1")) is None
    assert store.record_of_call("s1", CallRef("r1", "c3")) is None
    assert store.record_of_call("nobody", ONE) is None


def test_newest_checkpoint_that_covers_no_more_is_found(store: Store, clock: FakeClock) -> None:
    """Opening a session starts from its newest checkpoint, a fork from one that lies before it."""
    hold = held(store, clock)
    assert store.checkpoint("s1") is None
    append(store, hold, 0, entries(1, 2), Checkpoint(2, b"two"))
    append(store, hold, 2, entries(3, 5), Checkpoint(5, b"\x00"))
    append(store, hold, 5, entries(6, 6), None)
    assert store.checkpoint("s1") == Checkpoint(5, b"\x00")
    assert store.checkpoint("s1", until=4) == Checkpoint(2, b"two")
    assert store.checkpoint("s1", until=2) == Checkpoint(2, b"two")
    assert store.checkpoint("s1", until=1) is None
    assert store.checkpoint("nobody") is None


# --------------------------------------------------------------------------------------------------------------- holds


def test_what_is_not_there_cannot_be_held(store: Store, clock: FakeClock, wording: Wording) -> None:
    """The error names the session, and how to make it."""
    with refused(errors.SessionNotFoundError, wording, store):
        store.acquire("nobody", wait=NOW)
    with raises(errors.SessionLostError, wording):
        store.check_lock(held(store, clock)._replace(session_id="nobody", token="0" * 32), 0)


# ----------------------------------------------------------------------------------------------------------- answers


ROW = ("s1", "r1", "c1")


def write(store: Store, seen: AnswerRow | None, row: AnswerRow) -> bool:
    """Write an answer; returns whether it was written."""
    refused = store.apply(UnitOfWork((AnswerChange(seen, row),)))
    assert refused is None or isinstance(refused, RefusedWrite)
    return refused is None


def test_of_two_answers_to_one_call_the_first_stands(store: Store, clock: FakeClock) -> None:
    """Without the right to write to the session; who has seen the first may replace it."""
    held(store, clock)
    first = AnswerRow(*ROW, clock.now(), b'{"a":1}')
    clock.advance(timedelta(microseconds=1))
    second = AnswerRow(*ROW, clock.now(), b"\x00\xff")
    assert write(store, None, first)
    assert not write(store, None, second)
    assert store.answers("s1") == (first,)
    assert write(store, first, second)
    assert not write(store, first, first._replace(answer=b"{}"))
    assert store.answers("s1") == (second,)


def test_an_answer_that_cannot_be_read_is_an_error() -> None:
    """In its columns, or in what they hold."""
    row = AnswerRow(*ROW, FakeClock().now(), b"{}")
    with pytest.raises(errors.StoreCorruptError):
        read_answer(("r1", "c1", 0, "text"), "s1", "desk")
    with pytest.raises(errors.StoreCorruptError):
        answer_in(row, store="desk")


def test_answers_come_oldest_first_and_belong_to_one_session(store: Store, clock: FakeClock) -> None:
    """Also those of calls without a reply; a fork has none of them, and a session that does not exist neither."""
    lock = held(store, clock)
    append(store, lock, 0, entries(1, 1), None)
    later = AnswerRow(*ROW, clock.now() + timedelta(seconds=1), b"{}")
    earlier = AnswerRow("s1", "", "a", clock.now(), b"{}")
    assert write(store, None, later)
    assert write(store, None, earlier)
    assert store.answers("s1") == (earlier, later)
    assert (earlier.call, later.call) == ((None, "a"), ("r1", "c1"))
    assert store.create(fork_row(clock, "s2", "s1", 1))
    assert store.answers("s2") == ()
    assert not write(store, None, earlier._replace(session_id="none"))
    assert store.answers("none") == ()


def test_answers_of_a_unit_are_written_together(store: Store, clock: FakeClock) -> None:
    """Or none of them; a unit that was written already changes nothing."""
    held(store, clock)
    one = AnswerRow(*ROW, clock.now(), b"{}")
    other = one._replace(call_id="c2")
    assert write(store, None, one)
    unit = UnitOfWork((AnswerChange(None, other), AnswerChange(None, one._replace(answer=b"[]"))))
    assert store.apply(unit) is not None
    assert store.answers("s1") == (one,)
    unit = UnitOfWork((AnswerChange(one, one._replace(answer=b"[]")), AnswerChange(None, other)))
    assert store.apply(unit) is None
    assert store.apply(unit) is None
    assert set(store.answers("s1")) == {one._replace(answer=b"[]"), other}


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
    locks = SessionLockTable(StoreOwner(), clock=clock, store="memory:")
    lock = locks.acquire("s1", lambda token, _: SessionLock("s1", token, session_row(clock)), wait=NOW)
    started = clock.now()

    def attempt(_token: str, _seen: str | None) -> tuple[str, str]:
        clock.advance(timedelta(seconds=1))
        return lock.token, ""

    with raises(errors.SessionLockedError, wording):
        locks.acquire("s1", attempt, wait=timedelta(seconds=3))
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
        with refused(errors.SessionUseError, wording, store):
            store.acquire("s1", wait=PATIENCE)

    with handrail.store.open(url) as one, handrail.store.open(url) as other:
        one.acquire("s1", wait=NOW)
        asyncio.run(wait(one))
        asyncio.run(wait(other))


def test_session_of_a_holder_that_lives_is_taken_with_evict(store: Store, clock: FakeClock) -> None:
    """Over every store, also from a session of this process; what the old holder writes is refused."""
    first = held(store, clock)
    with pytest.raises(errors.SessionLockedError):
        store.acquire("s1", wait=NOW)
    second = store.acquire("s1", wait=NOW, evict=True)
    with pytest.raises(errors.SessionLostError):
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
        with pytest.raises(errors.SessionLockedError):
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
        with pytest.raises(errors.SessionLockedError):
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
        with refused(errors.SessionLockedError, wording, store):
            store.acquire("s1", wait=NOW)
        holder.kill()
        append(store, store.acquire("s1", wait=PATIENCE), 0, entries(1, 1), None)
