"""The planning suite as document 000 tells of it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from handrail.adapters.tool_executor import ToolExecutor
from handrail.contrib.tools import (
    AddStep,
    Plan,
    PlanningStrategy,
    PlanningToolsSection,
    ReadPlan,
    SetupPlan,
    UpdateStep,
)
from handrail.prompt import Prompt, PromptTemplate
from handrail.runtime import Session, ToolCall, ToolMessage
from handrail.serde import dump
from tests.documents.surroundings import run

pytestmark = pytest.mark.requirement("M-01")

TOOLS: dict[str, tuple[type[Any], type[Any]]] = {
    "planning_setup_plan": (SetupPlan, SetupPlan),
    "planning_add_step": (AddStep, AddStep),
    "planning_update_step": (UpdateStep, UpdateStep),
    "planning_read_plan": (ReadPlan, Plan),
}
"""The table of tools, with the table of their parameters; reading returns the plan itself."""


class Desk:
    """A session, and the planning section of a block on it."""

    def __init__(self, section: PlanningToolsSection) -> None:
        template = PromptTemplate(ns="documents", key="planning", sections=[section])
        self.executor = ToolExecutor(prompt=Prompt(template), session=section.session)
        self.calls = 0

    def call(self, params: Any) -> ToolMessage:
        name = next(name for name, (kind, _) in TOOLS.items() if kind is type(params))
        self.calls += 1
        return self.executor.execute(ToolCall(f"call-{self.calls}", name, dump(params)))

    @property
    def plan(self) -> Plan:
        plan = self.executor.environment.session[Plan].latest()
        assert plan is not None
        return plan


@pytest.fixture
def desk() -> Desk:
    """The section of the block, and its session."""
    return Desk(run("000.12")["section"])


def test_the_suite_has_the_four_tools_with_their_parameters(desk: Desk) -> None:
    """Names, parameters and results are those of the tables."""
    tools = desk.executor.environment.rendered_prompt.tools
    assert {tool.name: (tool.params_type, tool.result_type) for tool in tools} == TOOLS
    assert not any(tool.accepts_overrides for tool in tools)


def test_the_plan_of_the_session_is_what_the_calls_made_of_it(desk: Desk) -> None:
    """Setting up creates or replaces; the section has registered the reducers by itself."""
    assert run("000.12")["plan"] is None
    assert desk.call(SetupPlan("Release", ("Build",))).success
    assert desk.call(SetupPlan("Release 2", ("Build", "Upload"))).success
    assert asdict(desk.plan) == {
        "objective": "Release 2",
        "status": "active",
        "steps": (
            {"step_id": 1, "title": "Build", "status": "pending"},
            {"step_id": 2, "title": "Upload", "status": "pending"},
        ),
    }


@pytest.mark.parametrize("params", [AddStep(("Build",)), UpdateStep(1, status="done"), ReadPlan()], ids=str)
def test_all_but_setting_up_require_a_plan(desk: Desk, params: object) -> None:
    """The message says which tool to call first."""
    message = desk.call(params)
    assert not message.success
    assert "planning_setup_plan" in message.content


def test_steps_are_numbered_on_and_completion_follows_from_them(desk: Desk) -> None:
    """1, 2, 3, ...; all done completes the plan, and a step more makes it active again."""
    desk.call(SetupPlan("Release", ("Build",)))
    desk.call(AddStep(("Upload", "Announce")))
    assert [step.step_id for step in desk.plan.steps] == [1, 2, 3]
    for number in (1, 2, 3):
        assert desk.plan.status == "active"
        desk.call(UpdateStep(number, status="done"))
    assert desk.plan.status == "completed"
    desk.call(AddStep(("Rest",)))
    assert (desk.plan.status, desk.plan.steps[-1].step_id) == ("active", 4)


@pytest.mark.parametrize(
    "title, fits", [("", False), ("  ", False), ("t", True), ("t" * 500, True), ("t" * 501, False)]
)
def test_titles_are_not_empty_and_have_at_most_500_characters(desk: Desk, title: str, fits: bool) -> None:
    """In each of the three tools that take one."""
    desk.call(SetupPlan("Release", ("Build",)))
    for params in (AddStep((title,)), UpdateStep(1, title=title), SetupPlan("Release", (title,))):
        assert desk.call(params).success is fits


def test_reading_returns_the_plan_and_adds_none(desk: Desk) -> None:
    """`planning_read_plan` returns the `Plan`, not `ReadPlan`."""
    desk.call(SetupPlan("Release", ("Build",)))
    message = desk.call(ReadPlan())
    assert message.result.value == desk.plan
    assert desk.executor.environment.session[Plan].all() == (desk.plan,)


def test_strategies_change_the_mindset_and_nothing_else() -> None:
    """The same structure, the same references to tools; the default is to reason and act in turn."""
    texts = {
        strategy: PlanningToolsSection(session=Session(), strategy=strategy).render_body(None)
        for strategy in PlanningStrategy
    }
    assert len(set(texts.values())) == 3
    assert run("000.14")["section"].render_body(None) == texts[PlanningStrategy.PLAN_ACT_REFLECT]
    assert run("000.12")["section"].render_body(None) == texts[PlanningStrategy.REACT]
    parts = [text.partition("**Mindset**") for text in texts.values()]
    assert len({before for before, _, _ in parts}) == 1
    assert len({after.partition("**Tools**")[2] for _, _, after in parts}) == 1
    assert all(name in text for text in texts.values() for name in TOOLS)
