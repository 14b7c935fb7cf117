"""PydanticAI: tools in an agent, retries by `ModelRetry`, and approvals by deferred calls, stored as its pages show."""

from __future__ import annotations

from typing import Any

from pydantic_ai import (
    Agent,
    DeferredToolRequests,
    DeferredToolResults,
    ModelMessagesTypeAdapter,
    RunContext,
    Tool,
    ToolCallPart,
)
from pydantic_ai.models.function import FunctionModel

from proof.contenders.pydantic_model import or_retry, reply
from proof.desk import Desk, PlainFiles


def run(desk: Desk) -> None:
    """Brings the conversation to its end."""
    state: dict[str, Any] = {}
    files = PlainFiles(desk.root)

    def pay(ctx: RunContext[None], order: str, amount: str) -> str:
        """Pays an order."""
        return or_retry(desk.pay, order, amount, ctx.tool_call_id)

    def ship(order: str) -> str:
        """Ships an order."""
        return or_retry(desk.ship, order, state, files)

    def act(function: str, arguments: dict[str, Any]) -> str:
        """Calls a function."""
        return or_retry(desk.act, function, arguments)

    tools: list[Any] = [Tool(pay, requires_approval=desk.asks), ship, act, desk.read_mail]
    model = FunctionModel(lambda messages, _: reply(desk, messages))
    agent = Agent(model, tools=tools, retries=3, output_type=[str, DeferredToolRequests])
    pending = desk.folder / "pending.json"
    result = None if pending.exists() else agent.run_sync("Work.")
    while pending.exists() or (result and isinstance(result.output, DeferredToolRequests)):
        if result:
            pending.write_bytes(result.all_messages_json())
        history = ModelMessagesTypeAdapter.validate_json(pending.read_bytes())
        calls = [part for part in history[-1].parts if isinstance(part, ToolCallPart)]
        approvals: dict[str, Any] = {call.tool_call_id: desk.ask_person(**call.args_as_dict()) for call in calls}
        history = ModelMessagesTypeAdapter.validate_json(pending.read_bytes())
        result = agent.run_sync(message_history=history, deferred_tool_results=DeferredToolResults(approvals=approvals))
        pending.unlink()
    desk.finish(state)
