"""The event loop of `async def` handlers through the synchronous entry: one for each thread, kept between its calls.

Making a loop takes longer than the rest of most calls, and a client that is bound to a loop (an HTTP client, a pool of
connections) can be used by all calls of the thread.

| when | what happens |
|---|---|
| a handler has ended | tasks that it has left are cancelled and awaited, as by `asyncio.run` |
| a handler was interrupted, as by Ctrl-C | the loop is closed; the next call of the thread makes another one |
| the thread or the process ends | the loop is closed, with asynchronous generators that handlers have left |
| the process forks | the child makes loops of its own |
"""

from __future__ import annotations

import asyncio
import atexit
import os
import sys
import threading
from collections.abc import Coroutine
from contextvars import copy_context
from typing import Any, TypeVar

T = TypeVar("T")


def run_on_handler_loop(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the loop of this thread, in a copy of this context.

    Raises:
        RuntimeError: this thread runs an event loop.
        BaseException: what the coroutine raises.
    """
    loop = _THREAD.loop
    if loop is None:
        loop = _THREAD.loop = _HandlerLoop()
    try:
        return loop.run(coroutine)
    except Exception:
        raise
    except BaseException:
        _close_loop()
        raise


class _HandlerLoop:
    """Owns the loop of one thread, and closes it with the thread."""

    __slots__ = ("_runner",)

    def __init__(self) -> None:
        self._runner = asyncio.Runner()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        try:
            return self._runner.run(coroutine, context=copy_context())
        finally:
            _cancel_tasks(self._runner.get_loop())

    def close(self) -> None:
        self._runner.close()

    def __del__(self) -> None:
        # Called by the thread that ends, when it clears what is local to it.
        self.close()


def _cancel_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel what a handler has left, and await it; as `asyncio.run` does."""
    left = asyncio.all_tasks(loop)
    if not left:
        return
    for task in left:
        task.cancel()
    loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
    for task in left:
        if not task.cancelled() and (error := task.exception()) is not None:
            message = "a task that a handler had left failed when it was cancelled"
            loop.call_exception_handler({"message": message, "exception": error, "task": task})


class _Thread(threading.local):
    """The loop of a thread; `None` before its first call of an `async def` handler."""

    loop: _HandlerLoop | None = None


_THREAD = _Thread()

_OF_PARENT: list[_HandlerLoop] = []
"""Loops of the process that this one was forked off. They are never closed here: that would stop those of the parent,
with which they share the descriptors that they wait on."""


def _close_loop() -> None:
    loop, _THREAD.loop = _THREAD.loop, None
    if loop is not None:
        loop.close()


def _leave_to_parent() -> None:
    loop, _THREAD.loop = _THREAD.loop, None
    if loop is not None:
        _OF_PARENT.append(loop)


# Before the interpreter ends: it does not clear what is local to its main thread until modules are gone.
atexit.register(_close_loop)
if sys.platform != "win32":  # pragma: no branch - Windows has no fork
    os.register_at_fork(after_in_child=_leave_to_parent)
