"""The tools that an agent would be offered, as they are listed without a model: for `handrail check`, and for tests."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from pydantic_ai import ModelResponse, RunContext, RunUsage, ToolDefinition
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.toolsets import AbstractToolset

from handrail.adapters.pydantic_ai.foreign.calls import read_tool_metadata
from handrail.agents.approval.decisions import Judgement, Verdict
from handrail.agents.approval.rules import Rule, rules_on_arguments
from handrail.agents.run.run import AgentRun
from handrail.agents.unmatched_rules import Listings, argument_names
from handrail.errors import AgentError
from handrail.prompt.disclosure import OpenSections
from handrail.prompt.signature import Effect
from handrail.prompt.template import PlacedSection

_OUTCOMES: Mapping[Verdict, str] = {
    "ask": "such calls are asked about",
    "deny": "such calls are denied",
    "allow": "no rule asks about such calls",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolReport:
    """A tool as an agent would be offered it.

    Attributes:
        source: the entry that it comes from, in words: `toolset files (built-in)`.
        section: the section that brings it, as `files`; empty for a tool without one.
        policies: the policies of its calls beside the approval rules.
        approval: the judgement on a call that no rule on arguments fits.
        hints: likely mistakes of the developer, in sentences.
        on_arguments: the rules that decide otherwise where their arguments fit; the first that fits decides.
        untrusted: whether third parties write its results, so that it taints the session.
        may_act: whether its calls are asked about in a tainted session.
    """

    name: str
    description: str
    source: str
    section: str
    policies: tuple[str, ...]
    effect: Effect
    approval: Judgement
    parameters: Mapping[str, Any] = field(repr=False)
    hints: tuple[str, ...] = ()
    on_arguments: tuple[tuple[Verdict, Rule], ...] = ()
    untrusted: bool = False
    may_act: bool = False


class Inspection(NamedTuple):
    """The tools of an agent, in their order, with those of closed sections.

    Attributes:
        unbound: resources of its tools that are not bound, in words; a program may, with the options of its runs.
    """

    tools: tuple[ToolReport, ...]
    listings: Listings
    unbound: tuple[str, ...] = ()


_IRREVERSIBLE = "its effect cannot be undone after the call: declare undo=... if there is an action that offsets it"


async def inspect_run(run: AgentRun) -> Inspection:
    """Makes and enters all toolsets of a run as if it began, and lists their tools; no model is asked.

    Resources need not be bound: a program may bind them with the options of its runs. Raises as `LoadedAgent.inspect`.
    """
    executors = run.executors
    async with enter_toolset(run) as (toolset, context):
        if (opening := executors.foreign.environment.rendering.all_open()) is not None:
            run.session[OpenSections].append(opening)
        reports = tuple(tool_report(run, tool.tool_def) for tool in (await toolset.get_tools(context)).values())
        return Inspection(reports, run.listings(), tuple(executors.unbound))


@asynccontextmanager
async def enter_toolset(
    run: AgentRun, *, permits_unbound: bool = True
) -> AsyncGenerator[tuple[AbstractToolset[Any], RunContext[Any]]]:
    """A block in which the toolset of a run is entered and listed as if it began, with the context to list it again."""
    run.executors.permits_unbound = permits_unbound
    context = RunContext[Any](
        deps=run.tree.options.deps, model=FunctionModel(_refuse), usage=RunUsage(), run_id="no model", run_step=1
    )
    with run.activate():
        toolset = await run.toolset(dict).for_run(context)
        async with toolset:
            step = await toolset.for_run_step(context)
            await step.get_tools(context)
            yield step, context


def _refuse(*_request: object) -> ModelResponse:
    raise AgentError("no model is asked here")


def tool_report(run: AgentRun, definition: ToolDefinition) -> ToolReport:
    """A tool of a run, for people; an `AgentError` if its calls would take another pipeline than those of the run."""
    executors = run.executors
    executors.admit(definition)
    metadata, own = read_tool_metadata(definition), executors.own_tool(definition)
    tool = None if own is None else own.tool
    # Of a tool of Handrail's, its own declaration, and not the metadata for PydanticAI.
    declares = metadata if tool is None else tool
    call = run.executors.calls.of_tool(definition.name, metadata.effect, own_tool="" if own is None else own.name)
    call = replace(call, default=metadata.approval if own is None else own.default)
    verdict = run.tree.gate.judge(call)
    untrusted, section = declares.untrusted, ""
    policies: tuple[str, ...] = ()
    if own is not None:
        template = own.environment.prompt.template
        untrusted = untrusted or own.name in template.untrusted_tools
        judging = own.environment.rendered_prompt.policies_for(own.name)[len(executors.policies) :]
        policies = tuple(policy.name for policy in judging)
        section = _section_path(template.tree, own.name) if own.shows_section else ""
    names = argument_names(definition.parameters_json_schema)
    return ToolReport(
        name=definition.name,
        description=definition.description or "",
        source=call.origin,
        section=section,
        policies=policies,
        effect=metadata.effect,
        approval=verdict,
        parameters=definition.parameters_json_schema,
        hints=(_IRREVERSIBLE,) if tool is not None and tool.may_act and tool.undo is None else (),
        # Without rules on arguments that the tool does not have.
        on_arguments=tuple(
            (verdict, rule)
            for verdict, rule in rules_on_arguments(run.tree.rules, call, verdict)
            if names is None or all(place[0] in {None, *names} for place in rule.places)
        ),
        untrusted=untrusted,
        may_act=declares.may_act,
    )


def taint_remarks(tools: Mapping[str, Sequence[ToolReport]], tainted: Verdict) -> list[str]:
    """One sentence for each agent that can be tainted and has tools that may act outside.

    `tools` are those of an agent and of the agents that it can call, by name. Their taint comes to it with their
    answers, so one untrusted tool taints all of them. `tainted` is the verdict of the rules on such calls.
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


def _section_path(sections: Iterable[PlacedSection], tool: str) -> str:
    return next(
        placed.dotted
        for root in sections
        for placed in root.walk()
        if any(own.name == tool for own in placed.section.tools)
    )
