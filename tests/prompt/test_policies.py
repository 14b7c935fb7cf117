"""Policies: their decisions, and a tool that must wait for others; and the context that a handler is given."""

from __future__ import annotations

import dataclasses
import re
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.clock import SYSTEM_CLOCK
from handrail.errors import PromptValidationError
from handrail.filesystem import Filesystem, InMemoryFilesystem
from handrail.limits import Budget, BudgetTracker, Deadline, Heartbeat, RunContext
from handrail.prompt import (
    PolicyDecision,
    Prompt,
    PromptTemplate,
    Section,
    SequentialDependencyPolicy,
    Tool,
    ToolContext,
    ToolResult,
)
from handrail.prompt.disclosure import PromptRendering
from handrail.prompt.policy import ToolSucceeded
from handrail.prompt.section import check_policy
from handrail.runtime import EffectLedger
from handrail.runtime.environment import Environment
from handrail.session import Session
from handrail.session.calls import CallRef
from handrail.testing import FakeClock
from tests.kit import Decides, call, executor, raises, tool
from tests.prompt.samples import lookup_tool, named_tool
from tests.wording import Wording


class Always:
    """A policy that decides as it is told."""

    def __init__(self, name: object = "always") -> None:
        self.name = name

    def check(self, tool: Tool[Any, Any], params: object, *, context: ToolContext) -> PolicyDecision:
        return PolicyDecision.allow()

    def on_result(self, tool: Tool[Any, Any], params: object, result: ToolResult[Any], *, context: ToolContext) -> None:
        """Remembers nothing."""


class Later(Always):
    async def check(self, tool: Tool[Any, Any], params: object, *, context: ToolContext) -> PolicyDecision:  # type: ignore[override]
        return PolicyDecision.allow()


class Narrow(Always):
    def check(self, tool: Tool[Any, Any]) -> PolicyDecision:  # type: ignore[override]
        return PolicyDecision.allow()


class Deaf:
    name = "deaf"

    def check(self, tool: Tool[Any, Any], params: object, *, context: ToolContext) -> PolicyDecision:
        return PolicyDecision.allow()


def test_a_refusal_needs_its_reason_and_a_question_its_words(wording: Wording) -> None:
    """The model, or a person, must have something to read."""
    with raises(ValueError, wording):
        PolicyDecision.deny(" ")
    with raises(ValueError, wording):
        PolicyDecision.ask("")


def test_anything_else_is_told_what_it_lacks(wording: Wording) -> None:
    """A name, a method, the right parameters, an answer at once."""
    told: list[str] = []
    for policy in (Always(""), Always(None), Always, Deaf(), Narrow(), Later()):
        with pytest.raises(PromptValidationError) as caught:
            check_policy(policy)
        told.append(re.sub(" at 0x[0-9a-f]+", "", str(caught.value)))
    assert told == wording


DEPLOY_LAST = SequentialDependencyPolicy(dependencies={"deploy": frozenset({"test", "build"})})
DONE: ToolResult[Any] = ToolResult.ok(None)


def decide(policy: SequentialDependencyPolicy, name: str, context: ToolContext) -> PolicyDecision:
    """What the policy says to a call of that tool."""
    return policy.check(named_tool(name), None, context=context)


def succeed(policy: SequentialDependencyPolicy, name: str, context: ToolContext) -> None:
    """A success of that tool."""
    policy.on_result(named_tool(name), None, DONE, context=context)


def test_a_tool_waits_until_all_others_have_succeeded(wording: Wording) -> None:
    """Each success counts once and for all; the reason names what is missing."""
    context = ToolContext.of()
    assert decide(DEPLOY_LAST, "deploy", context).reason == wording
    succeed(DEPLOY_LAST, "test", context)
    succeed(DEPLOY_LAST, "test", context)
    assert decide(DEPLOY_LAST, "deploy", context).reason == wording
    succeed(DEPLOY_LAST, "build", context)
    assert decide(DEPLOY_LAST, "deploy", context).allowed
    assert len(context.session[ToolSucceeded].all()) == 2


def test_a_success_that_is_rolled_back_does_not_count(wording: Wording) -> None:
    """A call that fails after the policy has noted its success takes the note along."""

    class Objects(Decides):
        """A policy that fails the call of `test` when it is told of its success."""

        def on_result(self, tool: Tool[Any, Any], *_args: object, **_options: object) -> None:
            if tool.name == "test":
                raise ValueError(tool.name)

    objects = Objects(lambda _tool, _params: PolicyDecision.allow())
    session = Session()
    tools = [tool(name) for name in ("test", "build", "deploy")]
    door = executor(*tools, policies=(DEPLOY_LAST, objects), session=session)
    assert not door.execute(call("test")).success
    assert door.execute(call("build", id="2")).success
    assert door.execute(call("deploy", id="3")).content == wording
    assert session[ToolSucceeded].all() == (ToolSucceeded("build"),)


@pytest.mark.parametrize(
    "needs",
    [{"a": "a"}, {"a": "b", "b": "c", "c": "a"}, {"x": "a", "a": "b", "b": "a"}],
    ids=["itself", "three", "two and one before"],
)
def test_tools_that_wait_for_each_other_are_refused(needs: dict[str, str], wording: Wording) -> None:
    """None of them could ever run; the way round is named."""
    dependencies = {tool: frozenset({needed}) for tool, needed in needs.items()}
    with raises(PromptValidationError, wording):
        SequentialDependencyPolicy(dependencies=dependencies)


