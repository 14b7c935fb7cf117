"""What only the store in memory promises."""

from __future__ import annotations

import pytest

from handrail.session.persistence.protocol import SessionAppend
from handrail.store import EffectRow, MemoryStore
from handrail.store.protocol import EffectInsert
from handrail.testing import FakeClock
from handrail.transaction import RecordCommit, UnitOfWork
from tests.store.ledger_stores import running_row
from tests.store.session_rows import entries, held
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


class Interrupting(str):
    """An id whose first use is interrupted."""

    __slots__ = ()

    def __hash__(self) -> int:
        if interrupts:
            raise interrupts.pop()
        return super().__hash__()


interrupts: list[KeyboardInterrupt] = []


def test_interrupt_in_the_middle_of_a_unit_leaves_it_whole(clock: FakeClock) -> None:
    """Nothing undoes a unit in memory, so it is written to its end; then the interrupt propagates."""
    store, row = MemoryStore(clock=clock), running_row(clock)
    hold = held(store, clock)
    unit = UnitOfWork(
        (EffectInsert(row), SessionAppend(hold, 0, tuple(entries(1, 2))), RecordCommit(Interrupting("j")))
    )
    interrupts.append(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        store.apply(unit)
    assert list(store.rows()) == [row]
    assert list(store.entries("s1")) == entries(1, 2)
    assert store.is_committed("j")
    assert store.apply(unit) is None
