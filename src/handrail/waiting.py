"""Waiting for what threads complete: by a task, by a thread, or by a coroutine that belongs to no event loop.

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
import sys
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Future
from contextlib import suppress
from contextvars import Context, copy_context
from functools import partial, wraps
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, cast
from weakref import ref

from handrail.loop_guard import allow_waiting, check_blocking, synchronous_entry
from handrail.redaction import redacted_logger
from handrail.threads import THREADS

T = TypeVar("T")
S = TypeVar("S")
P = ParamSpec("P")
Given_co = TypeVar("Given_co", covariant=True)

_log = redacted_logger("handrail")


class Completable(Protocol[Given_co]):
    """What a thread completes: a `Completion`, or a `concurrent.futures.Future`."""

    def done(self) -> bool:
        """Whether it has been completed."""
        ...

    def result(self) -> Given_co:
        """What it was completed with; blocks until it has been. Raises the exception that it was completed with."""
        ...

    def add_done_callback(self, called: Callable[[Any], object], /) -> None:
        """Have something called with this object when it is completed, in the thread that does it; now, if it is."""
        ...


class Completion(Generic[T]):
    """A result that another thread provides, once; what is used of `concurrent.futures.Future`, as one small object.

    Thousands of them are in flight where many agents wait for their store.
    """

    __slots__ = ("_called", "_error", "_lock", "_value")

    def __init__(self) -> None:
        """Wait for a result."""
        self._lock = threading.Lock()
        self._called: list[Callable[[Completion[T]], object]] | None = None
        self._value: T | object = _NOT_YET
        self._error: BaseException | None = None

    def done(self) -> bool:
        """Whether it has been completed."""
        return self._value is not _NOT_YET

    def result(self) -> T:
        """What it was completed with; blocks until it has been.

        Raises:
            BaseException: what it was completed with.
        """
        if self._value is _NOT_YET:
            _block(self)
        if self._error is not None:
            raise self._error
        return cast("T", self._value)

    def add_done_callback(self, called: Callable[[Completion[T]], object], /) -> None:
        """Have something called when it is completed, in the thread that does it; now, if it is completed already."""
        with self._lock:
            is_done = self._value is not _NOT_YET
            if not is_done:
                if self._called is None:
                    self._called = []
                self._called.append(called)
        if is_done:
            called(self)

    def set_result(self, value: T) -> None:
        """Complete it."""
        self._complete(value, None)

    def set_exception(self, error: BaseException) -> None:
        """Complete it with what `result` is to raise."""
        self._complete(None, error)

    def _complete(self, value: T | None, error: BaseException | None) -> None:
        with self._lock:
            self._error = error
            self._value = value
            all_called, self._called = self._called, None
        interrupt: BaseException | None = None
        for called in all_called or ():
            try:
                called(self)
            except Exception:  # noqa: BLE001 - logged: what this thread does is the affair of others
                _log.exception("what waited for a unit of work failed")
            except BaseException as raised:  # noqa: BLE001 - raised when the others have been called
                interrupt = raised
        if interrupt is not None:
            raise interrupt


_NOT_YET = object()


def _block(completable: Completable[Any]) -> None:
    """Block this thread until something is completed."""
    check_blocking("waiting for another thread")
    completed = threading.Event()
    completable.add_done_callback(lambda _: completed.set())
    completed.wait()


class Wait(Generic[T]):
    """Awaits a completion in a coroutine that is run by `run_blocking` or `run_detached`, and gives its result."""

    __slots__ = ("_awaited",)

    def __init__(self, awaited: Completable[T]) -> None:
        """Wait for `awaited`."""
        self._awaited = awaited

    def __await__(self) -> Generator[Completable[T], None, T]:
        """Hand over what is awaited to what runs the coroutine, unless it is done."""
        if not self._awaited.done():
            yield self._awaited
        return self._awaited.result()


def run_blocking(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in this thread, which blocks where it waits.

    Raises:
        BaseException: what the coroutine raises. An interrupt of this thread, as by Ctrl-C, is raised inside it.
    """
    try:
        waited: Completable[Any] = coroutine.send(None)
        while True:
            try:
                _block(waited)
            except BaseException as interrupt:  # noqa: BLE001 - the coroutine decides what follows
                waited = coroutine.throw(interrupt)
            else:
                waited = coroutine.send(None)
    except StopIteration as end:
        returned: T = end.value
        return returned


def run_detached(coroutine: Coroutine[Any, Any, T]) -> Completion[T]:
    """Run a coroutine in this thread until it waits, and then in the threads that complete what it waits for.

    Returns:
        It is completed with what the coroutine returns or raises.
    """
    detached = _Detached(coroutine)
    detached.step()
    return detached.ended


