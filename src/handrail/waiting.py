"""Waiting for what threads complete: by a task, by a thread, or by a coroutine that belongs to no event loop.

A commit waits for the unit of its session before it, and for its store. It is written once, as a coroutine that awaits
`Wait(future)`, and is run in one of two ways:

| | the coroutine continues | who waits for it |
|---|---|---|
| `run_blocking` | in the calling thread | that thread |
| `run_detached` | in the thread that completes what it waits for | a task with `await_shielded`, if any does |

No event loop runs a detached coroutine. So a task that is cancelled, or a loop that has ended, does not stop it half
way, and a thread that blocks until it has ended may be the thread of the loop.

With `HANDRAIL_LOOP_GUARD=1` in the environment, each operation that waits for a disk, a server or another thread checks
where it runs:

| entered through | where the loop of the thread runs | elsewhere |
|---|---|---|
| the asynchronous entry: `execute_async`, PydanticAI's toolset, a run of an agent | `LoopBlockedError` | runs |
| the synchronous entry: `execute`, or a function that the program calls by itself | runs; it is to block | runs |

The asynchronous entry lasts as long as its coroutine, and in what that calls or starts, handlers and policies of the
program included: it is a variable of the context (`contextvars`). The environment is read once, when this module is
imported. Without the variable, an entry is the function itself, and a check is a call that does nothing.

One wait is always refused where a loop runs: that for a call which may need the loop to end (`may_wait_for_calls`).
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext, suppress
from contextvars import Context, ContextVar, copy_context
from functools import partial, wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, cast
from weakref import WeakKeyDictionary

from handrail.errors import LoopBlockedError
from handrail.redaction import redacted_logger
from handrail.threads import THREADS

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")
S = TypeVar("S")
P = ParamSpec("P")
AsyncEntry = TypeVar("AsyncEntry", bound=Callable[..., Coroutine[Any, Any, Any]])
SyncEntry = TypeVar("SyncEntry", bound=Callable[..., Any])

_log = redacted_logger("handrail")

VARIABLE = "HANDRAIL_LOOP_GUARD"
"""The variable of the environment that turns the guard on."""

IS_ON: bool = os.environ.get(VARIABLE) == "1"
"""True if the guard is on."""

_ENTERED_ASYNC: ContextVar[bool] = ContextVar("handrail_entered_async", default=False)
_BLOCKS_LOOP: ContextVar[bool] = ContextVar("handrail_blocks_loop", default=False)


def check_blocking(operation: str, of: object = "") -> None:
    """Raises `LoopBlockedError` in an event loop, if the guard is on and the asynchronous entry leads here.

    Args:
        operation: completes the sentence "... would block the event loop": `"writing to"`.
        of: the object of the operation; an argument of its own, so that no text is made while the guard is off.
    """
    if IS_ON and _ENTERED_ASYNC.get() and loop_is_running():
        raise LoopBlockedError(f"{operation} {of}".strip())


def asynchronous_entry(entry: AsyncEntry) -> AsyncEntry:
    """Marks a coroutine function as an asynchronous entry; the same function if the guard is off."""
    if not IS_ON:
        return entry

    @wraps(entry)
    async def guarded(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as those of the entry
        with in_context(_ENTERED_ASYNC, value=True):
            return await entry(*args, **kwargs)

    return cast("AsyncEntry", guarded)  # it has the signature of what it wraps


def synchronous_entry(entry: SyncEntry) -> SyncEntry:
    """Marks a function as a synchronous entry, which may block; the same function if the guard is off."""
    return in_context(_ENTERED_ASYNC, value=False)(entry) if IS_ON else entry


@contextmanager
def in_context(variable: ContextVar[T], value: T) -> Generator[None]:
    """A block in which a variable of the context has a value."""
    token = variable.set(value)
    try:
        yield
    finally:
        # A coroutine that is collected is closed in the context of the collection, which has no such token.
        with suppress(ValueError):
            variable.reset(token)


def may_wait_for_calls() -> bool:
    """Returns whether this thread may wait for calls of others: they may need the event loop that it runs."""
    return _BLOCKS_LOOP.get() or not loop_is_running()


def allow_waiting(body: Callable[[], T]) -> T:
    """Calls a function that may wait for calls on an event loop too, as a recorder of what has happened has to."""
    if not loop_is_running():
        return body()
    with in_context(_BLOCKS_LOOP, value=True):
        return body()


def loop_is_running() -> bool:
    """Returns whether this thread runs an event loop."""
    # Not by `get_running_loop`, which raises if there is none; asyncio may not be loaded, or only in part.
    running: Callable[[], object] | None = getattr(sys.modules.get("asyncio"), "_get_running_loop", None)
    return running is not None and running() is not None


# -------------------------------------------------------------------------------------------------------------- waiting


def block_until_done(future: Future[Any]) -> None:
    """Blocks this thread until a future is done."""
    check_blocking("waiting for another thread")
    future.exception()


class Wait(Generic[T]):
    """Awaits a future in a coroutine that is run by `run_blocking` or `run_detached`, and gives its result."""

    __slots__ = ("_future",)

    def __init__(self, future: Future[T]) -> None:
        self._future = future

    def __await__(self) -> Generator[Future[T], None, T]:
        if not self._future.done():
            yield self._future
        return self._future.result()


def run_blocking(coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine in this thread, which blocks where it waits; Ctrl-C is raised inside the coroutine."""
    try:
        future: Future[Any] = coroutine.send(None)
        while True:
            try:
                block_until_done(future)
            except BaseException as interrupt:  # noqa: BLE001 - the coroutine decides what follows
                future = coroutine.throw(interrupt)
            else:
                future = coroutine.send(None)
    except StopIteration as end:
        value: T = end.value
        return value


