"""Agents of one event loop on one SQLite file: they write through `context.connection`, and none stops the loop."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from sqlite3 import connect

import pytest

from handrail.adapters.tool_executor import Answers, ToolExecutor
from handrail.prompt import ToolContext, tool
from handrail.runtime import Session, ToolCall, ToolMessage
from handrail.store import Store
from handrail.store.sqlite.store import SqliteStore
from tests.kit import executor

pytestmark = pytest.mark.anyio

AGENTS, ORDERS, CENTS = 50, 1, 1250
PATIENCE = timedelta(
    seconds=50
)  # a machine with other work may let 50 calls wait longer than the five seconds of a store


@tool
async def enter(number: str, *, context: ToolContext) -> str:
    """Enter an order, and let other tasks run before the call ends."""
    await context.connection.execute_async("INSERT INTO orders VALUES (?, ?, 0)", (number, CENTS))
    await asyncio.sleep(0)
    return number


@tool(effect="external")
def pay(number: str, *, context: ToolContext) -> str:
    """Pay an order, into the till that all agents share."""
    connection = context.connection
    ((cents,),) = connection.execute("SELECT cents FROM orders WHERE number = ? AND NOT paid", (number,)).fetchall()
    connection.execute("UPDATE orders SET paid = 1 WHERE number = ?", (number,))
    connection.execute("UPDATE till SET cents = cents + ?", (cents,))
    return f"{cents} cents"


async def work(store: Store, name: str) -> int:
    """An agent of the desk; returns how many messages its conversation has."""
    async with await Session.open_async(store, name) as session:
        talk, made = session.conversation, executor(enter, pay, session=session)
        for order in range(ORDERS):
            await talk.append_async({"role": "user", "content": f"Pay order {order}."})
            for each in (enter, pay):
                call = ToolCall(f"{each.name}-{order}", each.name, {"number": f"{name}-{order}"})
                await talk.append_async({"role": "assistant"}, calls=[call], reply=call.id)
                await talk.append_async(*map(answer, await messages(made)))
        return len(talk)


async def messages(made: ToolExecutor) -> tuple[ToolMessage, ...]:
    """The messages of the calls of the open reply, all of which succeed."""
    answers = await made.answer_async()
    assert isinstance(answers, Answers)
    assert all(message.success for message in answers), [message.content for message in answers]
    return tuple(answers)


def answer(message: ToolMessage) -> dict[str, str]:
    """What a provider is sent."""
    return {"role": "tool", "tool_call_id": message.call_id, "content": message.content}


async def test_no_call_of_fifty_agents_of_one_loop_fails(tmp_path: Path) -> None:
    """Their handlers and conversations wait for the one writer of SQLite, and the loop runs meanwhile."""
    path = tmp_path / "desk.db"
    with connect(path) as tables:
        tables.execute("CREATE TABLE orders (number TEXT PRIMARY KEY, cents INTEGER, paid INTEGER)")
        tables.execute("CREATE TABLE till (cents INTEGER)")
        tables.execute("INSERT INTO till VALUES (0)")
    store = SqliteStore(path, durability="normal", busy=PATIENCE)
    lengths = await asyncio.gather(*(work(store, f"agent-{number}") for number in range(AGENTS)))
    await store.close_async()
    assert lengths == [ORDERS * 5] * AGENTS
    assert tables.execute("SELECT cents FROM till").fetchall() == [(AGENTS * ORDERS * CENTS,)]
    assert tables.execute("SELECT COUNT(*) FROM orders WHERE paid").fetchall() == [(AGENTS * ORDERS,)]
    tables.close()
