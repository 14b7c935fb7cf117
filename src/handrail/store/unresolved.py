"""Which slots of a session are not settled; kept in memory, so that a call costs no query to know it.

A session is written by one process at a time, so what this store has read once, and what it has written since, is all
that there is. It is forgotten when the session is acquired anew. A slot that this process has claimed is noted when it
becomes unknown: as long as it is running, its call is too.
"""

from __future__ import annotations

from collections.abc import Iterable

from handrail.store.protocol import EffectRow

_SLOT = "call:"

Slots = dict[str, tuple[str, str]]
"""Keys of slots, each with its tool and the hash of its arguments."""


class UnresolvedSlots:
    """The slots that were left running or are unknown, by partition; of those partitions that have been asked for.

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
        if row is None or row.status in {"done", "failed"}:
            slots.pop(key, None)
        elif row.status == "unknown" and key.startswith(_SLOT):
            slots[key] = (row.tool, row.params_hash)

    def of(self, partition: str) -> Slots | None:
        """The slots of a partition; `None` if they have not been loaded."""
        return self._slots.get(partition)

    def load(self, partition: str, rows: Iterable[EffectRow]) -> Slots:
        """Take in the rows of a partition that are running or unknown; what is written meanwhile is noted."""
        slots = self._slots.setdefault(partition, {})
        slots.update({row.key: (row.tool, row.params_hash) for row in rows if row.key.startswith(_SLOT)})
        return slots

    def forget(self, partition: str) -> None:
        """Load a partition anew when it is asked for next: another process may have written it."""
        self._slots.pop(partition, None)
