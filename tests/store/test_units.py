"""Units of work, over every store: all of it or nothing, and who watches is notified when it counts."""

from __future__ import annotations

from datetime import timedelta

import pytest

from handrail import crash_points
from handrail.errors import AppliedMeanwhileError, SessionLostError
from handrail.session.persistence.protocol import Checkpoint, SessionAppend
from handrail.store import EffectRow, Store
from handrail.store.protocol import EffectChange, EffectInsert, MarkApplied, RefusedWrite
from handrail.testing import FakeClock
from handrail.transaction import RecordCommit, UnitOfWork
from tests.store.failing import Stop
from tests.store.ledger_stores import running_row
from tests.store.session_rows import entries, held
from tests.store.units import append, insert, record_commit, replace


def unknown(row: EffectRow) -> EffectRow:
    """What a row becomes in most units here."""
    return row._replace(status="unknown", lease_until=None)


def test_unit_counts_as_a_whole(store: Store, clock: FakeClock) -> None:
    """The rows of the ledger, the entries of the session and the record of a journal are there."""
    row, added, hold = running_row(clock), running_row(clock, "added"), held(store, clock)
    insert(store, row)
    writes = (
        SessionAppend(hold, 0, tuple(entries(1, 3)), Checkpoint(3, b"three")),
        EffectChange(row, unknown(row)),
        EffectInsert(added),
        RecordCommit("j1"),
    )
    assert store.apply(UnitOfWork(writes)) is None
    assert [store.get("s1", each.key) for each in (row, added)] == [unknown(row), added]
    assert list(store.entries("s1")) == entries(1, 3)
    assert store.checkpoint("s1") == Checkpoint(3, b"three")
    assert store.is_committed("j1")


def test_unit_of_which_one_write_is_refused_leaves_nothing(store: Store, clock: FakeClock) -> None:
    """Whichever it is: a key that is taken, a row that has changed, or one that is gone."""
    kept, doomed, hold = running_row(clock), running_row(clock, "gone"), held(store, clock)
    insert(store, kept)
    insert(store, doomed)
    append(store, hold, 0, entries(1, 1), Checkpoint(1, b"one"))
    record_commit(store, "j1")
    taken = EffectInsert(kept._replace(effect_id="2" * 32))
    changed, absent = EffectChange(kept._replace(fence=7), None), EffectChange(running_row(clock, "none"), None)
    for refused, standing in ((taken, kept), (changed, kept), (absent, None)):
        writes = (
            EffectInsert(running_row(clock, "new")),
            EffectChange(doomed, None),
            SessionAppend(hold, 1, tuple(entries(2, 3)), Checkpoint(3, b"three")),
            RecordCommit("j2"),
            refused,
        )
        assert store.apply(UnitOfWork(writes)) == RefusedWrite(refused, standing)
        assert {row.key: row for row in store.rows()} == {kept.key: kept, "gone": doomed}
        assert list(store.entries("s1")) == entries(1, 1)
        assert store.checkpoint("s1") == Checkpoint(1, b"one")
        assert (store.is_committed("j1"), store.is_committed("j2")) == (True, False)


def test_unit_of_a_session_that_has_moved_on_leaves_nothing(store: Store, clock: FakeClock) -> None:
    """The ledger is not written either."""
    row, hold = running_row(clock), held(store, clock)
    append(store, hold, 0, entries(1, 2), None)
    for lock, head in ((hold, 1), (hold._replace(token="0" * 32), 2)):
        writes = (EffectInsert(row), SessionAppend(lock, head, tuple(entries(head + 1, head + 2))))
        with pytest.raises(SessionLostError):
            store.apply(UnitOfWork(writes))
    assert list(store.rows()) == []
    assert list(store.entries("s1")) == entries(1, 2)


def test_session_is_compared_without_being_written(store: Store, clock: FakeClock) -> None:
    """An append of no entries makes sure that the session is held, and that nobody has written to it."""
    row, hold = running_row(clock), held(store, clock)
    append(store, hold, 0, entries(1, 1), None)
    assert store.apply(UnitOfWork((EffectInsert(row), SessionAppend(hold, 1)))) is None
    with pytest.raises(SessionLostError):
        store.apply(UnitOfWork((EffectChange(row, None), SessionAppend(hold, 0))))
    assert list(store.rows()) == [row]
    assert list(store.entries("s1")) == entries(1, 1)


