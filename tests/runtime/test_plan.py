"""`handrail.runtime.plan`: what the calls of a tool need is worked out once for a rendering of the prompt."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from handrail.adapters.tool_executor import ToolExecutor
from handrail.limits import Deadline
from handrail.prompt import MarkdownSection, PolicyDecision, Prompt, PromptTemplate
from handrail.runtime import Session, ToolCall
from handrail.runtime.plan import ToolPlan, find_plan
from tests.kit import Decides, executor, tool


def plan_of(door: ToolExecutor, name: str) -> ToolPlan:
    """The plan of a tool for calls of the next reply."""
    return find_plan(door.environment, name, None)


def test_a_plan_is_kept_until_the_prompt_is_rendered_in_another_way() -> None:
    """A section that is opened brings tools, and policies of its own."""
    denies = Decides(lambda _tool, _params: PolicyDecision.deny("no"))
    closed = MarkdownSection(title="Pay", template="Pay.", summary="Pays.", tools=[tool("pay")], policies=[denies])
    template = PromptTemplate(
        ns="t", key="desk", sections=[MarkdownSection(title="Desk", template="Work.", tools=[tool("look")]), closed]
    )
    door = ToolExecutor(prompt=Prompt(template), session=Session())
    first = plan_of(door, "look")
    assert plan_of(door, "look") is first
    assert plan_of(door, "pay").tool is None
    door.answer([ToolCall("a", "open_sections", {"paths": ["pay"]})], reply="r")
    assert plan_of(door, "look") is not first
    assert plan_of(door, "pay").policies == (denies,)


def test_a_tool_that_comes_and_goes_has_no_plan_that_is_kept() -> None:
    """An unknown name is looked up anew: the session may add a tool of that name."""
    door = executor(tool("look"))
    assert plan_of(door, "read_result") is not plan_of(door, "read_result")


@pytest.mark.parametrize(
    "declared",
    [
        {"timeout": timedelta(seconds=9)},
        {"effect": "external"},
        {"effect": "read", "untrusted": True},
        {"effect": "external", "concurrent": True},
    ],
    ids=str,
)
def test_a_tool_that_needs_something_is_not_straight(declared: dict[str, Any]) -> None:
    """What is declared is in the plan, and is not asked for again by a call."""
    plan = plan_of(executor(tool("look", **declared)), "look")
    assert not plan.is_straight
    assert plan.claims is (declared.get("effect") == "external")
    assert (plan.time_limit is not None, plan.taints is not None) == ("timeout" in declared, "untrusted" in declared)


def test_a_run_that_gives_its_calls_something_to_look_at_has_none_that_is_straight() -> None:
    """A deadline bounds each handler; without one, a tool that needs nothing is straight."""
    assert plan_of(executor(tool("look")), "look").is_straight
    bounded = executor(tool("look"), deadline=Deadline.after(timedelta(minutes=1)))
    assert not plan_of(bounded, "look").is_straight