class _Detached(Generic[T]):
    """A coroutine that is run by what it waits for. Not a closure that names itself: only a collection would free it.

    Attributes:
        ended: completed with the outcome of the coroutine.
    """

    __slots__ = ("_coroutine", "ended")

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._coroutine = coroutine
        self.ended: Completion[T] = Completion()

    def step(self, _: Completable[Any] | None = None) -> None:
        """Run it until it waits or ends."""
        try:
            waited: Completable[Any] = self._coroutine.send(None)
        except StopIteration as end:
            self.ended.set_result(end.value)
        except BaseException as error:  # noqa: BLE001 - raised where the future is read
            self.ended.set_exception(error)
        else:
            waited.add_done_callback(self.step)


def run_on_new_loop(coroutine: Coroutine[Any, Any, T]) -> T:
    """As `asyncio.run`; a `SystemExit` that the coroutine ends with is raised when its loop has come to its own end.

    A task that ends with one stops its loop at once, and nothing is called that waits for the end of the task. So the
    threads of AnyIO would never end, and no process ends before them.

    Raises:
        BaseException: what the coroutine raises.
    """
    returned, exit_ = asyncio.run(_with_exit(coroutine))
    if exit_ is not None:
        raise exit_
    return cast("T", returned)


async def _with_exit(coroutine: Coroutine[Any, Any, T]) -> tuple[T | None, SystemExit | KeyboardInterrupt | None]:
    try:
        return await coroutine, None
    except (SystemExit, KeyboardInterrupt) as error:
        return None, error


def run_in_thread(body: Callable[[], T]) -> Future[T]:
    """Run `body` on a thread of its own (`handrail.threads`), with a copy of this context.

    Raises:
        RuntimeError: no thread can be started.
    """
    future: Future[T] = Future()
    THREADS.run(partial(_run_to, future, copy_context(), body))
    return future


def complete_in_thread(body: Callable[[], T]) -> Completion[T]:
    """As `run_in_thread`; what it returns takes a third of the time to make and to complete.

    Raises:
        RuntimeError: no thread can be started.
    """
    completion: Completion[T] = Completion()
    THREADS.run(partial(_run_to, completion, copy_context(), body))
    return completion


def complete_in_thread_or_here(body: Callable[[], T]) -> Completion[T]:
    """As `complete_in_thread`, for what has to be done: on this thread if no other can be started.

    So it is where there are too many threads, or the interpreter is about to end.
    """
    try:
        return complete_in_thread(body)
    except RuntimeError:
        completion: Completion[T] = Completion()
        # It blocks the event loop of this thread, if there is one, and the loop guard permits that.
        _run_to(completion, copy_context(), partial(allow_waiting, synchronous_entry(body)))
        return completion


def _run_to(outcome: Future[T] | Completion[T], context: Context, body: Callable[[], T]) -> None:
    try:
        returned = context.run(body)
    # Also for `SystemExit`: otherwise it would never be done, and its waiter would not wake.
    except BaseException as error:  # noqa: BLE001 - raised again where the outcome is read
        outcome.set_exception(error)
    else:
        outcome.set_result(returned)


async def outlast(completable: Completable[T]) -> T:
    """Await what a thread completes; a task that is cancelled meanwhile waits until it is done all the same.

    Raises:
        CancelledError: the task was cancelled; it is done by then.
        GeneratorExit: the loop was closed before the task had ended; it is done by then.
        BaseException: what it was completed with.
    """
    try:
        if not completable.done():
            await completed(completable)
    except asyncio.CancelledError:
        await _outlast_cancelled(completable)
        raise
    except BaseException:  # its loop was closed, and the coroutine is too: nothing can be awaited any more
        _block(completable)
        raise
    return completable.result()


