"""The store that lives and dies with the process; it owns the rows, and the list of those who watch them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

from handrail.clock import SYSTEM_CLOCK, Clock
from handrail.store.protocol import EffectRow, Wake

_Identity = tuple[str, str]


class MemoryLedgerStore:
    """A `handrail.store.LedgerStore` in memory; any number of threads and ledgers may share it.

    Args:
        clock: the time by which leases and expiries are measured.
    """

    __slots__ = ("_clock", "_lock", "_rows", "_watchers")

    poll_every: timedelta | None = None
    """Never: every change passes through this object, so `watch` sees it."""

    def __init__(self, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._rows: dict[_Identity, EffectRow] = {}
        self._watchers: dict[_Identity, dict[object, Wake]] = {}

    def now(self) -> datetime:
        """The time of the clock."""
        return self._clock.now()

    def get(self, partition: str, key: str) -> EffectRow | None:
        """The row as it stands; `None` if there is none."""
        return self._rows.get((partition, key))

    def insert(self, row: EffectRow) -> EffectRow | None:
        """Add the row if its key has none, and return `None`; else change nothing and return the row that stands."""
        identity = row[:2]
        with self._lock:
            standing = self._rows.get(identity)
            if standing is not None:
                return standing
            self._rows[identity] = row
        if self._watchers:
            self._tell(identity, row)
        return None

    def replace(self, seen: EffectRow, row: EffectRow) -> bool:
        """Put `row` in the place of `seen` if that is still the one seen; returns whether it was."""
        identity = seen[:2]
        with self._lock:
            if not _is_still(seen, self._rows.get(identity)):
                return False
            self._rows[identity] = row
        if self._watchers:
            self._tell(identity, row)
        return True

    def delete(self, seen: EffectRow) -> bool:
        """Remove the row if it is still the one seen; returns whether it was."""
        identity = seen[:2]
        with self._lock:
            if not _is_still(seen, self._rows.get(identity)):
                return False
            del self._rows[identity]
        if self._watchers:
            self._tell(identity, None)
        return True

    def rows(self) -> Iterator[EffectRow]:
        """All rows as they stand at this moment, in the order in which their keys were first claimed."""
        with self._lock:
            return iter(list(self._rows.values()))

    def watch(self, partition: str, key: str, wake: Wake) -> Callable[[], None]:
        """Call `wake` after each change of the key's row; returns how to stop that."""
        identity = (partition, key)
        watcher = object()
        with self._lock:
            self._watchers.setdefault(identity, {})[watcher] = wake

        def stop() -> None:
            with self._lock:
                watching = self._watchers.get(identity, {})
                if watching.pop(watcher, None) is not None and not watching:
                    del self._watchers[identity]

        return stop

    def _tell(self, identity: _Identity, row: EffectRow | None) -> None:
        with self._lock:
            watching = tuple(self._watchers.get(identity, {}).values())
        for wake in watching:
            wake(row)


def _is_still(seen: EffectRow, standing: EffectRow | None) -> bool:
    """Whether the row that stands is the one that was seen, as the rules of the store have it."""
    return (
        standing is not None
        and standing.fence == seen.fence
        and standing.status == seen.status
        and standing.effect_id == seen.effect_id
    )
