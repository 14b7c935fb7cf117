"""The two ways to carry a call out: how they wait, and what they leave behind."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable
from concurrent.futures import Future
from datetime import timedelta
from typing import Any

import pytest

from handrail.prompt import ToolContext, ToolResult
from handrail.resources import Binding, Scope
from handrail.runtime.ways import INLINE, ON_LOOP, OverranError, drive
from handrail.testing import FakeClock
from tests.runtime.bench import Note, call, executor, tool


def test_what_suspends_on_the_synchronous_entry_is_a_fault_of_the_library() -> None:
    """`drive` finds it, instead of leaving the coroutine hanging."""

    class Once:
        def __await__(self) -> Any:
            yield None

    async def suspend(wait: Awaitable[None]) -> None:
        await wait

    with pytest.raises(RuntimeError, match="has suspended"):
        drive(suspend(Once()))


def test_waiting_is_bounded_on_both_ways() -> None:
    """What is not done in time has overrun."""
    never: Future[None] = Future()
    with pytest.raises(OverranError):
        drive(INLINE.wait(never, seconds=0.01))
    with pytest.raises(OverranError):
        asyncio.run(ON_LOOP.wait(never, seconds=0.01))


def test_a_task_that_overran_and_will_not_end_is_left_behind(caplog: pytest.LogCaptureFixture) -> None:
    """It has swallowed its cancellation; what it ends with is logged, and nothing of it lands."""
    release = threading.Event()

    async def stubborn(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        while not release.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                continue
        raise ValueError("late")

    async def run() -> None:
        door = executor(tool("stubborn", stubborn, timeout=timedelta(milliseconds=10)), clock=FakeClock())
        assert "was stopped after its timeout" in (await door.execute_async(call("stubborn"))).content
        release.set()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.wait(others)

    asyncio.run(run())
    assert "a handler that had overrun ended with" in caplog.text


def test_a_thread_that_ends_after_its_loop_is_no_fault() -> None:
    """Nobody waits for it any more."""
    release, done = threading.Event(), threading.Event()

    def slow(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        release.wait()
        done.set()
        return ToolResult.ok(params)

    door = executor(tool("slow", slow, timeout=timedelta(milliseconds=10)))
    assert not asyncio.run(door.execute_async(call("slow"))).success
    release.set()
    assert done.wait(10)


def test_a_bounded_handler_that_is_in_time_is_answered_from_its_thread() -> None:
    """The bound costs a thread, and nothing else."""
    caller = threading.get_ident()
    threads: list[int] = []

    def quick(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        threads.append(threading.get_ident())
        return ToolResult.ok(params)

    assert executor(tool("quick", quick, timeout=timedelta(minutes=1))).execute(call("quick")).success
    assert executor(tool("quick", quick)).execute(call("quick")).success
    assert [thread == caller for thread in threads] == [False, True]


def test_a_task_that_overran_may_clean_up_before_its_call_ends() -> None:
    """It is cancelled and given a moment: what it holds is let go of before its resources are closed."""
    order: list[str] = []

    class Line:
        def close(self) -> None:
            order.append("closed")

    async def hang(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        context.resources.get(Line)
        try:
            await asyncio.Event().wait()
        finally:
            order.append("cleaned up")
        return ToolResult.ok(params)

    binding = Binding(Line, lambda _: Line(), scope=Scope.TOOL_CALL)
    door = executor(tool("hang", hang, timeout=timedelta(milliseconds=10)), resources={Line: binding})
    assert not door.execute(call("hang")).success
    assert order == ["cleaned up", "closed"]
