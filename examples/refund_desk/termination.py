"""How a demonstration ends: with an exit code, also where its model cannot be used or it is interrupted.

SIGTERM ends it as Ctrl-C does: the agent is cancelled, and what was started is stopped.

A signal handler that raises `KeyboardInterrupt` while an event loop runs raises it in whichever task runs at that
moment, and what comes out of the loop then is an exception group, or the error of a cancel scope that was left out of
order. So the handler cancels the main task, as `asyncio.run` does for SIGINT; between the loops it raises.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any, TypeVar

from pydantic_ai import UserError

from handrail.errors import UnknownModelError

T = TypeVar("T")


def exit_code_of(name: str, model: str | None, perform: Callable[[], int]) -> int:
    """Perform a demonstration; returns its exit code: 2 if the model cannot be used, 130 if it is interrupted.

    Args:
        name: its name, for messages.
        model: what `--model` says; `None` for the scripted one.
        perform: performs it, and returns the exit code.
    """
    os.environ.setdefault("PYDANTIC_AI_NO_BANNER", "1")  # it would stand in the middle of the trace
    interrupt_on_sigterm()
    try:
        return perform()
    except (UserError, ImportError, UnknownModelError) as error:
        # The text of Handrail begins with the same words.
        told = error if isinstance(error, UnknownModelError) else f"the model {model} cannot be used: {error}"
        print(f"{name}: {told}", file=sys.stderr)
        print("Without --model it runs on a scripted model, which needs no key.", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{name}: interrupted; what it had started has been stopped", file=sys.stderr)
        return 130


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
