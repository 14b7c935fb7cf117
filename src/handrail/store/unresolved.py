"""Which slots of a session were not settled by their calls; kept in memory, so that a call costs no query to know it.

A session is written by one process at a time, so what this store has read once, and what it has written since, is all
that there is. It is forgotten when the session is acquired anew. A slot that this process has claimed is noted when it
becomes unknown: as long as it is running, its call is too.

A slot that was resolved as happened stays noted for the other calls of its reply: the model asked for them before it
could learn of that.
"""

from __future__ import annotations

from collections.abc import Iterable

from handrail.store.protocol import EffectRow

Slots = dict[str, tuple[str, str | None]]
"""Keys of slots, each with its tool; and with its reply, if it was resolved as happened."""


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
            slots[key] = _noted(row)

    def of(self, partition: str) -> Slots | None:
        """The slots of a partition; `None` if they have not been loaded."""
        return self._slots.get(partition)

    def load(self, partition: str, rows: Iterable[EffectRow]) -> Slots:
        """Take in the rows of a partition that are running, unknown or done; what is written meanwhile is noted."""
        slots = self._slots.setdefault(partition, {})
        slots.update({row.key: _noted(row) for row in rows if row.is_slot})
        return slots

    def keys(self, partition: str, tool: str, reply: str | None) -> list[str]:
        """The slots of a tool that are not resolved, and those of the reply that were resolved as happened."""
        slots = self._slots.get(partition)
        if not slots:
            return []
        return [key for key, (of, found_in) in tuple(slots.items()) if of == tool and found_in in {None, reply}]

    def forget(self, partition: str) -> None:
        """Load a partition anew when it is asked for next: another process may have written it."""
        self._slots.pop(partition, None)


def _noted(row: EffectRow) -> tuple[str, str | None]:
    return row.tool, row.owner.reply if row.status == "done" else None
