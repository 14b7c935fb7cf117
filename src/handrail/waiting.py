"""Waiting for futures that threads complete: by a task, by a thread, or by a coroutine that belongs to no event loop.

A commit waits for the unit of its session before it, and for its store. It is written once, as a coroutine that awaits
`Wait(future)`, and is run in one of two ways:

| | the coroutine continues | who waits for it |
|---|---|---|
| `run_blocking` | in the calling thread | that thread |
| `run_detached` | in the thread that completes what it waits for | a task with `outlast`, if any does |

No event loop runs a detached coroutine. So a task that is cancelled, or a loop that has ended, does not stop it half
way, and a thread that blocks until it has ended may be the thread of the loop.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Future, wait
from contextvars import copy_context
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")

_log = logging.getLogger("handrail")


class Wait(Generic[T]):
    """Awaits a future in a coroutine that is run by `run_blocking` or `run_detached`, and gives its result."""

    __slots__ = ("_future",)

    def __init__(self, future: Future[T]) -> None:
        """Wait for `future`."""
        self._future = future

    def __await__(self) -> Generator[Future[T], None, T]:
        """Hand the future over to what runs the coroutine, unless it is done."""
        if not self._future.done():
            yield self._future
        return self._future.result()


def run_blocking(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in this thread, which blocks where it waits.

    Raises:
        BaseException: what the coroutine raises. An interrupt of this thread, as by Ctrl-C, is raised inside it.
    """
    try:
        waited: Future[Any] = coroutine.send(None)
        while True:
            try:
                wait((waited,))
            except BaseException as interrupt:  # noqa: BLE001 - the coroutine decides what follows
                waited = coroutine.throw(interrupt)
            else:
                waited = coroutine.send(None)
    except StopIteration as end:
        returned: T = end.value
        return returned


def run_detached(coroutine: Coroutine[Any, Any, T]) -> Future[T]:
    """Run a coroutine in this thread until it waits, and then in the threads that complete what it waits for.

    Returns:
        A future of what it returns or raises.
    """
    ended: Future[T] = Future()

    def step(_: Future[Any] | None = None) -> None:
        try:
            waited: Future[Any] = coroutine.send(None)
        except StopIteration as end:
            ended.set_result(end.value)
        except BaseException as error:  # noqa: BLE001 - raised where the future is read
            ended.set_exception(error)
        else:
            waited.add_done_callback(step)

    step()
    return ended


def run_in_thread(body: Callable[[], T]) -> Future[T]:
    """Start `body` on a daemon thread, with a copy of this context."""
    future: Future[T] = Future()
    context = copy_context()

    def work() -> None:
        try:
            returned = context.run(body)
        # Also for `SystemExit`: otherwise the future would never be done, and its waiter would not wake.
        except BaseException as error:  # noqa: BLE001 - raised again where the future is read
            future.set_exception(error)
        else:
            future.set_result(returned)

    threading.Thread(target=work, name="handrail-call", daemon=True).start()
    return future


async def outlast(future: Future[T]) -> T:
    """Await a future of threads in a task; a task that is cancelled meanwhile waits until it is done all the same.

    Raises:
        CancelledError: the task was cancelled; the future is done by then.
        BaseException: what the future ended with.
    """
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await _done(future)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    return future.result()


def _done(future: Future[Any]) -> asyncio.Future[None]:
    """A future of the running loop that is completed with one of threads."""
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[None] = loop.create_future()
    wake_ups = _WAKE_UPS.get(loop)
    if wake_ups is None:
        wake_ups = _WAKE_UPS[loop] = _WakeUps()
    future.add_done_callback(lambda _: wake_ups.add(waiter))
    return waiter


class _WakeUps:
    """The waiters of one loop that are to be completed: those of one commit wake the loop once, not each of them."""

    __slots__ = ("_due", "_is_scheduled")

    def __init__(self) -> None:
        self._due: deque[asyncio.Future[None]] = deque()
        self._is_scheduled = False

    def add(self, waiter: asyncio.Future[None]) -> None:
        """Have the loop of a waiter complete it; called in any thread."""
        self._due.append(waiter)
        if self._is_scheduled:
            return
        self._is_scheduled = True
        try:
            waiter.get_loop().call_soon_threadsafe(self._complete)
        except RuntimeError:  # the loop has been closed: no task waits any more
            _log.debug("a unit of work was written after the event loop of its call had ended")

    def _complete(self) -> None:
        # First: a waiter that is added from here on is either found below, or has the loop woken again.
        self._is_scheduled = False
        while self._due:
            waiter = self._due.popleft()
            if not waiter.done():  # it was cancelled
                waiter.set_result(None)


_WAKE_UPS: WeakKeyDictionary[asyncio.AbstractEventLoop, _WakeUps] = WeakKeyDictionary()
