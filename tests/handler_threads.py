"""The threads of handlers that a test has left behind, apart from those that earlier tests did."""

from __future__ import annotations

import threading


class HandlerThreads:
    """The threads of the handlers that are started from now on."""

    def __init__(self) -> None:
        self._before = frozenset(threading.enumerate())

    def join(self) -> None:
        """Wait until each of them has ended."""
        for thread in threading.enumerate():
            if thread.name == "handrail-call" and thread not in self._before:
                thread.join()
