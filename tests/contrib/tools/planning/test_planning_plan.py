"""What becomes of a plan: numbers, completion, and what is refused."""

from __future__ import annotations

import pytest

from handrail.contrib.tools.planning import (
    MAX_TITLE,
    AddStep,
    Plan,
    PlanStep,
    SetupPlan,
    StepStatus,
    UpdateStep,
    new_plan,
    with_added_steps,
    with_updated_step,
)
from handrail.errors import ToolValidationError
from tests.wording import Wording

TWO_STEPS = new_plan(SetupPlan("Ship it", ("Build", "Upload")))
LONGEST = "x" * MAX_TITLE


def finished(plan: Plan) -> Plan:
    """The plan with every step done."""
    for step in plan.steps:
        plan = with_updated_step(plan, UpdateStep(step.step_id, status="done"))
    return plan


def test_plan_begins_with_its_steps_pending_and_numbered_from_one() -> None:
    """A setup is an active plan; its steps get the numbers 1, 2, 3, ..."""
    plan = new_plan(SetupPlan("Ship it", ("Build", "Upload")))
    assert plan == Plan("Ship it", "active", (PlanStep(1, "Build", "pending"), PlanStep(2, "Upload", "pending")))


def test_plan_may_begin_without_steps_and_is_active() -> None:
    """A plan without steps is not completed: there is everything left to plan."""
    assert new_plan(SetupPlan("Ship it")) == Plan("Ship it", "active", ())


def test_added_steps_get_the_next_numbers() -> None:
    """Numbers go on where they stopped, whatever has become of the steps before."""
    plan = with_added_steps(finished(TWO_STEPS), AddStep(("Announce", "Rest")))
    assert [step.step_id for step in plan.steps] == [1, 2, 3, 4]


def test_number_of_a_step_that_is_gone_is_not_given_again() -> None:
    """A plan that a program has seeded with gaps keeps counting from its highest number."""
    seeded = Plan("Ship it", "active", (PlanStep(7, "Build", "pending"),))
    assert [step.step_id for step in with_added_steps(seeded, AddStep(("Upload",))).steps] == [7, 8]


def test_plan_is_completed_when_the_last_step_is_done() -> None:
    """All steps done means completed, and not before."""
    almost = with_updated_step(TWO_STEPS, UpdateStep(2, status="done"))
    assert (almost.status, finished(almost).status) == ("active", "completed")


@pytest.mark.parametrize("status", ["pending", "in_progress"])
def test_completed_plan_is_active_again_when_a_step_is_taken_up_again(status: StepStatus) -> None:
    """The status of a plan follows from its steps, in both directions."""
    assert with_updated_step(finished(TWO_STEPS), UpdateStep(1, status=status)).status == "active"


def test_completed_plan_is_active_again_when_a_step_is_added() -> None:
    """A new step is pending, so there is something left to do."""
    assert with_added_steps(finished(TWO_STEPS), AddStep(("Announce",))).status == "active"


def test_update_changes_what_it_names_and_nothing_else() -> None:
    """A title or a status that is left out stays."""
    titled = with_updated_step(TWO_STEPS, UpdateStep(2, title="Upload to the index"))
    begun_step = with_updated_step(titled, UpdateStep(2, status="in_progress"))
    assert titled.steps == (TWO_STEPS.steps[0], PlanStep(2, "Upload to the index", "pending"))
    assert begun_step.steps == (TWO_STEPS.steps[0], PlanStep(2, "Upload to the index", "in_progress"))


def test_objective_and_titles_are_stripped() -> None:
    """White space around a text is no part of it."""
    plan = with_updated_step(new_plan(SetupPlan("  Ship it\n", ("\tBuild ",))), UpdateStep(1, title=" Build all "))
    assert plan == Plan("Ship it", "active", (PlanStep(1, "Build all", "pending"),))


def test_longest_texts_are_taken_whatever_white_space_is_around_them() -> None:
    """Length is counted after stripping."""
    plan = new_plan(SetupPlan(f" {LONGEST} ", (f" {LONGEST} ",)))
    assert (plan.objective, plan.steps[0].title) == (LONGEST, LONGEST)


def test_every_fault_of_a_setup_is_told_with_its_path(wording: Wording) -> None:
    """The model mends its call in one turn rather than three."""
    with pytest.raises(ToolValidationError) as caught:
        new_plan(SetupPlan(" ", ("Build", "", f"{LONGEST}x")))
    assert str(caught.value) == wording


def test_adding_nothing_is_refused_with_an_example(wording: Wording) -> None:
    """An empty list of steps is a mistake, and the message shows what would be right."""
    with pytest.raises(ToolValidationError) as caught:
        with_added_steps(TWO_STEPS, AddStep(()))
    assert str(caught.value) == wording


def test_every_fault_of_added_steps_is_told_with_its_path(wording: Wording) -> None:
    """As for a setup."""
    with pytest.raises(ToolValidationError) as caught:
        with_added_steps(TWO_STEPS, AddStep(("\n", "Announce", "")))
    assert str(caught.value) == wording


def test_unknown_step_is_refused_with_the_numbers_there_are(wording: Wording) -> None:
    """The model finds the right number in the message."""
    with pytest.raises(ToolValidationError) as caught:
        with_updated_step(TWO_STEPS, UpdateStep(3, status="done"))
    assert str(caught.value) == wording


def test_update_of_a_plan_without_steps_is_refused_with_the_tool_that_adds_them(wording: Wording) -> None:
    """No number can be right, so the message names another tool."""
    with pytest.raises(ToolValidationError) as caught:
        with_updated_step(new_plan(SetupPlan("Ship it")), UpdateStep(1, status="done"))
    assert str(caught.value) == wording


def test_update_without_title_and_status_is_refused(wording: Wording) -> None:
    """It would change nothing, and the message says what can be given."""
    with pytest.raises(ToolValidationError) as caught:
        with_updated_step(TWO_STEPS, UpdateStep(1))
    assert str(caught.value) == wording


def test_new_title_is_checked_as_any_other(wording: Wording) -> None:
    """A title that is given must be one."""
    with pytest.raises(ToolValidationError) as raised:
        with_updated_step(TWO_STEPS, UpdateStep(1, title="  ", status="done"))
    assert str(raised.value) == wording


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
