"""An agent by its file, ready to be run: `load_agent("desk.agent").run("…")`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast

from pydantic_ai import RunUsage, UsageLimits

from handrail.adapters.loop import read_ahead
from handrail.adapters.pydantic_ai.conversation import one_at_a_time
from handrail.agents.agent_file import AgentFile, read_agent_file
from handrail.agents.approval.decisions import open_questions
from handrail.agents.approval.rules import ApprovalRules, read_rules
from handrail.agents.exports.registry import ResolvedAgent, resolve
from handrail.agents.project import Project, as_one, problems_of_agent, project_folder_of
from handrail.agents.run.inspection import Inspection, ToolReport, inspect_run
from handrail.agents.run.options import DEFAULT_OPTIONS, RunOptions, check_resumed
from handrail.agents.run.run import AgentRun, RunResult, SharedUsage
from handrail.agents.run.run_group import RunGroup
from handrail.agents.toolsets.builtin import DynamicAgent
from handrail.agents.toolsets.listing import static_conflicts
from handrail.agents.unmatched_rules import check_rules_match, unmatched_rules
from handrail.errors import AgentError, ProjectError
from handrail.errors.developer import check_argument
from handrail.limits import TokenUsage
from handrail.loop_guard import asynchronous_entry, loop_is_running
from handrail.runtime.execution import ASYNC
from handrail.serde import canonical_json, dump
from handrail.serde.secrets import holds_mask
from handrail.waiting import run_on_new_loop

MODEL_VARIABLE = "HANDRAIL_MODEL"
"""The environment variable that names a model where nothing else does."""


@dataclass(frozen=True, slots=True)
class LoadedAgent:
    """An agent of a project. It never changes; each run is one of its own.

    Attributes:
        project: where it and its tools come from.
        agent: its file, and the entries that this names.
    """

    project: Project
    agent: ResolvedAgent

    @property
    def name(self) -> str:
        """The name of the agent."""
        return self.agent.file.name

    @property
    def file(self) -> AgentFile:
        """What the agent file says."""
        return self.agent.file

    def rules(self) -> ApprovalRules:
        """The approval rules of the project; the built-in defaults where it has none.

        Raises:
            ApprovalRulesError: the file holds no rules.
        """
        path = self.project.config.approval
        return ApprovalRules() if path is None else read_rules(self.project.folder / path)

    def run(self, input: object = None, options: RunOptions = DEFAULT_OPTIONS) -> RunResult:
        """Run the agent, and wait for its answer; see `run_async`.

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
        """Run the agent to its answer.

        Args:
            input: what it is asked, a text; of an agent with `input_model_ref` a value of that type, or its JSON.
                Without one it resumes the unfinished run of `options.session`: calls that
                have a final record are answered from it, and questions that were left open are asked again.
            options: what the program chooses.

        Raises:
            AgentError: the agent cannot be run; the message says why, and what would be right. A session has one run
                of an agent at a time. A run that `handrail run` began with `--rules` or on another folder is resumed
                only with `rules` and `root` of `options`.
            UnknownModelError: it, or an agent that it can call, names a model that can be none.
            ApprovalRulesError: a rule names a tool, an argument or an agent that the project does not have.
            OverridesError: the overrides of the agent cannot be read, or do not fit it.
            PromptEvaluationError: the run stopped; `phase` says where. What was committed stays.
            BaseException: what a toolset raises when it is entered, and what a call ends the run with.
        """
        check_argument("Agent.run", "options", options, RunOptions, "RunOptions: RunOptions(model=..., session=...)")
        is_value = self.name in self.project.inputs and not isinstance(input, str | None)
        asked = canonical_json(dump(input)).decode() if is_value else cast("str | None", input)
        tree = await self._group(options)
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
                run = await AgentRun.prepared(tree, self.agent, session=tree.session, path=(self.name,), model=model)
                spent = SharedUsage(RunUsage(), UsageLimits(request_limit=options.request_limit))
                return await run.go(asked, spent, output_type=options.output_type)
        finally:
            await tree.close()

    @asynchronous_entry
    async def inspect(self, options: RunOptions = DEFAULT_OPTIONS) -> tuple[ToolReport, ...]:
        """The tools that the agent would be offered, in their order; no model is asked, and nothing is called.

        Raises:
            AgentError: a factory made no toolset, or names are taken twice.
            OverridesError: the overrides of the agent cannot be read, or do not fit it.
            BaseException: what a toolset raises when it is entered.
        """
        return (await self.inspection(options)).tools

    @asynchronous_entry
    async def inspection(self, options: RunOptions = DEFAULT_OPTIONS, *, settles: bool = False) -> Inspection:
        """The same with what is known of all its toolsets, as the check of approval rules needs it.

        Args:
            options: what the program chooses.
            settles: whether the open calls of its tools are settled.

        Raises:
            AgentError: as for `inspect`.
            OverridesError: as for `inspect`.
            BaseException: as for `inspect`.
        """
        tree = await self._group(options)
        try:
            # No model is asked during an inspection, so none has to be configured.
            await read_ahead(tree.session, DynamicAgent)
            run = await AgentRun.prepared(tree, self.agent, session=tree.session, path=(self.name,), model="none")
            return await inspect_run(run, settles=settles)
        finally:
            await tree.close()

    @asynchronous_entry
    async def settle_open_async(self, options: RunOptions = DEFAULT_OPTIONS) -> None:
        """Settle the open calls of `options.session`, as a run does before its first request; no model is asked.

        Raises:
            DeveloperMistake: a reconciler or an `apply` is at fault.
            Exception: as for `inspect`.
        """
        await self.inspection(options, settles=True)

    async def _group(self, options: RunOptions) -> RunGroup:
        """What the runs share; rules are read from their file, and what earlier runs have decided from the store."""
        rules = await ASYNC.in_thread(self.rules) if options.rules is None else options.rules
        store = None if options.session is None else options.session.store
        return await ASYNC.write_to(store, partial(RunGroup, self.project, options, rules))

    async def _settle_open_questions(self, tree: RunGroup) -> RunResult | None:
        """Ask again what earlier runs have left open; a result if some of it stays open.

        A call whose secrets are not stored is not asked about: it will be refused, and the model asks for it again.
        """
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

    The fault of another agent file or module of the folder is passed over, if the agent has what it names all the same.

    Raises:
        AgentError: the file, the project or what the file names cannot be used, or two of its tools have one name;
            every problem that was found is in it.
        InvalidArgumentError: `path` is not a path.
        Exception: what a module of the project raises when it is imported is chained to a `DiscoveryError`.
    """
    check_argument("load_agent", "path", path, (str, os.PathLike), "the path of an agent file")
    file = Path(path)
    own = read_agent_file(file)
    folder = project_folder_of(file)
    project, problems = Project.survey(folder)
    if project is not None:
        problems = problems_of_agent(project, own, problems)
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
    agent = resolve(own, project.registry)
    if (conflict := static_conflicts(agent)) is not None:
        raise conflict
    return LoadedAgent(project, agent)
