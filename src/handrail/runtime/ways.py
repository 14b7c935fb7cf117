"""Two ways to carry a call out: on this thread, or on an event loop.

The pipeline is written once, as a coroutine. What it may have to wait for goes through a `Way`:

| | `Inline` (`ToolExecutor.execute`) | `OnLoop` (`execute_async`, PydanticAI) |
|---|---|---|
| a turn, another call's effect | blocks this thread | suspends this task |
| a `def` handler | runs on this thread; bounded in time, on a thread of its own | runs on a thread of its own |
| an `async def` handler | runs on an event loop of its own | is awaited; bounded in time, as a task of its own |

A bounded handler that overruns is left behind: a task is cancelled and given a moment to clean up, a thread cannot be
stopped. Whatever it does afterwards is kept out by its closed transaction (`handrail.transaction`).

Handlers run on daemon threads of their own and not on a pool: a pool runs out of threads when handlers hang or wait for
each other, and keeps the process from ending.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future, wait
from contextvars import copy_context
from functools import partial
from typing import Any, Protocol, TypeVar

from handrail.errors import PromptEvaluationError

T = TypeVar("T")

_log = logging.getLogger("handrail.runtime")

_CLEAN_UP_SECONDS = 1.0


class OverranError(Exception):
    """Something took longer than it was given. Never leaves the runtime."""


class Way(Protocol):
    """How the pipeline waits and runs what may take long."""

    @property
    def inline(self) -> bool:
        """Whether an unbounded `def` handler runs on the calling thread."""
        ...

    async def wait(self, waiter: Future[None], *, seconds: float | None) -> None:
        """Wait until `waiter` is done.

        Raises:
            OverranError: it was not done in time.
        """
        ...

    async def run(self, body: Callable[[], Any], *, is_async: bool, seconds: float | None) -> Any:  # noqa: ANN401 - whatever a handler returns
        """Run a handler, an approver or a reconciler; `body` returns an awaitable when `is_async` says so.

        Raises:
            OverranError: it took longer than `seconds`; it may still be running.
        """
        ...


class Inline:
    """Everything happens on the calling thread, and nothing suspends."""

    inline = True

    async def wait(self, waiter: Future[None], *, seconds: float | None) -> None:
        """Block this thread until `waiter` is done; see `Way.wait`.

        Raises:
            PromptEvaluationError: this thread runs an event loop, which the wait would stop.
        """
        if _loop_is_running():
            raise PromptEvaluationError(
                "another call holds the session or a resource, and waiting for it here would stop the event loop of "
                "this thread; on an event loop, use `await execute_async(call)`"
            )
        if not wait((waiter,), timeout=_capped(seconds)).done:
            raise OverranError

    async def run(self, body: Callable[[], Any], *, is_async: bool, seconds: float | None) -> Any:  # noqa: ANN401 - as above
        """Run `body` here, or where the table of this module says; see `Way.run`."""
        if is_async:
            if _loop_is_running():
                raise PromptEvaluationError(
                    "an `async def` handler needs the event loop of this thread, which `execute` would stop; on an "
                    "event loop, use `await execute_async(call)`"
                )
            if seconds is None:
                return asyncio.run(ON_LOOP.run(body, is_async=True, seconds=None))
            # On a thread, because a loop waits for its threads and tasks, even for those that overran.
            bounded = partial(ON_LOOP.run, body, is_async=True, seconds=seconds)
            return _within(on_own_thread(lambda: asyncio.run(bounded())), seconds + 2 * _CLEAN_UP_SECONDS)
        return body() if seconds is None else _within(on_own_thread(body), seconds)


class OnLoop:
    """Everything happens on the running event loop, which nothing blocks."""

    inline = False

    async def wait(self, waiter: Future[None], *, seconds: float | None) -> None:
        """Suspend this task until `waiter` is done; see `Way.wait`."""
        await _settled(waiter, seconds=seconds)

    async def run(self, body: Callable[[], Any], *, is_async: bool, seconds: float | None) -> Any:  # noqa: ANN401 - as above
        """Await `body`, or run it on a thread of its own; see `Way.run`."""
        if is_async:
            return await body() if seconds is None else await _bounded(body, seconds=seconds)
        future = on_own_thread(body)
        await _settled(future, seconds=seconds)
        return future.result()


INLINE = Inline()
"""The way of the synchronous entry."""

ON_LOOP = OnLoop()
"""The way of the asynchronous entry."""


def drive(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run to its end a coroutine that never suspends, without an event loop; `Inline` makes the pipeline one."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        returned: T = end.value
        return returned
    coroutine.close()
    raise RuntimeError("a call on the synchronous entry has suspended; only handlers may, and they get a loop")


def on_own_thread(body: Callable[[], T]) -> Future[T]:
    """Start `body` on a daemon thread, with a copy of this context."""
    future: Future[T] = Future()
    context = copy_context()

    def work() -> None:
        try:
            returned = context.run(body)
        except BaseException as error:  # noqa: BLE001 - it is raised again where the future is read
            future.set_exception(error)
        else:
            future.set_result(returned)

    threading.Thread(target=work, name="handrail-call", daemon=True).start()
    return future


def _within(future: Future[T], seconds: float) -> T:
    if not wait((future,), timeout=_capped(seconds)).done:
        raise OverranError
    return future.result()


def _capped(seconds: float | None) -> float | None:
    """A span that the system can wait for; the longest one is some three hundred years."""
    return None if seconds is None else min(seconds, threading.TIMEOUT_MAX)


def _loop_is_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _settled(future: Future[Any], *, seconds: float | None) -> None:
    """Suspend until a future of another thread is done, and leave its outcome in it.

    Not `asyncio.wrap_future`, which copies the outcome into a future that refuses some exceptions (`StopIteration`).
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def tell(_: Future[Any]) -> None:
        try:
            loop.call_soon_threadsafe(done.set_result, None)
        except RuntimeError:  # the loop has been closed: nobody waits any more
            _log.debug("a handler ended after the event loop of its call")

    future.add_done_callback(tell)
    finished, _ = await asyncio.wait((done,), timeout=seconds)
    if not finished:
        raise OverranError


async def _bounded(body: Callable[[], Awaitable[T]], *, seconds: float) -> T:
    """Await `body` as a task of its own, for so long and no longer."""
    task = asyncio.ensure_future(body())
    try:
        finished, _ = await asyncio.wait((task,), timeout=seconds)
        if finished:
            return task.result()
        raise OverranError
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait((task,), timeout=_CLEAN_UP_SECONDS)
            if task.done():
                _forget(task)
            else:
                _LEFT_BEHIND.add(task)
                task.add_done_callback(_forget)


_LEFT_BEHIND: set[asyncio.Future[Any]] = set()
"""Tasks that overran; an event loop keeps only weak references to its tasks."""


def _forget(task: asyncio.Future[Any]) -> None:
    _LEFT_BEHIND.discard(task)
    if not task.cancelled() and task.exception() is not None:
        _log.warning("a handler that had overrun ended with %r", task.exception())
