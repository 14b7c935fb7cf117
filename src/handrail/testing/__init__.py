"""Test helpers for users of Handrail: fakes of its interfaces, scripts of calls, and crashes.

They are imported when they are first asked for: pytest loads the fixtures of this package wherever it is installed.
"""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from handrail.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from handrail.testing.crash import Completed, Crashed, crash_at, run_to_crash
    from handrail.testing.script import Call, Expect, Outcome, Reply, Script, play, play_async
    from handrail.testing.scripted_model import ScriptedModel
    from handrail.testing.single_call import assert_replays, assert_undoes, run_tool
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "crash": "Completed Crashed crash_at run_to_crash",
            "script": "Call Expect Outcome Reply Script play play_async",
            "scripted_model": "ScriptedModel",
            "single_call": "assert_replays assert_undoes run_tool",
        },
    )

__all__ = [
    "Call",
    "Completed",
    "Crashed",
    "Expect",
    "FakeClock",
    "Outcome",
    "Reply",
    "Script",
    "ScriptedModel",
    "assert_replays",
    "assert_undoes",
    "crash_at",
    "play",
    "play_async",
    "run_to_crash",
    "run_tool",
]

_START = datetime(2026, 1, 1, 12, tzinfo=UTC)


class FakeClock:
    """A `handrail.clock.Clock` whose time passes only in `advance`. Thread-safe.

    Raises:
        ValueError: `start` is naive.
    """

    __slots__ = ("_elapsed", "_lock", "_start")

    def __init__(self, start: datetime = _START) -> None:
        if start.utcoffset() is None:
            raise ValueError(f"FakeClock needs an aware datetime, and {start.isoformat()} is naive; add tzinfo=UTC.")
        self._start = start.astimezone(UTC)
        self._elapsed = timedelta(0)
        self._lock = threading.Lock()

    def now(self) -> datetime:
        """The start plus all advances, in UTC."""
        # Read without the lock: reading one attribute is atomic, and `advance` replaces the object.
        return self._start + self._elapsed

    def monotonic(self) -> float:
        """The seconds advanced since the start."""
        return self._elapsed.total_seconds()

    def advance(self, span: timedelta) -> None:
        """Advances the time by `span`.

        Raises:
            ValueError: `span` is negative. The time is unchanged.
        """
        if span < timedelta(0):
            raise ValueError(f"a clock does not go back, so it cannot advance by {span.total_seconds()} s")
        # Adding is a read and a write, so two threads could otherwise lose one of two advances.
        with self._lock:
            self._elapsed += span
