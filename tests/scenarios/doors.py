"""The doors through which calls reach the pipeline, each as one small adapter: what holds for one must hold for all.

A door that is new joins by one entry in `DOORS`.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Protocol

import pytest
from pydantic_ai import Agent, ModelMessage, ToolReturnPart

from handrail.adapters.pydantic_ai import HandrailCapability, PydanticAIAdapter
from handrail.adapters.tool_executor import ToolExecutor
from handrail.runtime import ToolMessage
from handrail.testing import Script, ScriptedModel, play, play_async


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model reads of one call."""

    call_id: str
    content: str
    success: bool


@dataclass(slots=True)
class Waiting:
    """A handler that waits: it says so here, and where to cancel what waits for it."""

    begun: threading.Event = field(default_factory=threading.Event)
    cancel: Callable[[], object] = lambda: None


class Door(Protocol):
    """Plays a script through one door."""

    def play(self, script: Script, executor: ToolExecutor) -> list[Answer]:
        """Play a script to its end; returns what the model read, in the order in which it read it."""
        ...

    def play_until_cancelled(self, script: Script, executor: ToolExecutor, waiting: Waiting) -> bool:
        """Cancel the run as soon as a handler waits; returns whether that ended the run with a cancellation."""
        ...


class OwnLoop:
    """`ToolExecutor.execute_all`."""

    def play(self, script: Script, executor: ToolExecutor) -> list[Answer]:
        return _told(play(script, executor))

    def play_until_cancelled(self, script: Script, executor: ToolExecutor, waiting: Waiting) -> bool:
        """A thread that waits cannot be cancelled, so the run goes on."""
        raise AssertionError


class OwnLoopAsync:
    """`ToolExecutor.execute_all_async`."""

    def play(self, script: Script, executor: ToolExecutor) -> list[Answer]:
        return _told(asyncio.run(play_async(script, executor)))

    def play_until_cancelled(self, script: Script, executor: ToolExecutor, waiting: Waiting) -> bool:
        return asyncio.run(_cancelled(play_async(script, executor), waiting))


class ByAdapter:
    """`PydanticAIAdapter`: PydanticAI is the loop."""

    def play(self, script: Script, executor: ToolExecutor) -> list[Answer]:
        with ScriptedModel(script) as model:
            return _returned(PydanticAIAdapter(model).run(executor).messages)

    def play_until_cancelled(self, script: Script, executor: ToolExecutor, waiting: Waiting) -> bool:
        adapter = PydanticAIAdapter(ScriptedModel(script))
        return asyncio.run(_cancelled(adapter.run_async(executor), waiting))


class InAgent:
    """`HandrailCapability` in an agent that is somebody else's."""

    def play(self, script: Script, executor: ToolExecutor) -> list[Answer]:
        with ScriptedModel(script) as model:
            agent = Agent(model, capabilities=[HandrailCapability(executor)])
            return _returned(asyncio.run(agent.run("Begin.")).all_messages())

    def play_until_cancelled(self, script: Script, executor: ToolExecutor, waiting: Waiting) -> bool:
        agent = Agent(ScriptedModel(script), capabilities=[HandrailCapability(executor)])
        return asyncio.run(_cancelled(agent.run("Begin."), waiting))


DOORS: dict[str, Door] = {
    "own loop": OwnLoop(),
    "own loop, async": OwnLoopAsync(),
    "PydanticAI, adapter": ByAdapter(),
    "PydanticAI, agent": InAgent(),
}
"""All doors, by a name for test reports."""


def _told(messages: tuple[ToolMessage, ...]) -> list[Answer]:
    return [Answer(message.call_id, message.content, message.success) for message in messages]


def _returned(messages: list[ModelMessage] | tuple[ModelMessage, ...]) -> list[Answer]:
    return [
        Answer(part.tool_call_id, str(part.content), part.outcome == "success")
        for message in messages
        for part in message.parts
        if isinstance(part, ToolReturnPart)
    ]


async def _cancelled(run: Coroutine[Any, Any, object], waiting: Waiting) -> bool:
    task = asyncio.ensure_future(run)
    await asyncio.to_thread(waiting.begun.wait)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    return task.cancelled()


every_door = pytest.mark.parametrize("door", DOORS.values(), ids=list(DOORS))
"""A test that takes `door` runs through each of them."""
