"""Execution modes of a call, blocking on this thread or async on an event loop; and its turn.

The pipeline is written once, as a coroutine. Everything that it may wait for goes through an `ExecutionMode`:

| | `BLOCKING` (`ToolExecutor.execute`) | `ASYNC` (`execute_async`, PydanticAI) |
|---|---|---|
| a turn, another call's effect | blocks this thread | suspends this task |
| a `def` handler | runs on this thread; bounded in time, on a thread of its own | runs on a thread of its own |
| an `async def` handler | runs on the loop of this thread's handlers | is awaited; bounded in time, as a task |
| an awaitable returned by a `def` handler | as an `async def` handler, in the time that is left | the same |
| a claim, a commit | written on this thread | written in a thread of the store, which the task outlasts |
| the record of a failed call, its effect | written on this thread | written in a thread of its own, as above |

A bounded handler that overruns is abandoned: a task is cancelled and given a moment to clean up, a thread cannot be
stopped. Its later writes are rejected by its closed transaction (`handrail.transaction`). What it returns or raises in
the end is passed to `late`, if the caller gives one.

Calls of one reply that may run side by side do so through the synchronous entry, too (`SIDE_BY_SIDE`): as by `ASYNC`,
on the loop of this thread's handlers. A handler that is bounded there runs as by `BLOCKING`, on a thread of its own.

A thread of its own is a daemon thread that runs nothing else meanwhile, not one of a pool (`handrail.threads`).
"""

from __future__ import annotations

import inspect
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future, wait
from contextvars import Context, ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias, TypeVar, cast

from handrail.errors import (
    DeadlineExceededError,
    PromptEvaluationError,
    ReadOnlyViolation,
    TransactionClosedError,
    TurnConflictError,
)
from handrail.interrupts import HeldInterrupts, allow_interrupts, raise_held_interrupt
from handrail.prompt import Tool
from handrail.prompt.signature import is_async, takes_context
from handrail.redaction import redacted_logger
from handrail.transaction import Transaction, UnitStore, current
from handrail.transaction.commit import Apply, apply_detached
from handrail.turns import Ticket, Turn, draw_ticket, find_turn
from handrail.waiting import (
    Shield,
    allow_waiting,
    await_shielded,
    loop_future,
    loop_is_running,
    run_blocking,
    run_detached,
    run_in_thread,
    run_in_thread_or_here,
    run_on_new_loop,
)

if TYPE_CHECKING:
    import asyncio

    from handrail.limits import Deadline
    from handrail.resources import ResourceContext
    from handrail.session import Session

T = TypeVar("T")

_log = redacted_logger("handrail.runtime")

_CLEAN_UP_SECONDS = 1.0


class ExecutionTimeoutError(Exception):
    """A wait or a body exceeded its time limit. Never leaves the runtime."""


class CancelledElsewhereError(Exception):
    """The awaited object was cancelled by another party, and the call is not being cancelled: an ordinary failure."""

    def __init__(self) -> None:
        super().__init__("what it waited for was cancelled by another party")


Act: TypeAlias = Callable[[], Any]
"""A handler, an approver or a reconciler, with its arguments; it returns whatever they return."""

Late: TypeAlias = Callable[[Future[Any]], None]
"""Called when a body that overran ends after all, with a future that is done and has its result or exception."""


