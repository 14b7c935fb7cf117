"""Places at a store's database: who may write on SQLite, and how many calls may have a connection on PostgreSQL.

A call keeps its place from its first statement to its commit. A unit of work takes one for a short transaction, where
one transaction writes at a time. Places are given in the order of asking, to units before calls, because calls that
have ended wait for their units. Threads and tasks wait in the same queues: each waits for a future.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from concurrent.futures import CancelledError, Future
from contextlib import suppress

from handrail.errors import SessionUseError


class Place(Future[None]):
    """A place that was asked for; done when it is given, and withdrawn by `cancel` before that.

    Args:
        for_call: whether a call has asked for it, not a unit of work.
    """

    def __init__(self, *, for_call: bool) -> None:
        super().__init__()
        self.for_call = for_call

    def wait(self, seconds: float) -> None:
        """Block this thread until it is given or withdrawn, or the time is over; `cancel` says which."""
        with suppress(TimeoutError, CancelledError):
            self.result(seconds)

    async def wait_async(self, seconds: float) -> None:
        """As `wait`; the task is suspended meanwhile."""
        if not self.done():
            await asyncio.wait((asyncio.wrap_future(self),), timeout=seconds)


class CallPlaces:
    """The places of one database; one may be released by another thread than the one that has asked for it.

    Args:
        places: how many there are, from 1.
    """

    __slots__ = ("_calls", "_free", "_held_by_calls", "_lock", "_units")

    def __init__(self, places: int) -> None:
        """Begin with all places free."""
        self._lock = threading.Lock()
        self._free = places
        self._held_by_calls = 0
        self._units: deque[Place] = deque()
        self._calls: deque[Place] = deque()

    @property
    def waiting(self) -> int:
        """How many places are waited for."""
        with self._lock:
            return sum(not place.done() for place in (*self._units, *self._calls))

    def is_used_by_calls(self, *, but: Place | None = None) -> bool:
        """Whether a call holds a place, or waits for another one than `but`."""
        with self._lock:
            return bool(self._held_by_calls) or any(not place.done() and place is not but for place in self._calls)

    def ask(self, *, for_call: bool = False) -> Place:
        """A place, which is given as soon as there is one; to be released in any case."""
        place = Place(for_call=for_call)
        with self._lock:
            (self._calls if for_call else self._units).append(place)
            following = self._next() if self._free else None
            self._free -= following is not None
        if following is not None:
            following.set_result(None)
        return place

    def release(self, place: Place) -> None:
        """Give a place to the next one that waits; if it was not given yet, it is withdrawn."""
        if place.cancel():
            return
        with self._lock:
            self._held_by_calls -= place.for_call
            following = self._next()
            self._free += following is None
        if following is not None:
            following.set_result(None)

    def _next(self) -> Place | None:
        """Choose who has the place now, under the lock; from then on it cannot be withdrawn."""
        for queue in (self._units, self._calls):
            while queue:
                place = queue.popleft()
                if place.set_running_or_notify_cancel():
                    self._held_by_calls += place.for_call
                    return place
        return None


def loop_would_wait(url: str) -> SessionUseError:
    """A write was asked for on the thread of an event loop, and would wait for another call or write."""
    return SessionUseError(
        f"another call writes to {url}, and waiting for it here would stop the event loop of this thread, which it may "
        "need to end. Nothing was written: await the asynchronous form of the method, whose name ends in `_async`, as "
        "`conversation.append_async` and `Session.open_async`, or call the method with `asyncio.to_thread`"
    )
