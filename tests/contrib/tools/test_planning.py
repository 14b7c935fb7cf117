"""The planning suite: what the model reads, what the session holds, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import pytest

from handrail.contrib.tools.planning import (
    MAX_TITLE,
    AddStep,
    Plan,
    PlanningStrategy,
    PlanningToolsSection,
    PlanStep,
    SetupPlan,
    UpdateStep,
    new_plan,
    planning_guidance,
    with_added_steps,
    with_updated_step,
)
from handrail.errors import ReducerError, ToolValidationError
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


TWO_STEPS = new_plan(SetupPlan("Ship it", ("Build", "Upload")))
LONGEST = "x" * MAX_TITLE


def test_number_of_a_step_that_is_gone_is_not_given_again() -> None:
    """A plan that a program has seeded with gaps keeps counting from its highest number."""
    seeded = Plan("Ship it", "active", (PlanStep(7, "Build", "pending"),))
    assert [step.step_id for step in with_added_steps(seeded, AddStep(("Upload",))).steps] == [7, 8]


def test_longest_texts_are_taken_whatever_white_space_is_around_them() -> None:
    """Length is counted after stripping."""
    plan = new_plan(SetupPlan(f" {LONGEST} ", (f" {LONGEST} ",)))
    assert (plan.objective, plan.steps[0].title) == (LONGEST, LONGEST)


REFUSED: Mapping[str, Callable[[], Plan]] = {
    "every fault of a setup": lambda: new_plan(SetupPlan(" ", ("Build", "", f"{LONGEST}x"))),
    "no added step": lambda: with_added_steps(TWO_STEPS, AddStep(())),
    "every fault of added steps": lambda: with_added_steps(TWO_STEPS, AddStep(("\n", "Announce", ""))),
    "an unknown step": lambda: with_updated_step(TWO_STEPS, UpdateStep(3, status="done")),
    "a plan without steps": lambda: with_updated_step(new_plan(SetupPlan("Ship it")), UpdateStep(1, status="done")),
    "no change": lambda: with_updated_step(TWO_STEPS, UpdateStep(1)),
    "a blank title": lambda: with_updated_step(TWO_STEPS, UpdateStep(1, title="  ", status="done")),
}


@pytest.mark.parametrize("change", REFUSED)
def test_a_change_that_cannot_be_meant_is_refused_with_what_would_be_right(change: str, wording: Wording) -> None:
    """All faults of one call at once, each with its path: the model mends it in one turn."""
    with raises(ToolValidationError, wording):
        REFUSED[change]()


def test_plan_reads_as_a_short_list(wording: Wording) -> None:
    """One line for the plan and one for each step, with the numbers and statuses that the tools take."""
    plan = with_updated_step(
        with_added_steps(with_updated_step(TWO_STEPS, UpdateStep(1, status="done")), AddStep(("Announce",))),
        UpdateStep(2, status="in_progress"),
    )
    assert plan.render() == wording


def test_plan_without_steps_says_so(wording: Wording) -> None:
    """An empty list would leave the model in doubt."""
    assert new_plan(SetupPlan("Ship it")).render() == wording


def test_title_of_several_lines_is_shown_on_one(wording: Wording) -> None:
    """A step is one line of the list, so that no title can pass for another step; the title itself is kept."""
    plan = new_plan(SetupPlan("Ship\nit", ("Build\n2. [done] Upload",)))
    assert plan.steps[0].title == "Build\n2. [done] Upload"
    assert plan.render() == wording


HEADING = r"(\n\n\*\*[^*\n]+\*\*\n\n)"


def parts(strategy: PlanningStrategy) -> tuple[str, str, str]:
    """The text before the mindset, the mindset, and the text after it."""
    before, heading, mindset, *after = re.split(HEADING, planning_guidance(strategy))
    return before + heading, mindset, "".join(after)


def test_strategies_are_named_as_documents_name_them() -> None:
    """The values are what a configuration file holds."""
    assert [strategy.value for strategy in PlanningStrategy] == [
        "react",
        "plan_act_reflect",
        "goal_decompose_route_synthesise",
    ]


def test_only_the_mindset_differs_between_strategies() -> None:
    """Outside of one paragraph the text is the same to the letter, tools and rules included."""
    every = [parts(strategy) for strategy in PlanningStrategy]
    assert len({(before, after) for before, _, after in every}) == 1
    assert len({mindset for _, mindset, _ in every}) == len(PlanningStrategy)


def test_text_of_the_default_strategy(wording: Wording) -> None:
    """What a model sees."""
    assert planning_guidance(PlanningStrategy.REACT) == wording


def test_mindsets_of_the_other_strategies(wording: Wording) -> None:
    """What a model sees."""
    assert parts(PlanningStrategy.PLAN_ACT_REFLECT)[1] == wording
    assert parts(PlanningStrategy.GOAL_DECOMPOSE_ROUTE_SYNTHESISE)[1] == wording
