"""What the tests of toolsets share: toolsets that say when they are entered and left, a run, and a model that calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from pydantic_ai import Agent, ModelMessage, ModelResponse, RunContext, RunUsage, TextPart, ToolCallPart
from pydantic_ai.messages import ModelRequest
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset, ToolsetTool

from handrail.agents import Entry, toolset_factory
from handrail.agents.registry import FactoryFunction
from handrail.agents.toolsets.lifetimes import FactoryToolset

CONTEXT: RunContext[Any] = RunContext(deps=None, model=TestModel(), usage=RunUsage(), run_step=1)
TOOLS_FILE = "tools.py"


@dataclass(slots=True)
class Trace:
    """What happened, in order, and the place at which whoever passes it stays for ever.

    Attributes:
        stays_at: the place.
        fails_at: the places that fail.
        reached: somebody is at the place.
        log: what happened.
    """

    stays_at: str = ""
    fails_at: frozenset[str] = frozenset()
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    log: list[str] = field(default_factory=list[str])

    async def at(self, place: str) -> None:
        """Pass a place, unless it fails there or is where one stays."""
        self.log.append(place)
        if place in self.fails_at:
            raise OSError(f"failed at {place}")
        if place == self.stays_at:
            self.reached.set()
            await asyncio.Event().wait()


class Traced(FunctionToolset[Any]):
    """A toolset of plain functions that counts how deep it is entered."""

    def __init__(self, name: str, trace: Trace | None = None) -> None:
        """Have one tool, of the toolset's own name."""
        super().__init__([named(name)], id=name)
        self.name = name
        self.trace = trace or Trace()
        self.depth = self.deepest = self.entries = 0

    async def __aenter__(self) -> Self:
        await self.trace.at(f"enter {self.name}")
        self.depth += 1
        self.entries += 1
        self.deepest = max(self.deepest, self.depth)
        return self

    async def __aexit__(self, *args: object) -> bool | None:
        self.depth -= 1
        assert self.depth >= 0, f"{self.name} is left by a run that did not enter it"
        await self.trace.at(f"exit {self.name}")
        return None

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        await self.trace.at(f"call {name}")
        assert self.depth, f"{self.name} is called while nobody has entered it"
        return await super().call_tool(name, tool_args, ctx, tool)

    def cleanup(self) -> None:
        """PydanticAI knows no such method, and nobody is to call it."""
        raise AssertionError("cleanup was called")


def named(name: str) -> Callable[[], str]:
    """A function of that name that returns it."""

    def function() -> str:
        return name

    function.__name__ = name
    return function


def made(function: FactoryFunction, *, per_run_step: bool = False, name: str = "desk") -> FactoryToolset:
    """A factory as a toolset, registered in `tools.py`."""
    factory = toolset_factory(function, per_run_step=per_run_step)
    return FactoryToolset(factory, Entry(name, "toolset", factory, TOOLS_FILE))


@dataclass(slots=True)
class Caller:
    """A model that calls one tool at each of its first steps, and answers then.

    Attributes:
        calls: the tool for each step.
        seen: the tools that were offered at each step.
        told: what each call brought.
        instructions: those of each step.
    """

    calls: Sequence[str] = ()
    seen: list[list[str]] = field(default_factory=list[list[str]])
    told: list[object] = field(default_factory=list[object])
    instructions: list[str | None] = field(default_factory=list[str | None])

    def __call__(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        """Reply."""
        step = len(self.seen)
        last = messages[-1]
        assert isinstance(last, ModelRequest)
        self.told += [part.content for part in last.parts if part.part_kind == "tool-return"]
        self.instructions.append(info.instructions)
        self.seen.append([tool.name for tool in info.function_tools])
        if step < len(self.calls):
            return ModelResponse([ToolCallPart(self.calls[step], {}, f"call-{step}")])
        return ModelResponse([TextPart("done")])

    @property
    def agent_model(self) -> FunctionModel:
        """The model, for an agent."""
        return FunctionModel(self)


async def run(toolset: AbstractToolset[Any], *calls: str) -> Caller:
    """Run an agent of this toolset, whose model makes one call a step; return what the model saw."""
    caller = Caller(calls)
    await Agent(caller.agent_model, toolsets=[toolset]).run("go")
    return caller


async def stopped(toolset: AbstractToolset[Any], trace: Trace, *calls: str) -> None:
    """Run an agent of this toolset, and cancel it where the trace stays."""
    running = asyncio.create_task(run(toolset, *calls))
    await trace.reached.wait()
    running.cancel()
    (ended,) = await asyncio.gather(running, return_exceptions=True)
    assert isinstance(ended, asyncio.CancelledError)
