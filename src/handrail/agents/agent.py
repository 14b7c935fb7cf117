"""An agent by its file, ready to be run: `load_agent("desk.agent").run("…")`.

It is a function, too, which workers carry out and a dry run rehearses. Its answer is text then. It is asked only if the
session has no answer of it yet, and continues what another process began. A question that a person has to answer is
left open, so that the run waits; a run with a guard leaves all of them to it.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final, TypeVar, cast

from pydantic_ai import ModelResponse, RunUsage, UsageLimits
from pydantic_ai.models import Model
from pydantic_core import to_jsonable_python

from handrail.adapters.loop import read_ahead
from handrail.adapters.pydantic_ai.conversation import StoredHistory, one_at_a_time
from handrail.adapters.run_task import RunTask, digest_paths
from handrail.adapters.tool_executor import ToolExecutor
from handrail.agents.agent_file import AgentFile, read_agent_file
from handrail.agents.approval.decisions import Answer, GatedCall, answer_later, open_questions
from handrail.agents.approval.rules import ApprovalRules, read_rules
from handrail.agents.inspection import Inspection, ToolReport, enter_toolset, inspect_run
from handrail.agents.project import Project, agent_problems, as_one, matching_files
from handrail.agents.registry import ResolvedAgent, resolve
from handrail.agents.run.interface import DEFAULT_OPTIONS, RunOptions, check_resumed
from handrail.agents.run.run import AgentRun, RunResult, SharedUsage
from handrail.agents.run.run_group import RunGroup
from handrail.agents.toolsets.builtin import DynamicAgent
from handrail.agents.unmatched_rules import check_rules_match, unmatched_rules
from handrail.errors import AgentError, ProjectError
from handrail.limits import TokenUsage
from handrail.resources import ResourceRegistry
from handrail.runtime.environment import find_guard
from handrail.runtime.execution import ASYNC
from handrail.runtime.guard import RunGuard
from handrail.serde import canonical_json, digest, dump
from handrail.serde.secrets import holds_mask
from handrail.session.open_calls import describe_answer
from handrail.waiting import asynchronous_entry, loop_is_running, run_on_new_loop

T = TypeVar("T")

MODEL_VARIABLE = "HANDRAIL_MODEL"
"""The environment variable with the model of last resort."""


_PROJECT_FILE: Final = "pyproject.toml"
_OPTIONS: Final = (
    *("max_depth", "request_limit", "retries", "check_names", "output_type"),
    *("deps", "feedback", "completion"),  # by the names of their classes or functions
)


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
                run = AgentRun(tree, self.agent, session=tree.session, path=(self.name,), model=model)
                spent = SharedUsage(RunUsage(), UsageLimits(request_limit=options.request_limit))
                return await run.execute(text, spent, output_type=options.output_type)
        finally:
            await tree.close()

    @asynchronous_entry
    async def inspect(self, options: RunOptions = DEFAULT_OPTIONS) -> tuple[ToolReport, ...]:
        """The tools that the agent would be offered, in their order; neither a model nor a tool is called.

        Raises:
            AgentError: a factory made no toolset, or tools have the same name.
            BaseException: the error of entering a toolset.
        """
        return (await self.inspection(options)).tools

    @asynchronous_entry
    async def inspection(self, options: RunOptions = DEFAULT_OPTIONS) -> Inspection:
        """The tools with the listings of all its toolsets, for the check of approval rules; raises as `inspect`."""
        async with self.prepare(options) as run:
            return await inspect_run(run)

    @asynchronous_entry
    async def with_executors(
        self, act: Callable[[tuple[ToolExecutor, ...]], Awaitable[T]], options: RunOptions = DEFAULT_OPTIONS
    ) -> T:
        """Enters the toolsets of the agent as a run would, and passes its executors to a function, as for an undo.

        Raises:
            BaseException: as `inspect`; or what the function raises.
        """
        async with self.prepare(options) as run, enter_toolset(run):
            await run.executors.open_root()
            return await act((*run.executors.own_executors(), run.executors.foreign))

    @asynccontextmanager
    async def prepare(self, options: RunOptions) -> AsyncGenerator[AgentRun]:
        """A run of the agent that asks no model, for the time of a block."""
        tree = await self.begin_group(options)
        try:
            # No model is asked, so none has to be configured.
            await read_ahead(tree.session, DynamicAgent)
            yield AgentRun(tree, self.agent, session=tree.session, path=(self.name,), model="none")
        finally:
            await tree.close()

    def task(self, options: RunOptions | None = None) -> AgentTask:
        """The agent as a function, for workers and for a dry run; it leaves questions open, if there is no plan."""
        return AgentTask(self) if options is None else AgentTask(self, options)

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


@dataclass(frozen=True, slots=True)
class AgentTask:
    """An agent with the options of its runs, to be called with a `RunTask`; `LoadedAgent.task` makes it."""

    agent: LoadedAgent
    options: RunOptions = field(default_factory=lambda: RunOptions(stream=False))

    @property
    def name(self) -> str:
        """The name of the agent."""
        return self.agent.name

    def versions(self) -> Mapping[str, str]:
        """Digests of what makes the agent act as it does: its files, rules, model and options, each under its name."""
        options, project = self.options, self.agent.project
        rules = self.agent.rules() if options.rules is None else options.rules
        models = [_model_name(model) for model in (options.model, options.fallback_model)]
        resources = options.resources
        kinds = [] if isinstance(resources, ResourceRegistry) else sorted(kind.__qualname__ for kind in resources)
        described = {
            "files": self.digest_files(),
            "rules": repr(rules),
            "models": [*models, self.agent.file.model, project.config.model],
            "root": str(Path(options.root or Path.cwd()).resolve()),
            "options": {**{name: getattr(options, name) for name in _OPTIONS}, "resources": kinds},
        }
        plain = to_jsonable_python(
            described, fallback=lambda value: getattr(value, "__qualname__", type(value).__name__)
        )
        return {name: digest(value) for name, value in plain.items()}

    def digest_files(self) -> str:
        """A digest that changes with the agent files, modules and settings of the project."""
        folder, config = self.agent.project.folder, self.agent.project.config
        sources = [folder / path for path in matching_files(folder, (*config.agents, *config.python))]
        return digest_paths([*sources, *filter(Path.is_file, [folder / _PROJECT_FILE])])

    async def __call__(self, task: RunTask) -> object:
        """The answer of the agent, as text; empty if it waits.

        Raises:
            AgentError: the requests that the run may make are used up.
            BaseException: as of `LoadedAgent.run_async`.
        """
        session, guard = task.session, find_guard(task.session)
        load = partial(StoredHistory, session, self.name, is_held=True)
        history = await ASYNC.write_to(session.store, load)
        if guard is None and history.history and not history.unfinished:
            return history.answer
        requests = sum(isinstance(message, ModelResponse) for message in history.history)
        limit = None if task.request_limit is None else task.request_limit - requests
        if limit is not None and limit < 1:
            raise AgentError(
                f"the run has made {requests} requests, and may make {task.request_limit}; allow more with "
                "handrail runs retry --request-limit"
            )
        options = replace(self.options, session=session, asker=answer_later, deadline=task.deadline)
        options = replace(options, request_limit=limit) if guard is None else _guarded(options, guard)
        is_resumed = guard is None and history.unfinished
        result = await self.agent.run_async(None if is_resumed else task.input, options)
        return result.output


def _guarded(options: RunOptions, guard: RunGuard) -> RunOptions:
    def ask(call: GatedCall) -> Answer:
        answer = guard.note_questions(call.session_id, call.ref, call.asks or ("the approval rules ask",))
        reason = answer.reason.removeprefix(describe_answer(answer.approved, "")).removeprefix(": ")
        return Answer("yes" if answer.approved else "no", reason=reason)

    return replace(options, asker=ask, stream=False)


def _model_name(model: Model | str | None) -> str | None:
    return f"{model.system}:{model.model_name}" if isinstance(model, Model) else model


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
