"""The ledger that lives and dies with the process; it owns the rows."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import datetime, timedelta

from handrail.clock import SYSTEM_CLOCK, Clock
from handrail.crash_points import reached
from handrail.store.protocol import EffectRow, Testimony, Wake
from handrail.store.undo_log import UndoLog
from handrail.store.units import InnerUnit, Unit, open_unit
from handrail.store.watching import Watchers

_Identity = tuple[str, str]


class MemoryLedgerStore:
    """A `handrail.store.LedgerStore` in memory; any number of threads and ledgers may share it.

    Args:
        clock: the time by which leases and expiries are measured.
    """

    __slots__ = ("_changes", "_clock", "_hash_key", "_lock", "_rows", "_testimony", "_watchers")

    url = "memory:"
    """What names the store to people."""

    poll_every: timedelta | None = None
    """Never: every change passes through this object, so `watch` sees it."""

    def __init__(self, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._changes = UndoLog(self.url)
        self._lock = self._changes.lock
        self._rows: dict[_Identity, EffectRow] = {}
        self._testimony: dict[str, dict[int, Testimony]] = {}
        self._watchers = Watchers()
        self._hash_key = os.urandom(32)

    has_old_slots = False
    """Never: what an older version wrote has ended with its process."""

    def hash_key(self) -> bytes:
        """The random key of this store, for hashes of secrets."""
        return self._hash_key

    def now(self) -> datetime:
        """The time of the clock."""
        return self._clock.now()

    def process(self) -> str:
        """There is nothing to name: no other process can reach the store."""
        return ""

    def is_dead(self, process: str) -> bool:  # noqa: ARG002 - the interface's
        """Nothing is known of other processes."""
        return False

    def unit(self) -> AbstractContextManager[object]:
        """Keep what this thread writes in the block, or nothing of it if the block raises; others wait meanwhile."""
        outer = open_unit(self)
        return Unit(self, self._changes, self._watchers) if outer is None else InnerUnit(outer)

    def get(self, partition: str, key: str) -> EffectRow | None:
        """The row as it stands; `None` if there is none."""
        with self._lock:
            return self._rows.get((partition, key))

    def insert(self, row: EffectRow) -> EffectRow | None:
        """Add the row if its key has none, and return `None`; else change nothing and return the row that stands."""
        identity = row[:2]
        with self._lock:
            standing = self._rows.get(identity)
            if standing is not None:
                return standing
            if self._changes.is_open:
                self._note(lambda: self._rows.pop(identity))
            self._rows[identity] = row
        if self._changes.is_open or self._watchers.concerns(identity[0]):
            self._tell(identity, row)
        return None

    def replace(self, seen: EffectRow, row: EffectRow) -> bool:
        """Put `row` in the place of `seen` if that is still the one seen; returns whether it was."""
        return self._put(seen, row)

    def delete(self, seen: EffectRow) -> bool:
        """Remove the row, and the testimony about its effect, if it is still the one seen; returns whether it was."""
        return self._put(seen, None)

    def testify(self, testimony: Testimony) -> bool:
        """Add testimony; returns whether it is the first of its effect and fencing token."""
        with self._lock:
            given = self._testimony.get(testimony.effect_id, {})
            if testimony.fence in given:
                return False
            if self._changes.is_open:
                self._note(lambda: self._set_testimony(testimony.effect_id, given))
            self._set_testimony(testimony.effect_id, {**given, testimony.fence: testimony})
        if self._changes.is_open and open_unit(self) is not None:
            reached("unit-testimony-written")
        return True

    def testimony(self, effect_id: str) -> tuple[Testimony, ...]:
        """All testimony about an effect, in the order of the fencing tokens."""
        with self._lock:
            given = self._testimony.get(effect_id, {})
        return tuple(given[fence] for fence in sorted(given))

    def rows(self) -> Iterator[EffectRow]:
        """All rows as they stand at this moment, in the order in which their keys were first claimed."""
        with self._lock:
            return iter(list(self._rows.values()))

    def unresolved_slots(self, partition: str, tool: str, reply: str | None) -> tuple[EffectRow, ...]:
        """The running and unknown slots of a partition and tool, and those of the reply resolved as happened."""
        unresolved = self._watchers.unresolved
        slots = unresolved.of(partition)
        if slots is None:
            rows = [row for row in self.rows() if row.partition == partition]
            slots = unresolved.load(
                partition, [row for row in rows if row.status in {"running", "unknown"} or row.was_found_done]
            )
        if not slots:
            return ()
        keys = unresolved.keys(partition, tool, reply)
        return tuple(row for key in keys if (row := self.get(partition, key)) is not None)

    def watch(self, partition: str, key: str, wake: Wake) -> Callable[[], None]:
        """Call `wake` after each change of the key's row; returns how to stop that."""
        return self._watchers.watch(partition, key, wake)

    def _put(self, seen: EffectRow, row: EffectRow | None) -> bool:
        identity = seen[:2]
        with self._lock:
            standing = self._rows.get(identity)
            if standing is None or (standing is not seen and _version(standing) != _version(seen)):
                return False
            if self._changes.is_open:
                self._note(lambda: self._rows.__setitem__(identity, standing))
            if row is None:
                del self._rows[identity]
            else:
                self._rows[identity] = row
            if row is None or row.effect_id != seen.effect_id:
                self._forget_testimony(seen.effect_id)
        if self._changes.is_open or self._watchers.concerns(identity[0]) or _is_left(row):
            self._tell(identity, row)
        return True

    def _forget_testimony(self, effect_id: str) -> None:
        """Remove the testimony about an effect, with the lock held."""
        given = self._testimony.get(effect_id)
        if given is None:
            return
        if self._changes.is_open:
            self._note(lambda: self._set_testimony(effect_id, given))
        self._set_testimony(effect_id, {})

    def _set_testimony(self, effect_id: str, given: dict[int, Testimony]) -> None:
        if given:
            self._testimony[effect_id] = given
        else:
            self._testimony.pop(effect_id, None)

    def _note(self, undo: Callable[[], object]) -> None:
        """Remember how to undo the next change, with the lock held and a unit open."""
        if open_unit(self) is None:
            raise self._changes.refusal()
        self._changes.note(undo)

    def _tell(self, identity: _Identity, row: EffectRow | None) -> None:
        """Tell of a change now, or when the unit that it belongs to counts."""
        unit = open_unit(self) if self._changes.is_open else None
        if unit is None:
            self._watchers.tell(*identity, row)
        else:
            unit.tell(*identity, row)
            reached("unit-ledger-written")


def _version(row: EffectRow) -> tuple[int, str, str]:
    """What tells whether a row is still the one seen."""
    return row.fence, row.status, row.effect_id


def _is_left(row: EffectRow | None) -> bool:
    """Whether a row is that of a slot which its call has not settled."""
    return row is not None and (row.status == "unknown" or row.was_found_done)
