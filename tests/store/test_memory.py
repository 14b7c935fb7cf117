"""What only the store in memory promises."""

from __future__ import annotations

from handrail.store import EffectRow, MemoryStore
from handrail.testing import FakeClock
from tests.store.ledger_stores import running_row
from tests.store.units import delete, insert


def test_nobody_has_to_poll_memory() -> None:
    """Every change passes through the store, so a watcher sees it."""
    assert MemoryStore().poll_every is None


def test_rows_are_those_of_one_moment() -> None:
    """What is written during an iteration does not disturb it."""
    clock = FakeClock()
    store = MemoryStore(clock=clock)
    keys = [f"key {number}" for number in range(3)]
    for key in keys:
        insert(store, running_row(clock, key))
    seen: list[str] = []
    for row in store.rows():
        seen.append(row.key)
        delete(store, row)
        insert(store, row._replace(key=f"{row.key}, again"))
    assert seen == keys


def test_watcher_may_use_the_store() -> None:
    """No lock is held while a watcher is told."""
    clock = FakeClock()
    store = MemoryStore(clock=clock)
    row = running_row(clock)

    def wake(changed: EffectRow | None) -> None:
        if changed is not None:
            delete(store, changed)

    store.watch(row.partition, row.key, wake)
    insert(store, row)
    assert store.get(row.partition, row.key) is None
