"""Ctrl-C during a call through the synchronous entry: it is raised where code of the program runs, or in a wait.

A `KeyboardInterrupt` may be raised between any two instructions of the main thread, also between those that take a
turn, release a lock or note a commit. So the entry holds it back for the whole call, and lets it through where that may
take long.

| where | Ctrl-C is raised |
|---|---|
| a handler, `apply`, a policy, an approver, a reconciler, a wait for another call | at once; the call is rolled back |
| the claim, the commit, the rollback, the record | at the next place of the first row, or at the end of the call |
| another thread than the main one; a coroutine | where asyncio or the main thread raises it |
| the program has a handler of SIGINT of its own | by that handler |

A second Ctrl-C is raised at once, for code that never ends, such as a reducer. It is like a kill: what is written then
is settled when the session is opened again, which a session that was being written to asks for.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self, TypeVar

T = TypeVar("T")

_SIGNALS: Any = sys.modules.get("_signal", signal)
"""The functions behind `signal`: its conversions to enumerations take many times as long as all the rest."""


class HeldInterrupts:
    """A context manager: Ctrl-C within its block is raised at its end."""

    __slots__ = ("_before", "_came")

    def __init__(self) -> None:
        self._before: Any = None
        self._came = False

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            before = _SIGNALS.getsignal(signal.SIGINT)
            if before is signal.default_int_handler:
                _SIGNALS.signal(signal.SIGINT, self.hold)
                self._before = before
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        before, self._before = self._before, None
        if before is None:
            return
        _SIGNALS.signal(signal.SIGINT, before)
        if self._came and not isinstance(error, KeyboardInterrupt):
            raise KeyboardInterrupt from error

    def hold(self, _number: int, _frame: FrameType | None) -> None:
        """Keeps Ctrl-C for later; the handler of SIGINT within the block."""
        if self._came:
            raise KeyboardInterrupt
        self._came = True

    def raise_now(self) -> None:
        """Raises Ctrl-C, if it came and has not been raised yet."""
        if self._came:
            self._came = False
            raise KeyboardInterrupt


def allow_interrupts(body: Callable[[], T]) -> T:
    """Runs something that Ctrl-C interrupts at once, also within a block that holds it back."""
    block = _holding()
    if block is None:
        return body()
    try:
        _SIGNALS.signal(signal.SIGINT, signal.default_int_handler)
        block.raise_now()
        return body()
    finally:
        # Not in a function or a context manager: Ctrl-C might be raised in it before its first line.
        try:
            _SIGNALS.signal(signal.SIGINT, block.hold)
        except KeyboardInterrupt:  # it came before, and `signal` raises it first
            _SIGNALS.signal(signal.SIGINT, block.hold)
            raise


def raise_held_interrupt() -> None:
    """Raises the Ctrl-C that is held back here, if there is one."""
    block = _holding()
    if block is not None:
        block.raise_now()


def _holding() -> HeldInterrupts | None:
    if threading.current_thread() is not threading.main_thread():
        return None
    block = getattr(_SIGNALS.getsignal(signal.SIGINT), "__self__", None)
    return block if isinstance(block, HeldInterrupts) else None
