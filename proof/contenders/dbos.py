"""PydanticAI with `DBOSDurability`: the run is a workflow, a payment a workflow of its own whose id is its order."""

from __future__ import annotations

import os
from typing import Any

from dbos import DBOS, DBOSConfig, SetWorkflowID
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, Tool
from pydantic_ai.durable_exec.dbos import DBOSDurability
from pydantic_ai.models.function import FunctionModel

from proof.contenders.pydantic_model import or_retry, reply
from proof.desk import Desk, PlainFiles


def make_tools(desk: Desk, state: dict[str, Any]) -> list[Any]:
    """The tools. With the variable `PAYMENT` a payment is a step alone, which shows what its workflow costs."""

    @DBOS.step(
        retries_allowed=True, interval_seconds=0.01, should_retry=lambda e: isinstance(e, ConnectionRefusedError)
    )
    def charge(order: str, amount: str) -> str:
        return desk.pay(order, amount, key=f"pay {order}")

    async def pay_order(order: str, amount: str) -> str:
        return charge(order, amount)

    pay_once = pay_order if "PAYMENT" in os.environ else DBOS.workflow()(pay_order)

    async def pay(order: str, amount: str) -> str:
        """Pays an order."""
        try:
            with SetWorkflowID(f"pay {order}"):
                return await pay_once(order, amount)
        except (TimeoutError, ConnectionError) as error:
            return f"{error}: whether {order} is paid is unknown"

    @DBOS.step()
    def ship_once(order: str, shop: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        return or_retry(desk.ship, order, shop, PlainFiles(desk.root)), shop

    def ship(order: str) -> str:
        """Ships an order."""
        text, shop = ship_once(order, {**state})
        state.update(shop)
        return text

    @DBOS.step()
    def act(function: str, arguments: dict[str, Any]) -> str:
        """Calls a function."""
        return or_retry(desk.act, function, arguments)

    return [Tool(pay, requires_approval=desk.asks), ship, act, desk.read_mail]


def run(desk: Desk) -> None:
    """Brings the conversation to its end."""
    state: dict[str, Any] = {}
    url = f"sqlite:///{desk.folder / 'engine.db'}"
    DBOS(config=DBOSConfig(name="proof", system_database_url=url, application_version="1", log_level="ERROR"))
    ask_person = DBOS.step()(lambda order, amount: desk.ask_person(order=order, amount=amount))
    model = FunctionModel(lambda messages, _: reply(desk, messages))
    options: Any = {"capabilities": [DBOSDurability()], "output_type": [str, DeferredToolRequests]}
    agent: Any = Agent(model, name="desk", tools=make_tools(desk, state), retries=3, **options)

    @DBOS.workflow()
    async def work() -> None:
        result = await agent.run("Work.")
        while isinstance(result.output, DeferredToolRequests):
            approvals: Any = {call.tool_call_id: ask_person(**call.args_as_dict()) for call in result.output.approvals}
            answers = DeferredToolResults(approvals=approvals)
            result = await agent.run(message_history=result.all_messages(), deferred_tool_results=answers)

    DBOS.launch()
    try:
        with SetWorkflowID("run"):
            handle: Any = DBOS.start_workflow(work)
            handle.get_result(polling_interval_sec=0.02)
        desk.finish(state)
    except BaseException:
        DBOS.destroy(workflow_completion_timeout_sec=5)
        raise
    DBOS.destroy()
