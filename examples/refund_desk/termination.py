"""SIGTERM ends the demo as Ctrl-C does: the agent is cancelled, and what was started is stopped.

A signal handler that raises `KeyboardInterrupt` while an event loop runs raises it in whichever task runs at that
moment, and what comes out of the loop then is an exception group, or the error of a cancel scope that was left out of
order. So the handler cancels the main task, as `asyncio.run` does for SIGINT; between the loops it raises.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")


def interrupt_on_sigterm() -> None:
    """Let SIGTERM raise `KeyboardInterrupt`, and cancel what `run_interruptible` runs."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def run_interruptible(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on an event loop of its own; after `interrupt_on_sigterm`, SIGTERM cancels it.

    Raises:
        KeyboardInterrupt: SIGINT or SIGTERM came; the coroutine has ended, and its loop is closed.
    """
    before = signal.getsignal(signal.SIGTERM)
    if before is not signal.default_int_handler:
        return asyncio.run(work)
    terminated = False

    async def cancelled_by_sigterm() -> T:
        loop = asyncio.get_running_loop()
        task = asyncio.ensure_future(work)

        def cancel(_number: int, _frame: FrameType | None) -> None:
            nonlocal terminated
            terminated = True
            loop.call_soon_threadsafe(task.cancel)  # wakes a loop that waits

        signal.signal(signal.SIGTERM, cancel)
        try:
            return await task
        finally:
            signal.signal(signal.SIGTERM, before)

    try:
        return asyncio.run(cancelled_by_sigterm())
    finally:
        if terminated:
            raise KeyboardInterrupt
