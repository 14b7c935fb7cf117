"""What the model is told about planning."""

from __future__ import annotations

import re

from handrail.contrib.tools.planning import PlanningStrategy, planning_guidance
from tests.wording import Wording

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
