"""Units of work of one write, as the tests of stores make them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from operator import attrgetter

from handrail import crash_points
from handrail.session.persistence.protocol import Checkpoint, SessionAppend, SessionEntry, SessionLock
from handrail.store import EffectRow, LedgerStore, MemoryStore
from handrail.store.protocol import EffectChange, EffectInsert, RefusedWrite, change_effect
from handrail.store.sql.units import Committer
from handrail.transaction import RecordCommit, UnitOfWork, UnitStore


def insert(store: LedgerStore, row: EffectRow) -> EffectRow | None:
    """Add a row; returns the one that stands there already."""
    refused = store.apply(UnitOfWork((EffectInsert(row),)))
    return None if refused is None else refused.present


def replace(store: LedgerStore, seen: EffectRow, row: EffectRow) -> bool:
    """Change a row; returns whether it was still the one seen."""
    return change_effect(store, seen, row)


def delete(store: LedgerStore, seen: EffectRow) -> bool:
    """Remove a row; returns whether it was still the one seen."""
    return change_effect(store, seen, None)


def append(
    store: UnitStore, lock: SessionLock, head: int, entries: Sequence[SessionEntry], checkpoint: Checkpoint | None
) -> None:
    """Add entries to a session."""
    assert store.apply(UnitOfWork((SessionAppend(lock, head, tuple(entries), checkpoint),))) is None


def record_commit(store: UnitStore, journal_id: str) -> None:
    """Record that the call of a journal has been committed."""
    assert store.apply(UnitOfWork((RecordCommit(journal_id),))) is None


@contextmanager
def at_point(point: str, act: Callable[[], object]) -> Generator[None]:
    """Have something done each time that this process reaches a crash point within the block."""
    crash_points.arm(lambda reached: act() if reached == point else None)
    try:
        yield
    finally:
        crash_points.arm(None)


def committer_of(store: object) -> Committer:
    """What writes the units of a store in a database, so that a test can hold it, or make a group of units."""
    committer: object = attrgetter("_units._committer")(store)
    assert isinstance(committer, Committer)
    return committer


class WriteByWrite(MemoryStore):
    """A store in memory that does each write of the ledger in a method of its own, so that a test can replace one."""

    def apply(self, unit: UnitOfWork) -> RefusedWrite | None:
        match unit.writes:
            case (EffectInsert(row) as write,):
                standing = self.insert(row)
                return None if standing is None else RefusedWrite(write, standing)
            case (EffectChange(seen, row) as write,):
                kept = self.delete(seen) if row is None else self.replace(seen, row)
                return None if kept else RefusedWrite(write, self.get(seen.partition, seen.key))
            case _:
                return super().apply(unit)

    def insert(self, row: EffectRow) -> EffectRow | None:
        refused = super().apply(UnitOfWork((EffectInsert(row),)))
        return None if refused is None else refused.present

    def replace(self, seen: EffectRow, row: EffectRow) -> bool:
        return super().apply(UnitOfWork((EffectChange(seen, row),))) is None

    def delete(self, seen: EffectRow) -> bool:
        return super().apply(UnitOfWork((EffectChange(seen, None),))) is None
