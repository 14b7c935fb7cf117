"""What the model is told about planning: one text for all strategies, in which only the mindset differs."""

from __future__ import annotations

from enum import Enum


class PlanningStrategy(Enum):
    """The style of reasoning that the guidance asks for. The tools and their rules are the same in each."""

    REACT = "react"
    """Reason, act and observe in turn; the plan follows what was observed."""
    PLAN_ACT_REFLECT = "plan_act_reflect"
    """Plan everything first, then act, and reflect after each step."""
    GOAL_DECOMPOSE_ROUTE_SYNTHESISE = "goal_decompose_route_synthesise"
    """Restate the goal, break it up, find the tool for each part, and put the answers together."""


_REACT = """\
Alternate between thinking, acting and looking. Think briefly about what you know and what is missing, make one tool
call that brings you further, and look at what came back before you think again. Let what you observe decide the
next step, and add steps as you discover that they are needed. An observation that matters later belongs to the step
that brought it: note it at the end of the step's title."""

_PLAN_ACT_REFLECT = """\
Plan everything before you act: write down all steps that you can foresee, in the order in which they have to
happen. Then carry them out one after the other. After each step stop and reflect: did it do what it was meant to
do, and is the rest of the plan still right? Note the reflection at the end of the step's title, and change the
steps that are still to come before you go on."""

_GOAL_DECOMPOSE_ROUTE_SYNTHESISE = """\
Begin by restating the goal in your own words: that is the objective of the plan. Break it into sub-problems that
can be solved one by one, each of them a step, before you think about tools. Only then route each sub-problem:
decide which tool answers it, or whether you can answer it without one. When all are solved, synthesise: bring the
partial results together into one coherent answer to the goal, and say where they disagree."""

_MINDSETS = {
    PlanningStrategy.REACT: _REACT,
    PlanningStrategy.PLAN_ACT_REFLECT: _PLAN_ACT_REFLECT,
    PlanningStrategy.GOAL_DECOMPOSE_ROUTE_SYNTHESISE: _GOAL_DECOMPOSE_ROUTE_SYNTHESISE,
}

_TEXT = """\
Keep a plan for work that takes more than two or three steps, and keep it true: people read it to see how far you are.
Do without one when a single step is enough.

**Mindset**

{mindset}

**Tools**

- `planning_setup_plan` begins a plan: an objective and, if you know them, the first steps. It replaces the plan there
  is, finished or not.
- `planning_add_step` appends steps at the end of the plan. A completed plan becomes active again.
- `planning_update_step` changes the title or the status of one step.
- `planning_read_plan` shows the plan. The other tools show it too, so you need this one only when you have lost sight
  of the plan.

**Rules**

- Steps are numbered 1, 2, 3, ... as they are added, and keep their number. Use the numbers that the plan shows.
- A step is `pending`, `in_progress` or `done`. Set it to `in_progress` when you begin it and to `done` as soon as it is
  done, not before.
- The objective and each title have at most 500 characters.
- The plan is completed when all of its steps are `done`."""


def guidance(strategy: PlanningStrategy) -> str:
    """The text of the planning section, as Markdown."""
    return _TEXT.format(mindset=_MINDSETS[strategy])
