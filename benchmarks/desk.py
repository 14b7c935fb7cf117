"""How long the event loop stands still at the longest while 50 agents of one desk work on one SQLite file.

Each has a stored session, appends its messages to the conversation, and pays through `context.connection`: a handler
reads an order, and writes to it and to the till that all share. SQLite has one writer, so they wait for each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import AsyncExitStack, ExitStack, closing, contextmanager
from itertools import count
from pathlib import Path
from sqlite3 import connect
from tempfile import TemporaryDirectory

from benchmarks.pauses import longest_pause
from benchmarks.timing import Limit
from handrail import store
from handrail.adapters.tool_executor import Answers, ToolExecutor
from handrail.prompt import Prompt, PromptTemplate, ToolContext, ToolsSection, tool
from handrail.runtime import Session, ToolCall, ToolMessage

AGENTS, ORDERS = 50, 3

DESK = f"{AGENTS} agents of a desk, context.connection, SQLite (full): the loop stands still"
LIMITS = (Limit(DESK, 100.0, "ms at the longest"),)

_SERIAL = count()


@contextmanager
def cases() -> Generator[dict[str, Callable[[], object]]]:
    """What is measured, by name; the file and a loop are there for the time of the block."""
    with ExitStack() as opened:
        runner = opened.enter_context(asyncio.Runner())
        folder = Path(opened.enter_context(TemporaryDirectory(prefix="handrail-bench-")))
        with closing(connect(folder / "desk.db")) as tables, tables:
            tables.execute("CREATE TABLE orders (number TEXT PRIMARY KEY, cents INTEGER, paid INTEGER)")
            tables.execute("CREATE TABLE till (cents INTEGER)")
            tables.execute("INSERT INTO till VALUES (0)")
        kept = opened.enter_context(store.open(f"sqlite:///{folder}/desk.db"))
        yield {DESK: lambda: longest_pause(runner, lambda: _evening(kept))}


@tool
async def enter(number: str, *, context: ToolContext) -> str:
    """Enter an order."""
    await context.connection.execute_async("INSERT INTO orders VALUES (?, 1250, 0)", (number,))
    return number


@tool(effect="external")
async def pay(number: str, *, context: ToolContext) -> str:
    """Pay an order."""
    find = "SELECT cents FROM orders WHERE number = ? AND NOT paid"
    ((cents,),) = (await context.connection.execute_async(find, (number,))).fetchall()
    await context.connection.execute_async("UPDATE orders SET paid = 1 WHERE number = ?", (number,))
    await context.connection.execute_async("UPDATE till SET cents = cents + ?", (cents,))
    return f"{cents} cents"


async def _evening(kept: store.Store) -> None:
    evening = next(_SERIAL)
    await asyncio.gather(*(_work(kept, f"{evening}-{number}") for number in range(AGENTS)))


async def _work(kept: store.Store, name: str) -> None:
    section = ToolsSection(title="Desk", tools=[enter, pay])
    async with AsyncExitStack() as opened:
        session = await opened.enter_async_context(await Session.open_async(kept, name))
        executor = ToolExecutor(
            prompt=Prompt(PromptTemplate(ns="bench", key="desk", sections=[section])), session=session
        )
        talk = session.conversation
        for order in range(ORDERS):
            await talk.append_async({"role": "user", "content": f"Pay order {order}."})
            for name_of_tool in ("enter", "pay"):
                call = ToolCall(f"{name_of_tool}-{order}", name_of_tool, {"number": f"{name}-{order}"})
                await talk.append_async({"role": "assistant"}, calls=[call], reply=call.id)
                await talk.append_async(*map(_answer, await _messages(executor)))
            await talk.append_async({"role": "assistant", "content": "It is paid."})


async def _messages(executor: ToolExecutor) -> Answers:
    answers = await executor.answer_async()
    assert isinstance(answers, Answers), answers
    assert all(message.success for message in answers), [message.content for message in answers]
    return answers


def _answer(message: ToolMessage) -> dict[str, str]:
    return {"role": "tool", "tool_call_id": message.call_id, "content": message.content}
