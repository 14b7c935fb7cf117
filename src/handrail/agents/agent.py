"""An agent by its file, ready to be run: `load_agent("desk.agent").run("…")`; and the tools that it would be offered.

`inspect` lists them without asking a model: for `handrail check`, and for tests.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

from pydantic_ai import ModelResponse, RunContext, RunUsage, ToolDefinition, UsageLimits
from pydantic_ai.models.function import FunctionModel

from handrail.adapters.loop import read_ahead
from handrail.adapters.pydantic_ai.conversation import one_at_a_time
from handrail.adapters.pydantic_ai.foreign.calls import read_tool_metadata
from handrail.agents.agent_file import AgentFile, read_agent_file
from handrail.agents.approval.decisions import Judgement, Verdict, open_questions
from handrail.agents.approval.rules import ApprovalRules, Rule, read_rules, rules_on_arguments
from handrail.agents.project import Project, agent_problems, as_one
from handrail.agents.registry import ResolvedAgent, resolve
from handrail.agents.run.interface import DEFAULT_OPTIONS, RunOptions, check_resumed
from handrail.agents.run.run import AgentRun, RunResult, SharedUsage
from handrail.agents.run.run_group import RunGroup
from handrail.agents.toolsets.builtin import DynamicAgent
from handrail.agents.unmatched_rules import Listings, argument_names, check_rules_match, unmatched_rules
from handrail.errors import AgentError, ProjectError
from handrail.limits import TokenUsage
from handrail.prompt.disclosure import OpenSections
from handrail.prompt.idempotency import effect_hints
from handrail.prompt.signature import Effect
from handrail.prompt.template import PlacedSection
from handrail.runtime.execution import ASYNC
from handrail.serde import canonical_json, dump
from handrail.serde.secrets import holds_mask
from handrail.waiting import asynchronous_entry, loop_is_running, run_on_new_loop

MODEL_VARIABLE = "HANDRAIL_MODEL"
"""The environment variable with the model of last resort."""


@dataclass(frozen=True, slots=True)
class LoadedAgent:
    """An agent of a project, with the entries that its file names. It never changes; each run is one of its own."""

    project: Project
    agent: ResolvedAgent

    @property
    def name(self) -> str:
        """The name of the agent."""
        return self.agent.file.name

    @property
    def file(self) -> AgentFile:
        """The agent file."""
        return self.agent.file

    def rules(self) -> ApprovalRules:
        """The approval rules of the project; the built-in defaults where it has none.

        Raises:
            ApprovalRulesError: the file of rules is invalid.
        """
        path = self.project.config.approval
        return ApprovalRules() if path is None else read_rules(self.project.folder / path)

    def run(self, input: object = None, options: RunOptions = DEFAULT_OPTIONS) -> RunResult:
        """Runs the agent, and waits for its answer; see `run_async`.

        Raises:
            AgentError: as for `run_async`, or this thread runs an event loop, which it would stop.
        """
        if loop_is_running():
            raise AgentError(
                "run would stop the event loop of this thread; on an event loop, use `await agent.run_async`"
            )
        return run_on_new_loop(self.run_async(input, options))

    @asynchronous_entry
    async def run_async(self, input: object = None, options: RunOptions = DEFAULT_OPTIONS) -> RunResult:
        """Runs the agent to its answer.

        Args:
            input: a text; of an agent with `input_model_ref` a value of that type, or its JSON. Without one it resumes
                the unfinished run of `options.session`: calls that have a final record are answered from it, and
                questions that were left open are asked again.
            options: the options of the run.

        Raises:
            AgentError: the agent cannot be run. A session has one run of an agent at a time; one that `handrail run`
                began with `--rules` or on another folder is resumed only with `rules` and `root` of `options`.
            UnknownModelError: the model of the agent, or of one that it can call, cannot exist.
            ApprovalRulesError: a rule names a tool, an argument or an agent that the project does not have.
            OverridesError: the overrides of the agent cannot be read, or do not fit it.
            PromptEvaluationError: the run stopped; `phase` says where. Committed calls stay.
            BaseException: the error of entering a toolset, or of a call that ends the run.
        """
        is_value = self.name in self.project.inputs and not isinstance(input, str | None)
        text = canonical_json(dump(input)).decode() if is_value else cast("str | None", input)
        tree = await self.begin_group(options)
        try:
            # Before anything runs: a deny rule with a misspelt name would protect nothing, and the run would not show
            # it.
            check_rules_match(unmatched_rules(tree.rules, self.project, self.file))
            if input is None:
                check_resumed(tree.session, options)
            # An empty variable counts as one that is not set.
            model = tree.model_for(self.file, os.environ.get(MODEL_VARIABLE) or None)
            tree.check_models(self.file)
            # Two runs would interleave their messages in one conversation.
            with one_at_a_time(tree.session, self.name, of="agent"):
                # Asked before the model: a run whose questions stay open ends without a request.
                waiting = await self._settle_open_questions(tree) if input is None else None
                if waiting is not None:
                    return waiting
                await read_ahead(tree.session, DynamicAgent)
                run = await AgentRun.prepare(tree, self.agent, session=tree.session, path=(self.name,), model=model)
                spent = SharedUsage(RunUsage(), UsageLimits(request_limit=options.request_limit))
                return await run.execute(text, spent, output_type=options.output_type)
        finally:
            await tree.close()

    @asynchronous_entry
    async def inspect(self, options: RunOptions = DEFAULT_OPTIONS) -> tuple[ToolReport, ...]:
        """The tools that the agent would be offered, in their order; neither a model nor a tool is called.

        Raises:
            AgentError: a factory made no toolset, or tools have the same name.
            OverridesError: the overrides of the agent cannot be read, or do not fit it.
            BaseException: the error of entering a toolset.
        """
        return (await self.inspection(options)).tools

    @asynchronous_entry
    async def inspection(self, options: RunOptions = DEFAULT_OPTIONS, *, settles: bool = False) -> Inspection:
        """The tools with the listings of all its toolsets, for the check of approval rules; raises as `inspect`.

        With `settles`, the open calls of its tools are settled, as a run does before its first request; a
        `DeveloperMistake` if a reconciler or an `apply` is at fault.
        """
        tree = await self.begin_group(options)
        try:
            # No model is asked during an inspection, so none has to be configured.
            await read_ahead(tree.session, DynamicAgent)
            run = await AgentRun.prepare(tree, self.agent, session=tree.session, path=(self.name,), model="none")
            return await inspect_run(run, settles=settles)
        finally:
            await tree.close()

    async def begin_group(self, options: RunOptions) -> RunGroup:
        """The part of a run that it shares with the runs nested in it; its `close` ends it."""
        # Rules are read from their file, and the decisions of earlier runs from the store.
        rules = await ASYNC.in_thread(self.rules) if options.rules is None else options.rules
        store = None if options.session is None else options.session.store
        return await ASYNC.write_to(store, partial(RunGroup, self.project, options, rules))

    async def _settle_open_questions(self, tree: RunGroup) -> RunResult | None:
        # Asks the open questions of earlier runs again; a result if some of them stay open. A call whose secrets are
        # not stored is not asked about: it will be refused, and the model asks for it again.
        for call in await ASYNC.write_to(tree.session.store, partial(open_questions, tree.session)):
            if not holds_mask(call.arguments):
                await tree.gate.decide(call)
        # `decide` has put every question that was left open again into the gate.
        if not tree.gate.open:
            return None
        return RunResult(
            status="waiting",
            output="",
            waiting=tree.gate.open,
            usage=TokenUsage(),
            session_id=tree.session.session_id,
            messages=(),
        )


def load_agent(path: str | os.PathLike[str]) -> LoadedAgent:
    """The agent of a file, with its project: the folder that the file is in.

    The fault of another agent file or module of the folder is passed over, if all names of the agent exist.

    Raises:
        AgentError: the file, the project or the entries that the file names cannot be used; it has every problem.
        Exception: the error of importing a module of the project is chained to a `DiscoveryError`.
    """
    file = Path(path)
    own = read_agent_file(file)
    folder = file.absolute().parent
    project, problems = Project.survey(folder)
    if project is not None:
        problems = agent_problems(project, own, problems)
    if project is None or problems:
        raise as_one(folder, problems)
    # The project may leave this file out, by its patterns. Another agent of the same name would then be the one that
    # its agents call.
    other = project.agents.get(own.name)
    if other is not None and other.path is not None and not other.path.samefile(file):
        raise ProjectError(
            f"{file} is not an agent of its project, whose patterns leave it out, and the project has another agent "
            f"called {own.name!r}: {other.path}; give one another name"
        )
    if own.input_model_ref is not None and own.name not in project.inputs:
        raise ProjectError(
            f"{file} has an input_model_ref, and the patterns of its project leave it out; name it there"
        )
    return LoadedAgent(project, resolve(own, project.registry))


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
        warnings: its overrides that are not applied, in words.
        unbound: resources of its tools that are not bound, in words; a program may, with the options of its runs.
    """

    tools: tuple[ToolReport, ...]
    listings: Listings
    warnings: tuple[str, ...] = ()
    unbound: tuple[str, ...] = ()


