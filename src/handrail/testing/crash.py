"""Death at a named point: for a process that is there to be killed, so that what it leaves behind can be looked at.

`crash_at` makes the process that calls it die; `handrail.testing.run_to_crash` starts one that may.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from difflib import get_close_matches
from types import TracebackType
from typing import Self

from handrail.crash_points import POINTS, arm


def crash_at(point: str, *, nth: int = 1) -> Trap:
    """Have this process kill itself with SIGKILL when it reaches a point for the nth time from now on.

    Nothing is flushed, closed or rolled back, as when the power fails for this process alone. What is returned may be
    entered: leaving the block takes the death sentence back. A later `crash_at` takes the place of an earlier one.

    Args:
        point: one of `handrail.crash_points.POINTS`.
        nth: 1 for the first time.

    Raises:
        ValueError: there is no such point, or `nth` is less than 1. Nothing is armed.
    """
    trap = Trap(point, nth)
    arm(trap)
    return trap


class Trap:
    """Counts how often a point has been reached, and kills when it is time.

    Args:
        point: the point, one of `handrail.crash_points.POINTS`.
        nth: at which time to kill, from 1.
        kill: what to do then.

    Raises:
        ValueError: there is no such point, or `nth` is less than 1.
    """

    __slots__ = ("_kill", "_left", "_lock", "_point")

    def __init__(self, point: str, nth: int, *, kill: Callable[[], object] | None = None) -> None:
        if point not in POINTS:
            near = get_close_matches(point, POINTS, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise ValueError(f"there is no crash point {point!r}.{hint} The points are: {', '.join(POINTS)}.")
        if nth < 1:
            raise ValueError(f"nth is {nth}; it counts from 1, the first time that {point} is reached")
        self._point = point
        self._left = nth
        self._kill = _kill_this_process if kill is None else kill
        self._lock = threading.Lock()

    def __call__(self, point: str) -> None:
        """Take note that the process has come to a point."""
        if point != self._point:
            return
        with self._lock:
            self._left -= 1
            if self._left == 0:
                self._kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        arm(None)


def _kill_this_process() -> None:  # pragma: no cover - no process lives to tell of it
    os.kill(os.getpid(), signal.SIGKILL)
