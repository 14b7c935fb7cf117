"""One evaluation by Monty: its value, its limits, and its end."""

from __future__ import annotations

import os
import resource
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from handrail.contrib.tools import PythonEvaluated, PythonFault
from handrail.contrib.tools.python import Evaluation, PythonSettings
from handrail.programs import Process, descendants, running
from tests.extent import some
from tests.wording import Wording

MIB = 1 << 20
LIMITS = PythonSettings(64 * MIB, 0.3, 100)

TOO_LONG = (
    "while True:\n    pass", "sum(range(10**12))", "x = 10**100000\nfor _ in range(100):\n    x *= x",
    "while True:\n    print('a' * 1000)",
)  # fmt: skip
TOO_LARGE = (
    "[0] * (10**10 // 8)", "x = [0]\nwhile True:\n    x += x", "print('x' * 10**10)", "9**9**9",
    "import itertools\nlist(itertools.product(range(100), repeat=5))",
)  # fmt: skip
TOO_DEEP = ("def f(n):\n    return f(n + 1)\nf(0)", "f = lambda g: g(g)\nf(f)")


class WatchedEvaluation(Evaluation):
    """Calls a function when its process is there."""

    def __init__(self, settings: PythonSettings, begun: Callable[[], object]) -> None:
        super().__init__(settings)
        self._begun = begun

    def _set_pid(self, pid: int | None) -> None:
        super()._set_pid(pid)
        if pid is not None:
            self._begun()


def evaluate(code: str, begun: Callable[[], object] = lambda: None) -> PythonEvaluated:
    """The result of code, evaluated in another thread."""
    results = list[PythonEvaluated]()
    evaluation = WatchedEvaluation(LIMITS, begun)
    thread = threading.Thread(target=lambda: results.append(evaluation.carry_out(code)))
    thread.start()
    thread.join()
    return results[0]


def kind_of_fault(code: str) -> str:
    """The name of the exception with which code ends."""
    fault = evaluate(code).fault
    return "" if fault is None else fault.type


def own_peak() -> int:
    """The most memory that this process has had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def children_of_monty() -> set[Process]:
    """The processes of Monty that this process has started."""
    paths = {process: Path(f"/proc/{process.pid}/cmdline") for process in descendants([os.getpid()], running())}
    return {process for process, path in paths.items() if path.exists() and b"monty" in path.read_bytes()}


def test_code_that_exceeds_a_limit_is_stopped() -> None:
    """Of time, memory or depth; the next evaluation works, no process is left, and this one has not grown."""
    before = own_peak()
    for kind, codes in {"TimeoutError": TOO_LONG, "MemoryError": TOO_LARGE, "RecursionError": TOO_DEEP}.items():
        for code in some(codes, len(codes) // 2 + 1):
            # Of what grows slowly the time may be over first.
            assert kind_of_fault(code) in {kind, "TimeoutError", "OverflowError"}, code
    assert evaluate("1 + 1") == PythonEvaluated("2", "json")
    assert own_peak() < before + 64 * MIB
    assert children_of_monty() == set()


VALUES: tuple[tuple[str, str, str], ...] = (
    ("1", "1", "json"), ("'é\\n'", '"é\\n"', "json"),
    ("{'a': [1, None, 2.5, True]}", '{"a": [1, null, 2.5, true]}', "json"), ("(1, 2)", "(1, 2)", "repr"),
    ("[(1,)]", "[(1,)]", "repr"), ("{1: 2}", "{1: 2}", "repr"), ("float('nan')", "nan", "repr"),
    ("1e400", "inf", "repr"), ("b'x'", "b'x'", "repr"), ("None", "", "none"),
    ("repr = json = most = 5\n[1]", "[1]", "json"),
)  # fmt: skip


def test_value_is_json_where_that_is_all_of_it() -> None:
    """Else a model and a program would read another value."""
    for code, text, form in VALUES:
        assert evaluate(code) == PythonEvaluated(text, form), code  # type: ignore[arg-type]  # a form of the table


ENDLESS = (
    "x = [0] * 100\nfor _ in range(10):\n    x = [x] * 100\nx", "x = {}\nfor _ in range(60):\n    x = {1: x, 2: x}\nx",
    "10**5000", "class A:\n    def __repr__(self):\n        while True:\n            pass\na = A()\na",
)  # fmt: skip


def test_value_without_a_text_is_not_shown(wording: Wording) -> None:
    """One whose text is endless though it is small, or has too many digits; the code has succeeded."""
    before = own_peak()
    for code in ENDLESS:
        assert evaluate(code) == PythonEvaluated(wording, "repr"), code
    assert own_peak() < before + 64 * MIB


def test_long_value_and_long_fault_are_cut(wording: Wording) -> None:
    """In the middle."""
    assert evaluate("'x' * 1000").value == wording
    fault = evaluate("raise ValueError('x' * 10**5)").fault
    assert fault is not None
    assert len(fault.message) < 3000


@pytest.mark.parametrize("stop", ["before", "while it runs"])
def test_evaluation_is_stopped_by_another_thread(stop: str) -> None:
    """At once, also in the middle of a loop; stopping again, and after the end, is no harm."""
    began, results = threading.Event(), list[PythonEvaluated]()
    evaluation = WatchedEvaluation(replace(LIMITS, seconds=600), began.set)
    if stop == "before":
        evaluation.stop()
    thread = threading.Thread(target=lambda: results.append(evaluation.carry_out("while True:\n    pass")))
    thread.start()
    if stop != "before":
        assert began.wait(30)
        evaluation.stop()
    thread.join()
    evaluation.stop()
    (result,) = results
    assert isinstance(result.fault, PythonFault)
    assert result.fault.type == "SystemError"
    assert children_of_monty() == set()


def test_interpreter_that_ends_is_a_fault_of_the_code() -> None:
    """The model reads it; the next evaluation has another process."""

    def end() -> None:
        for process in children_of_monty():
            os.kill(process.pid, signal.SIGKILL)

    ended: Any = evaluate("1", end)
    assert ended.fault.type == "SystemError"
    assert evaluate("1").value == "1"


@pytest.mark.parametrize("fault", [
    pytest.param(PythonFault("ValueError", "no", 3), id="line"),
    pytest.param(PythonFault("ValueError", "no."), id="no line"),
    pytest.param(PythonFault("SystemExit", ""), id="no message"),
])  # fmt: skip
def test_fault_is_one_sentence(fault: PythonFault, wording: Wording) -> None:
    """With the line, if it is known."""
    assert fault.sentence == wording
