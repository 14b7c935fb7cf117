"""Who is notified when a row of the ledger changes; it owns the list of them."""

from __future__ import annotations

import threading
from collections.abc import Callable

from handrail.store.protocol import EffectRow, Wake
from handrail.store.unresolved import UnresolvedSlots

_Identity = tuple[str, str]


class Watchers:
    """Those who watch rows, by the identity of the row.

    Attributes:
        unresolved: the slots that are not settled, as far as they have been asked for.
    """

    __slots__ = ("_lock", "_watching", "unresolved")

    def __init__(self) -> None:
        self.unresolved = UnresolvedSlots()
        self._lock = threading.Lock()
        self._watching: dict[_Identity, dict[object, Wake]] = {}

    def concerns(self, partition: str) -> bool:
        """Whether a change in a partition is to be told: somebody watches, or a slot there is not settled."""
        return bool(self._watching or self.unresolved.of(partition))

    def watch(self, partition: str, key: str, wake: Wake) -> Callable[[], None]:
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

    def tell(self, partition: str, key: str, row: EffectRow | None) -> None:
        """Notify those who watch a row of its change; no lock is held meanwhile."""
        self.unresolved.note(partition, key, row)
        if not self._watching:
            return
        with self._lock:
            watching = tuple(self._watching.get((partition, key), {}).values())
        for wake in watching:
            wake(row)
