"""What every store promises of the runs of workers: one a session, and each change compared with the row before it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from handrail import errors
from handrail.session.persistence.protocol import Checkpoint, RunChange, RunRow, RunStatus, SessionAppend, SessionHeld
from handrail.store import Store
from handrail.store.protocol import RefusedWrite, has_written
from handrail.store.sql.tables import read_run
from handrail.testing import FakeClock
from handrail.transaction import UnitOfWork
from tests.store.kit import NOW, append, entries, fill, fork_row, held, session_row
from tests.wording import Wording

SECOND = timedelta(seconds=1)


def row(clock: FakeClock, session_id: str = "s1", *, status: RunStatus = "open", version: int = 1) -> RunRow:
    """A run that is due."""
    return RunRow(session_id, version, status, "desk", 0, "", clock.now(), clock.now(), b"\x00\xff")


def write(store: Store, run: RunRow, *others: object) -> bool:
    """Write a run; returns whether it was written."""
    refused = store.apply(UnitOfWork((RunChange(run), *others)))
    assert refused in {None, RefusedWrite(RunChange(run))}
    return refused is None


def add(store: Store, clock: FakeClock, *runs: RunRow) -> None:
    """Add sessions with runs."""
    for run in runs:
        assert store.create(session_row(clock, run.session_id))
        assert write(store, run)


def test_session_has_one_run_and_each_change_follows_the_one_before(store: Store, clock: FakeClock) -> None:
    """Without the right to write to the session; of two processes that have read one version, one changes it."""
    held(store, clock)
    assert store.run("s1") is None
    first = row(clock)
    assert not write(store, first._replace(version=2))
    assert write(store, first)
    assert not write(store, first._replace(queue="other"))
    second = first._replace(
        version=2, status="waiting", worker="host - 1 0", due_at=clock.now() + SECOND, priority=-(2**62), data=b"{}"
    )
    for version in (3, 1):
        assert not write(store, second._replace(version=version))
    assert write(store, second)
    assert not write(store, second._replace(status="failed"))
    assert store.run("s1") == second


def test_run_needs_its_session_and_a_fork_has_none(store: Store, clock: FakeClock) -> None:
    """A session that does not exist has none; a fork is another session."""
    assert not write(store, row(clock, "none"))
    assert (store.run("none"), [*store.runs(), *store.due_runs("desk", clock.now(), limit=9)]) == (None, [])
    lock = held(store, clock)
    append(store, lock, 0, entries(1, 1), None)
    assert write(store, row(clock))
    assert store.create(fork_row(clock, "s2", "s1", 1))
    assert store.run("s2") is None
    assert write(store, row(clock, "s2"))


def test_runs_follow_one_another_by_age_and_session(store: Store, clock: FakeClock) -> None:
    """A list goes on after any run."""
    moment = clock.now()
    add(store, clock, *(row(clock, name) for name in ("s1", "s3", "s2")))
    clock.advance(timedelta(microseconds=1))
    add(store, clock, row(clock, "s0"))
    assert [run.session_id for run in store.runs()] == ["s0", "s3", "s2", "s1"]
    assert next(store.runs(after=(moment, "s3"))) == row(clock, "s2")._replace(due_at=moment, submitted_at=moment)
    assert [run.session_id for run in store.runs(after=(moment, "s20"))] == ["s2", "s1"]


def test_due_runs_are_the_open_ones_of_a_queue_whose_time_has_come(store: Store, clock: FakeClock) -> None:
    """Those that are due for the longest time first, and no more than asked for; a run is due at its time."""
    now = clock.now()
    later, past = row(clock, "a")._replace(due_at=now + SECOND), row(clock, "c")._replace(due_at=now - SECOND)
    present = row(clock, "b")._replace(worker="host - 1 0")
    add(store, clock, later, present, past, row(clock, "d")._replace(queue="e"))
    add(store, clock, *(row(clock, f"no-{name}", status=name) for name in ("waiting", "finished", "failed")))
    assert list(store.due_runs("desk", now, limit=9)) == [past, present]
    assert list(store.due_runs("desk", now + SECOND, limit=9)) == [past, present, later]
    assert list(store.due_runs("desk", now + SECOND, limit=1)) == [past]
    assert [run.session_id for run in store.due_runs("e", now, limit=9)] == ["d"]
    assert write(store, past._replace(version=2, status="cancelled"))
    assert list(store.due_runs("desk", now, limit=9)) == [present]


def test_run_is_written_with_what_it_belongs_to_or_not_at_all(store: Store, clock: FakeClock) -> None:
    """In a unit with other writes, and by the holder of the session alone, if the unit says so; a repeat is none."""
    lock = held(store, clock)
    first, appended = row(clock), SessionAppend(lock, 0, tuple(entries(1, 2)), Checkpoint(2, b"two"))
    assert not has_written(store, UnitOfWork((RunChange(first),)))
    for _ in range(2):
        assert write(store, first, appended)
    assert has_written(store, UnitOfWork((RunChange(first), appended)))
    assert not write(store, first._replace(queue="other"), SessionAppend(lock, 2, tuple(entries(3, 3)), None))
    assert list(store.entries("s1")) == entries(1, 2)
    store.release(lock)
    other = store.acquire("s1", wait=NOW)
    second = UnitOfWork((RunChange(first._replace(version=2)), SessionHeld(lock)))
    with pytest.raises(errors.SessionLostError):
        store.apply(second)
    assert store.run("s1") == first
    assert write(store, first._replace(version=2), SessionHeld(other))


def test_run_is_deleted_with_its_session(store: Store, clock: FakeClock) -> None:
    """A new session of the same id has none."""
    lock = fill(store, clock)
    add(store, clock, row(clock, "s2"))
    assert write(store, row(clock))
    store.delete_session(lock)
    store.release(lock)
    assert (store.run("s1"), [run.session_id for run in store.runs()]) == (None, ["s2"])
    assert not write(store, row(clock))
    assert store.create(session_row(clock))
    assert store.run("s1") is None
    assert write(store, row(clock))


def test_refusal_of_a_run_and_a_row_that_cannot_be_read_are_errors(clock: FakeClock, wording: Wording) -> None:
    """The one names the session; the other is met where a list comes to it."""
    error = RefusedWrite(RunChange(row(clock))).error()
    assert isinstance(error, errors.SessionError)
    assert str(error) == wording
    for status, data in (("lost", b""), ("open", "text")):
        with pytest.raises(errors.StoreCorruptError):
            read_run(("s1", 1, status, "desk", 0, "", 0, 0, data), "desk")
