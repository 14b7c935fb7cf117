"""Doors over an executor that a test makes itself, for a script of its own; `tests/ways_in` has all ways in."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol

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


class Door(Protocol):
    """Plays a script through one door."""

    def play(self, script: Script, executor: ToolExecutor) -> list[Answer]:
        """Play a script to its end; returns what the model read, in the order in which it read it."""
        ...


class OwnLoop:
    """`ToolExecutor.execute_all`."""

    def play(self, script: Script, executor: ToolExecutor) -> list[Answer]:
        return _told(play(script, executor))


class OwnLoopAsync:
    """`ToolExecutor.execute_all_async`."""

    def play(self, script: Script, executor: ToolExecutor) -> list[Answer]:
        return _told(asyncio.run(play_async(script, executor)))


class ByAdapter:
    """`PydanticAIAdapter`: PydanticAI is the loop."""

    def play(self, script: Script, executor: ToolExecutor) -> list[Answer]:
        run = executor.environment
        with ScriptedModel(script) as model:
            adapter = PydanticAIAdapter(model, effect_ledger=run.find_ledger(), approver=run.approver)
            response = adapter.evaluate(run.prompt, session=run.session, deadline=run.deadline, heartbeat=run.heartbeat)
            return _returned(response.messages)


class InAgent:
    """`HandrailCapability` in an agent that is somebody else's."""

    def play(self, script: Script, executor: ToolExecutor) -> list[Answer]:
        with ScriptedModel(script) as model:
            agent = Agent(model, capabilities=[HandrailCapability(executor)])
            return _returned(asyncio.run(agent.run("Begin.")).all_messages())


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


every_door = pytest.mark.parametrize("door", DOORS.values(), ids=list(DOORS))
"""A test that takes `door` runs through each of them."""
