"""Handrail in PydanticAI with `DBOSDurability`: DBOS stores the conversation, and Handrail runs the calls."""

from __future__ import annotations

from typing import Any

from dbos import DBOS, DBOSConfig, SetWorkflowID
from pydantic_ai import Agent
from pydantic_ai.capabilities import DynamicCapability
from pydantic_ai.durable_exec.dbos import DBOSDurability
from pydantic_ai.models.function import FunctionModel

from handrail import ToolExecutor, store
from handrail.adapters.pydantic_ai import HandrailCapability
from handrail.prompt import Approval, ApprovalRequest
from handrail.runtime import Session
from proof.contenders.handrail_tools import open_prompt, read_shop
from proof.contenders.pydantic_model import reply
from proof.desk import Desk


def run(desk: Desk) -> None:
    """Brings the conversation to its end."""
    url = f"sqlite:///{desk.folder / 'engine.db'}"
    DBOS(config=DBOSConfig(name="proof", system_database_url=url, application_version="1", log_level="ERROR"))
    handrail = DynamicCapability[ToolExecutor](lambda ctx: HandrailCapability(ctx.deps), id="handrail")
    model = FunctionModel(lambda messages, _: reply(desk, messages))
    agent = Agent(model, name="desk", deps_type=ToolExecutor, capabilities=[DBOSDurability(), handrail])
    with store.open(f"sqlite:///{desk.folder / 'desk.db'}") as opened, open_prompt(desk, opened) as prompt:

        def approve(request: ApprovalRequest) -> Approval:
            return Approval(approved=desk.ask_person(request.params.order, request.params.amount))

        @DBOS.workflow()
        async def work() -> dict[str, Any]:
            async with await Session.open_async(opened, DBOS.workflow_id or "") as session:
                executor = ToolExecutor(prompt=prompt, session=session, approver=approve)
                await agent.run("Work.", deps=executor)
                return read_shop(session)

        DBOS.launch()
        try:
            with SetWorkflowID("run"):
                handle: Any = DBOS.start_workflow(work)
                desk.finish(handle.get_result(polling_interval_sec=0.02))
        except BaseException:
            DBOS.destroy(workflow_completion_timeout_sec=5)  # its thread may be in a call, which needs the store
            raise
        DBOS.destroy()
