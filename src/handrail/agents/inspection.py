"""What an agent would be offered, found out without asking any model: for `handrail check`, and for tests."""

from __future__ import annotations

from typing import Any

from pydantic_ai import ModelMessage, ModelResponse, RunContext, RunUsage
from pydantic_ai.models.function import AgentInfo, FunctionModel

from handrail.agents.run import AgentRun
from handrail.agents.tool_report import ToolReport
from handrail.errors import AgentError


async def inspect_run(run: AgentRun) -> tuple[ToolReport, ...]:
    """Make and enter all toolsets of a run as if it began, and say which tools they have; no model is asked.

    Raises:
        AgentError: a factory made no toolset, or names are taken twice.
        BaseException: what a toolset raises when it is entered.
    """
    model = FunctionModel(_refuse, model_name="none")
    ctx = RunContext[Any](deps=run.tree.options.deps, model=model, usage=RunUsage(), run_id="check", run_step=1)
    with run.opened():
        toolset = await run.toolset(dict).for_run(ctx)
        async with toolset:
            of_step = await toolset.for_run_step(ctx)
            return tuple([run.describe(tool.tool_def) for tool in (await of_step.get_tools(ctx)).values()])


def _refuse(_messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
    raise AgentError("no model is asked here")
