"""How units of work are undone in memory; it owns the lock of everything that a store in memory keeps."""

from __future__ import annotations

import threading
from collections.abc import Callable

from handrail.errors import StoreUnavailableError

_OTHER_UNIT = (
    "a unit of work is open on {store} in this thread, but in another context (another task?), and could never end "
    "while this write waits for it; do not await inside `with store.unit()`"
)


class UndoLog:
    """What undoes the changes of the unit that is open, the newest last. A `handrail.store.units.Work`.

    The unit's thread has the lock until the unit ends, so nobody else sees what does not count yet.

    Args:
        store: the URL of the store, for messages.

    Attributes:
        lock: guards everything that the store keeps.
        is_open: whether a unit is open; read with the lock held.
    """

    __slots__ = ("_store", "_undo", "is_open", "lock")

    def __init__(self, store: str) -> None:
        self.lock = threading.RLock()
        self.is_open = False
        self._undo: list[Callable[[], object]] = []
        self._store = store

    def begin(self) -> None:
        """Keep others out, and remember what is changed from here on."""
        self.lock.acquire()
        if self.is_open:
            self.lock.release()
            raise self.refusal()
        self.is_open = True

    def commit(self) -> None:
        """Let all that was changed count."""
        self._undo.clear()
        self.is_open = False
        self.lock.release()

    def rollback(self) -> None:
        """Undo all of it."""
        self.back_to(0)
        self.commit()

    def mark(self) -> int:
        """How many changes there were so far."""
        return len(self._undo)

    def back_to(self, mark: int) -> None:
        """Undo the changes after the first `mark`."""
        while len(self._undo) > mark:
            self._undo.pop()()

    def note(self, undo: Callable[[], object]) -> None:
        """Remember how to undo the change that was just made, with the lock held and a unit open."""
        self._undo.append(undo)

    def refusal(self) -> StoreUnavailableError:
        """What is raised where a unit is open, but not in this context."""
        return StoreUnavailableError(_OTHER_UNIT.format(store=self._store), store=self._store)
