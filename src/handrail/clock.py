"""Time, as something that is handed in: a test can be the clock (`handrail.testing.FakeClock`)."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from functools import partial
from typing import Protocol


class Clock(Protocol):
    """Reads the time of day, and the time that has passed."""

    def now(self) -> datetime:
        """The present moment as an aware datetime in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds since some fixed moment; never goes back."""
        ...


class SystemClock:
    """The clock of the machine."""

    __slots__ = ()

    now: staticmethod[[], datetime] = staticmethod(partial(datetime.now, UTC))
    """The present moment as an aware datetime in UTC."""

    monotonic: staticmethod[[], float] = staticmethod(time.perf_counter)
    """Seconds since some fixed moment, at the finest resolution that the machine has."""


SYSTEM_CLOCK = SystemClock()
"""The one system clock; the default wherever a `Clock` is taken."""
