"""OpenAI Agents: function tools, a session in SQLite, and approvals by a stored `RunState`, as its pages show."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from agents import Agent, Model, Runner, RunState, SQLiteSession, Usage, function_tool, set_tracing_disabled
from agents.items import ModelResponse
from agents.testing import assistant_message, function_call

from proof.desk import Answer, Desk, PlainFiles


class Scripted(Model):
    """The scripted model."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def get_response(self, *_: Any, **options: Any) -> ModelResponse:
        """The next reply."""
        outputs = [each for each in options["input"] if each.get("type") == "function_call_output"]
        calls = self._desk.ask_model([Answer(each["call_id"], str(each["output"])) for each in outputs])
        items: list[Any] = [function_call(c.name, c.arguments, call_id=c.id) for c in calls] or [
            assistant_message("done")
        ]
        return ModelResponse(output=items, usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        """Streams nothing."""
        raise NotImplementedError


def run(desk: Desk) -> None:
    """Brings the conversation to its end."""
    set_tracing_disabled(disabled=True)
    asyncio.run(work(desk))


async def work(desk: Desk) -> None:
    """Runs the agent, and asks a person where it is interrupted."""
    shop = desk.folder / "shop.json"
    state: dict[str, Any] = json.loads(shop.read_text()) if shop.exists() else {}

    @function_tool(needs_approval=desk.asks)
    def pay(order: str, amount: str) -> str:
        """Pays an order."""
        return desk.pay(order, amount, key=f"pay {order}")

    @function_tool
    def ship(order: str) -> str:
        """Ships an order."""
        text = desk.ship(order, state, PlainFiles(desk.root))
        shop.write_text(json.dumps(state))
        return text

    @function_tool(strict_mode=False)
    def act(function: str, arguments: dict[str, Any]) -> str:
        """Calls a function."""
        return desk.act(function, arguments)

    agent = Agent(name="desk", model=Scripted(desk), tools=[pay, ship, act, function_tool(desk.read_mail)])
    session, pending = SQLiteSession("run", desk.folder / "session.db"), desk.folder / "pending.json"
    start: Any = "Work." if not await session.get_items() else []
    result = None if pending.exists() else await Runner.run(agent, start, session=session, max_turns=None)
    while result is None or result.interruptions:
        if result:
            pending.write_text(json.dumps(result.to_state().to_json()))
        asked = await RunState.from_json(agent, json.loads(pending.read_text()))
        agreed = [desk.ask_person(**json.loads(item.arguments or "")) for item in asked.get_interruptions()]
        stored = await RunState.from_json(agent, json.loads(pending.read_text()))
        for item, yes in zip(stored.get_interruptions(), agreed, strict=True):
            (stored.approve if yes else stored.reject)(item)
        result = await Runner.run(agent, stored, session=session, max_turns=None)
        pending.unlink()
    desk.finish(state)
