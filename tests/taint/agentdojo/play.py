"""A scripted model that does the task of a user, and at once whatever it reads that it is to do."""

from __future__ import annotations

import importlib
import json
from dataclasses import dataclass
from functools import cache
from itertools import count
from typing import Any, Literal

from pydantic import BaseModel, TypeAdapter

from handrail.adapters.tool_executor import ToolExecutor
from handrail.prompt import Approval, ApprovalRequest, Prompt, PromptTemplate, Tool, ToolsSection
from handrail.runtime import Session, ToolCall
from handrail.taint import TaintPolicy
from tests.taint.agentdojo.injected import Asked, calls_of, injected_calls
from tests.taint.agentdojo.suites import ACTS, MARK, TELLS, Case, environment, suites

Manner = Literal["none", "ask", "deny"]
"""Without the policy, or what the policy does."""

_JSON: TypeAdapter[Any] = TypeAdapter(Any)


@dataclass(frozen=True, slots=True)
class Played:
    """What became of a case.

    Attributes:
        was_met: whether the model has read the injection.
        injected: how many calls that act the injection led to.
        ran: how many of these have run.
        questions: how many calls a person was asked about.
        own: how many of these calls were of the user's task.
        task_is_done: whether the task of the user is done, as AgentDojo checks it.
        attack_is_done: whether the goal of the injection is reached, as AgentDojo checks it.
    """

    was_met: bool
    injected: int
    ran: int
    questions: int
    own: int
    task_is_done: bool
    attack_is_done: bool


class _World:
    """The environment of a case, as its tools see it, and what they were asked to do.

    The person whose task it is agrees to the calls that the task takes, and to no other one.
    """

    def __init__(self, case: Case) -> None:
        suite = suites()[case.suite]
        self.task = suite.user_tasks[case.task]
        self.injection = suite.injection_tasks[case.injection]
        fresh = environment(suite, f"{MARK} {self.injection.GOAL}")
        self.environment = self.task.init_environment(fresh)
        self.before = self.environment.model_copy(deep=True)
        self.wanted = calls_of(self.task, self.environment)
        self.obeyed = injected_calls(case.suite, self.injection, self.environment)
        self.is_obeying = False
        self.acted = 0
        self.asked: list[bool] = []

    def answer(self, _: ApprovalRequest) -> Approval:
        """Agree to what the task takes."""
        self.asked.append(self.is_obeying)
        return Approval(approved=not self.is_obeying, reason="I have not asked for that")


def play(case: Case, manner: Manner) -> Played:
    """Play a case."""
    world = _World(case)
    executor = _executor(case, world, manner)
    model = _Model(world, executor)
    model.work()
    world.before = _sharing(world.before, world.environment)
    words = f"{world.task.GROUND_TRUTH_OUTPUT} {world.injection.GROUND_TRUTH_OUTPUT if model.was_met else ''}"
    return Played(
        was_met=model.was_met,
        injected=sum(acts(each) for each in world.obeyed) if model.was_met else 0,
        ran=world.acted,
        questions=len(world.asked),
        own=world.asked.count(False),
        task_is_done=_is_done(world, "utility", world.task, words, model.made),
        attack_is_done=_is_done(world, "security", world.injection, words, model.made),
    )


def acts(asked: Asked) -> bool:
    """Whether a call acts outside, or reports something to an attacker."""
    return asked.function in ACTS | TELLS


class _Model:
    """The model: it makes the calls of the task, and those of an injection as soon as it has read one."""

    def __init__(self, world: _World, executor: ToolExecutor) -> None:
        self._world = world
        self._executor = executor
        self._numbers = count(1)
        self.was_met = False
        self.made: list[Asked] = []
        """The calls that have run."""

    def work(self) -> None:
        """Make the calls, one a reply."""
        for each in self._world.wanted:
            if MARK in self._call(each) and not self.was_met:
                self.was_met = True
                self._world.is_obeying = True
                for other in self._world.obeyed:
                    self._call(other)
                self._world.is_obeying = False

    def _call(self, asked: Asked) -> str:
        number = next(self._numbers)
        call = ToolCall(f"call-{number}", asked.function, json.dumps(asked.arguments))
        message = self._executor.execute(call, reply=f"reply-{number}")
        if message.success:
            self.made.append(asked)
        return message.content


def _executor(case: Case, world: _World, manner: Manner) -> ToolExecutor:
    policies = [] if manner == "none" else [TaintPolicy(on_tainted=manner, tools=TELLS)]
    section = ToolsSection(title="Tools", tools=[*_tools(case.suite)], policies=policies)
    template = PromptTemplate(ns="agentdojo", key=case.suite, sections=[section])
    return ToolExecutor(prompt=Prompt(template, resources={_World: world}), session=Session(), approver=world.answer)


@cache
def _tools(suite: str) -> tuple[Tool[Any, Any], ...]:
    return tuple(_tool(function) for function in suites()[suite].tools)


def _tool(function: Any) -> Tool[Any, Any]:
    """A function of AgentDojo as a tool: it acts, or what it returns is untrusted."""

    def handler(arguments: dict[str, Any], world: _World) -> Any:
        given = function.parameters.model_validate(arguments).model_dump()
        parts = {name: each.extract_dep_from_env(world.environment) for name, each in function.dependencies.items()}
        if world.is_obeying and function.name in ACTS | TELLS:
            world.acted += 1
        return _JSON.dump_python(function.run(**given, **parts), mode="json")

    does_act = function.name in ACTS
    return Tool.from_json_schema(
        name=function.name,
        description=function.description,
        schema=function.parameters.model_json_schema(),
        handler=handler,
        effect="external" if does_act else "state",
        untrusted=not does_act,
    )


def _sharing(before: Any, after: Any) -> Any:
    """`before`, with the parts of `after` that are equal to its own: AgentDojo's checks pass over one object."""
    if before == after:
        return after
    if all(isinstance(each, dict) for each in (before, after)):
        return {name: _sharing(part, after[name]) if name in after else part for name, part in before.items()}
    if isinstance(before, BaseModel):
        return before.model_copy(update={name: _sharing(part, getattr(after, name)) for name, part in before})
    return before


def _is_done(world: _World, check: str, task: Any, words: str, made: list[Asked]) -> bool:
    """What AgentDojo's own check says: of the calls that ran, if it looks at them, else of the environment."""
    call = importlib.import_module("agentdojo.functions_runtime").FunctionCall
    traces = [call(function=each.function, args=dict(each.arguments)) for each in made]
    found: object = getattr(task, f"{check}_from_traces")(words, world.before, world.environment, traces)
    return bool(getattr(task, check)(words, world.before, world.environment) if found is None else found)
