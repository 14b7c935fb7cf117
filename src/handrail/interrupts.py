"""Ctrl-C during what must not stop half way: it is raised when that has ended.

A `KeyboardInterrupt` may be raised between any two instructions of the main thread, also between those that release a
lock or note a commit. So the synchronous entry holds it back while it writes to a store that waits for a disk or
a server.

| where | Ctrl-C |
|---|---|
| a claim, a commit, a rollback, a record | is raised when it has ended; a claim that it has overtaken is withdrawn |
| a handler, an approver, a wait for a turn | is raised at once, and the call is rolled back |
| another thread than the main one, `await` | is the affair of the event loop and of the main thread |
| the program has a handler of SIGINT of its own | is that handler's |
"""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType, TracebackType
from typing import Any, Self

_SIGNALS: Any = sys.modules.get("_signal", signal)
"""What `signal` calls in CPython and PyPy: its conversions to enumerations take many times as long as all the rest."""


class HeldInterrupts:
    """A context manager: Ctrl-C within its block is raised at its end."""

    __slots__ = ("_before", "_came")

    def __init__(self) -> None:
        self._before: Any = None
        self._came = False

    def __enter__(self) -> Self:
        """Hold Ctrl-C back, if this is the main thread and Python's own handler would raise it."""
        if threading.current_thread() is threading.main_thread():
            before = _SIGNALS.getsignal(signal.SIGINT)
            if before is signal.default_int_handler:
                _SIGNALS.signal(signal.SIGINT, self._hold)
                self._before = before
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Raise Ctrl-C now, if it came.

        Raises:
            KeyboardInterrupt: it came, and the block has raised nothing.
        """
        before, self._before = self._before, None
        if before is None:
            return
        _SIGNALS.signal(signal.SIGINT, before)
        if self._came and not isinstance(error, KeyboardInterrupt):
            raise KeyboardInterrupt from error

    def _hold(self, _number: int, _frame: FrameType | None) -> None:
        self._came = True
