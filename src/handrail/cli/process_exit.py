"""The end of a command: exit codes, and Ctrl-C. The first Ctrl-C stops the command in order, another ends the process.

A process that ends at once leaves nothing inconsistent: changes of unfinished calls are not committed, and the ledger
records effects that may have happened as unknown.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

DONE = 0
"""Success."""

FAILED = 1
"""Refused, failed, or not found."""

USAGE = 2
"""The command line, or a file or name in it, is invalid; nothing has run."""

WAITING = 3
"""A run waits for approvals; it is stored, and can be resumed."""

READER_GONE = 141
"""The output pipe is closed: 128 and the number of the signal."""

INTERRUPTED = 130
"""The exit code: 128 and the number of the signal, as in shells."""

_PATIENCE_SECONDS = 0.5
_ENOUGH = 3


@contextmanager
def interrupted_once() -> Generator[None]:
    """A block in which the first Ctrl-C raises `KeyboardInterrupt`; from then on, one more ends the process at once."""

    def obey(_number: int, _frame: FrameType | None) -> None:
        # Set first, so that a second Ctrl-C ends the process even while the exception is handled.
        signal.signal(signal.SIGINT, _leave)
        raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler:  # the parent process handles it
        yield
        return
    signal.signal(signal.SIGINT, obey)
    try:
        yield
    except KeyboardInterrupt:
        # The exception may also come from elsewhere; from here on nothing may delay the end.
        signal.signal(signal.SIGINT, _leave)
        raise
    # Not in a `finally`: after an interruption the handler stays, so that one more Ctrl-C ends the process at once.
    signal.signal(signal.SIGINT, before)


@contextmanager
def interruptible(stop: Callable[[], object], late: Callable[[], object]) -> Generator[None]:
    """A block that the first Ctrl-C stops by calling `stop`, and the third by ending the process.

    Args:
        stop: stops what the block does, in order.
        late: called once, in a thread of its own, if the block is still running after half a second.
    """
    count = 0
    # A thread, because the event loop may be blocked by the very call that is waited for.
    timer = threading.Timer(_PATIENCE_SECONDS, late)
    # A thread that is not a daemon would delay the end of the process.
    timer.daemon = True

    def obey(number: int, frame: FrameType | None) -> None:
        nonlocal count
        count += 1
        if count == 1:
            timer.start()
            stop()
        # The second one is ignored, so that an impatient key press does not interrupt the orderly stop.
        elif count >= _ENOUGH:
            _leave(number, frame)

    before = signal.getsignal(signal.SIGINT)
    # Python handles no signals in other threads, and a process that was started to ignore this one still ignores it.
    ours = threading.current_thread() is threading.main_thread() and before is not signal.SIG_IGN
    if ours:
        signal.signal(signal.SIGINT, obey)
    try:
        yield
    finally:
        timer.cancel()
        if ours:
            signal.signal(signal.SIGINT, before)


def wake_on_signals(loop: AbstractEventLoop) -> None:
    """Let signals wake an event loop, which would notice one that arrives just before it waits much later.

    asyncio listens for signals once it has a handler for any. The handler for an unused signal does nothing.
    """
    with suppress(AttributeError, NotImplementedError, RuntimeError, ValueError):  # Windows; a thread that handles none
        loop.add_signal_handler(signal.SIGWINCH, lambda: None)


def _leave(_number: int, _frame: FrameType | None) -> None:
    # `os._exit` runs no `finally` blocks and does not wait for threads; see the docstring of the module for why this is
    # safe.
    os._exit(INTERRUPTED)
