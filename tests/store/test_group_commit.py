"""Groups of units in a real database: each unit whole or not at all, and one that is refused or fails does so alone."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from handrail import crash_points, store
from handrail.errors import SessionError, SessionLostError, StoreError, StoreUnavailableError
from handrail.session.persistence.protocol import Checkpoint, SessionAppend, SessionHeld, SessionLock
from handrail.store import EffectRow, Store
from handrail.store.protocol import EffectChange, EffectInsert, RefusedWrite
from handrail.store.sql.units import PendingUnit, UnitAnswer
from handrail.store.sqlite.store import SqliteStore
from handrail.testing import FakeClock
from handrail.transaction import RecordCommit, UnitOfWork
from tests.store.ledger_stores import running_row
from tests.store.postgres_server import doomed, end_connections, fresh_url
from tests.store.session_rows import entries, held
from tests.store.units import committer_of, insert


def group(kept: Store, *units: Sequence[object], again: bool = False) -> list[UnitAnswer]:
    """Write units as the group that they are when they wait at the same time."""
    pending = [PendingUnit(UnitOfWork(tuple(unit))) for unit in units]
    for unit in pending:
        unit.may_be_written = again
    return list(committer_of(kept).write(pending))


@contextmanager
def points() -> Generator[list[str]]:
    """The crash points that are reached within the block."""
    reached: list[str] = []
    crash_points.arm(reached.append)
    try:
        yield reached
    finally:
        crash_points.arm(None)


def done(row: EffectRow) -> EffectRow:
    """What a row becomes when its call is committed."""
    return row._replace(status="done", lease_until=None, completed_at=row.created_at)


def commit_of(lock: SessionLock, row: EffectRow, *, head: int = 0) -> tuple[object, ...]:
    """A unit that commits a call."""
    appended = SessionAppend(lock, head, tuple(entries(head + 1, head + 2)), Checkpoint(head + 2, b"c"))
    return (EffectChange(row, done(row)), appended, RecordCommit(f"journal-{lock.session_id}"))


def sessions(kept: Store, clock: FakeClock, number: int) -> list[tuple[SessionLock, EffectRow]]:
    """Sessions that are held, each with a running effect."""
    made: list[tuple[SessionLock, EffectRow]] = []
    for place in range(number):
        row = running_row(clock)._replace(partition=f"s{place}", effect_id=f"{place:032x}")
        insert(kept, row)
        made.append((held(kept, clock, f"s{place}"), row))
    return made


def test_claims_of_a_group_are_granted_each_for_itself(database: Store, clock: FakeClock) -> None:
    """Also where a key is taken, twice the same in one group, or the session is no longer held."""
    (lock, taken), (other, _) = sessions(database, clock, 2)
    lost = other._replace(token="0" * 32)
    claims = [running_row(clock, key)._replace(partition="s0") for key in ("a", "b")]
    twice = claims[0]._replace(effect_id="f" * 32)
    strange = running_row(clock, "c")._replace(partition="s1")
    with points() as reached:
        answers = group(
            database,
            (EffectInsert(claims[0]), SessionHeld(lock)),
            (EffectInsert(taken._replace(effect_id="e" * 32)),),
            (EffectInsert(twice), SessionHeld(lock)),
            (EffectInsert(strange), SessionHeld(lost)),
            (EffectInsert(claims[1]),),
        )
    assert reached.count("unit-after-commit") == 1
    assert (answers[0], answers[4]) == (None, None)
    assert [answer.present for answer in answers[1:3] if isinstance(answer, RefusedWrite)] == [taken, claims[0]]
    assert isinstance(answers[3], SessionLostError)
    assert [database.get("s0", key) for key in ("a", "b")] == claims
    assert database.get("s1", "c") is None


def test_changes_of_a_group_may_remove_a_row_or_give_its_key_to_another_effect(
    database: Store, clock: FakeClock
) -> None:
    """Each is one statement, as every change of a row is; one that is refused changes nothing."""
    removed, passed, standing = (row for _, row in sessions(database, clock, 3))
    other, stale = passed._replace(effect_id="e" * 32), EffectChange(standing._replace(fence=9), None)
    with points() as reached:
        answers = group(database, (EffectChange(removed, None),), (EffectChange(passed, other),), (stale,))
    assert reached.count("unit-after-commit") == 1
    assert answers == [None, None, RefusedWrite(stale, standing)]
    assert sorted(database.rows()) == [other, standing]


def test_commits_of_a_group_are_written_in_one_transaction(database: Store, clock: FakeClock) -> None:
    """The rows, the entries, the checkpoints and the journals of all sessions."""
    made = sessions(database, clock, 5)
    with points() as reached:
        assert group(database, *(commit_of(*each) for each in made)) == [None] * 5
    assert reached.count("unit-after-commit") == 1
    for lock, row in made:
        name = lock.session_id
        assert database.get(name, row.key) == done(row)
        assert list(database.entries(name)) == entries(1, 2)
        assert database.checkpoint(name) == Checkpoint(2, b"c")
        assert database.is_committed(f"journal-{name}")


def test_commit_that_is_refused_leaves_the_others_of_its_group_alone(database: Store, clock: FakeClock) -> None:
    """A lost lease, a lost session, entries that do not follow: nothing of those is written, all of the others is."""
    made = sessions(database, clock, 7)
    (lost_lock, lost_row), (_, moved), (gap, gap_row), *others, unsorted, odd = made
    stale = lost_lock._replace(token="0" * 32)
    units = [
        commit_of(stale, lost_row),
        commit_of(made[1][0], moved._replace(fence=9)),
        commit_of(gap, gap_row, head=7),
        *(commit_of(*each) for each in others),
        (SessionAppend(unsorted[0], 0, tuple(entries(2, 3)), None),),
    ]
    answers = group(database, *units)
    assert isinstance(answers.pop(), SessionError)
    surrogate = SessionAppend(odd[0], 0, (entries(1, 1)[0]._replace(reply="\ud800"),), None)
    assert isinstance(group(database, (surrogate,), commit_of(*odd))[0], StoreError)
    assert isinstance(answers[0], SessionLostError)
    assert isinstance(answers[1], RefusedWrite)
    assert isinstance(answers[2], SessionLostError)
    assert answers[3:] == [None, None]
    for lock, row in made[:3]:
        assert database.get(lock.session_id, row.key) == row
        assert list(database.entries(lock.session_id)) == []
        assert not database.is_committed(f"journal-{lock.session_id}")
    for lock, row in others:
        assert database.get(lock.session_id, row.key) == done(row)
        assert list(database.entries(lock.session_id)) == entries(1, 2)


def test_group_that_was_written_is_known_again(database: Store, clock: FakeClock) -> None:
    """When its answer was lost, each unit is answered as written, and nothing is written twice."""
    made = sessions(database, clock, 2)
    claim = running_row(clock, "a")._replace(partition="s0")
    units = [*(commit_of(*each) for each in made), (EffectInsert(claim), SessionHeld(made[0][0]))]
    assert group(database, *units) == [None] * 3
    assert group(database, *units, again=True) == [None] * 3
    assert [len(list(database.entries(lock.session_id))) for lock, _ in made] == [2, 2]


def test_connection_that_is_lost_in_a_group_loses_and_repeats_nothing(clock: FakeClock) -> None:
    """The server ends the connection after the commit, or before it: each unit is looked up, and then written."""
    for point in ("unit-group-written", "unit-after-commit"):
        with fresh_url() as url, store.open(doomed(url), clock=clock) as kept:
            made, ended = sessions(kept, clock, 3), list[int]()

            def end(reached: str, url: str = url, point: str = point, ended: list[int] = ended) -> None:
                if reached == point:
                    crash_points.arm(None)
                    ended.append(end_connections(url))

            crash_points.arm(end)
            try:
                assert group(kept, *(commit_of(*each) for each in made)) == [None] * 3
            finally:
                crash_points.arm(None)
            assert ended > [0]
            assert [len(list(kept.entries(lock.session_id))) for lock, _ in made] == [2] * 3


def test_group_that_cannot_be_begun_is_written_by_none(tmp_path: Path, clock: FakeClock) -> None:
    """Each of its units would wait for the lock of another process as long as the first, so none does."""
    path = tmp_path / "desk.db"
    with SqliteStore(path, busy=timedelta(milliseconds=10), clock=clock) as kept:
        made = sessions(kept, clock, 3)
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreUnavailableError):
                group(kept, *(commit_of(*each) for each in made))
            assert list(kept.entries("s0")) == []  # reading does not wait
        assert group(kept, *(commit_of(*each) for each in made)) == [None] * 3


def test_without_pipelines_units_are_statements_of_their_own(clock: FakeClock) -> None:
    """For a pooler that does not support them."""
    with fresh_url() as url, store.open(url, clock=clock, pipelines=False) as kept, points() as reached:
        made = sessions(kept, clock, 2)
        for lock, row in made:
            assert kept.submit(UnitOfWork(commit_of(lock, row))).result() is None
        assert "unit-group-written" not in reached
        assert [len(list(kept.entries(lock.session_id))) for lock, _ in made] == [2, 2]


def claim_with_entries(lock: SessionLock, row: EffectRow, *, head: int = 0) -> tuple[object, ...]:
    """A claim in one unit with what its session has deferred."""
    appended = SessionAppend(lock, head, tuple(entries(head + 1, head + 2)), Checkpoint(head + 2, b"c"))
    return (EffectInsert(row), appended)


def test_claims_of_a_group_bring_entries_if_they_are_granted(database: Store, clock: FakeClock) -> None:
    """A claim that is refused adds nothing to its session, and leaves the others of the group alone."""
    (lock, taken), (lost, _), (behind, _), (other, _) = sessions(database, clock, 4)
    claims = [running_row(clock, "a")._replace(partition=f"s{place}") for place in range(4)]
    with points() as reached:
        answers = group(
            database,
            claim_with_entries(lock, taken._replace(effect_id="e" * 32)),
            claim_with_entries(lost._replace(token="0" * 32), claims[1]),
            claim_with_entries(behind, claims[2], head=5),
            claim_with_entries(other, claims[3]),
        )
    assert reached.count("unit-after-commit") >= 1
    assert isinstance(answers[0], RefusedWrite)
    assert answers[0].present == taken
    assert [type(answer) for answer in answers[1:3]] == [SessionLostError] * 2
    assert answers[3] is None
    assert [database.get(f"s{place}", "a") for place in range(4)] == [None, None, None, claims[3]]
    assert [list(database.entries(f"s{place}")) for place in range(4)] == [[], [], [], entries(1, 2)]
    assert database.checkpoint("s3") == Checkpoint(2, b"c")


def test_claims_with_entries_are_written_in_one_transaction(database: Store, clock: FakeClock) -> None:
    """As claims without entries are; and known again if their answers were lost."""
    made = sessions(database, clock, 5)
    units = [claim_with_entries(lock, row._replace(key="a")) for lock, row in made]
    with points() as reached:
        assert group(database, *units) == [None] * 5
    assert reached.count("unit-after-commit") == 1
    assert group(database, *units, again=True) == [None] * 5
    assert [list(database.entries(lock.session_id)) for lock, _ in made] == [entries(1, 2)] * 5
