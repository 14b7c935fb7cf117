"""The threads of handlers that a test has left behind, apart from those that earlier tests did."""

from __future__ import annotations

import threading

from handrail.threads import NAME, THREADS


class HandlerThreads:
    """The threads of the handlers that are started from now on; none runs on a thread of an earlier one."""

    def __init__(self) -> None:
        THREADS.retire()
        self._before = frozenset(threading.enumerate())

    def join(self) -> None:
        """Wait until each of them has ended, and none is kept for another call."""
        THREADS.retire()
        for thread in threading.enumerate():
            if thread.name == NAME and thread not in self._before:
                thread.join()
