"""Places at a store's database: who may write on SQLite, and how many calls may have a connection on PostgreSQL.

A call keeps its place from its first statement to its commit. A unit of work takes one for a short transaction, where
one transaction writes at a time. Places are given in the order of asking, to units before calls, because calls that
have ended wait for their units. A turn is a future, so threads and tasks wait in the same queues, for as long as
`busy`. A thread that runs an event loop does not wait for a call, which may need the loop to come to its end.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from datetime import timedelta

from handrail.errors import SessionUseError, StoreUnavailableError
from handrail.waiting import may_wait_for_calls


class Place:
    """A place that was asked for.

    Attributes:
        for_call: whether a call has asked for it, not a unit of work.
        behind_call: whether it may have to wait for a call.
        turn: done when the place is given, cancelled when it is withdrawn before that; `None` if it was free.
    """

    __slots__ = ("behind_call", "for_call", "turn")

    def __init__(self, *, for_call: bool, behind_call: bool = False, turn: Future[None] | None = None) -> None:
        self.for_call: bool = for_call
        self.behind_call: bool = behind_call
        self.turn: Future[None] | None = turn

    def done(self) -> bool:
        """Whether it is given or withdrawn."""
        return self.turn is None or self.turn.done()

    def cancel(self) -> bool:
        """Withdraw it if it was not given yet; returns whether it is withdrawn."""
        return self.turn is not None and self.turn.cancel()

    def cancelled(self) -> bool:
        """Whether it was withdrawn."""
        return self.turn is not None and self.turn.cancelled()


class CallPlaces:
    """The places of one database; one may be released by another thread than the one that has asked for it.

    Args:
        number: how many there are, from 1.
        busy: how long to wait for one.
        url: names the database to people.
    """

    __slots__ = ("_busy", "_calls", "_holders", "_lock", "_number", "_units", "_url")

    def __init__(self, number: int, *, busy: timedelta, url: str) -> None:
        """Begin with all places free."""
        self._number = number
        self._busy = busy.total_seconds()
        self._url = url
        self._lock = threading.Lock()
        self._holders: set[Place] = set()
        self._units: deque[Place] = deque()
        self._calls: deque[Place] = deque()

    @property
    def waiting(self) -> int:
        """How many places are waited for."""
        return sum(not place.done() for queue in (self._units, self._calls) for place in tuple(queue))

    def is_used_by_calls(self) -> bool:
        """Whether a call holds a place, or waits for one."""
        holds = any(place.for_call for place in tuple(self._holders))
        return holds or any(not place.done() for place in tuple(self._calls))

    def ask(self, *, for_call: bool = False) -> Place:
        """A place, which is given as soon as there is one; to be released in any case."""
        with self._lock:
            if len(self._holders) < self._number and not (self._units or self._calls):
                place = Place(for_call=for_call)
                self._holders.add(place)
                return place
            place = Place(for_call=for_call, behind_call=self.is_used_by_calls(), turn=Future())
            (self._calls if for_call else self._units).append(place)
            self._give()
        return place

    def wait(self, place: Place) -> None:
        """Block this thread until a place is given or withdrawn, or `busy` has passed; `check` says which."""
        if place.turn is not None:
            refused = place.behind_call and not may_wait_for_calls()
            with suppress(TimeoutError, CancelledError):
                place.turn.result(0.0 if refused else self._busy)

    async def wait_async(self, place: Place) -> None:
        """As `wait`; the task is suspended meanwhile."""
        if place.turn is not None and not place.turn.done():
            await asyncio.wait((asyncio.wrap_future(place.turn),), timeout=self._busy)

    def check(self, place: Place) -> None:
        """Withdraw a place that was not given.

        Raises:
            SessionUseError: it was not, and this thread runs an event loop.
            StoreUnavailableError: it was not.
        """
        if not place.cancel():
            return
        if place.behind_call and not may_wait_for_calls():
            raise loop_would_wait(self._url)
        msg = (
            f"{self._url} cannot be used now: calls that write through context.connection, or units of work in other "
            "threads, do not come to their end; make fewer calls at a time, or keep their handlers short"
        )
        raise StoreUnavailableError(msg, store=self._url, waited=True)

    def release(self, place: Place) -> None:
        """Give a place to the next one that waits; if it was not given yet, it is withdrawn."""
        if not place.cancel():
            with self._lock:
                self._holders.discard(place)
                if self._units or self._calls:
                    self._give()

    def _give(self) -> None:
        """Give the free places to those who wait, under the lock; one that is given cannot be withdrawn any more."""
        for queue in (self._units, self._calls):
            while queue and len(self._holders) < self._number:
                place = queue.popleft()
                if place.turn is not None and place.turn.set_running_or_notify_cancel():
                    self._holders.add(place)
                    place.turn.set_result(None)


def loop_would_wait(url: str) -> SessionUseError:
    """What is refused on the thread of an event loop: to wait for another call or write."""
    return SessionUseError(
        f"another call writes to {url}, and waiting for it here would stop the event loop of this thread, which it may "
        "need to end. Nothing was written: await the asynchronous form of the method, whose name ends in `_async`, as "
        "`context.connection.execute_async`, `conversation.append_async` and `Session.open_async`, or call the method "
        "with `asyncio.to_thread`"
    )
