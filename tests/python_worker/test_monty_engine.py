"""Monty as an engine, with this process unconfined."""

from __future__ import annotations

import os
import signal

import pytest

from handrail.contrib.tools.python.engines import worker_settings
from handrail.python_worker.monty_engine import MontyEngine
from tests.python_worker.engines import children, evaluated, unconfined


@pytest.fixture(scope="module")
def engine() -> MontyEngine:
    """One for all tests here, as it is one for many evaluations."""
    return MontyEngine(worker_settings("monty", 64 * 1024 * 1024), unconfined)


def test_result_has_value_and_output(engine: MontyEngine) -> None:
    """Nothing stays for the next evaluation."""
    engine.prepare()
    assert evaluated(engine, "x = 2\nprint('hi')\n{'a': [x]}") == {
        "value": '{"a": [2]}',
        "form": "json",
        "printed": "hi\n",
        "left_out": 0,
    }
    assert evaluated(engine, "x")["error"] == {"type": "NameError", "message": "name 'x' is not defined", "line": 1}


@pytest.mark.parametrize(
    "code, kind, line",
    [
        ("def f(x):\n    return 1 / x\n\nf(0)", "ZeroDivisionError", 2),
        ("x =", "SyntaxError", 1),
        ("\nread_text('a')", "FileNotFoundError", 2),
        ("'a' * 10**9", "MemoryError", 1),
    ],
)
def test_failure_has_type_and_line(code: str, kind: str, line: int, engine: MontyEngine) -> None:
    """The line is the one in which it was raised."""
    error = evaluated(engine, code)["error"]
    assert (error["type"], error["line"]) == (kind, line)


def test_code_is_stopped_in_time(engine: MontyEngine) -> None:
    """And what it printed before is in the result."""
    result = evaluated(engine, "print(1)\nwhile True: pass", seconds=0.1)
    assert (result["error"]["type"], result["printed"]) == ("TimeoutError", "1\n")


def test_functions_for_files_are_there_if_they_are_lent(engine: MontyEngine) -> None:
    """And only then."""
    assert evaluated(engine, "exists('a')")["value"] == "true"
    assert evaluated(engine, "exists('a')", files=False)["error"]["type"] == "NameError"
    caught = "try:\n    read_text('a')\nexcept FileNotFoundError as error:\n    found = str(error)\nfound"
    assert evaluated(engine, caught)["value"] == '"no read_text"'


def test_interpreter_that_was_killed_ends_the_process_with_its_result() -> None:
    """The agent starts another one."""
    before = children()
    engine = MontyEngine(worker_settings("monty", 64 * 1024 * 1024), unconfined)
    (monty,) = children() - before
    result = evaluated(engine, "exists('a')\nwhile True: pass", heard=lambda: os.kill(monty.pid, signal.SIGKILL))
    assert (result["error"]["type"], result["ends"]) == ("SystemError", True)