class ExecutionMode:
    """How the pipeline waits, and runs what may take long: here on the running event loop, which is never blocked."""

    inline: ClassVar[bool] = False

    async def wait(self, waiter: Future[Any], *, seconds: float | None, for_body: bool = False) -> None:  # noqa: ARG002 - for `Blocking`
        """Waits until `waiter` is done; its outcome stays in it.

        `for_body` is true of what this mode runs; another call may need the event loop of this thread to end.

        Raises:
            ExecutionTimeoutError: it was not done in time.
            PromptEvaluationError: this thread runs an event loop, which the wait would stop.
        """
        # Not `asyncio.wrap_future`, which copies the outcome into a future that refuses some exceptions
        # (`StopIteration`).
        from asyncio import wait  # noqa: PLC0415

        done = loop_future(waiter)
        try:
            await wait((done,), timeout=seconds)
        finally:
            done.cancel()
        if not waiter.done():
            raise ExecutionTimeoutError

    async def run(self, body: Act, *, is_async: bool, seconds: float | None, late: Late | None = None) -> Any:  # noqa: ANN401 - whatever a handler returns
        """Runs a handler, an approver or a reconciler, as the table of this module specifies.

        Raises:
            ExecutionTimeoutError: it took longer than `seconds`; it may still be running.
            CancelledElsewhereError: what it awaited was cancelled, and this task is not being cancelled.
            CancelledError: this task is being cancelled, whatever the body has made of that.
        """
        if not is_async:
            return await self._on_thread(body, seconds, late)
        with _Cancellation():
            return await body() if seconds is None else await _bounded(body, seconds=seconds, late=late)

    async def _on_thread(self, body: Callable[[], T], seconds: float | None, late: Late | None) -> T:
        with _Cancellation():
            future = run_in_thread(body)
            try:
                await self.wait(future, seconds=seconds, for_body=True)
            except ExecutionTimeoutError:
                # If the body has ended since the timeout, `late` is called at once.
                future.add_done_callback(partial(_notify, late))
                raise
            return future.result()

    async def _on_own_loop(self, body: Callable[[], Any], seconds: float, late: Late | None) -> Any:  # noqa: ANN401 - as above
        # On a thread, because a loop waits for its threads and tasks, even for those that overran.
        bounded = partial(ASYNC.run, body, is_async=True, seconds=seconds, late=late)
        # The loop stops the body after `seconds` and waits one clean-up. The second clean-up is a margin: this wait
        # ends first only if the body blocks its loop.
        return await self._on_thread(lambda: run_on_new_loop(bounded()), seconds + 2 * _CLEAN_UP_SECONDS, late)

    async def in_thread(self, body: Callable[[], T]) -> T:
        """Runs something that may wait for a disk or a server, and never for long, on a thread of its own.

        On this thread if there can be no other, and under `BLOCKING`. A cancellation is raised when it has ended.
        """
        return body() if self.inline else await await_shielded(run_in_thread_or_here(body))

    async def write_to(self, store: UnitStore | None, body: Callable[[], T]) -> T:
        """Runs something that writes to a store; as `in_thread`, if writing there waits."""
        return body() if store is None or not store.waits else await self.in_thread(body)

    async def write(self, store: UnitStore, write: Callable[[Apply | None], Coroutine[Any, Any, T]]) -> T:
        """Runs a coroutine that only writes to a store; the argument of `write` is how units are written."""
        if self.inline or not store.waits:
            return run_blocking(write(None))
        return await await_shielded(run_detached(write(apply_detached)))

    async def commit(self, transaction: Transaction) -> None:
        """Commits a transaction; see `Transaction.commit`. A cancellation is raised when the outcome is known."""
        if self.inline or not transaction.waits:
            transaction.commit()
        else:
            await await_shielded(transaction.commit_detached())


class Blocking(ExecutionMode):
    """Everything happens on the calling thread, and nothing suspends."""

    inline = True

    async def wait(self, waiter: Future[Any], *, seconds: float | None, for_body: bool = False) -> None:
        """Blocks this thread until `waiter` is done; see `ExecutionMode.wait`."""
        if not for_body:
            _refuse_on_loop()
        seconds = None if seconds is None else min(seconds, threading.TIMEOUT_MAX)
        if not allow_interrupts(partial(wait, (waiter,), timeout=seconds)).done:
            raise ExecutionTimeoutError

    async def run(self, body: Act, *, is_async: bool, seconds: float | None, late: Late | None = None) -> Any:  # noqa: ANN401 - as above
        """Runs `body` on this thread or as the table of this module specifies; see `ExecutionMode.run`."""
        if is_async:
            _refuse_on_loop()
        if seconds is not None:
            return await (self._on_own_loop if is_async else self._on_thread)(body, seconds, late)
        if not is_async:
            with _Cancellation():
                return allow_interrupts(body)
        from handrail.runtime.handler_loop import run_on_handler_loop  # noqa: PLC0415

        return run_on_handler_loop(partial(ASYNC.run, body, is_async=True, seconds=None))


