"""The event loop of `async def` handlers through the synchronous entry: one for each thread, kept between its calls.

Making a loop takes longer than the rest of most calls, and a client that is bound to a loop (an HTTP client, a pool of
connections) can be used by all calls of the thread. A loop holds three descriptors as long as its thread lives.

| when | what happens |
|---|---|
| a handler has ended | tasks that it has left are cancelled and awaited, as by `asyncio.run` |
| | callbacks that it has scheduled for later run during a later call of the thread, if at all |
| a handler was interrupted, as by Ctrl-C | the loop is closed; the next call of the thread makes another one |
| the thread or the process ends | the loop is closed, with asynchronous generators that handlers have left |
| the process forks | the child makes loops of its own |

The loop is not what `asyncio.get_event_loop` returns to the program.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Callable, Collection, Coroutine, Sequence
from concurrent.futures import Future
from contextlib import closing, nullcontext, suppress
from contextvars import copy_context
from functools import partial
from typing import Any, TypeVar

from handrail.interrupts import HeldInterrupts, allow_interrupts, raise_held_interrupt
from handrail.waiting import Shield, synchronous_entry

T = TypeVar("T")


class ReplyEndedError(asyncio.CancelledError):
    """The call was not begun, because an earlier call of its reply was interrupted; its task is not cancelled."""


def run_on_handler_loop(body: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Runs a coroutine function on the loop of this thread, in a copy of this context; Ctrl-C interrupts it at once."""
    raise_held_interrupt()  # here, where no loop has to be closed for it
    runner = _runner_of_thread()
    try:
        return allow_interrupts(partial(_run, runner, body))
    except BaseException as error:
        if not isinstance(error, Exception):  # the state of the loop is not known
            _end_tasks(runner.get_loop())
            _close_loop()
        raise


@synchronous_entry
def run_beside(calls: Sequence[Callable[[], Coroutine[Any, Any, T]]]) -> list[Callable[[], T]]:
    """Runs coroutines on the loop of this thread until all have ended; Ctrl-C cancels them.

    One that fails does not cancel the others, because their effects would be unknown then. They start in their order.
    Returns for each a function that returns or raises what it has ended with.

    Raises:
        RuntimeError: this thread runs an event loop.
        BaseException: the first of what they raise that ends a program.
    """
    with HeldInterrupts():
        return run_on_handler_loop(partial(_outcomes, calls))


async def _outcomes(calls: Sequence[Callable[[], Coroutine[Any, Any, T]]]) -> list[Callable[[], T]]:
    outcomes = await asyncio.gather(*map(_outcome, calls))
    for error in [outcome.exception() for outcome in outcomes]:
        if not isinstance(error, Exception | asyncio.CancelledError | None):
            raise error  # before that of a call which was not begun because of it
    return [outcome.result for outcome in outcomes]


async def _outcome(call: Callable[[], Coroutine[Any, Any, T]]) -> Future[T]:
    # Not raised: a task that raises `KeyboardInterrupt` would end its loop at once.
    future: Future[T] = Future()
    try:
        future.set_result(await call())
    except BaseException as error:  # noqa: BLE001 - raised where the outcome is read
        future.set_exception(error)
    return future


async def cancel_all(tasks: Collection[asyncio.Future[Any]]) -> None:
    """Cancels tasks, and waits until they have ended; a `CancelledError` of this task is raised when they have."""
    for task in tasks:
        task.cancel()  # does nothing to one that has ended
    cancelled: asyncio.CancelledError | None = None
    while unfinished := [task for task in tasks if not task.done()]:
        try:
            with nullcontext() if cancelled is None else Shield():
                await asyncio.wait(unfinished)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


class _EndOfThread:
    """Closes the loop of a thread when that ends, and clears what is local to it.

    Only the thread refers to this. The traceback of an exception refers to the loop, and may be garbage much later:
    then Python may finalize the loop first, which warns that it was not closed.
    """

    def __init__(self, runner: asyncio.Runner) -> None:
        self.runner = runner
        self.process = os.getpid()

    def __del__(self) -> None:
        # In a child that another thread has forked off, closing it would stop the loop of the parent, with which it
        # shares the descriptors that it waits on.
        if self.process != os.getpid():
            _OF_PARENT.append(self.runner)
            return
        # Not by the runner, which starts a thread to wait for those of the loop: no thread can be started when the
        # interpreter ends.
        loop = self.runner.get_loop()
        with suppress(RuntimeError), closing(loop):  # an interrupt has left it running, or the interpreter will end
            loop.run_until_complete(loop.shutdown_asyncgens())


def _runner_of_thread() -> asyncio.Runner:
    # A function of its own, because a traceback of a handler has the frames of its callers.
    end: _EndOfThread | None = getattr(_THREAD, "end", None)
    if end is None or end.process != os.getpid():
        # With a factory the runner does not make it the current loop of the thread.
        runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        # Made now, where Ctrl-C is held back: a loop that is half made cannot be closed.
        _look_for_signals(runner.get_loop())
        end = _THREAD.end = _EndOfThread(runner)
    return end.runner


def _look_for_signals(loop: asyncio.AbstractEventLoop) -> None:
    # Four times a second: a signal that comes as the loop begins to wait, or to another thread, ends no wait.
    loop.call_later(0.25, _look_for_signals, loop)


def _run(runner: asyncio.Runner, body: Callable[[], Coroutine[Any, Any, T]]) -> T:
    loop = runner.get_loop()
    try:
        return runner.run(body(), context=copy_context())
    finally:
        while tasks := asyncio.all_tasks(loop):
            loop.run_until_complete(cancel_all(tasks))  # asyncio reports those that fail
        loop.set_exception_handler(None)


def _end_tasks(loop: asyncio.AbstractEventLoop) -> None:
    # After another Ctrl-C: nothing will run these tasks again, and they hold turns.
    loop.set_exception_handler(lambda _loop, _context: None)  # which would report that the tasks are pending
    for task in asyncio.all_tasks(loop):
        with suppress(Exception):  # whatever it ends with
            task.get_coro().close()


# Of the process: a thread has one loop. `end` is what closes it, from the first call of an `async def` handler on.
_THREAD = threading.local()

# Of the process: loops of the one that it was forked off; they are never closed here.
_OF_PARENT: list[asyncio.Runner] = []


def _close_loop() -> None:
    _THREAD.end = None  # nothing else refers to it


# Before the interpreter ends: it does not clear what is local to its main thread until modules are gone.
atexit.register(_close_loop)
