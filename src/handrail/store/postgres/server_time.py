"""The time of a server, without asking it each time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime, timedelta

from handrail.clock import SYSTEM_CLOCK, Clock

_TRUSTED_SECONDS = 1.0


class ServerTime:
    """The time of a server, as it was when last asked, and what has passed here since; asked again after a second.

    Clocks of two machines may disagree by hours about the time, but in one second by microseconds about its length.

    Args:
        ask: asks the server.
        clock: measures what has passed here.
    """

    __slots__ = ("_ask", "_asked_at", "_clock", "_lock", "_told")

    def __init__(self, ask: Callable[[], datetime], *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._ask = ask
        self._clock = clock
        self._lock = threading.Lock()
        self._told: datetime | None = None
        self._asked_at = 0.0

    def now(self) -> datetime:
        """The server's time, aware and in UTC.

        Raises:
            StoreUnavailableError: the server had to be asked, and does not answer.
        """
        with self._lock:
            here = self._clock.monotonic()
            if self._told is None or here - self._asked_at > _TRUSTED_SECONDS:
                told = self._ask()
                after = self._clock.monotonic()
                self._told, self._asked_at, here = told, (here + after) / 2, after
            return self._told + timedelta(seconds=here - self._asked_at)
