"""PydanticAI: tools in an agent, retries by `ModelRetry`, approvals by deferred calls, messages stored as it runs."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, ModelMessagesTypeAdapter, Tool, ToolApproved
from pydantic_ai.models.function import FunctionModel

from proof.contenders.pydantic_model import or_retry, reply
from proof.desk import Desk, PlainFiles


def run(desk: Desk) -> None:
    """Brings the conversation to its end."""
    shop, state = desk.folder / "shop.json", dict[str, Any]()
    if shop.exists():
        state.update(json.loads(shop.read_bytes()))

    def pay(order: str, amount: str) -> str:
        """Pays an order."""
        return or_retry(desk.pay, order, amount, f"pay {order}")

    def ship(order: str) -> str:
        """Ships an order."""
        return or_retry(desk.ship, order, state, PlainFiles(desk.root))

    def act(function: str, arguments: dict[str, Any]) -> str:
        """Calls a function."""
        return or_retry(desk.act, function, arguments)

    tools: list[Any] = [Tool(pay, requires_approval=desk.asks), ship, act, desk.read_mail]
    model = FunctionModel(lambda messages, _: reply(desk, messages))
    agent = Agent(model, tools=tools, retries=3, output_type=[str, DeferredToolRequests])
    log, draft = desk.folder / "messages.json", desk.folder / "messages.new"

    async def work(results: DeferredToolResults | None = None) -> Any:
        history = ModelMessagesTypeAdapter.validate_json(log.read_bytes()) if log.exists() else None
        start = None if history else "Work."
        async with agent.iter(start, message_history=history, deferred_tool_results=results) as steps:
            async for _ in steps:
                draft.write_bytes(ModelMessagesTypeAdapter.dump_json(steps.all_messages()))
                draft.replace(log)
                shop.write_text(json.dumps(state))
        return steps.result

    def decide(order: str, amount: str) -> Any:
        return desk.ask_person(order, amount) and ToolApproved(override_args={"order": order, "amount": amount})

    result = asyncio.run(work())
    while isinstance(result.output, DeferredToolRequests):
        approvals = {call.tool_call_id: decide(**call.args_as_dict()) for call in result.output.approvals}
        result = asyncio.run(work(DeferredToolResults(approvals=approvals)))
    desk.finish(state)
