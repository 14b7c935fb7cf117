"""The exception table: what each exception becomes, through both entries."""

from __future__ import annotations

import asyncio
import re
import threading
from datetime import timedelta
from typing import Any

import pytest

from handrail.errors import (
    BudgetExceededError,
    CallPostponed,
    DeadlineExceededError,
    PromptEvaluationError,
    ToolValidationError,
    VisibilityExpansionRequired,
)
from handrail.prompt import ToolContext, ToolResult
from tests.handler_threads import HandlerThreads
from tests.kit import Kept, Note, Run, both_ways, call, events, executor, soon, tool
from tests.wording import Wording


def raising(error: BaseException) -> Any:
    """A handler that writes, then raises."""

    def handler(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        context.session[Kept].append(Kept("half"))
        raise error

    return handler


@both_ways
@pytest.mark.requirement("E-01")
def test_a_validation_error_is_told_as_it_is(way: Run) -> None:
    """The handler found the arguments wanting; the model reads why."""
    door = executor(tool("check", raising(ToolValidationError("text must not be a greeting"))))
    assert way(door, call("check")).content == "text must not be a greeting"
    assert door.environment.session[Kept].all() == ()


def _takes_one(params: Note) -> Note:
    return params


@both_ways
@pytest.mark.requirement("E-02")
def test_calling_the_handler_wrongly_says_what_it_must_accept(way: Run, wording: Wording) -> None:
    """A signature can change after the tool was made; the call says what is due."""

    def handler(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        return ToolResult.ok(params)

    door = executor(tool("changed", handler))
    handler.__code__ = _takes_one.__code__
    handler.__kwdefaults__ = None
    message = way(door, call("changed"))
    assert message.content == wording


@both_ways
@pytest.mark.requirement("E-07")
def test_a_type_error_inside_the_handler_is_the_handlers_own(way: Run, wording: Wording) -> None:
    """Only the calling of the handler is judged by its signature."""

    def handler(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        raise TypeError("text is no number")

    assert way(executor(tool("add", handler)), call("add")).content == wording


@both_ways
@pytest.mark.requirement("E-03")
@pytest.mark.parametrize(
    "error",
    [
        PromptEvaluationError("stop", phase="tool"),
        VisibilityExpansionRequired("open it", section_keys=["a.b"]),
        BudgetExceededError(dimension="total tokens", usage=2, limit=1),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_ends_the_run_is_undone_recorded_and_raised_as_it_is(way: Run, error: Exception) -> None:
    """The same object reaches the caller."""
    door = executor(tool("stop", raising(error)))
    with pytest.raises(type(error)) as caught:
        way(door, call("stop"))
    assert caught.value is error
    assert door.environment.session[Kept].all() == ()
    [event] = events(door)
    assert not event.success


@both_ways
@pytest.mark.requirement("S-12a")
def test_a_postponed_call_is_undone_and_raised_and_not_recorded(way: Run) -> None:
    """The same object reaches the caller; the call is made again, and recorded then."""
    error = CallPostponed("it waits for approval")
    door = executor(tool("later", raising(error)))
    with pytest.raises(CallPostponed) as caught:
        way(door, call("later"))
    assert caught.value is error
    session = door.environment.session
    assert (session[Kept].all(), events(door), session.turn.queue) == ((), (), [])


@both_ways
@pytest.mark.requirement("E-04")
def test_a_deadline_error_ends_the_run_as_an_evaluation_error(way: Run, wording: Wording) -> None:
    """Whoever notices the deadline, the caller sees one exception."""
    door = executor(tool("late", raising(DeadlineExceededError("too late"))))
    with pytest.raises(PromptEvaluationError) as caught:
        way(door, call("late"))
    assert str(caught.value) == wording
    assert (caught.value.phase, caught.value.tool) == ("tool", "late")
    assert isinstance(caught.value.__cause__, DeadlineExceededError)
    assert len(events(door)) == 1


@pytest.mark.requirement("E-05", "M-03c")
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_any_other_base_exception_is_undone_recorded_and_raised(kind: type[BaseException]) -> None:
    """Ctrl-C leaves nothing half done."""
    error = kind("now")
    door = executor(tool("stop", raising(error)))
    with pytest.raises(kind) as caught:
        door.execute(call("stop"))
    assert caught.value is error
    assert door.environment.session[Kept].all() == ()
    assert [event.success for event in events(door)] == [False]
    assert door.environment.session.turn.queue == []


@pytest.mark.requirement("E-05")
@pytest.mark.anyio
async def test_a_base_exception_of_a_thread_reaches_the_caller_of_the_loop() -> None:
    """A `def` handler runs on a thread there; what it raises is raised here."""

    class Odd(BaseException):
        pass

    door = executor(tool("stop", raising(Odd())))
    with pytest.raises(Odd):
        await door.execute_async(call("stop"))
    assert [event.success for event in events(door)] == [False]


@pytest.mark.requirement("E-05", "M-03d")
@pytest.mark.anyio
async def test_a_cancelled_call_is_undone_and_recorded() -> None:
    """Cancelling the task that waits for a handler undoes what the handler has done so far."""
    started = asyncio.Event()

    async def handler(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        context.session[Kept].append(Kept("half"))
        started.set()
        await asyncio.Event().wait()
        return ToolResult.ok(params)

    door = executor(tool("wait", handler))
    task = asyncio.ensure_future(door.execute_async(call("wait")))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert door.environment.session[Kept].all() == ()
    assert [event.success for event in events(door)] == [False]
    assert door.environment.session.turn.queue == []


@both_ways
@pytest.mark.requirement("E-06", "M-03e")
def test_a_timeout_undoes_the_call_and_tells_the_model(way: Run, wording: Wording) -> None:
    """The handler is left behind, and the model reads that its changes were undone."""
    release = threading.Event()

    def handler(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        context.session[Kept].append(Kept("half"))
        release.wait()
        return ToolResult.ok(params)

    door = executor(tool("slow", handler, timeout=timedelta(milliseconds=20)))
    message = way(door, call("slow"))
    release.set()
    assert message.content == wording
    assert door.environment.session[Kept].all() == ()
    assert [event.success for event in events(door)] == [False]


@both_ways
@pytest.mark.requirement("E-06", "S-07d")
def test_a_timed_out_external_effect_is_unknown_and_not_run_again(way: Run, wording: Wording) -> None:
    """Nobody knows whether it took effect; the next call is told so instead of repeating it."""
    starts: list[str] = []
    release, threads = threading.Event(), HandlerThreads()

    def handler(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        starts.append(params.text)
        release.wait()
        return ToolResult.ok(params)

    door = executor(tool("charge", handler, effect="external", timeout=timedelta(milliseconds=20)))
    first, again = way(door, call("charge")), way(door, call("charge"))
    release.set()
    threads.join()  # one that begins late has been started all the same
    assert first.content == wording
    assert again.content == wording
    assert not again.success
    assert starts == ["hello"]


@both_ways
@pytest.mark.requirement("S-09", "E-04")
def test_the_deadline_bounds_a_running_handler(way: Run, wording: Wording) -> None:
    """A handler that hangs does not hold up the end of the run."""
    release = threading.Event()

    def handler(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        release.wait()
        return ToolResult.ok(params)

    door = executor(tool("hang", handler), deadline=soon())
    with pytest.raises(PromptEvaluationError) as raised:
        way(door, call("hang"))
    assert str(raised.value) == wording
    release.set()
    assert len(events(door)) == 1


@both_ways
@pytest.mark.requirement("E-07", "M-03b")
def test_any_other_exception_is_logged_and_told_without_a_traceback(
    way: Run, caplog: pytest.LogCaptureFixture, wording: Wording
) -> None:
    """The developer finds the traceback in the log; the model reads type and message."""
    door = executor(tool("break", raising(LookupError("no such row"))))
    message = way(door, call("break"))
    assert message.content == wording
    assert "Traceback" not in message.content
    [logged] = [entry for entry in caplog.records if entry.name == "handrail.runtime"]
    assert logged.exc_info is not None
    assert door.environment.session[Kept].all() == ()


def test_an_endless_exception_message_is_cut(wording: Wording) -> None:
    """A megabyte of somebody's HTML does not reach the model."""
    message = executor(tool("break", raising(ValueError("x" * 1_000_000)))).execute(call("break"))
    assert len(message.content) < 2_200
    assert re.sub("x{9,}", "x", message.content) == wording


@both_ways
@pytest.mark.requirement("M-06m", "M-03a")
def test_a_result_of_the_wrong_type_fails_the_call(way: Run, wording: Wording) -> None:
    """What the handler declares is what it must return; otherwise nothing of it stays."""

    def no_result(params: Note, *, context: ToolContext) -> Any:
        context.session[Kept].append(Kept("half"))
        return params

    def wrong_value(params: Note, *, context: ToolContext) -> Any:
        context.session[Kept].append(Kept("half"))
        return ToolResult.ok(Kept("x"))

    door = executor(tool("bare", no_result), tool("wrong", wrong_value))
    assert way(door, call("bare")).content == wording
    assert way(door, call("wrong")).content == wording
    assert door.environment.session[Kept].all() == ()


@pytest.mark.anyio
async def test_an_async_handler_through_the_synchronous_entry_on_a_loop_says_what_to_call(wording: Wording) -> None:
    """`execute` would stop the loop; the developer reads what to write instead."""

    async def handler(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        return ToolResult.ok(params)

    with pytest.raises(PromptEvaluationError) as raised:
        executor(tool("free", handler)).execute(call("free"))
    assert str(raised.value) == wording
