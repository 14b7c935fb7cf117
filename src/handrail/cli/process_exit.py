"""How a command ends: its exit codes, and Ctrl-C. The first Ctrl-C ends what is done in order, another one the process.

A process that ends at once leaves nothing half done for good: what its calls have changed counts only where they have
ended, and the ledger holds what may have happened as unknown.
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
"""It was done."""

FAILED = 1
"""It was refused, it failed, or there is no such thing."""

USAGE = 2
"""The command line is wrong, or a file or name that it leads to; nothing has run."""

WAITING = 3
"""A run waits for approvals; it is stored, and can be resumed."""

READER_GONE = 141
"""Nobody reads the output any more: 128 and the number of the signal."""

INTERRUPTED = 130
"""The exit code: 128 and the number of the signal, as shells have it."""

_PATIENCE_SECONDS = 0.5
_ENOUGH = 3


@contextmanager
def interrupted_once() -> Generator[None]:
    """A block in which the first Ctrl-C raises `KeyboardInterrupt`; from then on, one more ends the process at once."""

    def obey(_number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, _leave)
        raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler:  # who started the process has taken care of it
        yield
        return
    signal.signal(signal.SIGINT, obey)
    try:
        yield
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, _leave)
        raise
    signal.signal(signal.SIGINT, before)


@contextmanager
def interruptible(stop: Callable[[], object], late: Callable[[], object]) -> Generator[None]:
    """A block that the first Ctrl-C stops by calling `stop`, and the third by ending the process.

    Args:
        stop: stops what the block does, in order.
        late: called once, in a thread of its own, if the block goes on for half a second nevertheless.
    """
    count = 0
    timer = threading.Timer(_PATIENCE_SECONDS, late)
    timer.daemon = True

    def obey(number: int, frame: FrameType | None) -> None:
        nonlocal count
        count += 1
        if count == 1:
            timer.start()
            stop()
        elif count >= _ENOUGH:
            _leave(number, frame)

    before = signal.getsignal(signal.SIGINT)
    # In another thread Python takes no signals, and a process that was started to ignore this one goes on to do so.
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
    """Have signals wake an event loop: one that arrives just before the loop waits would be seen by it much later.

    asyncio listens for signals once it has a handler for any. That one does nothing, because its signal means nothing.
    """
    with suppress(AttributeError, NotImplementedError, RuntimeError, ValueError):  # Windows; a thread that takes none
        loop.add_signal_handler(signal.SIGWINCH, lambda: None)


def _leave(_number: int, _frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)
