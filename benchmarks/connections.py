"""How long 20 handlers take that hold `context.connection` for a while each, on one event loop.

PostgreSQL lets twelve of them hold it at a time, so the last begin when the first have ended. SQLite has one writer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.timing import Limit
from handrail import store
from handrail.adapters.tool_executor import ToolExecutor
from handrail.prompt import Prompt, PromptTemplate, ToolContext, ToolsSection, tool
from handrail.runtime import Session, ToolCall
from tests.store.postgres_server import server_of_its_own

HANDLERS = 20

ALONE = "a handler that holds context.connection for 0.2 s, SQLite (full)"
SQLITE = f"{HANDLERS} handlers that hold context.connection for 0.2 s, SQLite (full)"
POSTGRES = f"{HANDLERS} handlers that hold context.connection for 0.2 s, PostgreSQL, 16 connections"
LIMITS = (Limit(POSTGRES, 500.0, "ms"), Limit(SQLITE, 4_400.0, "ms"))

_HELD_SECONDS = 0.2

_SERIAL = count()


@contextmanager
def cases() -> Generator[dict[str, Callable[[], object]]]:
    """What is measured, by name; databases and a loop are there for the time of the block."""
    with ExitStack() as opened:
        runner = opened.enter_context(asyncio.Runner())
        folder = Path(opened.enter_context(TemporaryDirectory(prefix="handrail-bench-")))
        url, _ = opened.enter_context(server_of_its_own())
        agents = {
            name: _agents(address, opened)
            for name, address in ((SQLITE, f"sqlite:///{folder}/desk.db"), (POSTGRES, url))
        }
        yield {
            ALONE: lambda: runner.run(_call_together(agents[SQLITE][:1])),
            SQLITE: lambda: runner.run(_call_together(agents[SQLITE])),
            POSTGRES: lambda: runner.run(_call_together(agents[POSTGRES])),
        }


@tool(name="hold", description="Writes, and takes its time.")
async def _hold(*, context: ToolContext) -> str:
    await context.connection.execute_async("UPDATE held SET times = times + 1 WHERE agent = 'nobody'")
    await asyncio.sleep(_HELD_SECONDS)
    return "done"


@tool(name="prepare", description="Makes the table.")
def _prepare(*, context: ToolContext) -> str:
    context.connection.execute("CREATE TABLE held (agent TEXT, times INTEGER)")
    return "done"


def _agents(url: str, opened: ExitStack) -> list[ToolExecutor]:
    kept = opened.enter_context(store.open(url))
    prompt = Prompt(
        PromptTemplate(ns="benchmarks", key="held", sections=[ToolsSection(title="Desk", tools=[_hold, _prepare])])
    )
    agents = [
        ToolExecutor(prompt=prompt, session=opened.enter_context(Session.open(kept, f"agent-{number}")))
        for number in range(HANDLERS)
    ]
    assert agents[0].execute(ToolCall("table", "prepare", {})).success
    return agents


async def _call_together(agents: list[ToolExecutor]) -> None:
    call = ToolCall(f"call-{next(_SERIAL)}", "hold", {})
    messages = await asyncio.gather(*(agent.execute_async(call, reply=call.id) for agent in agents))
    assert all(message.success for message in messages), [message.content for message in messages]
