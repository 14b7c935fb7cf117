"""Workflows of DBOS that pay orders: steps that are functions or have an executor, and agents of PydanticAI."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Sequence
from typing import Any

from dbos import DBOS, DBOSConfig, SetWorkflowID
from pydantic_ai import Agent, ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.capabilities import AbstractCapability, DynamicCapability
from pydantic_ai.durable_exec.dbos import DBOSDurability
from pydantic_ai.models.function import AgentInfo, FunctionModel

from chaos.engines.scene import Answer, Desk, Scene, read_answer
from handrail import store as stores
from handrail.adapters.engines import engine_reply
from handrail.adapters.pydantic_ai import HandrailCapability, HandrailToolset
from handrail.adapters.tool_executor import ToolExecutor
from handrail.runtime import Session, ToolCall
from handrail.store import Store

Answers = dict[str, Answer]
Workflow = Callable[[list[str]], Any]
"""A workflow, which is a coroutine function where it has an agent."""

_POLLING = 0.05

importlib.import_module("pydantic_ai.mcp")  # else the run of an agent imports it, in each life


def live(scene: Scene) -> None:
    """Starts the runs that have not been started, and waits until each has ended."""
    desk = Desk(scene)
    config = DBOSConfig(
        name="chaos",
        system_database_url=scene.engine_url,
        application_version="1",
        executor_id="chaos",
        log_level="CRITICAL",
        use_listen_notify=False,
    )
    DBOS(config=config)
    with stores.open(scene.url) as store:
        workflow = _agent_workflow(scene, desk, store) if _is_agent(scene) else _step_workflow(scene, desk, store)
        DBOS.launch()
        try:
            for run_id in scene.run_ids:
                with SetWorkflowID(run_id):
                    handle = DBOS.start_workflow(workflow, scene.orders(run_id))
                desk.note(handle.get_result(polling_interval_sec=_POLLING))
                desk.wait()
        finally:
            DBOS.destroy()


def _is_agent(scene: Scene) -> bool:
    return scene.way in {"agent", "toolset", "capability"}


def _step_workflow(scene: Scene, desk: Desk, store: Store) -> Workflow:
    @DBOS.step()
    def pay(order: str) -> Answer:
        if scene.way == "plain":
            desk.pay(order)
            return "done"
        run_id = DBOS.workflow_id or ""
        with store.session(run_id) as session:
            call, reply = ToolCall("call-1", "pay", {"order": order}), engine_reply(run_id, DBOS.step_id)
            message = ToolExecutor([desk.tool], session=session).execute(call, reply=reply)
        return read_answer(message.content, success=message.success)

    @DBOS.workflow()
    def pay_orders(orders: list[str]) -> Answers:
        return {order: pay(order) for order in orders}

    return pay_orders


def _agent_workflow(scene: Scene, desk: Desk, store: Store) -> Workflow:
    async def pay(order: str) -> str:  # not in a thread, so that the calls of a reply come in their order
        """Pays an order."""
        return desk.pay(order)

    capabilities: list[AbstractCapability[Any]] = [DBOSDurability()]
    if scene.way == "capability":  # DBOS has to know the capabilities of an agent before the workflow begins
        capabilities.append(DynamicCapability(lambda ctx: HandrailCapability(ctx.deps), id="handrail"))
    agent: Agent[Any, str] = Agent(
        FunctionModel(_reply),
        name="desk",
        deps_type=ToolExecutor,
        tools=[pay] if scene.way == "agent" else [],
        capabilities=capabilities,
    )

    @DBOS.workflow()
    async def pay_orders(orders: list[str]) -> Answers:
        async with await Session.open_async(store, DBOS.workflow_id or "") as session:
            executor = ToolExecutor([desk.tool], session=session)
            toolsets = [HandrailToolset(executor)] if scene.way == "toolset" else []
            result = await agent.run(json.dumps(orders), deps=executor, toolsets=toolsets)
        return dict(json.loads(result.output))

    return pay_orders


async def _reply(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    # The first reply asks for all orders, and the second says how their calls were answered.
    returns = [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
    if returns:
        return ModelResponse([TextPart(json.dumps(_answers(returns)))])
    (question,) = (part for part in messages[0].parts if isinstance(part, UserPromptPart))
    orders: list[str] = json.loads(str(question.content))
    return ModelResponse([ToolCallPart("pay", {"order": order}, tool_call_id=order) for order in orders])


def _answers(returns: Sequence[ToolReturnPart]) -> Answers:
    return {
        part.tool_call_id: read_answer(part.model_response_str(), success=part.outcome == "success") for part in returns
    }
