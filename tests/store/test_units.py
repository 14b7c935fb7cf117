"""Units of work, over every store: all of it or nothing, and told when it counts."""

from __future__ import annotations

import threading
from contextvars import copy_context

import pytest

from handrail import crash_points
from handrail.errors import StoreUnavailableError
from handrail.session.persistence.protocol import Checkpoint
from handrail.store import EffectRow, MemoryStore, Store
from handrail.testing import FakeClock
from tests.store.failing import Stop, failing
from tests.store.ledger_stores import running_row
from tests.store.session_rows import entries, entry, held, session_row
from tests.store.stores import STORES


def test_unit_counts_as_a_whole(store: Store, clock: FakeClock) -> None:
    """The row of the ledger, the entries of the session and the decision about files are there together."""
    row = running_row(clock)
    store.insert(row)
    hold = held(store, clock)
    with store.unit():
        assert store.replace(row, row._replace(status="unknown", fence=2))
        store.append(hold, 0, entries(1, 3), Checkpoint(3, b"three"))
        store.record_commit("j1")
    found = store.get("s1", row.key)
    assert found is not None
    assert found.status == "unknown"
    assert list(store.entries("s1")) == entries(1, 3)
    assert store.is_committed("j1")


def test_unit_that_raises_leaves_nothing(store: Store, clock: FakeClock) -> None:
    """Whatever was written in it is undone: what was added, changed and removed."""
    kept, doomed, hold = running_row(clock), running_row(clock, "gone"), held(store, clock)
    store.insert(kept)
    store.insert(doomed)
    store.append(hold, 0, entries(1, 1), Checkpoint(1, b"one"))
    store.record_commit("j1")
    with failing(store.unit()):
        store.insert(running_row(clock, "new"))
        store.replace(kept, kept._replace(status="unknown"))
        store.delete(doomed)
        store.append(hold, 1, entries(2, 3), Checkpoint(3, b"three"))
        store.create(session_row(clock, "s2"))
        store.copy("s1", session_row(clock, "s3", head=2))
        store.record_commit("j2")
        store.delete_commit_record("j1")
    assert {row.key: row for row in store.rows()} == {kept.key: kept, "gone": doomed}
    assert list(store.entries("s1")) == entries(1, 1)
    assert store.checkpoint("s1") == Checkpoint(1, b"one")
    assert [row.session_id for row in store.sessions()] == ["s1"]
    assert (store.is_committed("j1"), store.is_committed("j2")) == (True, False)
    store.check_lock(hold, 1)


def test_unit_reads_what_it_has_written(store: Store, clock: FakeClock) -> None:
    """Within the unit, before it counts."""
    row = running_row(clock)
    with store.unit():
        store.insert(row)
        assert store.get("s1", row.key) == row
        assert store.insert(row._replace(effect_id="2" * 32)) == row


def test_inner_unit_joins_the_outer(store: Store, clock: FakeClock) -> None:
    """What it wrote is undone with the outer unit, although it was left without error."""
    with failing(store.unit()), store.unit():
        store.insert(running_row(clock))
    assert list(store.rows()) == []


def test_inner_unit_that_raises_is_undone_alone(store: Store, clock: FakeClock) -> None:
    """The outer unit may go on, and what it wrote counts; nobody is told of what does not."""
    told: list[EffectRow | None] = []
    row, other, hold = running_row(clock), running_row(clock, "other"), held(store, clock)
    store.watch("s1", row.key, told.append)
    store.watch("s1", other.key, told.append)
    with store.unit():
        store.insert(row)
        for _ in range(2):
            with failing(store.unit()):
                store.insert(other)
                store.append(hold, 0, entries(1, 2), None)
        store.append(hold, 0, [entry(1, "kept")], None)
    assert list(store.rows()) == [row]
    assert list(store.entries("s1")) == [entry(1, "kept")]
    assert told == [row]


def test_watcher_is_told_when_the_unit_counts(store: Store, clock: FakeClock) -> None:
    """Not before, and never of a unit that was undone."""
    told: list[EffectRow | None] = []
    row = running_row(clock)
    store.watch("s1", row.key, told.append)
    with store.unit():
        store.insert(row)
        assert told == []
    assert told == [row]
    with failing(store.unit()):
        store.delete(row)
    assert told == [row]


def test_other_threads_do_not_write_into_a_unit(store: Store, clock: FakeClock) -> None:
    """Their writes count, whatever becomes of the unit; and a copied context does not take the unit along."""
    row = running_row(clock)
    begun = threading.Event()

    def write() -> None:
        begun.set()
        store.insert(row)

    with failing(store.unit()):
        writer = threading.Thread(target=copy_context().run, args=(write,))
        writer.start()
        begun.wait()
    writer.join()
    assert list(store.rows()) == [row]


def test_unit_that_has_ended_takes_nothing(store: Store, clock: FakeClock) -> None:
    """A context that was copied inside a unit writes by itself when the unit is over."""
    row = running_row(clock)
    with failing(store.unit()):
        inside = copy_context()
    inside.run(store.insert, row)
    assert list(store.rows()) == [row]


def test_units_of_two_stores_do_not_know_each_other(store: Store, clock: FakeClock) -> None:
    """Each is undone or counts by itself, also where one is open inside the other."""
    other = MemoryStore(clock=clock)
    row = running_row(clock)
    with store.unit(), failing(other.unit()):
        store.insert(row)
        other.insert(row)
    assert list(store.rows()) == [row]
    assert list(other.rows()) == []


def test_unit_reaches_its_points(store: Store, clock: FakeClock) -> None:
    """The boundaries at which a process may die are named, each where it is true."""
    reached: list[str] = []
    hold = held(store, clock)
    crash_points.arm(reached.append)
    try:
        with store.unit():
            store.insert(running_row(clock))
            store.append(hold, 0, entries(1, 1), None)
    finally:
        crash_points.arm(None)
    assert reached == [
        *("unit-begun", "unit-ledger-written", "unit-session-written", "unit-before-commit", "unit-after-commit")
    ]


@pytest.mark.parametrize("point", ["unit-begun", "unit-before-commit"])
def test_unit_that_cannot_go_on_is_undone(store: Store, clock: FakeClock, point: str) -> None:
    """Whatever is raised on the way to its commit; the store can be used afterwards."""

    def raise_at(reached: str) -> None:
        if reached == point:
            raise Stop

    row = running_row(clock)
    crash_points.arm(raise_at)
    try:
        with pytest.raises(Stop), store.unit():
            store.insert(row)
    finally:
        crash_points.arm(None)
    assert list(store.rows()) == []
    assert store.insert(row) is None


@pytest.mark.parametrize("name", ["memory", "sqlite"])
def test_another_task_of_the_thread_does_not_write_into_a_unit(clock: FakeClock, name: str) -> None:
    """Where units keep others out, it could wait for ever, so it is told."""
    store, outside = STORES[name](clock), copy_context()
    row = running_row(clock)
    store.insert(row)

    def begin() -> None:
        with store.unit():
            raise AssertionError

    with store.unit():
        with pytest.raises(StoreUnavailableError, match="do not await"):
            outside.run(store.insert, row._replace(key="other"))
        with pytest.raises(StoreUnavailableError, match="do not await"):
            outside.run(store.delete, row)
        with pytest.raises(StoreUnavailableError, match="do not await"):
            outside.run(begin)
    assert list(store.rows()) == [row]