class SideBySide(ExecutionMode):
    """As `ASYNC`, for calls of the synchronous entry, on the loop of this thread's handlers."""

    async def run(self, body: Act, *, is_async: bool, seconds: float | None, late: Late | None = None) -> Any:  # noqa: ANN401 - as above
        """As `ASYNC`; what is asynchronous and bounded in time runs as by `BLOCKING`, on a thread."""
        if is_async and seconds is not None:  # the loop of the thread is kept, and would wait for a task that overruns
            return await self._on_own_loop(body, seconds, late)
        from asyncio import ensure_future  # noqa: PLC0415

        # A handler that cancels its task does not cancel the call.
        act = (lambda: ensure_future(body())) if is_async else body
        return await super().run(act, is_async=is_async, seconds=seconds, late=late)


def _refuse_on_loop() -> None:
    if loop_is_running():
        raise PromptEvaluationError(
            "another call holds the session or a resource, or an `async def` function is to run, and waiting for that "
            "here would stop the event loop of this thread; on an event loop, await the asynchronous form: "
            "`execute_async`, `answer_async` or `settle_open_async`"
        )


BLOCKING = Blocking()
"""The mode of the synchronous entry."""

ASYNC = ExecutionMode()
"""The mode of the asynchronous entry."""

SIDE_BY_SIDE = SideBySide()
"""The mode of calls that the synchronous entry runs side by side."""


async def run_to_end(
    mode: ExecutionMode, body: Callable[[], Any], *, is_async: bool, seconds: float | None, late: Late | None = None
) -> Any:  # noqa: ANN401 - whatever a handler returns
    """Runs a body, and awaits what it returns if that is awaitable; both together have `seconds`."""
    if is_async:
        return await mode.run(body, is_async=True, seconds=seconds, late=late)
    start = time.monotonic()
    result = await mode.run(body, is_async=False, seconds=seconds, late=late)
    if not inspect.isawaitable(result):
        return result
    remaining = None if seconds is None else seconds - (time.monotonic() - start)
    return await await_result(mode, result, seconds=remaining, late=late)


async def await_result(
    mode: ExecutionMode, result: Awaitable[Any], *, seconds: float | None, late: Late | None = None
) -> Any:  # noqa: ANN401 - as above
    """Awaits what a handler has returned; see `ExecutionMode.run`."""
    try:
        if seconds is not None and seconds <= 0:
            raise ExecutionTimeoutError
        return await mode.run(lambda: result, is_async=True, seconds=seconds, late=late)
    finally:
        drop_unawaited(result)


def drop_unawaited(result: object) -> None:
    """Closes a coroutine that has not started, so that Python does not warn of it."""
    if inspect.iscoroutine(result) and inspect.getcoroutinestate(result) == inspect.CORO_CREATED:
        result.close()


