"""The place of a call among those that may have a connection of the store at a time.

A call takes it before its connection, and keeps it until it has ended. Threads and tasks wait in the order of asking,
for `busy` in all: what is left of that when the place was given is how long its connection is waited for.

A thread that runs an event loop does not wait for another call: that call may need the loop to come to its end. Its
tasks wait with `take_async`.
"""

from __future__ import annotations

import time

from handrail.errors import SessionUseError, StoreUnavailableError
from handrail.loop_guard import loop_is_running
from handrail.store.sql.driver import Driver
from handrail.store.sql.fair_semaphore import FairSemaphore


class CallPlace:
    """The place of one call, however many of its threads and tasks ask for it.

    Args:
        driver: the database.

    Attributes:
        is_held: whether the call has it.
    """

    __slots__ = ("_asking", "_driver", "_until", "is_held")

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._asking = FairSemaphore(1)  # so that two threads of the call do not wait for two places
        self._until: float | None = None
        self.is_held: bool = False

    @property
    def seconds_left(self) -> float:
        """How long the connection may still be waited for, from 0."""
        busy = self._driver.busy.total_seconds()
        return busy if self._until is None else min(busy, max(0.0, self._until - time.monotonic()))

    def take(self) -> None:
        """Wait for the place, unless the call has it.

        Raises:
            SessionUseError: other calls have all places, and this thread runs an event loop.
            StoreUnavailableError: other calls have had all places for `busy`.
        """
        if self.is_held:
            return
        on_loop = loop_is_running()
        self._begin_to_wait()
        if not self._asking.acquire(0.0 if on_loop else self.seconds_left):
            raise self._held_by_a_loop() if on_loop else self._busy()
        try:
            if not self._is_missing():
                return
            places = self._driver.call_places
            if not places.acquire(self.seconds_left, for_call=True, behind_calls=not on_loop):
                raise self._held_by_a_loop() if on_loop else self._busy()
            self.is_held = True
        finally:
            self._asking.release()

    async def take_async(self) -> None:
        """As `take`; the task is suspended meanwhile.

        Raises:
            StoreUnavailableError: as for `take`.
            CancelledError: the task was cancelled. It has not taken the place.
        """
        if self.is_held:
            return
        self._begin_to_wait()
        if not await self._asking.acquire_async(self.seconds_left):
            raise self._busy()
        try:
            if self._is_missing() and not await self._driver.call_places.acquire_async(
                self.seconds_left, for_call=True
            ):
                raise self._busy()
            self.is_held = True
        finally:
            self._asking.release()

    def release(self) -> None:
        """Let another call have it; without effect if the call has none."""
        if self.is_held:
            self.is_held = False
            self._until = None
            self._driver.call_places.release(for_call=True)

    def _is_missing(self) -> bool:
        """Whether no other thread or task of the call has taken it meanwhile."""
        return not self.is_held

    def _begin_to_wait(self) -> None:
        self._until = time.monotonic() + self._driver.busy.total_seconds()

    def _held_by_a_loop(self) -> SessionUseError:
        return SessionUseError(
            f"other calls write to {self._driver.url} through context.connection, and waiting for them here would stop "
            "the event loop of this thread; in an `async def` handler, use `await context.connection.execute_async()`"
        )

    def _busy(self) -> StoreUnavailableError:
        url = self._driver.url
        msg = (
            f"{url} cannot be used now: calls that write through context.connection do not come to their end; "
            "make fewer of them at a time, or keep their handlers short"
        )
        return StoreUnavailableError(msg, store=url)


def loop_would_wait(url: str) -> SessionUseError:
    """A write was asked for on the thread of an event loop, and would wait for another call or write."""
    return SessionUseError(
        f"another call writes to {url}, and waiting for it here would stop the event loop of this thread, which it may "
        "need to end. Nothing was written: await the asynchronous form of the method, whose name ends in `_async`, as "
        "`conversation.append_async` and `Session.open_async`, or call the method with `asyncio.to_thread`"
    )