def test_unit_that_was_written_already_changes_nothing(store: Store, clock: FakeClock) -> None:
    """Its answer was lost, so it is repeated: it is answered as if it had been written now."""
    row, added, hold = running_row(clock), running_row(clock, "added"), held(store, clock)
    insert(store, row)
    units = [
        UnitOfWork((EffectChange(row, unknown(row)), SessionAppend(hold, 0, tuple(entries(1, 2))), RecordCommit("j"))),
        UnitOfWork((EffectInsert(added), RecordCommit("j2"))),
    ]
    for _ in range(2):
        assert [store.apply(unit) for unit in units] == [None] * 2
    assert {each.key: each for each in store.rows()} == {row.key: unknown(row), "added": added}
    assert list(store.entries("s1")) == entries(1, 2)


def test_single_change_counts_once(store: Store, clock: FakeClock) -> None:
    """Of two that make the same change, one is told that it has not made it."""
    row = running_row(clock)
    insert_it, change_it, remove_it = (
        EffectInsert(row),
        EffectChange(row, unknown(row)),
        EffectChange(unknown(row), None),
    )
    for write, standing in ((insert_it, row), (change_it, unknown(row)), (remove_it, None)):
        answers = [store.apply(UnitOfWork((write,))) for _ in range(2)]
        assert answers == [None, RefusedWrite(write, standing)]


def test_watcher_is_notified_when_the_unit_counts(store: Store, clock: FakeClock) -> None:
    """After the commit, and never of a unit that was refused."""
    told: list[EffectRow | None] = []
    row, taken = running_row(clock), running_row(clock, "taken")
    insert(store, taken)
    store.watch("s1", row.key, told.append)
    assert store.apply(UnitOfWork((EffectInsert(row), EffectInsert(taken._replace(fence=2))))) is not None
    assert told == []
    assert store.apply(UnitOfWork((EffectInsert(row), EffectChange(taken, None)))) is None
    assert replace(store, row, unknown(row))
    assert told == [row, unknown(row)]


def test_unit_reaches_its_points(store: Store, clock: FakeClock) -> None:
    """The boundaries at which a process may die are named, each where it is true."""
    reached: list[str] = []
    hold = held(store, clock)
    crash_points.arm(reached.append)
    try:
        store.apply(UnitOfWork((EffectInsert(running_row(clock)), SessionAppend(hold, 0, tuple(entries(1, 1))))))
    finally:
        crash_points.arm(None)
    assert reached == [
        *("unit-begun", "unit-ledger-written", "unit-session-written", "unit-before-commit", "unit-after-commit")
    ]


@pytest.mark.parametrize("point", ["unit-begun", "unit-ledger-written", "unit-before-commit"])
def test_unit_that_cannot_go_on_is_undone(store: Store, clock: FakeClock, point: str) -> None:
    """Whatever is raised on the way to its commit; the store can be used afterwards."""

    def raise_at(reached: str) -> None:
        if reached == point:
            raise Stop

    row, hold = running_row(clock), held(store, clock)
    crash_points.arm(raise_at)
    try:
        with pytest.raises(Stop):
            store.apply(UnitOfWork((EffectInsert(row), SessionAppend(hold, 0, tuple(entries(1, 1))))))
    finally:
        crash_points.arm(None)
    assert list(store.rows()) == []
    assert insert(store, row) is None
    append(store, hold, 0, entries(1, 1), None)


@pytest.mark.parametrize("way", ["apply", "submit"])
def test_each_way_to_write_a_unit_has_the_same_answers(store: Store, clock: FakeClock, way: str) -> None:
    """Written, refused, and the error of a session that has been lost."""

    def written(*writes: object) -> object:
        unit = UnitOfWork(writes)
        return store.apply(unit) if way == "apply" else store.submit(unit).result()

    row, hold = running_row(clock), held(store, clock)
    insertion = EffectInsert(row)
    assert written(insertion) is None
    other = EffectInsert(row._replace(effect_id="2" * 32))
    assert written(other) == RefusedWrite(other, row)
    lost = hold._replace(token="another")  # noqa: S106 - of a lock
    with pytest.raises(SessionLostError):
        written(SessionAppend(lost, 0, tuple(entries(1, 1)), None))
    assert list(store.entries("s1")) == []


