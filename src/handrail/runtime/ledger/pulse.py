"""A timer for recurring tasks: it owns one thread, which sleeps for as long as there is nothing to do.

Tasks are due by a `Clock`; the thread sleeps in real time, because that is how threads sleep. Both agree on the
system's clock. On a clock that is told the time, nothing is due before it is told, and `Pulse.tick` performs what is.

How a task is scheduled without a lock, in about half a microsecond: an entry is put into a dictionary, and the thread
is woken only if it would otherwise sleep past the task. `_wakes_at` is when it wakes by itself; it is set to "never"
before the thread looks through the entries, so a task that arrives while it looks wakes it once too often and never
once too seldom. A task that is unscheduled leaves the dictionary, and the thread finds it gone when it wakes. So a
stream of short tasks wakes the thread about once in the time for which the first of them was put off, and when they end
it wakes once more and then not again.

The thread is woken through a `SimpleQueue`, whose `put` may be called from a finalizer.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Hashable
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

from handrail.clock import Clock

T = TypeVar("T", bound=Hashable)

_RETRY_SECONDS = 1.0
_STOP = -1.0
_LONGEST_SLEEP = 86_400.0  # some systems cannot sleep for as long as a lease may last

_logger = logging.getLogger(__name__)


class Pulse(Generic[T]):
    """Performs tasks when they are due, again and again, until they are unscheduled or say that they are through.

    Args:
        perform: does one task and returns in how many seconds it is due again; `None` when it is through. If it raises,
            that is logged, and the task is tried again in a second.
        clock: what "due" is measured by.
        name: of the thread.
    """

    __slots__ = ("_bell", "_clock", "_due", "_name", "_perform", "_unstarted", "_wakes_at")

    def __init__(self, perform: Callable[[T], float | None], *, clock: Clock, name: str) -> None:
        self._perform = perform
        self._clock = clock
        self._name = name
        self._due: dict[T, list[float]] = {}
        self._wakes_at = math.inf
        self._bell: SimpleQueue[float] = SimpleQueue()
        self._unstarted = threading.Lock()  # taken once, by whoever starts the thread

    def schedule(self, task: T, delay: float) -> None:
        """Have a task performed in `delay` seconds; a task that is scheduled already is put off or brought forward."""
        due = self._clock.monotonic() + delay
        self._due[task] = [due]
        if due < self._wakes_at:
            self._wakes_at = due
            self._bell.put(delay)
            if self._unstarted.acquire(blocking=False):
                threading.Thread(target=self._run, name=self._name, daemon=True).start()

    def unschedule(self, task: T) -> None:
        """Have a task performed no more; nothing happens if it is not scheduled. It may be just being performed."""
        self._due.pop(task, None)

    def tick(self) -> int:
        """Perform all tasks that are due by the clock, in this thread; returns how many those were."""
        now = self._clock.monotonic()
        performed = 0
        for task, entry in list(self._due.items()):
            if entry[0] <= now:
                performed += 1
                again = self._attempt(task)
                if again is not None:
                    # Into the entry, not into the dictionary: unscheduled meanwhile, the task must not come back.
                    entry[0] = now + again
                elif self._due.get(task) is entry:
                    self._due.pop(task, None)
        return performed

    def stop(self) -> None:
        """End the thread for good, soon; from then on only `tick` performs anything. May be called from a finalizer."""
        self._bell.put(_STOP)

    def _attempt(self, task: T) -> float | None:
        try:
            return self._perform(task)
        except Exception:  # one task that fails (a store that is down) must not stop the others
            _logger.warning("%s: a task failed and is tried again in %s s", self._name, _RETRY_SECONDS, exc_info=True)
            return _RETRY_SECONDS

    def _run(self) -> None:
        wake = math.inf  # in real seconds
        while True:
            try:
                ring = self._bell.get(timeout=None if wake == math.inf else _seconds_until(wake))
            except Empty:
                wake = time.monotonic() + self._round()
                continue
            if ring == _STOP:
                return
            wake = min(wake, time.monotonic() + ring)

    def _round(self) -> float:
        """Perform what is due; returns after how many seconds to do so again, infinite if there is nothing left."""
        self._wakes_at = math.inf
        self.tick()
        self._wakes_at = min((entry[0] for entry in list(self._due.values())), default=math.inf)
        return self._wakes_at - self._clock.monotonic()


def _seconds_until(wake: float) -> float:
    return min(max(0.0, wake - time.monotonic()), _LONGEST_SLEEP)
