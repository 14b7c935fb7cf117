"""What an agent would be offered, found out without asking any model: for `handrail check`, and for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from pydantic_ai import ModelMessage, ModelResponse, RunContext, RunUsage
from pydantic_ai.messages import InstructionPart
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from pydantic_ai.toolsets import AbstractToolset

from handrail.agents.approval.decisions import Verdict
from handrail.agents.run.executors import ToolReport
from handrail.agents.run.run import AgentRun, definition_size
from handrail.agents.toolsets.listing import KnownTool
from handrail.agents.unmatched_rules import Listings
from handrail.errors import AgentError
from handrail.prompt.disclosure import OpenSections

_OUTCOMES: Mapping[Verdict, str] = {
    "ask": "such calls are asked about",
    "deny": "such calls are denied",
    "allow": "no rule asks about such calls",
}


class Inspection(NamedTuple):
    """What is found out of an agent.

    Attributes:
        tools: the tools that it would be offered, in their order, with those of closed sections.
        listings: what is known of each of its toolsets.
        closed_characters: how many characters fewer a request has when the run begins than it would have if nothing
            could be closed: of the texts of the toolsets, and the definitions of their tools.
        warnings: in words, which of its overrides are not applied.
        unbound: in words, which resources of its tools nothing binds; a program may, with the options of its runs.
    """

    tools: tuple[ToolReport, ...]
    listings: Listings
    closed_characters: int = 0
    warnings: tuple[str, ...] = ()
    unbound: tuple[str, ...] = ()


async def inspect_run(run: AgentRun, *, settles: bool = False) -> Inspection:
    """Make and enter all toolsets of a run as if it began, and say which tools they have; no model is asked.

    Resources need not be bound: a program may bind them with the options of its runs. With `settles`, the open calls of
    its tools are settled, as a run does before its first request.

    Raises:
        AgentError: a factory made no toolset, or names are taken twice.
        OverridesError: an override is of a text that accepts none, or its text is invalid.
        BaseException: what a toolset raises when it is entered.
    """
    ctx = RunContext[Any](deps=run.tree.options.deps, model=_NoModel(), usage=RunUsage(), run_id="check", run_step=1)
    executors = run.executors
    executors.permits_unbound = True
    with run.opened():
        toolset = await run.toolset(dict).for_run(ctx)
        async with toolset:
            of_step = await toolset.for_run_step(ctx)
            tools = (await of_step.get_tools(ctx)).values()
            if settles:
                for executor in executors.own_executors():
                    await executor.settle_before_run_async()
            closed_characters = 0
            if (opening := executors.foreign.environment.rendering.all_open()) is not None:
                at_start = await _request_size(of_step, ctx) + run.disclosure_size
                run.session[OpenSections].append(opening)
                tools = (await of_step.get_tools(ctx)).values()
                closed_characters = await _request_size(of_step, ctx) - at_start
            listings = run.listings()
            known = {tool.name: tool for listing in listings.values() for tool in listing.tools}
            reports = [_narrowed(executors.report(tool.tool_def), known) for tool in tools]
            warnings = run.texts.new_warnings(all_seen=True)
            return Inspection(tuple(reports), listings, closed_characters, warnings, tuple(executors.unbound))


async def _request_size(toolset: AbstractToolset[Any], ctx: RunContext[Any]) -> int:
    """The characters of the texts and the definitions of tools that a toolset gives a request."""
    said = await toolset.get_instructions(ctx)
    parts = [said] if isinstance(said, str | InstructionPart) else said or ()
    texts = [part if isinstance(part, str) else part.content for part in parts]
    definitions = [tool.tool_def for tool in (await toolset.get_tools(ctx)).values()]
    tools = [definition_size(each.name, each.description, each.parameters_json_schema) for each in definitions]
    return sum(map(len, texts)) + sum(tools)


def _narrowed(report: ToolReport, known: Mapping[str, KnownTool]) -> ToolReport:
    """The report without rules on arguments that the tool does not have."""
    tool = known.get(report.name) if report.on_arguments else None
    names = None if tool is None else tool.arguments()
    if names is None:
        return report
    fitting = [said for said in report.on_arguments if all(place[0] in {None, *names} for place in said[1].places)]
    return replace(report, on_arguments=tuple(fitting))


def taint_remarks(tools: Mapping[str, Sequence[ToolReport]], tainted: Verdict) -> list[str]:
    """One sentence for each agent that can be tainted and has tools that may act outside.

    Args:
        tools: the tools of an agent and of those that it can call, by the name of the agent. Its taint is theirs, and
            theirs comes to it with their answers, so one untrusted tool taints all of them.
        tainted: what the rules say of such calls.
    """
    sources = [f"{tool.name} of {agent}" for agent, offered in tools.items() for tool in offered if tool.untrusted]
    if not sources:
        return []
    acting = {agent: [_acting(tool) for tool in offered if tool.may_act] for agent, offered in tools.items()}
    return [
        f"{agent} can be tainted by {', '.join(sources)}, and act by {', '.join(names)}; {_OUTCOMES[tainted]} "
        f"(tainted: {tainted})."
        for agent, names in acting.items()
        if names
    ]


def _acting(tool: ToolReport) -> str:
    return tool.name if tool.effect == "external" else f"{tool.name} (whose effect is not declared)"


class _NoModel(Model):
    """Stands for the model of a run that is only inspected."""

    def __init__(self) -> None:
        """Skip what the base class does: it loads the prices of all models, and its settings have defaults."""

    @property
    def model_name(self) -> str:
        """A name that no model has."""
        return "none"

    @property
    def system(self) -> str:
        """A name that no provider has."""
        return "none"

    async def request(
        self,
        messages: list[ModelMessage],  # noqa: ARG002 - as the base class names them, here and below
        model_settings: ModelSettings | None,  # noqa: ARG002
        model_request_parameters: ModelRequestParameters,  # noqa: ARG002
    ) -> ModelResponse:
        """Refuse; what is inspected is the tools."""
        raise AgentError("no model is asked here")
