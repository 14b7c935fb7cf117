"""asteval as an engine: in a process of its own, and, where its lines are traced, in this one."""

from __future__ import annotations

import os
import signal
import socket
import time
from typing import ClassVar, cast

import pytest

from handrail.python_worker import asteval_engine
from handrail.python_worker.asteval_engine import AstevalEngine
from handrail.python_worker.channel import Channel
from handrail.python_worker.program import EngineSettings, Request
from tests.python_worker.engines import children, evaluated, unconfined
from tests.wording import Wording

NO_CHANNEL = cast("Channel", None)  # code here asks the agent for nothing
MEMORY = 64 * 1024 * 1024


@pytest.fixture
def engine() -> AstevalEngine:
    """An engine whose parent process is this one."""
    return AstevalEngine(EngineSettings(MEMORY), unconfined)


def test_each_evaluation_has_a_process_of_its_own(engine: AstevalEngine) -> None:
    """Nothing stays for the next one, and no process."""
    before = children()
    assert evaluated(engine, "x = 2\nprint('hi')\n{'a': [x]}") == {
        "value": '{"a": [2]}',
        "form": "json",
        "printed": "hi\n",
        "left_out": 0,
    }
    engine.prepare()
    assert len(children() - before) == 1
    error = evaluated(engine, "x")["error"]
    assert error == {"type": "NameError", "message": "name 'x' is not defined", "line": 1}
    assert children() == before


def test_functions_for_files_are_asked_for_by_way_of_the_parent(engine: AstevalEngine) -> None:
    """The process of the code has no descriptor to the agent."""
    assert evaluated(engine, "exists('a')")["value"] == "true"
    assert evaluated(engine, "exists('a')", files=False)["error"]["type"] == "NameError"
    assert evaluated(engine, "read_text('a')")["error"]["message"] == "no read_text"


def test_code_is_stopped_in_time_and_by_its_memory(engine: AstevalEngine) -> None:
    """The process is killed, or Python raises `MemoryError`."""
    assert evaluated(engine, "while True: pass", seconds=0.1)["error"]["type"] == "TimeoutError"
    assert evaluated(engine, "[0] * 10**8")["error"]["type"] == "MemoryError"


def test_process_that_ends_without_a_result_fails_the_evaluation(engine: AstevalEngine, wording: Wording) -> None:
    """The message has its signal."""
    before = children()
    engine.prepare()
    (child,) = children() - before
    os.kill(child.pid, signal.SIGTERM)
    error = evaluated(engine, "1")["error"]
    assert (error["type"], error["message"]) == ("SystemError", wording)


def test_process_that_sends_something_else_than_a_result_fails_the_evaluation(
    engine: AstevalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one would that code has taken over."""

    def garbled(own: socket.socket, _address_bytes: int) -> None:
        own.sendall(b"\xff" * 100)
        os._exit(0)

    monkeypatch.setattr(asteval_engine, "_evaluate_and_end", garbled)
    assert evaluated(engine, "1")["error"]["type"] == "SystemError"


def test_parent_ends_when_the_agent_does_not_answer(engine: AstevalEngine) -> None:
    """No one waits for the result."""
    ours, theirs = socket.socketpair()
    with ours:
        theirs.close()
        channel = Channel(ours.fileno(), ours.fileno(), time.monotonic)
        before = children()
        with pytest.raises(SystemExit):
            engine.evaluate(Request("exists('a')", 30, 100, files=True), channel)
        assert children() == before


@pytest.mark.parametrize(
    "code, kind, line",
    [
        ("def f(x):\n    return 1 / x\n\nf(0)", "ZeroDivisionError", 2),
        ("x =", "SyntaxError", 1),
        ("\nraise ValueError('no')", "ValueError", None),
        ("class A: pass", "SyntaxError", None),
        ("().__class__", "AttributeError", 1),
        ("open('/etc/passwd')", "NameError", 1),
        ("def f():\n    return f()\nf()", "RecursionError", 2),
    ],
)
def test_failure_has_type_and_line(code: str, kind: str, line: int | None) -> None:
    """The line is the one in which it was raised, where asteval knows it."""
    request = Request(code, 30, 100, files=False)
    error = asteval_engine.evaluated(request, NO_CHANNEL)["error"]
    assert (error["type"], error["line"]) == (kind, line)


def test_value_and_output_are_returned() -> None:
    """With the functions of `math`, and without those that are removed."""
    request = Request("print(sqrt(4))\nfloor(2.5)", 30, 100, files=True)
    found = asteval_engine.evaluated(request, NO_CHANNEL)
    assert found == {"value": "2", "form": "json", "printed": "2.0\n", "left_out": 0}


def test_what_asteval_does_not_catch_fails_the_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when there is no memory to say where there was none."""

    class Failing:
        """An interpreter that cannot even note an error."""

        symtable: ClassVar[dict[str, object]] = {}
        error: ClassVar[list[object]] = []

        def eval(self, _code: str, *, show_errors: bool) -> object:
            raise MemoryError

    def failing(**_options: object) -> Failing:
        return Failing()

    monkeypatch.setattr(asteval_engine, "_new_interpreter", failing)
    error = asteval_engine.evaluated(Request("1", 30, 100, files=False), NO_CHANNEL)["error"]
    assert (error["type"], error["line"]) == ("MemoryError", None)
