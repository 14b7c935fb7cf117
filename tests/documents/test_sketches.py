"""The classes that document 000 sketches are the real ones, but for what the table of superseded spellings lists."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, Literal, get_args

import pytest

from handrail.contrib import tools
from handrail.prompt import Tool, ToolContext, ToolExample, ToolResult
from handrail.resources import ResourceRegistry
from handrail.runtime import ToolEffect
from tests.documents.seed_blocks import block
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


Method = ast.FunctionDef


def classes_in(code: str) -> dict[str, ast.ClassDef]:
    """The classes that a block sketches, by name."""
    return {node.name: node for node in ast.parse(code).body if isinstance(node, ast.ClassDef)}


def differences(sketch: ast.ClassDef, real: type[Any]) -> Iterator[str]:
    """In what a real class differs from its sketch."""
    if issubclass(real, Enum):
        return
    parameters = _parameters(real)
    yield from _differences_of_decorator(sketch, real)
    yield from _differences_of_fields(sketch, real, parameters)
    if any(parameter.kind is inspect.Parameter.KEYWORD_ONLY for parameter in parameters.values()):
        yield f"{sketch.name}({next(iter(parameters))}, ...)"
    for method in _methods(sketch):
        yield from _differences_of_method(sketch.name, method, real)


def _differences_of_decorator(sketch: ast.ClassDef, real: type[Any]) -> Iterator[str]:
    frozen = any("frozen=True" in ast.unparse(decorator) for decorator in sketch.decorator_list)
    parameters: Any = getattr(real, "__dataclass_params__", None)
    if parameters is not None and parameters.frozen and not frozen:
        yield f"@dataclass class {sketch.name}"


def _differences_of_fields(
    sketch: ast.ClassDef, real: type[Any], parameters: Mapping[str, inspect.Parameter]
) -> Iterator[str]:
    sketched = {ast.unparse(node.target): node.value for node in sketch.body if isinstance(node, ast.AnnAssign)}
    computed = [name for name in sketched if name not in parameters and hasattr(real, name)]
    if computed:
        yield f"{sketch.name}({', '.join(computed)})"
    for name, value in sketched.items():
        default = None if value is None else ast.unparse(value)
        if name not in parameters and name not in computed:
            yield f"{sketch.name}.{name}"
        elif name in parameters and default != _default(parameters[name]):
            yield f"{sketch.name}.{name}" if default is None else f"{sketch.name}.{name} = {default}"
    demanded = [name for name, one in parameters.items() if name not in sketched and _default(one) is None]
    if demanded and not computed:
        yield f"{sketch.name} without {', '.join(demanded)}"


def _differences_of_method(class_name: str, method: Method, real: type[Any]) -> Iterator[str]:
    found = inspect.getattr_static(real, method.name, None)
    if found is None:
        yield f"{class_name}.{method.name}"
    elif _is_property(method) != isinstance(found, property):
        yield f"{class_name}.{method.name}()"
    elif not _is_property(method) and not method.name.startswith("__"):
        taken = inspect.signature(getattr(real, method.name)).parameters.values()
        by_name = {one.name for one in taken if one.kind is not inspect.Parameter.POSITIONAL_ONLY}
        for argument in (*method.args.args, *method.args.kwonlyargs):
            if argument.arg != "self" and argument.arg not in by_name:
                yield f"{class_name}.{method.name}({argument.arg}=)"


def _methods(sketch: ast.ClassDef) -> list[Method]:
    return [node for node in sketch.body if isinstance(node, Method)]


def _is_property(method: Method) -> bool:
    return any(ast.unparse(decorator) == "property" for decorator in method.decorator_list)


def _parameters(real: type[Any]) -> Mapping[str, inspect.Parameter]:
    """What an object of the class is made from."""
    return inspect.signature(real).parameters


def _default(parameter: inspect.Parameter) -> str | None:
    """A default as one would write it; `None` if there is none."""
    return None if parameter.default is inspect.Parameter.empty else repr(parameter.default)
