"""What an agent would be offered, found out without asking any model: for `handrail check`, and for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from pydantic_ai import ModelMessage, ModelResponse, RunContext, RunUsage, ToolDefinition
from pydantic_ai.messages import InstructionPart
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from pydantic_ai.toolsets import AbstractToolset

from handrail.adapters.pydantic_ai.foreign.effects import read_tool_metadata
from handrail.agents.approval.decisions import Judgement, Verdict
from handrail.agents.approval.rules import Rule, rules_on_arguments
from handrail.agents.run.agent_texts import section_path
from handrail.agents.run.run import AgentRun, definition_size
from handrail.agents.toolsets.listing import argument_names
from handrail.agents.unmatched_rules import Listings
from handrail.errors import AgentError
from handrail.prompt.disclosure import OpenSections
from handrail.prompt.effect import Effect
from handrail.prompt.idempotency import effect_hints

_OUTCOMES: Mapping[Verdict, str] = {
    "ask": "such calls are asked about",
    "deny": "such calls are denied",
    "allow": "no rule asks about such calls",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolReport:
    """A tool as an agent would be offered it.

    Attributes:
        name: what the model calls it by.
        description: what the model reads of it.
        source: the entry that it comes from, in words: `toolset files (built-in)`.
        section: the section that brings it, as `files`; empty for a tool without one.
        policies: what judges its calls beside the approval rules.
        effect: what a call does to the world.
        approval: what holds for a call that no rule on arguments fits.
        on_arguments: the rules that say something else where their arguments fit; the first that fits decides.
        parameters: the JSON Schema of its arguments.
        hints: what the developer may not have meant, in sentences.
        untrusted: whether third parties write what it returns, so that it taints the session.
        may_act: whether its calls are asked about in a tainted session.
        runs_one_by_one: whether it acts outside and is not declared to be concurrent.
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
    runs_one_by_one: bool = False


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
            reports = tuple(tool_report(run, tool.tool_def) for tool in tools)
            warnings = run.texts.new_warnings(all_seen=True)
            return Inspection(reports, run.listings(), closed_characters, warnings, tuple(executors.unbound))


async def _request_size(toolset: AbstractToolset[Any], ctx: RunContext[Any]) -> int:
    """The characters of the texts and the definitions of tools that a toolset gives a request."""
    said = await toolset.get_instructions(ctx)
    parts = [said] if isinstance(said, str | InstructionPart) else said or ()
    texts = [part if isinstance(part, str) else part.content for part in parts]
    definitions = [tool.tool_def for tool in (await toolset.get_tools(ctx)).values()]
    tools = [definition_size(each.name, each.description, each.parameters_json_schema) for each in definitions]
    return sum(map(len, texts)) + sum(tools)


def tool_report(run: AgentRun, definition: ToolDefinition) -> ToolReport:
    """A tool of a run, for people.

    Raises:
        AgentError: its calls would take another pipeline than the run's.
    """
    executors = run.executors
    executors.admit(definition)
    said, own = read_tool_metadata(definition), executors.own_tool(definition)
    tool = None if own is None else own.tool
    # Of a tool of Handrail's, what the tool declares, and not what is said of it to PydanticAI.
    declares = said if tool is None else tool
    call = run.executors.calls.of_tool(definition.name, said.effect, own_tool="" if own is None else own.name)
    call = replace(call, default=said.approval if own is None else own.default)
    verdict = run.tree.gate.judge(call)
    untrusted, section = declares.untrusted, ""
    policies: tuple[str, ...] = ()
    if own is not None:
        template = own.environment.prompt.template
        untrusted = untrusted or own.name in template.untrusted_tools
        judging = own.environment.rendered_prompt.policies_for(own.name)[len(executors.policies) :]
        policies = tuple(policy.name for policy in judging)
        section = section_path(template.tree, own.name) if own.shows_section else ""
    names = argument_names(definition.parameters_json_schema)
    on_arguments = rules_on_arguments(run.tree.rules, call, verdict)
    return ToolReport(
        name=definition.name,
        description=definition.description or "",
        source=call.origin,
        section=section,
        policies=policies,
        effect=said.effect,
        approval=verdict,
        parameters=definition.parameters_json_schema,
        hints=effect_hints(declares.effect, declares_effect=declares.declares_effect, idempotency=declares.idempotency),
        # Without rules on arguments that the tool does not have.
        on_arguments=tuple(
            (verdict, rule)
            for verdict, rule in on_arguments
            if names is None or all(place[0] in {None, *names} for place in rule.places)
        ),
        untrusted=untrusted,
        may_act=declares.may_act,
        runs_one_by_one=said.effect == "external" and not declares.concurrent,
    )


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