def run_detached(coroutine: Coroutine[Any, Any, T]) -> Future[T]:
    """Runs a coroutine in this thread until it waits, and then in the threads that complete what it waits for."""
    task = _Detached(coroutine)
    task.step()
    return task.outcome


# Not a closure that names itself: only a collection would free it.
class _Detached(Generic[T]):
    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._coroutine = coroutine
        self.outcome: Future[T] = Future()

    def step(self, _: Future[Any] | None = None) -> None:
        try:
            future: Future[Any] = self._coroutine.send(None)
        except StopIteration as end:
            self.outcome.set_result(end.value)
        except BaseException as error:  # noqa: BLE001 - raised where the future is read
            self.outcome.set_exception(error)
        else:
            future.add_done_callback(self.step)


def run_on_new_loop(coroutine: Coroutine[Any, Any, T]) -> T:
    """As `asyncio.run`; a `SystemExit` of the coroutine is raised when its loop has ended.

    A task that ends with one stops its loop at once, and nothing is called that waits for the end of the task. So the
    threads of AnyIO would never end, and no process ends before them.
    """
    from asyncio import run  # noqa: PLC0415

    value, exit_ = run(_with_exit(coroutine))
    if exit_ is not None:
        raise exit_
    return cast("T", value)


async def _with_exit(coroutine: Coroutine[Any, Any, T]) -> tuple[T | None, SystemExit | KeyboardInterrupt | None]:
    try:
        return await coroutine, None
    except (SystemExit, KeyboardInterrupt) as error:
        return None, error


def run_in_thread(body: Callable[[], T]) -> Future[T]:
    """Runs `body` on a thread of its own, with a copy of this context; `RuntimeError` if none can be started."""
    future: Future[T] = Future()
    THREADS.run(partial(_run_to, future, copy_context(), body))
    return future


def run_in_thread_or_here(body: Callable[[], T]) -> Future[T]:
    """As `run_in_thread`; on this thread if no other can be started, as when the interpreter is about to end."""
    try:
        return run_in_thread(body)
    except RuntimeError:
        future: Future[T] = Future()
        # It blocks the event loop of this thread, if there is one, and the loop guard permits that.
        _run_to(future, copy_context(), partial(allow_waiting, synchronous_entry(body)))
        return future


def _run_to(outcome: Future[T], context: Context, body: Callable[[], T]) -> None:
    try:
        value = context.run(body)
    # Also for `SystemExit`: otherwise it would never be done, and its waiter would not wake.
    except BaseException as error:  # noqa: BLE001 - raised again where the outcome is read
        outcome.set_exception(error)
    else:
        outcome.set_result(value)


async def await_shielded(future: Future[T], stop: Callable[[], object] | None = None) -> T:
    """Awaits a future that a thread completes; a task that is cancelled meanwhile waits until it is done all the same.

    `stop` makes the thread end soon; it is called when the task is cancelled. `CancelledError` is raised when the
    future is done, and so is `GeneratorExit` if the loop was closed before.
    """
    from asyncio import CancelledError  # noqa: PLC0415

    cancellation: CancelledError | None = None  # the first one; the task may be cancelled again
    while not future.done():
        try:
            with nullcontext() if cancellation is None else Shield():
                await loop_future(future)
        except CancelledError as error:
            if stop is not None and cancellation is None:
                stop()
            cancellation = cancellation or error
        except BaseException:  # its loop was closed, and the coroutine is too: nothing can be awaited any more
            block_until_done(future)
            raise
    if cancellation is not None:
        raise cancellation
    return future.result()


