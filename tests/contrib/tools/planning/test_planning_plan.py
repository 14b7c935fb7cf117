"""What becomes of a plan: numbers, completion, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from handrail.contrib.tools.planning import (
    MAX_TITLE,
    AddStep,
    Plan,
    PlanStep,
    SetupPlan,
    UpdateStep,
    new_plan,
    with_added_steps,
    with_updated_step,
)
from handrail.errors import ToolValidationError
from tests.kit import raises
from tests.wording import Wording

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
