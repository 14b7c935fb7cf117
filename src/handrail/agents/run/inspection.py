"""What an agent would be offered, found out without asking any model: for `handrail check`, and for tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from pydantic_ai import ModelMessage, ModelResponse, RunContext, RunUsage
from pydantic_ai.models.function import AgentInfo, FunctionModel

from handrail.agents.approval.known import KnownTool
from handrail.agents.known_names import Listings
from handrail.agents.run.run import AgentRun
from handrail.agents.run.tool_report import ToolReport
from handrail.errors import AgentError


class Inspection(NamedTuple):
    """What is found out of an agent.

    Attributes:
        tools: the tools that it would be offered, in their order.
        listings: what is known of each of its toolsets.
    """

    tools: tuple[ToolReport, ...]
    listings: Listings


async def inspect_run(run: AgentRun) -> Inspection:
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
            tools = (await of_step.get_tools(ctx)).values()
            listings = run.listings()
            known = {tool.name: tool for listing in listings.values() for tool in listing.tools}
            reports = [_narrowed(run.describe(tool.tool_def), known) for tool in tools]
            return Inspection(tuple(reports), listings)


def _narrowed(report: ToolReport, known: Mapping[str, KnownTool]) -> ToolReport:
    """The report without rules on arguments that the tool does not have."""
    tool = known.get(report.name)
    if tool is None or not report.on_arguments:
        return report
    fitting = [said for said in report.on_arguments if all(tool.takes(place) != "no" for place in said[1].places)]
    return replace(report, on_arguments=tuple(fitting))


def _refuse(_messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
    raise AgentError("no model is asked here")
