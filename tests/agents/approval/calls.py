"""Calls before a gate, and people who answer for the tests."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from handrail.agents import Answer, Decision, GatedCall
from handrail.agents.approval.decisions import Verdict
from handrail.prompt.signature import Effect
from handrail.serde import digest


def gated(  # noqa: PLR0913, PLR0917 - one argument for each part that tests vary
    tool: str = "write_file",
    arguments: Mapping[str, Any] | None = None,
    effect: Effect = "state",
    id: str = "call-1",
    path: tuple[str, ...] = ("desk",),
    asks: tuple[str, ...] = (),
    default: Verdict | None = None,
    origin: str = "",
    written: Mapping[str, Any] | None = None,
    reply: str | None = "r",
    reached: Mapping[str, str] | None = None,
) -> GatedCall:
    """A call of the session `s`."""
    given = {"path": "notes.md"} if arguments is None else arguments
    return GatedCall(
        path=path, session_id="s", call_id=id, tool=tool, effect=effect, arguments=given, digest=digest(given),
        origin=origin, asks=asks, default=default, written=written, reply=reply, reached=reached,
    )  # fmt: skip


class Thinker:
    """Thinks until the test lets it answer; notes how many questions stand at a time."""

    def __init__(self) -> None:
        self.asked: list[GatedCall] = []
        self.most_at_once = 0
        self._at_once = 0
        self._answers: asyncio.Queue[Answer] = asyncio.Queue()
        self._question: asyncio.Queue[GatedCall] = asyncio.Queue()

    async def __call__(self, call: GatedCall) -> Answer:
        self.asked.append(call)
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        self._question.put_nowait(call)
        try:
            return await self._answers.get()
        finally:
            self._at_once -= 1

    async def question(self) -> GatedCall:
        """Wait for the next question."""
        return await self._question.get()

    def say(self, answer: Answer) -> None:
        """Answer the question that stands."""
        self._answers.put_nowait(answer)


@dataclass
class Heard:
    """Notes what a gate tells."""

    events: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    async def __call__(self, call: GatedCall, decision: Decision | None) -> None:
        self.events.append((call.call_id, "asked" if decision is None else f"{decision.verdict} by {decision.by}"))
