"""The result of the Python suite: what a worker may say, and how it is rendered."""

from __future__ import annotations

from typing import Any

import pytest

from handrail.contrib.tools import PythonEvaluated, PythonFault
from tests.wording import Wording


def of(result: dict[str, Any]) -> PythonEvaluated:
    """The result that a worker has sent, of an evaluation that may return ten characters."""
    return PythonEvaluated.of(result, ("a.md",), 10)


def test_result_of_a_worker_is_typed() -> None:
    """Fields that say nothing are left out by the worker."""
    assert of({}) == PythonEvaluated(changed=("a.md",))
    said = {"value": "2", "form": "json", "printed": "x", "left_out": 5}
    assert of(said) == PythonEvaluated("2", "json", "x", 5, ("a.md",))
    failed = {"error": {"type": "ValueError", "message": "no", "line": None}, "printed": "x"}
    assert of(failed).fault == PythonFault("ValueError", "no")


@pytest.mark.parametrize(
    "result",
    [
        {"value": 5},
        {"value": "x" * 10_000},
        {"form": "text"},
        {"form": ["json"]},
        {"printed": None},
        {"printed": "x" * 10_000},
        {"left_out": -1},
        {"left_out": True},
        {"left_out": "5"},
        {"error": "no"},
        {"error": {"type": "E", "message": "no", "line": 0}},
        {"error": {"type": "E", "message": "no", "line": "1"}},
        {"error": {"type": 5, "message": "no", "line": 1}},
        {"error": {"type": "E", "message": "x" * 10_000, "line": 1}},
    ],
)
def test_what_is_not_a_result_is_refused(result: dict[str, Any]) -> None:
    """A worker that code has taken over may send anything."""
    with pytest.raises(ValueError):
        of(result)


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(PythonEvaluated(), id="nothing"),
        pytest.param(PythonEvaluated("2", "json"), id="value"),
        pytest.param(PythonEvaluated(printed="x\ny\n"), id="printed"),
        pytest.param(PythonEvaluated("{1}", "repr", "x\n", 0, ("a", "b")), id="printed, files and value"),
        pytest.param(PythonEvaluated(fault=PythonFault("E", "no"), changed=("a",)), id="fault"),
        pytest.param(PythonEvaluated(printed="x\n", fault=PythonFault("E", "no")), id="printed and fault"),
    ],
)
def test_rendering_has_what_there_is(value: PythonEvaluated, wording: Wording) -> None:
    """Of code that has failed, what it printed before."""
    assert value.render() == wording


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(PythonFault("ValueError", "no", 3), id="line"),
        pytest.param(PythonFault("ValueError", "no."), id="no line"),
        pytest.param(PythonFault("SystemExit", ""), id="no message"),
    ],
)
def test_fault_is_one_sentence(fault: PythonFault, wording: Wording) -> None:
    """With the line, if it is known."""
    assert fault.sentence == wording