def asynchronous(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """Makes the asynchronous form of a method that may wait: it runs on a thread, and a cancelled task waits for it."""
    name = method.__name__

    @wraps(method)
    async def on_thread(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        # By its name: a class may have another method of it than the one that this was made of.
        return await await_shielded(run_in_thread_or_here(partial(getattr(self, name), *args, **kwargs)))

    on_thread.__name__, on_thread.__qualname__ = f"{name}_async", f"{method.__qualname__}_async"
    on_thread.__doc__ = f"As `{name}`, on a thread; a cancellation of the task is raised when it has ended."
    return on_thread


@contextmanager
def closing_after(error: BaseException | None, resource: object) -> Generator[None]:
    """The end of a `with` block that closes a resource: its errors are noted on `error`, if that leaves it."""
    try:
        yield
    except Exception as failure:
        if error is None:
            raise
        _log.warning("%r could not be closed", resource, exc_info=True)
        error.add_note(f"{resource!r} could not be closed: {failure}")


class Shield:
    """A context manager: AnyIO does not cancel the task in its block, which it else does in each iteration of the loop.

    `asyncio` cancels the task in the block, too.
    """

    def __enter__(self) -> None:
        make = getattr(sys.modules.get("anyio"), "CancelScope", None)
        self._scope: Any = None if make is None else make(shield=True)
        if self._scope is not None:
            self._scope.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # It asks for the current task, and a loop that has been closed has none.
        if self._scope is not None and kind is not GeneratorExit:
            self._scope.__exit__(kind, error, traceback)


def loop_future(source: Future[Any]) -> asyncio.Future[None]:
    """A future of the running loop that is done when a thread has completed another one.

    Those that are done at the same time, as by the commit of a group, wake their tasks in slices, each in an iteration
    of the loop of its own, so that the loop does other work between two of them.
    """
    from asyncio import get_running_loop  # noqa: PLC0415

    loop = get_running_loop()
    waiter: asyncio.Future[None] = loop.create_future()
    source.add_done_callback(partial(_slices_in(loop).add, waiter))
    return waiter


async def wait_for_budget() -> None:
    """Waits until a task may begin a call: in an iteration of its loop as many begin as are woken, in order."""
    from asyncio import get_running_loop  # noqa: PLC0415

    loop = get_running_loop()
    await _slices_in(loop).wait_for_budget(loop)


_AT_ONCE = 8
"""The tasks that continue in one iteration of a loop: their parts of their calls take about two milliseconds."""


class _Slices:
    """The tasks of one loop that are to continue, in their order: so many in each iteration of the loop."""

    __slots__ = ("_beginning", "_budget", "_due", "_is_scheduled")

    def __init__(self) -> None:
        self._beginning = 0
        self._due: deque[asyncio.Future[None]] = deque()
        self._is_scheduled = False
        self._budget = _AT_ONCE

    def add(self, waiter: asyncio.Future[None], _completed: object = None) -> None:
        if waiter.done():  # cancelled: its loop may have ended, which it would keep from being collected
            return
        self._due.append(waiter)
        if self._is_scheduled:
            return
        loop = waiter.get_loop()
        try:
            self._is_scheduled = True
            loop.call_soon_threadsafe(self._complete_slice, loop)
        except BaseException as error:
            self._is_scheduled = False  # the next waiter that is added has the loop woken
            if not (isinstance(error, RuntimeError) and loop.is_closed()):
                raise

    async def wait_for_budget(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._budget and not self._beginning:
            self._budget -= 1
            self._schedule(loop)
            return
        waiter: asyncio.Future[None] = loop.create_future()
        self._beginning += 1  # until the task runs again: none overtakes it
        try:
            self.add(waiter)
            await waiter
        finally:
            self._beginning -= 1

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            loop.call_soon(self._complete_slice, loop)

    def _complete_slice(self, loop: asyncio.AbstractEventLoop) -> None:
        from asyncio import InvalidStateError  # noqa: PLC0415

        self._is_scheduled = False  # first: a waiter that is added from here on has the loop woken again
        self._budget = _AT_ONCE
        while self._due and self._budget:
            with suppress(InvalidStateError):  # it was cancelled; a signal may cancel it in this line
                self._due.popleft().set_result(None)
                self._budget -= 1
        if self._budget < _AT_ONCE:
            self._schedule(loop)  # behind the tasks that have been woken


# Of the process: an event loop has one, whichever executors its tasks belong to.
_SLICES: WeakKeyDictionary[asyncio.AbstractEventLoop, _Slices] = WeakKeyDictionary()


def _slices_in(loop: asyncio.AbstractEventLoop) -> _Slices:
    return _SLICES.get(loop) or _SLICES.setdefault(loop, _Slices())
