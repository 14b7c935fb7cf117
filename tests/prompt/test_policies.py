"""Policies: their decisions, and a tool that must wait for others."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.errors import PromptValidationError
from handrail.prompt import (
    PolicyDecision,
    SequentialDependencyPolicy,
    Tool,
    ToolContext,
    ToolResult,
)
from handrail.prompt.policy import ToolSucceeded
from handrail.prompt.section import check_policy
from handrail.session import Session
from tests.kit import Decides, call, executor, raises, tool
from tests.prompt.samples import named_tool
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


def test_sessions_remember_for_themselves() -> None:
    """The policy is a value; what it knows is in the session."""
    one, other = ToolContext.of(), ToolContext.of()
    for name in ("test", "build"):
        succeed(DEPLOY_LAST, name, one)
    assert decide(DEPLOY_LAST, "deploy", one).allowed
    assert not decide(DEPLOY_LAST, "deploy", other).allowed


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


def test_dependencies_are_sets_of_names(wording: Wording) -> None:
    """A single string would be taken for its letters, so it is refused."""
    wrong: Any = {"deploy": "test"}
    with raises(PromptValidationError, wording):
        SequentialDependencyPolicy(dependencies=wrong)
    with raises(PromptValidationError, wording):
        SequentialDependencyPolicy(dependencies={"deploy": 5})  # type: ignore[dict-item]


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
