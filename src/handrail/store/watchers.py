"""Those who are notified when a row of the ledger changes, and the slots that are not resolved.

`Watchers` are notified when a unit of work is committed. `UnresolvedSlots` are the slots of a session that were not
settled by their calls; they are kept in memory, so that a call costs no query to know it. A session is written by one
process at a time, so what this store has read once, and what it has written since, is all that there is. It is
forgotten when the session is acquired anew. A slot that this process has claimed is noted when it becomes unknown: as
long as it is running, its call is too.

A slot that was resolved as happened stays noted: an equal call is refused as long as the model could not learn of that.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from handrail.store.protocol import EffectRow, WatchCallback

_Identity = tuple[str, str]

Slots = dict[str, str]
"""Keys of slots, each with its tool."""


class Watchers:
    """Those who watch rows, by the identity of the row.

    Attributes:
        unresolved: the slots that are not settled, as far as they have been asked for.
    """

    __slots__ = ("_lock", "_watching", "unresolved")

    def __init__(self) -> None:
        self.unresolved: UnresolvedSlots = UnresolvedSlots()
        self._lock = threading.Lock()
        self._watching: dict[_Identity, dict[object, WatchCallback]] = {}

    def concerns(self, partition: str) -> bool:
        """Whether a change in a partition is reported: it has watchers, or a slot there is not settled."""
        return bool(self._watching or self.unresolved.of(partition))

    def watch(self, partition: str, key: str, wake: WatchCallback) -> Callable[[], None]:
        """Call `wake` after each change of the key's row; returns how to stop that."""
        identity = (partition, key)
        watcher = object()
        with self._lock:
            self._watching.setdefault(identity, {})[watcher] = wake

        def stop() -> None:
            with self._lock:
                watching = self._watching.get(identity, {})
                if watching.pop(watcher, None) is not None and not watching:
                    del self._watching[identity]

        return stop

    def notify(self, partition: str, key: str, row: EffectRow | None) -> None:
        """Notify those who watch a row of its change; no lock is held meanwhile."""
        self.unresolved.note(partition, key, row)
        if not self._watching:
            return
        with self._lock:
            watching = tuple(self._watching.get((partition, key), {}).values())
        for wake in watching:
            wake(row)


class UnresolvedSlots:
    """The slots that were left running, are unknown or were resolved as happened, of partitions that were asked for.

    It has no lock: each access is one operation of a dictionary, which is atomic.
    """

    __slots__ = ("_slots",)

    def __init__(self) -> None:
        self._slots: dict[str, Slots] = {}

    def note(self, partition: str, key: str, row: EffectRow | None) -> None:
        """Take note of a row as a committed change has left it; `None` if it was removed."""
        slots = self._slots.get(partition)
        if slots is None:
            return
        if row is None or row.status == "failed" or (row.status == "done" and not row.was_found_done):
            slots.pop(key, None)
        elif row.is_slot and row.status != "running":
            slots[key] = row.tool

    def of(self, partition: str) -> Slots | None:
        """The slots of a partition; `None` if they have not been loaded."""
        return self._slots.get(partition)

    def load(self, partition: str, rows: Iterable[EffectRow]) -> Slots:
        """Take in the rows of a partition that are running, unknown or done; what is written meanwhile is noted."""
        slots = self._slots.setdefault(partition, {})
        slots.update({row.key: row.tool for row in rows if row.is_slot})
        return slots

    def keys(self, partition: str, tool: str) -> list[str]:
        """The slots of a tool that are not resolved, or were resolved as happened."""
        slots = self._slots.get(partition)
        if not slots:
            return []
        return [key for key, of in tuple(slots.items()) if of == tool]

    def forget(self, partition: str) -> None:
        """Load a partition anew when it is asked for next: another process may have written it."""
        self._slots.pop(partition, None)
