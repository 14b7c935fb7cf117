"""What it costs that calls wait: for their turns, for a slow read before them, for the thread of a `def` handler."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import Any

from benchmarks.timing import Block, Bound, Limit
from handrail.adapters.tool_executor import ToolExecutor
from handrail.prompt import MarkdownSection, Prompt, PromptTemplate, Tool, ToolsSection, tool
from handrail.runtime import Session, ToolCall
from handrail.turns import Ticket, Turn, draw_ticket

READS, WRITERS = 1_000, 3_000

ALONE = "a read that takes a second"
BEHIND = f"{READS:,} reads, the first takes a second"
AWAITED = "async def handler, asynchronous entry"
ON_THREAD = "def handler, asynchronous entry"
BOUNDS = (Bound(BEHIND, ALONE, 1.1), Bound(ON_THREAD, AWAITED, 3.0))

REVERSE = f"the turns of {READS:,} reads that end in reverse order"
WAITING = f"the turns of {WRITERS:,} writers that wait"
_SLOW_TOOLS: dict[str, dict[str, Any]] = {
    "read": {"effect": "read"},
    "concurrent": {"effect": "external", "concurrent": True},
}
ENTRIES = ("execute_all", "execute_all_async", "answer")
SIX = {(entry, name): f"six {name} calls of half a second through {entry}" for entry in ENTRIES for name in _SLOW_TOOLS}
LIMITS = (Limit(REVERSE, 60.0, "ms"), Limit(WAITING, 100.0, "ms"), *(Limit(case, 800.0, "ms") for case in SIX.values()))

_SLOW = 1.0  # seconds
_OF_ONE = 200


@contextmanager
def cases() -> Generator[dict[str, Callable[[], object]]]:
    """What is measured, by name; an event loop is there for the time of the block."""
    with asyncio.Runner() as runner:
        yield {
            ALONE: lambda: runner.run(_reply(1)),
            BEHIND: lambda: runner.run(_reply(READS)),
            AWAITED: Block(_OF_ONE, lambda: runner.run(_call_often("suspend"))),
            ON_THREAD: Block(_OF_ONE, lambda: runner.run(_call_often("block"))),
            REVERSE: _end_in_reverse,
            WAITING: _wait_in_line,
            **{case: partial(_six_slow, runner, *named) for named, case in SIX.items()},
        }


def _double(number: int) -> int:
    return 2 * number


async def _double_async(number: int) -> int:
    return 2 * number


async def _double_late(number: int) -> int:
    if number == 0:
        await asyncio.sleep(_SLOW)
    return 2 * number


def _wait(number: int) -> int:
    time.sleep(_SLOW / 2)
    return number


def _six_slow(runner: asyncio.Runner, entry: str, name: str) -> None:
    """One reply of six slow calls, which read or are concurrent."""
    declared = tool(name="wait", **_SLOW_TOOLS[name])
    section = ToolsSection(title="Tools", tools=[declared(_wait)])
    prompt = Prompt(PromptTemplate(ns="benchmarks", key="slow", sections=[section]))
    executor = ToolExecutor(prompt=prompt, session=Session())
    calls = [ToolCall(f"call-{number}", "wait", {"number": number}) for number in range(6)]
    asked = getattr(executor, entry)(calls, reply="reply")
    messages = runner.run(asked) if entry.endswith("_async") else asked
    assert [message.content for message in messages] == [str(number) for number in range(6)]


def _executor() -> ToolExecutor:
    tools: list[Tool[Any, Any]] = [
        tool(name="read", description="Doubles.", effect="read")(_double_late),
        tool(name="suspend", description="Doubles.")(_double_async),
        tool(name="block", description="Doubles.")(_double),
    ]
    section = MarkdownSection(title="Tools", key="tools", template="Use them.", tools=tools)
    prompt = Prompt(PromptTemplate(ns="benchmarks", key="concurrency", sections=[section]))
    return ToolExecutor(prompt=prompt, session=Session())


async def _reply(reads: int) -> None:
    """One reply of reads, the first of which is slow."""
    calls = [ToolCall(f"call-{number}", "read", {"number": number}) for number in range(reads)]
    messages = await _executor().execute_all_async(calls)
    assert all(message.success for message in messages)


async def _call_often(name: str) -> None:
    executor = _executor()
    for number in range(_OF_ONE):
        message = await executor.execute_async(ToolCall(f"call-{number}", name, {"number": number}))
        assert message.success, message.content


def _drawn(tickets: int, *, exclusive: bool) -> list[Ticket]:
    turn = Turn()
    return [draw_ticket((turn,), exclusive=exclusive) for _ in range(tickets)]


def _end_in_reverse() -> None:
    """The last read asks to be first before all others do, and all of them are first in the order drawn."""
    tickets = _drawn(READS, exclusive=False)
    waiters = [ticket.request_first() for ticket in reversed(tickets)]
    for ticket in tickets:
        ticket.release()
    assert all(waiter is None or waiter.done() for waiter in waiters)


def _wait_in_line() -> None:
    """Each writer waits for the one before it."""
    tickets = _drawn(WRITERS, exclusive=True)
    waiters = [ticket.waiter for ticket in tickets]
    for ticket in tickets:
        ticket.release()
    assert all(waiter is None or waiter.done() for waiter in waiters)