async def inspect_run(run: AgentRun, *, settles: bool = False) -> Inspection:
    """Makes and enters all toolsets of a run as if it began, and lists their tools; no model is asked.

    Resources need not be bound: a program may bind them with the options of its runs. With `settles`, the open calls of
    its tools are settled, as a run does before its first request. Raises as `LoadedAgent.inspect`.
    """
    ctx = RunContext[Any](
        deps=run.tree.options.deps, model=FunctionModel(_refuse), usage=RunUsage(), run_id="check", run_step=1
    )
    executors = run.executors
    executors.permits_unbound = True
    with run.activate():
        toolset = await run.toolset(dict).for_run(ctx)
        async with toolset:
            of_step = await toolset.for_run_step(ctx)
            tools = (await of_step.get_tools(ctx)).values()
            if settles:
                for executor in executors.own_executors():
                    await executor.settle_before_run_async()
            if (opening := executors.foreign.environment.rendering.all_open()) is not None:
                run.session[OpenSections].append(opening)
                tools = (await of_step.get_tools(ctx)).values()
            reports = tuple(tool_report(run, tool.tool_def) for tool in tools)
            warnings = run.texts.new_warnings(all_seen=True)
            return Inspection(reports, run.listings(), warnings, tuple(executors.unbound))


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
        hints=effect_hints(declares.effect, declares_effect=declares.declares_effect, idempotency=declares.idempotency),
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
