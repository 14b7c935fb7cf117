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


class Place:
    """A place that was asked for; withdrawn by `cancel` before it is given.

    Attributes:
        for_call: whether a call has asked for it, not a unit of work.
        turn: done when it is given; `None` if it was free.
    """

    __slots__ = ("for_call", "turn")

    def __init__(self, turn: Future[None] | None, *, for_call: bool) -> None:
        self.for_call: bool = for_call
        self.turn: Future[None] | None = turn

    def done(self) -> bool:
        """Whether it is given or withdrawn."""
        return self.turn is None or self.turn.done()

    def cancel(self) -> bool:
        """Withdraw it, unless it is given; returns whether it is withdrawn."""
        return self.turn is not None and self.turn.cancel()

    def wait(self, seconds: float) -> None:
        """Block this thread until it is given or withdrawn, or the time is over; `cancel` says which."""
        if self.turn is not None:
            with suppress(TimeoutError, CancelledError):
                self.turn.result(seconds)

    async def wait_async(self, seconds: float) -> None:
        """As `wait`; the task is suspended meanwhile."""
        if self.turn is not None and not self.turn.done():
            await asyncio.wait((asyncio.wrap_future(self.turn),), timeout=seconds)


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
        with self._lock:
            if self._free:  # no one waits
                self._free -= 1
                self._held_by_calls += for_call
                return Place(None, for_call=for_call)
            place = Place(Future(), for_call=for_call)
            (self._calls if for_call else self._units).append(place)
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

    def _next(self) -> Future[None] | None:
        """Choose who has the place now, under the lock; from then on it cannot be withdrawn."""
        for queue in (self._units, self._calls):
            while queue:
                place = queue.popleft()
                if place.turn is not None and place.turn.set_running_or_notify_cancel():
                    self._held_by_calls += place.for_call
                    return place.turn
        return None


def loop_would_wait(url: str) -> SessionUseError:
    """A write was asked for on the thread of an event loop, and would wait for another call or write."""
    return SessionUseError(
        f"another call writes to {url}, and waiting for it here would stop the event loop of this thread, which it may "
        "need to end. Nothing was written: await the asynchronous form of the method, whose name ends in `_async`, as "
        "`conversation.append_async` and `Session.open_async`, or call the method with `asyncio.to_thread`"
    )