def asynchronous(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """Make the asynchronous form of a method that may wait: it runs on a thread, and a cancelled task outlasts it."""
    name = method.__name__

    @wraps(method)
    async def on_thread(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        # By its name: a class may have another method of it than the one that this was made of.
        return await outlast(complete_in_thread_or_here(partial(getattr(self, name), *args, **kwargs)))

    on_thread.__name__, on_thread.__qualname__ = f"{name}_async", f"{method.__qualname__}_async"
    on_thread.__doc__ = f"As `{name}`, on a thread; a cancellation of the task is raised when it has ended."
    return on_thread


async def _outlast_cancelled(completable: Completable[Any]) -> None:
    """Await what a thread completes in a task that has been cancelled, and may be cancelled again."""
    while not completable.done():
        try:
            with Shield():
                await completed(completable)
        except asyncio.CancelledError:  # the first one is raised
            continue
        except BaseException:  # as above
            _block(completable)
            raise


class Shield:
    """A context manager: AnyIO does not cancel the task in its block, which it else does in each iteration of the loop.

    The loop would be busy with that for as long as the task waits. `asyncio` cancels the task in the block, too.
    """

    __slots__ = ("_scope",)

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


def completed(completable: Completable[Any]) -> asyncio.Future[None]:
    """A future of the running loop that is done when a thread has completed something.

    Those that are done at the same time wake their tasks in slices, each in an iteration of the loop of its own, so
    that the loop does other work between two of them.
    """
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[None] = loop.create_future()
    completable.add_done_callback(partial(_wake_ups_of(loop).add, waiter))
    return waiter


def may_begin() -> bool:
    """Whether a task may begin a call in this iteration of the loop; else it awaits `turn_to_begin` first.

    Many agents may ask for a call in the same iteration. They begin in slices as those that are woken together, in the
    order in which they asked.
    """
    loop = asyncio.get_running_loop()
    return _wake_ups_of(loop).may_begin(loop)


async def turn_to_begin() -> None:
    """Wait until a task may begin a call. One that is cancelled has not begun."""
    await _wake_ups_of(asyncio.get_running_loop()).turn_to_begin()


def _wake_ups_of(loop: asyncio.AbstractEventLoop) -> _WakeUps:
    if _THREAD.loop() is not loop:
        _THREAD.loop, _THREAD.wake_ups = ref(loop), _WakeUps()
    return _THREAD.wake_ups


def _runs_here(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


_SLICE_SECONDS = 0.002
"""How long the tasks of one slice may take. A slice is as large as the one before it lets expect."""

_FIRST_SLICE = 8
"""The tasks of the first slice."""


class _WakeUps:
    """The waiters of one loop that are to be completed: those of one commit wake the loop once, not each of them.

    Any thread adds waiters, and the loop alone completes them.
    """

    __slots__ = ("_began_at", "_beginning", "_due", "_is_scheduled", "_size", "_woken_at")

    def __init__(self) -> None:
        self._due: deque[asyncio.Future[None]] = deque()
        self._beginning = 0
        self._began_at: float | None = None
        self._is_scheduled = False
        self._size = _FIRST_SLICE
        self._woken_at = 0.0

    def add(self, waiter: asyncio.Future[None], _completed: object = None) -> None:
        """Have the loop of a waiter complete it; called in any thread."""
        self._due.append(waiter)
        if self._is_scheduled:
            return
        try:
            self._is_scheduled = True
            loop = waiter.get_loop()
            # The loop that runs in this thread need not be woken, which takes three system calls.
            call_soon = loop.call_soon if _runs_here(loop) else loop.call_soon_threadsafe
            call_soon(self._complete)
        except BaseException as error:
            self._is_scheduled = False  # the next waiter that is added has the loop woken
            if not (isinstance(error, RuntimeError) and waiter.get_loop().is_closed()):
                raise
            _log.debug("what a task waited for was completed after its event loop had ended")

    def may_begin(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether no call waits to begin, and those of this iteration have not taken a slice yet."""
        if self._beginning:
            return False
        if self._began_at is None:
            self._began_at = loop.time()
            loop.call_soon(self._begin_anew)
            return True
        return loop.time() - self._began_at < _SLICE_SECONDS

    def _begin_anew(self) -> None:
        self._began_at = None

    async def turn_to_begin(self) -> None:
        """Wait behind the calls that wait to begin; they stay in this order, because none overtakes them."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._beginning += 1
        try:
            self.add(waiter)
            await waiter
        finally:
            self._beginning -= 1

    def _complete(self) -> None:
        """Complete the first slice."""
        self._size = _FIRST_SLICE
        self._complete_slice()

    def _complete_next(self) -> None:
        """Complete another slice; the tasks of the one before have run meanwhile."""
        took = asyncio.get_running_loop().time() - self._woken_at
        fits = self._size * 2 if took <= 0 else int(self._size * _SLICE_SECONDS / took)
        self._size = max(1, min(fits, self._size * 2))
        self._complete_slice()

    def _complete_slice(self) -> None:
        left = self._size
        try:
            while self._due and left:
                with suppress(asyncio.InvalidStateError):  # it was cancelled; a signal may cancel it in this line
                    self._due.popleft().set_result(None)
                    left -= 1
            if not self._due:
                self._is_scheduled = False
                # A waiter that was added before that is due now; one that is added later has the loop woken again.
                if not self._due:
                    return
                self._is_scheduled = True
            # Behind the tasks that have been woken.
            loop = asyncio.get_running_loop()
            self._woken_at = loop.time()
            loop.call_soon(self._complete_next)
        except BaseException:
            self._is_scheduled = False  # by Ctrl-C; as in `add`
            raise


class _Thread(threading.local):
    """The loop that has waited last in a thread, and its wake-ups."""

    def __init__(self) -> None:
        self.loop: Callable[[], asyncio.AbstractEventLoop | None] = lambda: None
        self.wake_ups = _WakeUps()


_THREAD = _Thread()
