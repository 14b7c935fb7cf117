"""A semaphore whose waiters are served in the order of asking, units of work before calls.

A call that writes through `context.connection` keeps its place from its first statement to its commit. A unit of work
takes a place for one short transaction, and calls that have ended wait for theirs: so units go first.

Threads and tasks wait in the same queues.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from typing import Protocol


class _Waiter(Protocol):
    """Who waits for a place."""

    def give(self) -> bool:
        """Give it the place, under the lock of the semaphore; returns whether it can still take it."""
        ...

    def is_given(self) -> bool:
        """Whether it has been given the place."""
        ...


class _Thread:
    """A thread that waits."""

    __slots__ = ("_given",)

    def __init__(self) -> None:
        self._given = threading.Event()

    def give(self) -> bool:
        self._given.set()
        return True

    def is_given(self) -> bool:
        return self._given.is_set()

    def wait(self, seconds: float) -> bool:
        """Block this thread; returns whether the place was given in time."""
        return self._given.wait(seconds)


class _Task:
    """A task that waits."""

    __slots__ = ("_given", "_wakes")

    def __init__(self) -> None:
        self._given = False
        self._wakes: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def give(self) -> bool:
        try:
            self._wakes.get_loop().call_soon_threadsafe(self._wake)
        except RuntimeError:  # its loop was closed before the task had ended
            return False
        self._given = True
        return True

    def is_given(self) -> bool:
        return self._given

    async def wait(self, seconds: float) -> None:
        """Suspend this task until the place is given, or the time is over."""
        await asyncio.wait((self._wakes,), timeout=seconds)

    def _wake(self) -> None:
        if not self._wakes.done():
            self._wakes.set_result(None)


class FairSemaphore:
    """Admits a number of holders; a place may be released by another thread than the one that has taken it.

    Args:
        places: how many holders there may be at a time, from 1.
    """

    __slots__ = ("_calls", "_free", "_lock", "_of_calls", "_units")

    def __init__(self, places: int) -> None:
        """Begin with all places free."""
        self._lock = threading.Lock()
        self._free = places
        self._of_calls = 0  # places that calls hold
        self._units: deque[_Waiter] = deque()
        self._calls: deque[_Waiter] = deque()

    @property
    def waiting(self) -> int:
        """How many threads and tasks wait for a place."""
        return len(self._units) + len(self._calls)

    @property
    def has_calls(self) -> bool:
        """Whether a call holds a place, or waits for one."""
        return bool(self._of_calls or self._calls)

    def acquire(self, seconds: float, *, for_call: bool = False, behind_calls: bool = True) -> bool:
        """Wait for a place; returns whether it was taken within `seconds`.

        Args:
            seconds: how long to wait.
            for_call: whether a call asks, not a unit of work.
            behind_calls: whether to wait if calls hold a place, or wait for one; if not, it is given up at once.

        Raises:
            BaseException: this thread was interrupted. No place was taken.
        """
        with self._lock:
            if self._take(for_call=for_call):
                return True
            if not behind_calls and (self._of_calls or self._calls):
                return False
            waiter = _Thread()
            self._queue(for_call=for_call).append(waiter)
        try:
            if waiter.wait(seconds):
                return True
        except BaseException:
            self._abandon(waiter, for_call=for_call)
            raise
        return not self._withdraw(waiter, for_call=for_call)

    async def acquire_async(self, seconds: float, *, for_call: bool = False) -> bool:
        """As `acquire`; the task is suspended meanwhile.

        Raises:
            BaseException: the task was cancelled, or its loop closed. No place was taken.
        """
        with self._lock:
            if self._take(for_call=for_call):
                return True
            waiter = _Task()
            self._queue(for_call=for_call).append(waiter)
        try:
            await waiter.wait(seconds)
        except BaseException:
            self._abandon(waiter, for_call=for_call)
            raise
        return not self._withdraw(waiter, for_call=for_call)

    def release(self, *, for_call: bool = False) -> None:
        """Release a place that a unit, or a call, has held: the first waiter takes it, if there is one."""
        with self._lock:
            self._of_calls -= for_call
            while self._units:
                if self._units.popleft().give():
                    return
            while self._calls:
                if self._calls.popleft().give():
                    self._of_calls += 1
                    return
            self._free += 1

    def _take(self, *, for_call: bool) -> bool:
        if not self._free:
            return False
        self._free -= 1
        self._of_calls += for_call
        return True

    def _queue(self, *, for_call: bool) -> deque[_Waiter]:
        return self._calls if for_call else self._units

    def _withdraw(self, waiter: _Waiter, *, for_call: bool) -> bool:
        """Stop waiting; returns whether no place was given meanwhile."""
        with self._lock:
            if waiter.is_given():
                return False
            queue = self._queue(for_call=for_call)
            if waiter in queue:
                queue.remove(waiter)
            return True

    def _abandon(self, waiter: _Waiter, *, for_call: bool) -> None:
        """Stop waiting, and pass a place on that was given meanwhile."""
        if not self._withdraw(waiter, for_call=for_call):
            self.release(for_call=for_call)
