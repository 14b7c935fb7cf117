"""Which slots of a session are not settled; kept in memory, so that a call costs no query to know it.

A session is written by one process at a time, so what this store has read once, and what it has written since, is all
that there is. It is forgotten when the session is acquired anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from handrail.store.protocol import EffectRow

_SLOT = "call:"


class UnresolvedSlots:
    """The slots whose effect is running or unknown, by partition; of those partitions that have been asked for.

    It has no lock: each access is one operation of a dictionary, which is atomic.
    """

    __slots__ = ("_keys",)

    def __init__(self) -> None:
        self._keys: dict[str, dict[str, tuple[str, str]]] = {}

    def note(self, partition: str, key: str, row: EffectRow | None) -> None:
        """Take note of a row as a committed change has left it; `None` if it was removed."""
        keys = self._keys.get(partition)
        if keys is None or not key.startswith(_SLOT):
            return
        if row is not None and row.status in {"running", "unknown"}:
            keys[key] = (row.tool, row.params_hash)
        else:
            keys.pop(key, None)

    def keys(
        self, partition: str, tool: str, params_hash: str, load: Callable[[], Iterable[EffectRow]]
    ) -> tuple[str, ...]:
        """The keys of the slots of a tool with that hash of the arguments.

        Args:
            partition: the session.
            tool: the name of the tool.
            params_hash: the hash.
            load: reads the rows of the partition that are running or unknown; called the first time.

        Raises:
            StoreError: they cannot be read.
        """
        keys = self._keys.get(partition)
        if keys is None:
            keys = self._keys[partition] = {}
            for row in load():  # what is written meanwhile is noted, and the rows are read again by who asks
                self.note(partition, row.key, row)
        if not keys:
            return ()
        wanted = (tool, params_hash)
        return tuple(key for key, found in tuple(keys.items()) if found == wanted)

    def forget(self, partition: str) -> None:
        """Load a partition anew when it is asked for next: another process may have written it."""
        self._keys.pop(partition, None)