def test_a_claim_brings_entries_of_its_session_if_it_is_granted(store: Store, clock: FakeClock) -> None:
    """One that is refused, for its key or for its session, writes nothing."""
    lock, row = held(store, clock), running_row(clock)
    first = SessionAppend(lock, 0, tuple(entries(1, 2)), Checkpoint(2, b"c"))
    assert store.apply(UnitOfWork((EffectInsert(row), first))) is None
    assert (store.get("s1", row.key), list(store.entries("s1"))) == (row, entries(1, 2))
    assert store.checkpoint("s1") == Checkpoint(2, b"c")
    again = SessionAppend(lock, 2, tuple(entries(3, 3)))
    refused = store.apply(UnitOfWork((EffectInsert(row._replace(effect_id="e" * 32)), again)))
    assert isinstance(refused, RefusedWrite)
    assert refused.present == row
    for unsound in (again._replace(lock=lock._replace(token="0" * 32)), again._replace(head=9, entries=())):
        with pytest.raises(SessionLostError):
            store.apply(UnitOfWork((EffectInsert(row._replace(key="another")), unsound)))
    assert store.get("s1", "another") is None
    assert list(store.entries("s1")) == entries(1, 2)


def test_a_done_effect_is_marked_as_applied_once(store: Store, clock: FakeClock) -> None:
    """The mark is compared and set: not for another effect of the key, nor one that runs. A unit may be repeated."""
    now = clock.now()
    waits = running_row(clock)._replace(
        status="done", lease_until=None, completed_at=now, expires_at=now, message="paid", value=b"1"
    )
    insert(store, waits)
    insert(store, running_row(clock, "runs"))
    hold = held(store, clock)
    woken: list[EffectRow | None] = []
    store.watch("s1", waits.key, woken.append)
    marked = waits._replace(applied_at=now, expires_at=None)
    unit = UnitOfWork((MarkApplied(waits, marked), SessionAppend(hold, 0, tuple(entries(1, 1)), None)))
    other, runs = waits._replace(effect_id="7" * 32), running_row(clock, "runs")
    for refused in (MarkApplied(other, marked), MarkApplied(runs, runs._replace(applied_at=now))):
        standing = store.get("s1", refused.before.key)
        assert store.apply(UnitOfWork((refused, *unit.writes[1:]))) == RefusedWrite(refused, standing)
    assert list(store.entries("s1")) == []
    assert store.apply(unit) is None
    assert (store.get("s1", waits.key), woken) == (marked, [marked])
    assert store.apply(unit) is None
    clock.advance(timedelta(seconds=1))
    again = MarkApplied(waits, marked._replace(applied_at=clock.now()))
    refusal = store.apply(UnitOfWork((again, SessionAppend(hold, 1, tuple(entries(2, 2)), None))))
    assert refusal == RefusedWrite(again, marked)
    assert refusal is not None
    error = refusal.error()
    assert isinstance(error, AppliedMeanwhileError)
    assert error.key == waits.key
    assert list(store.entries("s1")) == entries(1, 1)


def test_change_is_refused_for_the_row_of_another_call_with_the_same_fence(store: Store, clock: FakeClock) -> None:
    """Of two calls that claim a failed effect again one is refused; if it is cancelled then, it withdraws its own."""
    failed = running_row(clock)._replace(status="failed", completed_at=clock.now(), lease_until=None)
    insert(store, failed)
    first = running_row(clock)._replace(fence=failed.fence + 1)
    second = first._replace(owner=first.owner._replace(call_id="another"))
    assert replace(store, failed, first)
    for write in (EffectChange(second, second._replace(status="failed")), EffectChange(second, None)):
        assert store.apply(UnitOfWork((write,))) == RefusedWrite(write, first)
        assert store.apply(UnitOfWork((write, RecordCommit("j")))) == RefusedWrite(write, first)
    assert replace(store, first, unknown(first))
