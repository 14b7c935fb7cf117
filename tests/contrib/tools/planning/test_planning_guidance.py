"""What the model is told about planning."""

from __future__ import annotations

import pytest
from inline_snapshot import snapshot

from handrail.contrib.tools.planning import PlanningStrategy, planning_guidance

MINDSET = "**Mindset**\n\n"


def parts(strategy: PlanningStrategy) -> tuple[str, str, str]:
    """The text before the mindset, the mindset, and the text after it."""
    before, _, rest = planning_guidance(strategy).partition(MINDSET)
    mindset, _, after = rest.partition("\n\n**")
    return before, mindset, after


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


@pytest.mark.parametrize("strategy", list(PlanningStrategy))
def test_mindset_is_one_paragraph_that_names_no_tool(strategy: PlanningStrategy) -> None:
    """A mindset is about thinking; which tool does what stands in the part that all strategies share."""
    _, mindset, _ = parts(strategy)
    assert mindset
    assert "\n\n" not in mindset
    assert "planning_" not in mindset


def test_text_of_the_default_strategy() -> None:
    """What a model sees."""
    assert planning_guidance(PlanningStrategy.REACT) == snapshot("""\
Keep a plan for work that takes more than two or three steps, and keep it true: people read it to see how far you are.
Do without one when a single step is enough.

**Mindset**

Alternate between thinking, acting and looking. Think briefly about what you know and what is missing, make one tool
call that brings you further, and look at what came back before you think again. Let what you observe decide the
next step, and add steps as you discover that they are needed. An observation that matters later belongs to the step
that brought it: note it at the end of the step's title.

**Tools**

- `planning_setup_plan` begins a plan: an objective and, if you know them, the first steps. It replaces the plan there
  is, finished or not.
- `planning_add_step` appends steps at the end of the plan. A completed plan becomes active again.
- `planning_update_step` changes the title or the status of one step.
- `planning_read_plan` shows the plan. The other tools show it too, so you need this one only when you do not remember
  the plan.

**Rules**

- Steps are numbered 1, 2, 3, ... as they are added, and keep their number. Use the numbers that the plan shows.
- A step is `pending`, `in_progress` or `done`. Set it to `in_progress` when you begin it and to `done` as soon as it is
  done, not before.
- The objective and each title have at most 500 characters.
- The plan is completed when all of its steps are `done`.\
""")


def test_mindsets_of_the_other_strategies() -> None:
    """What a model sees."""
    assert parts(PlanningStrategy.PLAN_ACT_REFLECT)[1] == snapshot("""\
Plan everything before you act: write down all steps that you can foresee, in the order in which they have to
happen. Then carry them out one after the other. After each step stop and reflect: did it do what it was meant to
do, and is the rest of the plan still right? Note the reflection at the end of the step's title, and change the
steps that are still to come before you continue.\
""")
    assert parts(PlanningStrategy.GOAL_DECOMPOSE_ROUTE_SYNTHESISE)[1] == snapshot("""\
Begin by restating the goal in your own words: that is the objective of the plan. Break it into sub-problems that
can be solved one by one, each of them a step, before you think about tools. Only then route each sub-problem:
decide which tool answers it, or whether you can answer it without one. When all are solved, synthesise: bring the
partial results together into one coherent answer to the goal, and say where they disagree.\
""")
