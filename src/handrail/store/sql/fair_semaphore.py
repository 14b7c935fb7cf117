"""A semaphore whose waiters are served in the order of asking, units of work before calls.

A call that writes through `context.connection` keeps its place from its first statement to its commit. A unit of work
takes a place for one short transaction, and calls that have ended wait for theirs: so units go first.
"""

from __future__ import annotations

import threading
from collections import deque


class FairSemaphore:
    """Admits a number of holders; a place may be released by another thread than the one that has taken it.

    Args:
        places: how many holders there may be at a time, from 1.
    """

    __slots__ = ("_calls", "_free", "_lock", "_units")

    def __init__(self, places: int) -> None:
        """Begin with all places free."""
        self._lock = threading.Lock()
        self._free = places
        self._units: deque[threading.Event] = deque()
        self._calls: deque[threading.Event] = deque()

    @property
    def waiting(self) -> int:
        """How many threads wait for a place."""
        return len(self._units) + len(self._calls)

    def acquire(self, seconds: float, *, for_call: bool = False) -> bool:
        """Wait for a place; returns whether it was taken within `seconds`.

        Raises:
            BaseException: this thread was interrupted. No place was taken.
        """
        queue = self._calls if for_call else self._units
        with self._lock:
            if self._free:
                self._free -= 1
                return True
            admitted = threading.Event()
            queue.append(admitted)
        try:
            if admitted.wait(seconds):
                return True
        except BaseException:
            if not self._withdraw(queue, admitted):
                self.release()
            raise
        return not self._withdraw(queue, admitted)

    def release(self) -> None:
        """Release a place: the first waiter takes it, if there is one."""
        with self._lock:
            if self._units:
                self._units.popleft().set()
            elif self._calls:
                self._calls.popleft().set()
            else:
                self._free += 1

    def _withdraw(self, queue: deque[threading.Event], admitted: threading.Event) -> bool:
        """Stop waiting; returns whether no place was given meanwhile."""
        with self._lock:
            if admitted.is_set():
                return False
            queue.remove(admitted)
            return True
