"""The planning suite through the whole pipeline: what the model reads, and what the session holds."""

from __future__ import annotations

import pytest

from handrail.contrib.tools import (
    AddStep,
    Plan,
    PlanningStrategy,
    PlanningToolsSection,
    PlanStep,
    SetupPlan,
    UpdateStep,
)
from handrail.errors import ReducerError
from handrail.prompt import Prompt, PromptTemplate
from handrail.runtime import Session, ToolInvoked
from handrail.session import upsert_by
from tests.contrib.suites import SuiteRun
from tests.kit import raises
from tests.wording import Wording

TOOLS = ("planning_setup_plan", "planning_add_step", "planning_update_step", "planning_read_plan")


def planning(*, session: Session | None = None) -> SuiteRun:
    """A run over the planning suite, whose section was given the session of the run."""
    session = Session() if session is None else session
    return SuiteRun(PlanningToolsSection(session=session), session=session)


def planned() -> SuiteRun:
    """A run that has a plan of two steps."""
    run = planning()
    run.told("planning_setup_plan", objective="Ship it", initial_steps=["Build", "Upload"])
    return run


def test_section_brings_the_four_tools_with_their_effects() -> None:
    """Only reading the plan is a read; every tool has an example; descriptions are fixed by default."""
    section = PlanningToolsSection(session=Session())
    assert tuple(tool.name for tool in section.tools) == TOOLS
    assert [tool.effect for tool in section.tools] == ["state", "state", "state", "read"]
    assert all(tool.examples for tool in section.tools)
    assert not any(tool.accepts_overrides for tool in section.tools)
    assert all(tool.accepts_overrides for tool in PlanningToolsSection(session=Session(), accepts_overrides=True).tools)


def test_tools_take_and_return_what_documents_say() -> None:
    """The events are the parameters; reading returns the plan, not the request for it."""
    section = PlanningToolsSection(session=Session())
    assert [(tool.params_type, tool.result_type) for tool in section.tools][:3] == [
        (SetupPlan, SetupPlan),
        (AddStep, AddStep),
        (UpdateStep, UpdateStep),
    ]
    assert section.tools[3].result_type is Plan


def test_section_is_rendered_with_its_strategy(wording: Wording) -> None:
    """The heading is the section's, the text that of the strategy."""
    section = PlanningToolsSection(
        session=Session(), strategy=PlanningStrategy.PLAN_ACT_REFLECT, title="Your plan", key="your-plan"
    )
    text = Prompt(PromptTemplate(ns="tests", key="planning", sections=[section])).render().text
    assert text == wording


def test_model_reads_the_plan_as_it_is_after_each_call(wording: Wording) -> None:
    """Each message is the whole plan, so that the model need not ask for it."""
    run = planning()
    assert run.told("planning_setup_plan", objective="Ship it", initial_steps=["Build", "Upload"]) == wording
    assert run.told("planning_add_step", steps=["Announce"]) == wording
    assert run.told("planning_update_step", step_id=1, title="Build 0.4.0", status="done") == wording
    assert run.told("planning_read_plan") == wording


def test_session_holds_one_plan_and_no_events() -> None:
    """The reducers make the plan of the events and keep nothing else; every call is in the log."""
    run = planned()
    run.told("planning_add_step", steps=["Announce"])
    run.told("planning_update_step", step_id=3, status="in_progress")
    run.told("planning_read_plan")
    steps = (PlanStep(1, "Build", "pending"), PlanStep(2, "Upload", "pending"), PlanStep(3, "Announce", "in_progress"))
    assert run.session[Plan].all() == (Plan("Ship it", "active", steps),)
    assert run.session.kinds == (Plan, ToolInvoked)
    assert len(run.session[ToolInvoked]) == 4


def test_finishing_every_step_completes_the_plan_and_adding_one_reopens_it(wording: Wording) -> None:
    """What the model reads says so."""
    run = planned()
    run.told("planning_update_step", step_id=1, status="done")
    assert run.told("planning_update_step", step_id=2, status="done") == wording
    assert run.told("planning_add_step", steps=["Announce"]) == wording


@pytest.mark.parametrize(
    "tool, arguments",
    [
        ("planning_add_step", {"steps": ["Build"]}),
        ("planning_update_step", {"step_id": 1, "status": "done"}),
        ("planning_read_plan", {}),
    ],
)
def test_without_a_plan_the_model_is_told_to_set_one_up(
    tool: str, arguments: dict[str, object], wording: Wording
) -> None:
    """Only a setup works without a plan; the others change nothing and name the tool to call first."""
    run = planning()
    assert run.refused(tool, **arguments) == wording
    assert run.session[Plan].latest() is None


def test_update_that_changes_nothing_is_told_so(wording: Wording) -> None:
    """It succeeds, for the step is as asked for; the first line says that it was so before."""
    run = planned()
    before = run.session[Plan].latest()
    assert run.told("planning_update_step", step_id=2, title=" Upload ", status="pending") == wording
    assert run.session[Plan].all() == (before,)


def test_wrong_status_is_told_with_the_right_ones_and_an_example(wording: Wording) -> None:
    """What the arguments may be is told before the suite sees them."""
    told = planned().refused("planning_update_step", step_id=1, status="finished")
    assert told == wording
    assert told.endswith('{"step_id":2,"title":null,"status":"in_progress"}')


def test_failing_subscriber_undoes_the_planning(wording: Wording) -> None:
    """What a subscriber refuses has not been planned: the plan belongs to the call."""
    run = planned()
    before = run.session[Plan].latest()

    def refuse(event: AddStep) -> None:
        raise RuntimeError(f"too many steps: {len(event.steps)}")

    run.session.dispatcher.subscribe(AddStep, refuse)
    assert run.refused("planning_add_step", steps=["Announce"]) == wording
    assert run.session[Plan].all() == (before,)


@pytest.mark.parametrize("tool", TOOLS)
def test_call_on_another_session_keeps_its_plan_there(tool: str) -> None:
    """A prompt may serve several sessions, as for an agent used as a tool: each has a plan of its own."""
    given = Session()
    run = SuiteRun(PlanningToolsSection(session=given), session=given.child())
    arguments: dict[str, dict[str, object]] = {
        "planning_setup_plan": {"objective": "Ship it"},
        "planning_add_step": {"steps": ["Build"]},
        "planning_update_step": {"step_id": 1, "title": "Build"},
        "planning_read_plan": {},
    }
    run.session[Plan].seed(Plan("Old", "active", (PlanStep(1, "Think", "pending"),)))
    run.told(tool, **arguments[tool])
    assert len(run.session[Plan]) == 1
    assert run.session.kinds == (Plan, ToolInvoked)
    assert given[Plan].latest() is None


def test_session_with_other_reducers_for_the_plan_is_refused(wording: Wording) -> None:
    """Two opinions on what becomes of a plan cannot both hold; making the section says so."""
    session = Session()
    session[Plan].register(Plan, upsert_by(lambda plan: plan.objective))
    with raises(ReducerError, wording):
        PlanningToolsSection(session=session)
