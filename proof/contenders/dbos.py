"""PydanticAI with `DBOSDurability`: the run is a workflow, a payment a workflow of its own whose id is its order."""

from __future__ import annotations

from typing import Any

from dbos import DBOS, DBOSConfig, SetWorkflowID
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, ModelRetry, RunContext, Tool
from pydantic_ai.durable_exec.dbos import DBOSDurability
from pydantic_ai.models.function import FunctionModel

from proof.contenders.pydantic_model import or_retry, reply
from proof.desk import Desk, PlainFiles


def was_refused(error: BaseException) -> bool:
    """Whether nothing was paid, so that a step may be tried again."""
    return isinstance(error, ConnectionRefusedError)


def make_tools(desk: Desk, state: dict[str, Any]) -> list[Any]:
    """The tools."""
    files = PlainFiles(desk.root)

    @DBOS.step(retries_allowed=True, interval_seconds=0.01, should_retry=was_refused)
    def charge(order: str, amount: str, key: str) -> str:
        return desk.pay(order, amount, key=key)

    @DBOS.workflow()
    async def pay_order(order: str, amount: str, key: str) -> str:
        return charge(order, amount, key)

    async def pay(ctx: RunContext[None], order: str, amount: str) -> str:
        """Pays an order."""
        try:
            with SetWorkflowID(f"pay {order}"):
                handle = await DBOS.start_workflow_async(pay_order, order, amount, ctx.tool_call_id or "")
            return await handle.get_result(polling_interval_sec=0.02)
        except (TimeoutError, ConnectionError) as error:
            raise ModelRetry(f"{type(error).__name__}: {error}") from error

    @DBOS.step()
    def ship(order: str) -> str:
        """Ships an order."""
        return or_retry(desk.ship, order, state, files)

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
    tools = make_tools(desk, state)

    @DBOS.step()
    def ask_person(order: str, amount: str) -> bool:
        return desk.ask_person(order, amount)

    model = FunctionModel(lambda messages, _: reply(desk, messages))
    output: Any = [str, DeferredToolRequests]
    agent = Agent(model, name="desk", tools=tools, retries=3, capabilities=[DBOSDurability()], output_type=output)

    @DBOS.workflow()
    async def work() -> Any:
        result = await agent.run("Work.")
        while isinstance(result.output, DeferredToolRequests):
            calls = result.output.approvals
            approvals: dict[str, Any] = {call.tool_call_id: ask_person(**call.args_as_dict()) for call in calls}
            answers = DeferredToolResults(approvals=approvals)
            result = await agent.run(message_history=result.all_messages(), deferred_tool_results=answers)
        return result.output

    DBOS.launch()
    with SetWorkflowID("run"):
        handle: Any = DBOS.start_workflow(work)
        handle.get_result(polling_interval_sec=0.02)
    desk.finish(state)
    DBOS.destroy()
