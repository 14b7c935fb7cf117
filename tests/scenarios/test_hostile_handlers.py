"""Handlers that behave badly: what they may not break is the state, the record, and the turn of those behind them."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from datetime import timedelta
from typing import Any

import pytest

from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import PromptEvaluationError
from handrail.filesystem import Filesystem
from handrail.prompt import ToolContext, ToolResult
from handrail.runtime import ToolInvoked, ToolMessage
from tests.handler_threads import HandlerThreads
from tests.kit import BOTH_WAYS, Kept, Note, Run, both_ways, call, events, executor, files, scribble, tool
from tests.scenarios.watchdog import in_time
from tests.wording import Wording

BRIEF = timedelta(milliseconds=20)


class Mute(Exception):
    """An exception that cannot say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


@both_ways
@pytest.mark.requirement("E-07")
def test_an_exception_that_cannot_be_told_is_told_by_its_type(way: Run) -> None:
    """It fails the call like any other; it neither leaves the door nor goes unrecorded."""

    def handler(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        context.session[Kept].append(Kept("half"))
        raise Mute

    door = executor(tool("mute", handler))
    message = way(door, call("mute"))
    assert "Mute" in message.content
    assert [event.success for event in events(door)] == [False]


@both_ways
@pytest.mark.requirement("E-06")
def test_a_timeout_does_not_wait_for_threads_of_an_async_handler(way: Run, wording: Wording) -> None:
    """A thread that the handler awaits cannot be stopped, and is left behind like any other."""
    release = threading.Event()

    async def handler(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        await asyncio.to_thread(release.wait)
        return ToolResult.ok(params)

    def run() -> ToolMessage:
        try:
            return way(executor(tool("slow", handler, timeout=BRIEF)), call("slow"))
        finally:
            release.set()

    if way is BOTH_WAYS[0]:  # the loop of the other entry is the caller's own
        assert in_time(run).content == wording


def test_a_timeout_does_not_wait_for_a_handler_that_swallows_its_cancellation(wording: Wording) -> None:
    """It has its moment to clean up, and is left behind after it."""
    stops: list[Callable[[], object]] = []

    async def handler(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        stops.append(lambda: loop.call_soon_threadsafe(stop.set))
        while not stop.is_set():
            with suppress(asyncio.CancelledError):
                await stop.wait()
        return ToolResult.ok(params)

    def run() -> ToolMessage:
        return executor(tool("slow", handler, timeout=BRIEF)).execute(call("slow"))

    threads = HandlerThreads()
    try:
        assert in_time(run).content == wording
    finally:
        for stop in stops:
            stop()
    threads.join()


def test_a_call_inside_a_call_that_timed_out_is_recorded() -> None:
    """Also where somebody listens: one event for each call, whatever came of the call it was made in."""
    release, over = threading.Event(), threading.Event()
    door: list[ToolExecutor] = []
    heard: list[str] = []

    def inner(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        release.wait()
        return ToolResult.ok(params)

    def outer(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        door[0].execute(call("inner", id="inside"))
        over.set()
        return ToolResult.ok(params)

    door.append(executor(tool("outer", outer, timeout=BRIEF), tool("inner", inner)))
    door[0].environment.session.dispatcher.subscribe(ToolInvoked, lambda event: heard.append(event.call_id))
    assert not door[0].execute(call("outer")).success
    release.set()
    assert over.wait(10)
    assert [event.call_id for event in events(door[0])] == ["call-1", "inside"]
    assert heard == ["call-1", "inside"]
    assert door[0].environment.session.turn.queue == []


@both_ways
def test_a_handler_may_go_on_after_a_call_that_ended_the_run(way: Run) -> None:
    """It caught what the call inside raised: that call is undone, the rest is kept."""
    door: list[ToolExecutor] = []

    def stop(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        scribble(params, context=context)
        raise PromptEvaluationError("stop")

    def outer(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        context.session[Kept].append(Kept("outer"))
        with pytest.raises(PromptEvaluationError):
            door[0].execute(call("stop", id="inside"))
        return ToolResult.ok(params)

    store = files(note="before")
    door.append(executor(tool("outer", outer), tool("stop", stop), resources={Filesystem: store}))
    assert way(door[0], call("outer")).success
    assert door[0].environment.session[Kept].all() == (Kept("outer"),)
    assert store.read_text("note.txt") == "before"
    assert [event.call_id for event in events(door[0])] == ["inside", "call-1"]


@pytest.mark.anyio
@pytest.mark.parametrize("ending", ["returns", "raises"])
async def test_a_handler_that_swallows_its_cancellation_leaves_nothing(ending: str) -> None:
    """Its caller is cancelled, whatever the handler makes of that; the effect is unknown."""
    started = asyncio.Event()

    async def handler(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            context.session[Kept].append(Kept("after"))
            if ending == "raises":
                raise ValueError("cancelled") from None
        return ToolResult.ok(params)

    door = executor(tool("deaf", handler, effect="external"))
    task = asyncio.ensure_future(door.execute_async(call("deaf")))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert door.environment.session[Kept].all() == ()
    assert [event.success for event in events(door)] == [False]
    assert [row.status for row in door.environment.effect_ledger.rows()] == ["unknown"]


@pytest.mark.anyio
async def test_a_call_in_the_cleanup_of_a_cancelled_task_is_an_ordinary_one() -> None:
    """A cancellation that came before the call is not one of the call."""
    door = executor(tool("wait", _waits))
    answers: list[bool] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            answers.append((await door.execute_async(call("wait"))).success)

    task = asyncio.ensure_future(work())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert answers == [True]


async def _waits(params: Note, *, context: ToolContext) -> ToolResult[Note]:
    await asyncio.sleep(0)
    return ToolResult.ok(params)


@pytest.mark.anyio
async def test_a_call_that_is_left_running_inside_is_undone_with_its_caller() -> None:
    """The caller cannot commit past it; both leave nothing, and the session is free at once."""
    door: list[ToolExecutor] = []
    started, release = asyncio.Event(), asyncio.Event()
    left: list[asyncio.Future[ToolMessage]] = []

    async def inner(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        context.session[Kept].append(Kept("inner"))
        started.set()
        await release.wait()
        return ToolResult.ok(params)

    async def outer(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        context.session[Kept].append(Kept("outer"))
        left.append(asyncio.ensure_future(door[0].execute_async(call("inner", id="inside"))))
        await started.wait()
        return ToolResult.ok(params)

    door.append(executor(tool("outer", outer), tool("inner", inner), tool("echo")))
    session = door[0].environment.session
    assert not (await door[0].execute_async(call("outer"))).success
    assert (session[Kept].all(), session.turn.queue) == ((), [])
    assert (await door[0].execute_async(call("echo"))).success
    release.set()
    assert not (await left[0]).success
    assert session[Kept].all() == ()
    assert len(events(door[0])) == 3


def test_calls_inside_calls_without_end_are_undone_in_full() -> None:
    """Python's stack ends it; every level that failed is undone, and the session is free."""
    door: list[ToolExecutor] = []

    def deeper(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        context.session[Kept].append(Kept(params.text))
        inner = door[0].execute(call("deeper", id=f"{context.call_id}."))
        return ToolResult.ok(params) if inner.success else ToolResult.error(inner.content[:200])

    door.append(executor(tool("deeper", deeper), tool("echo")))
    session = door[0].environment.session
    assert not door[0].execute(call("deeper")).success
    assert (session[Kept].all(), session[Note].all(), session.turn.queue) == ((), (), [])
    assert door[0].execute(call("echo")).success


def test_a_call_whose_event_loop_is_gone_is_undone_when_it_is_collected() -> None:
    """Nobody cancelled it and nobody will go on with it; it must not hold the session for ever."""

    async def handler(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        context.session[Kept].append(Kept("half"))
        await asyncio.Event().wait()
        return ToolResult.ok(params)

    door = executor(tool("wait", handler), tool("echo"))
    _abandon(door)
    gc.collect()
    session = door.environment.session
    assert (session[Kept].all(), session.turn.queue) == ((), [])
    assert door.execute(call("echo")).success


def _abandon(door: ToolExecutor) -> None:
    coroutine: Any = door.execute_async(call("wait"))
    loop = asyncio.new_event_loop()

    async def begin() -> None:
        copy_context().run(coroutine.send, None)

    loop.run_until_complete(begin())
    loop.close()