@given(st.dictionaries(st.integers(0, 8), st.frozensets(st.integers(0, 8), max_size=4), max_size=8))
def test_dependencies_without_a_circle_let_every_tool_run_in_some_order(graph: dict[int, frozenset[int]]) -> None:
    """A policy either refuses its dependencies, or each of its tools becomes free once those before it have run."""
    names = {f"t{tool}": frozenset(f"t{needed}" for needed in all_needed) for tool, all_needed in graph.items()}
    try:
        policy = SequentialDependencyPolicy(dependencies=names)
    except PromptValidationError:
        return
    context = ToolContext.of()
    waiting = set(names).union(*names.values())
    while waiting:
        free = {name for name in waiting if decide(policy, name, context).allowed}
        assert free
        for name in free:
            succeed(policy, name, context)
        waiting -= free


def test_the_policy_asks_for_all_its_tools_in_reach(wording: Wording) -> None:
    """A tool out of reach would not be seen when it succeeds, or not be held back."""
    assert DEPLOY_LAST.scope_fault(frozenset({"deploy", "test", "build", "more"})) is None
    assert DEPLOY_LAST.scope_fault(frozenset({"deploy", "test"})) == wording
    assert DEPLOY_LAST.scope_fault(frozenset()) == wording


class Client:
    """A resource."""


def environment(**changes: object) -> Environment:
    """What a run shares, with those changes."""
    template = PromptTemplate(ns="tests", key="context", sections=[Section(title="A", tools=[lookup_tool()])])
    prompt = Prompt(template).bind(resources={Client: Client()})
    session = changes.pop("session", Session())
    assert isinstance(session, Session)
    return Environment.begin(prompt, PromptRendering(prompt, session), session, find_ledger=EffectLedger, **changes)


def context_in(run: Environment) -> ToolContext:
    """The context of a call in a run, as the pipeline makes it."""
    return ToolContext(run, run.prompt.resources.call_scope(), CallRef("reply-1", "call-1"))


def test_a_context_leads_to_all_that_the_run_shares() -> None:
    """What the door put into the environment, a handler finds in the context."""
    heartbeat, deadline, ids = Heartbeat(), Deadline.after(timedelta(minutes=1)), RunContext(run_id="run")
    run = environment(heartbeat=heartbeat, deadline=deadline, run_context=ids, adapter="door")
    context = context_in(run)
    assert context.environment is run
    assert (context.prompt, context.rendered_prompt, context.session) == (run.prompt, run.rendered_prompt, run.session)
    assert (context.heartbeat, context.deadline, context.run_context) == (heartbeat, deadline, ids)
    assert (context.adapter, context.clock, context.call_id) == ("door", SYSTEM_CLOCK, "call-1")
    assert context.resources.get(Client) is context.prompt.resources.get(Client)


def test_the_filesystem_is_the_bound_one() -> None:
    """`context.filesystem` is short for the resource, and `None` when there is none."""
    files = InMemoryFilesystem()
    assert ToolContext.of(resources={Filesystem: files}).filesystem is files
    assert ToolContext.of().filesystem is None


def test_the_budget_tracker_is_the_bound_one_or_that_of_the_run() -> None:
    """A bound tracker takes precedence."""
    of_run, bound = BudgetTracker(Budget()), BudgetTracker(Budget())
    run = environment(budget_tracker=of_run)
    assert context_in(run).budget_tracker is of_run
    run = dataclasses.replace(run, prompt=run.prompt.bind(resources={BudgetTracker: bound}))
    assert context_in(run).budget_tracker is bound
    assert context_in(environment()).budget_tracker is None


def test_a_beat_reaches_the_heartbeat_and_the_claim() -> None:
    """`beat()` says to both that the call is at work, and is harmless where neither is there."""
    clock = FakeClock()
    heartbeat = Heartbeat(clock=clock)
    beats: list[str] = []
    run = environment(heartbeat=heartbeat)
    ref = CallRef(None, "c")
    context = ToolContext(run, run.prompt.resources.call_scope(), ref, "key", 3, lambda: beats.append("claim"))
    clock.advance(timedelta(seconds=5))
    context.beat()
    assert (heartbeat.elapsed(), beats) == (timedelta(0), ["claim"])
    assert (context.idempotency_key, context.fence) == ("key", 3)
    ToolContext.of().beat()


def test_a_context_can_be_made_without_a_run() -> None:
    """`ToolContext.of` is enough to try a handler on its own."""
    clock = FakeClock()
    session, deadline = Session(), Deadline.after(timedelta(minutes=1), clock=clock)
    context = ToolContext.of(session=session, deadline=deadline, clock=clock, call_id="mine")
    assert (context.session, context.deadline, context.clock, context.call_id) == (session, deadline, clock, "mine")
    assert (context.rendered_prompt, context.adapter, context.heartbeat, context.run_context) == (None,) * 4
    assert (context.idempotency_key, context.fence, context.prompt.name) == (None, None, "no prompt")
    assert ToolContext.of().session is not ToolContext.of().session
