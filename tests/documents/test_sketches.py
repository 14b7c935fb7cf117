"""The classes that document 000 sketches are the real ones, but for what the table of superseded spellings lists."""

from __future__ import annotations

from enum import Enum
from typing import Any, Literal, get_args

import pytest

from handrail.contrib import tools
from handrail.prompt import Tool, ToolContext, ToolExample, ToolResult
from handrail.resources import ResourceRegistry
from handrail.runtime import ToolEffect
from tests.documents.seed_blocks import block
from tests.documents.sketches import classes_in, differences
from tests.documents.superseded import rows_of
from tests.documents.surroundings import run

REAL: dict[str, type[Any] | None] = {
    "000.01": Tool,
    "000.03": ToolResult,
    "000.04": None,
    "000.05": ToolContext,
    "000.06": ResourceRegistry,
    "000.08": ToolExample,
    "000.20": ToolEffect,
}
"""The blocks that sketch one class, and the real one."""

PLANNING = ("000.10", "000.11", "000.13")
"""The blocks that sketch classes of the planning suite, which exports them by their names."""


@pytest.mark.requirement("M-01")
def test_every_difference_from_a_sketch_is_listed_and_every_listed_one_is_there() -> None:
    """Fields, defaults and methods are compared; what differs is a row of the table, and no row is stale."""
    found: set[str] = set()
    for block_id, real in REAL.items():
        for name, sketch in classes_in(block(block_id).code).items():
            found.update({name} if real is None else differences(sketch, real))
    assert found == {spelling for row in rows_of("000", "sketch") for spelling in row.there}


@pytest.mark.parametrize("block_id", PLANNING)
@pytest.mark.requirement("M-01")
def test_the_planning_suite_has_the_classes_of_the_sketches(block_id: str) -> None:
    """Plans, steps and parameters have the sketched fields and defaults, and no others."""
    sketches = classes_in(block(block_id).code)
    assert sketches
    for name, sketch in sketches.items():
        real = getattr(tools, name)
        assert list(differences(sketch, real)) == []
        if not issubclass(real, Enum):
            assert list(real.__dataclass_fields__) == list(run(block_id)[name].__dataclass_fields__)


@pytest.mark.requirement("M-01")
def test_the_values_of_the_planning_suite_are_the_sketched_ones() -> None:
    """Statuses and strategies are spelled as in the document."""
    sketched = run("000.10")
    assert get_args(tools.StepStatus) == get_args(sketched["StepStatus"]) == ("pending", "in_progress", "done")
    assert get_args(tools.PlanStatus) == get_args(sketched["PlanStatus"]) == ("active", "completed")
    assert Literal["pending", "in_progress", "done"] == tools.StepStatus
    strategies = run("000.13")["PlanningStrategy"]
    assert {one.name: one.value for one in tools.PlanningStrategy} == {one.name: one.value for one in strategies}


@pytest.mark.parametrize("block_id, name", [("000.02", "handle_tool"), ("001.01", "handle")])
@pytest.mark.requirement("M-01")
def test_the_sketched_handlers_are_handlers(block_id: str, name: str) -> None:
    """A function of the sketched signature is taken for a handler."""
    names = run(block_id)
    handler = names[name]
    assert (
        names["Tool"][names["Params"], names["Result"]](name="t", description="d", handler=handler).handler is handler
    )
