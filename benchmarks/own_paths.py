"""One call of a function as a tool: by PydanticAI's own path, which rolls nothing back, and by the pipeline."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from pydantic_ai import FunctionToolset, RunContext, RunUsage
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.models.test import TestModel
from pydantic_ai.tool_manager import ToolManager

from benchmarks.timing import Block, Bound
from handrail import store, tool
from handrail.adapters.tool_executor import ToolExecutor
from handrail.prompt import Prompt, PromptTemplate, ToolsSection
from handrail.runtime import Session, ToolCall

PYDANTIC_AI = "PydanticAI: ToolManager.handle_call"
"""The floor: validation, the function, and the message; no transaction and no record."""

READ, STATE, STORED, EXTERNAL = (
    "Handrail: a read, in memory",
    "Handrail: a call that changes state, in memory",
    "Handrail: a call that changes state, SQLite (full)",
    "Handrail: an external call, SQLite (full)",
)
BOUNDS = (Bound(STATE, PYDANTIC_AI, 0.7),)

_ARGUMENTS = '{"left": 2, "right": 3}'
_CALLS = 300
"""In a round. With fewer some cases would leave too little for the garbage collector to run."""


async def add(left: int, right: int) -> int:
    """Add two numbers."""
    return left + right


_TOOLS = [tool(name="read", effect="read")(add), tool(name="state")(add), tool(name="external", effect="external")(add)]


@contextmanager
def cases() -> Generator[dict[str, Callable[[], object]]]:
    """What is measured, by name; each case makes many calls on an event loop, of a reply that has a name."""
    with TemporaryDirectory() as folder, ExitStack() as held:
        loop = asyncio.new_event_loop()
        held.callback(loop.close)
        opened = held.enter_context(store.open(f"sqlite:///{Path(folder) / 'desk.db'}"))
        stored = _executor(held.enter_context(Session.open(opened, "desk")))
        memory = _executor(Session())
        numbers = count()

        def block(call: Callable[[str], Awaitable[object]]) -> Block:
            async def many() -> None:
                for _ in range(_CALLS):
                    await call(f"call-{next(numbers)}")

            return Block(_CALLS, lambda: loop.run_until_complete(many()))

        def through(executor: ToolExecutor, name: str) -> Block:
            async def call(number: str) -> object:
                message = await executor.execute_async(ToolCall(number, name, _ARGUMENTS), reply="r")
                assert message.content == "5", message.content
                return message

            return block(call)

        manager = loop.run_until_complete(_manager())

        async def handle(number: str) -> object:
            return await manager.handle_call(ToolCallPart("add", _ARGUMENTS, number))

        yield {
            PYDANTIC_AI: block(handle),
            READ: through(memory, "read"),
            STATE: through(memory, "state"),
            STORED: through(stored, "state"),
            EXTERNAL: through(stored, "external"),
        }


def _executor(session: Session) -> ToolExecutor:
    section = ToolsSection(title="Sums", tools=_TOOLS)
    return ToolExecutor(
        prompt=Prompt(PromptTemplate(ns="benchmarks", key="own-paths", sections=[section])), session=session
    )


async def _manager() -> ToolManager[None]:
    context = RunContext(deps=None, model=TestModel(), usage=RunUsage(), run_id="run", run_step=1)
    toolset = await FunctionToolset[None]([add]).for_run(context)
    return await ToolManager(toolset).for_run_step(context)
