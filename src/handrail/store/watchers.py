"""Those who are notified when a row of the ledger changes, and the slots that are not resolved.

`Watchers` are notified when a unit of work is committed. `UnresolvedSlots` are the slots of a session, and of those
below it, that were not settled by their calls; they are kept in memory, so that a call costs no query to know it. A
session is written by one process at a time, so what this store has read once, and what it has written since, is all
that there is. It is forgotten when the session, or one below it, is acquired anew. A slot that this process has claimed
is noted when it becomes unknown: as long as it is running, its call is too.

A slot that is done stays noted as long as no call has succeeded with it: an equal call is answered with it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate, count

from handrail.store.protocol import EffectRow, WatchCallback

_Identity = tuple[str, str]


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
    """The slots that were left running, are unknown or unread, below sessions that were asked for.

    It has no lock: each access is one operation of a dictionary, which is atomic.
    """

    __slots__ = ("_counter", "_newest", "_tools")

    def __init__(self) -> None:
        self._tools: dict[str, dict[_Identity, str]] = {}
        self._counter = count(1)
        self._newest = 0

    def note(self, partition: str, key: str, row: EffectRow | None) -> None:
        """Take note of a row as a committed change has left it; `None` if it was removed."""
        if row is not None and row.status == "running":
            return
        is_left = row is not None and row.is_unresolved_slot
        if is_left:
            self._newest = next(self._counter)  # before the slots are looked at: see `find`
        for root in _roots(partition):
            tools = self._tools.get(root)
            if tools is None:
                continue
            if row is not None and is_left:
                tools[partition, key] = row.tool
            else:
                tools.pop((partition, key), None)

    def find(self, root: str, tool: str, load: Callable[[], Iterable[EffectRow]]) -> list[_Identity]:
        """The slots of a tool in a session and those below it, as they were last noted.

        Args:
            root: the id of the session.
            tool: the tool; empty for all.
            load: reads the rows that have to be found out about, for the first question.
        """
        tools = self._tools.get(root)
        while tools is None:
            newest = self._newest
            loaded = {row[:2]: row.tool for row in load() if row.is_unresolved_slot}
            self._tools[root] = loaded
            # What was noted between the two is in neither.
            tools = loaded if newest == self._newest else None
        return [identity for identity, name in tuple(tools.items()) if name == tool or not tool]

    def has_none(self, root: str, tool: str) -> bool:
        """Whether `find` would read nothing, and give nothing."""
        tools = self._tools.get(root)
        return tools is not None and tool not in tools.values()

    def forget(self, partition: str) -> None:
        """Load a session, and those above it, anew when they are asked for next: another process may have written."""
        for root in _roots(partition):
            self._tools.pop(root, None)


def _roots(partition: str) -> Iterator[str]:
    """The sessions that a partition may be below, by their ids, and itself."""
    return accumulate(partition.split("/"), "{}/{}".format)