def run_to_completion(coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine that never suspends, as the pipeline under `BLOCKING`, without an event loop."""
    with HeldInterrupts():
        return allow_waiting(partial(run_blocking, coroutine))


def _notify(late: Late | None, future: Future[Any] | asyncio.Future[Any]) -> None:
    # In an empty context, if the body was not cancelled and has ended; what it raises is logged.
    # A body that was stopped on a loop of its own has been passed on there, when its task ended.
    stops = ExecutionTimeoutError, CancelledElsewhereError
    if future.cancelled() or is_cancellation(future.exception()) or isinstance(future.exception(), stops):
        return None
    if future.exception() is None and inspect.isawaitable(future.result()):  # of this it has to be awaited
        return drop_unawaited(future.result())
    try:
        Context().run(late or _log_late, cast("Future[Any]", future))  # those of asyncio have the same methods
    except Exception:  # noqa: BLE001 - logged, because the caller has gone
        _log.exception("the late outcome of a handler that had timed out could not be recorded")


def _log_late(future: Future[Any]) -> None:
    if future.exception() is not None:
        _log.warning("a handler that had timed out ended with %r", future.exception())


async def raise_interrupt(mode: ExecutionMode) -> None:
    """Raises the interrupt that a call has had since it last waited: `KeyboardInterrupt` or `CancelledError`."""
    if mode.inline:
        raise_held_interrupt()
    elif cancellations():
        from asyncio import sleep  # noqa: PLC0415

        await sleep(0)


def is_cancelled_elsewhere(error: BaseException) -> bool:
    """True if an exception is the cancellation of what a call awaited, and not of the call."""
    if not is_cancellation(error) or cancellations():
        return False
    from handrail.runtime.handler_loop import ReplyEndedError  # noqa: PLC0415

    return not isinstance(error, ReplyEndedError)


def is_cancellation(error: BaseException | None) -> bool:
    """True if an exception is the cancellation of a task; no module is imported for it."""
    return isinstance(error, getattr(sys.modules.get("asyncio"), "CancelledError", ()))


def cancellations() -> int:
    """How often the task that runs here has been cancelled (`asyncio.Task.cancelling`)."""
    if not loop_is_running():
        return 0
    from asyncio import current_task  # noqa: PLC0415

    task = current_task()
    return 0 if task is None else task.cancelling()


class _Cancellation:
    def __enter__(self) -> None:
        self._before = cancellations()

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if error is not None and is_cancelled_elsewhere(error):
            raise CancelledElsewhereError from error
        if (error is None or isinstance(error, Exception)) and cancellations() > self._before:
            from asyncio import CancelledError  # noqa: PLC0415

            raise CancelledError from error


async def _bounded(body: Callable[[], Awaitable[T]], *, seconds: float, late: Late | None) -> T:
    """Awaits a body as a task; one that has not ended is cancelled, and given a moment to clean up."""
    from asyncio import ensure_future, wait  # noqa: PLC0415

    task = ensure_future(body())
    hears: Late | None = None
    try:
        finished, _ = await wait((task,), timeout=seconds)
        if finished:
            return task.result()
        hears = late  # not if the call itself was cancelled
    finally:
        if not task.done():  # `asyncio.wait` does not cancel the tasks that it waits for
            _LEFT_BEHIND.add(task)
            task.add_done_callback(_LEFT_BEHIND.discard)
            # Before the callback of the wait below, so it is called before that returns.
            task.add_done_callback(partial(_notify, hears))
            task.cancel()
            with Shield():  # AnyIO would cancel this wait at once, if it has cancelled the call
                await wait((task,), timeout=_CLEAN_UP_SECONDS)
    raise ExecutionTimeoutError


# Of the process: tasks that are being stopped, whose calls have ended; their loop has only weak references to them.
_LEFT_BEHIND: set[asyncio.Future[Any]] = set()


# -------------------------------------------------------------------------------------------------- the turn of a call

# The ticket of the call that is made in this context. A call that code of the program makes meanwhile, a policy, an
# approver, a parser of arguments, is nested in it: one that needs the same turns is refused, because it would wait for
# the call that it is made in.
_WITHIN: ContextVar[Ticket | None] = ContextVar("handrail_within", default=None)


class CallTurn:
    """The queue positions of a call with its participants, from `queue` on; `handrail.turns` defines the rules.

    | tool | turns | concurrently |
    |---|---|---|
    | `effect="state"`, `"external"` | the session's and its resources' | never |
    | `effect="read"` | the same | with reads |
    | `concurrent=True`, or no such tool | the session's | with reads |

    A nested call takes turns only with nested calls of the same parent, and queues for what the parent does not hold. A
    call on another session made inside a `concurrent` call, as an agent used as a tool does, or inside one that has
    called an agent in a stored session, is independent.

    Attributes:
        caller: the transaction of the call in whose handler this one is made; `None` if there is none.
        outer: the transaction in which this call's will be a savepoint; `None` for an independent call.
        shared: it may run concurrently with other calls.
        ticket: the ticket; it has no turns if the call is not permitted here.
        is_first: no other call writes concurrently, once the turn is acquired.
    """

    __slots__ = ("_before", "_refusal", "caller", "is_first", "outer", "shared", "ticket")

    def __init__(self, tool: Tool[Any, Any] | None, session: Session) -> None:
        self._refusal: Exception | None = None
        # A call that writes runs alone, so it is first as soon as it runs.
        writes = tool is not None and tool.writes
        self.is_first: bool = writes
        self.shared: bool = not writes
        caller = current()
        is_independent = caller is None or (caller.concurrent and not caller.holds(session.turn))
        self.caller: Transaction | None = caller
        self.outer: Transaction | None = None if is_independent else caller

    def queue(self, tool: Tool[Any, Any] | None, session: Session, resources: ResourceContext) -> None:
        """Draws the ticket, which has to be released; one without turns for a call that `acquire` refuses."""
        inside = self._before = _WITHIN.get()
        if inside is None or inside.released:  # a task or thread that a call has left
            inside = None if self.caller is None else self.caller.ticket
        try:
            turns = self._turns(tool, session, resources)
            self.ticket: Ticket = draw_ticket(turns, exclusive=not self.shared, inside=inside)
        except (ReadOnlyViolation, TransactionClosedError, TurnConflictError) as error:
            self._refusal = error
            self.is_first = False
            self.ticket = draw_ticket((), exclusive=False)
        _WITHIN.set(self.ticket)

    def leave(self) -> None:
        """Releases the ticket; calls that are made in this context from here on are not nested in it. Idempotent."""
        self.ticket.release()
        # Not by a token: the coroutine of a call may be closed in another context.
        _WITHIN.set(self._before)

    @property
    def waits(self) -> bool:
        """True if the call waits for its turn, has waited for it, or is refused it."""
        return self.ticket.began != self.ticket.number or self._refusal is not None

    async def acquire(self, mode: ExecutionMode, deadline: Deadline | None) -> None:
        """Waits for the turn; raises `DeadlineExceededError`, or `ModelVisibleError` if it is not permitted here."""
        # Raised here and not in the constructor, so that the refused call is recorded like any other.
        if self._refusal is not None:
            raise self._refusal
        await _wait(mode, self.ticket.waiter, deadline)

    def is_next(self) -> bool:
        """True if a call that runs is outermost, and no earlier one runs: nothing waits between handler and commit."""
        if self.outer is None and not self.is_first:
            self.is_first = self.ticket.request_first() is None
        return self.outer is None and self.is_first

    async def wait_for_earlier_calls(self, mode: ExecutionMode, deadline: Deadline | None) -> None:
        """Waits until every call that arrived before on the same turns has ended, so that results apply in order."""
        if self.is_first:
            return
        # The results of a nested call are applied in its ancestors, so these must be first too; one that writes is.
        outer = () if self.outer is None else self.outer.chain()
        for ticket in (self.ticket, *(transaction.ticket for transaction in outer)):
            if not ticket.exclusive:
                await _wait(mode, ticket.request_first(), deadline)
        self.is_first = True

    def _turns(self, tool: Tool[Any, Any] | None, session: Session, resources: ResourceContext) -> tuple[Turn, ...]:
        turns: tuple[Turn, ...] = (session.turn,)
        if tool is not None and not tool.concurrent:
            turns += resources.turns()
        caller = self.caller
        if caller is None:
            return turns
        name = "an unknown tool" if tool is None else tool.name
        if caller.state != "open":
            raise TransactionClosedError(caller.tool, f"call {name}")
        if self.outer is None:
            return turns
        if not (self.shared or caller.writes):
            raise caller.read_only_violation(f"call {name}, which writes")
        return (find_turn(caller), *(turn for turn in turns if not caller.holds(turn)))


async def _wait(mode: ExecutionMode, waiter: Future[None] | None, deadline: Deadline | None) -> None:
    try:
        if waiter is not None:
            await mode.wait(waiter, seconds=None if deadline is None else deadline.remaining().total_seconds())
    except ExecutionTimeoutError:
        raise DeadlineExceededError("the deadline passed while the call waited for its turn; it was not run") from None


class ReadingForm(NamedTuple):
    """A function of a tool that may only read, and how it is called."""

    function: Callable[..., Any]
    has_context: bool
    is_async: bool


def reading_form(function: Callable[..., Any]) -> ReadingForm:
    """The form of a function."""
    return ReadingForm(function, takes_context(function), is_async(function))
