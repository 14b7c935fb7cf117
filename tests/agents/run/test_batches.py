"""The questions of one reply: one at a time, all before any of its calls runs, and nothing is open meanwhile."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Tool

from handrail import transaction
from handrail.adapters.pydantic_ai import tool_context
from handrail.agents import Answer, GatedCall
from handrail.session import Session
from handrail.testing import Call, Outcome
from tests.agents.desks import called, desk, outcomes, play

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("A-33")]


@dataclass
class Counter:
    """A resource that counts how often it was asked for a snapshot."""

    snapshots: int = 0

    def snapshot(self) -> int:
        """Count."""
        self.snapshots += 1
        return self.snapshots

    def restore(self, snapshot: int) -> None:
        """Nothing changes here."""


@dataclass
class Watcher:
    """A person who looks around when they are asked; what ran, they note with what they are asked."""

    counter: Counter
    answer: Answer
    story: list[str] = field(default_factory=list[str])
    at_once: int = 0

    async def __call__(self, call: GatedCall) -> Answer:
        """Answer, and see that nothing is open and nobody else is being asked."""
        assert transaction.current() is None
        assert self.counter.snapshots == self.story.count("ran")
        self.at_once += 1
        assert self.at_once == 1
        self.story.append(f"asked {call.call_id}")
        self.at_once -= 1
        return self.answer

    def tool(self, name: str) -> Tool[Any]:
        """A tool that notes that it ran, in a transaction that holds the counter."""

        async def carry_out(text: str) -> str:
            context = tool_context()
            assert context is not None
            assert context.resources.get(Counter) is self.counter
            assert transaction.current() is not None
            self.story.append("ran")
            return text

        return Tool(carry_out, name=name)


async def test_a_batch_is_asked_about_one_by_one_and_runs_when_all_is_answered(tmp_path: Path) -> None:
    """Three calls, three questions; the snapshots begin after the last of them."""
    person, session = Watcher(Counter(), Answer("yes")), Session()
    loaded = desk(tmp_path, tools=[person.tool("a"), person.tool("b")])
    calls = [Call("a", {"text": "1"}), Call("b", {"text": "2"}), Call("a", {"text": "3"})]
    script = called(*calls, c1=Outcome.ok("1"), c2=Outcome.ok("2"), c3=Outcome.ok("3"))
    await play(loaded, script, mode="ask", asker=person, session=session, resources={Counter: person.counter})
    assert person.story == ["asked c1", "asked c2", "asked c3", "ran", "ran", "ran"]
    assert person.counter.snapshots == 3
    assert outcomes(session) == [("c1", True), ("c2", True), ("c3", True)]
