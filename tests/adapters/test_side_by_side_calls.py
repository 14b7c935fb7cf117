"""Calls of one reply that run side by side through the synchronous entry, as they do through the asynchronous one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from handrail.adapters.tool_executor import Answers, ToolExecutor
from handrail.prompt import ApprovalRequest, PolicyDecision, ToolContext, ToolResult
from handrail.prompt import tool as function_tool
from handrail.runtime import Session, ToolCall
from handrail.store import MemoryStore
from handrail.testing import FakeClock
from tests.kit import Decides, Kept, Note, call, events, executor, tool

READ: dict[str, Any] = {"effect": "read"}
CONCURRENT: dict[str, Any] = {"effect": "external", "concurrent": True}

declared = pytest.mark.parametrize("declared", [READ, CONCURRENT], ids=["read", "concurrent"])

Answer = Callable[[ToolExecutor, Sequence[ToolCall]], Sequence[object]]


def by_execute_all(door: ToolExecutor, calls: Sequence[ToolCall]) -> Sequence[object]:
    """What each call says."""
    return [message.content for message in door.execute_all(calls, reply="r")]


def by_answer(door: ToolExecutor, calls: Sequence[ToolCall]) -> Sequence[object]:
    """What each call says."""
    return [message.content for message in cast("Answers", door.answer(calls, reply="r"))]


def three(name: str) -> list[ToolCall]:
    """Three calls of a tool."""
    return [call(name, text, id=text) for text in "abc"]


@declared
@pytest.mark.parametrize("answer", [by_execute_all, by_answer])
@pytest.mark.requirement("M-04b")
def test_calls_run_side_by_side_and_are_answered_in_the_order_asked(answer: Answer, declared: dict[str, Any]) -> None:
    """Each waits for all the others, so one after the other they would wait for ever."""
    together = threading.Barrier(3, timeout=30)

    def handler(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        together.wait()
        return ToolResult.ok(params)

    door = executor(tool("look", handler, **declared))
    assert answer(door, three("look")) == ["a", "b", "c"]
    assert [note.text for note in door.environment.session[Note]] == ["a", "b", "c"]


def test_a_write_keeps_its_place_among_the_reads() -> None:
    """Reads before it do not see what it writes, and those behind it do."""

    def count(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        return ToolResult.ok(Note(str(len(context.session[Kept]))))

    def write(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        context.session[Kept].append(Kept(params.text))
        return ToolResult.ok(params)

    door = executor(tool("count", count, **READ), tool("write", write))
    names = ["count", "count", "write", "count", "count", "write", "count"]
    calls = [call(name, str(place), id=str(place)) for place, name in enumerate(names)]
    assert by_execute_all(door, calls) == ["0", "0", "2", "1", "1", "5", "2"]
    assert [event.call_id for event in events(door)] == [str(place) for place in range(7)]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_a_call_that_ends_the_reply_lets_its_neighbours_end(error: type[BaseException]) -> None:
    """Their effects would be unknown otherwise; no call behind them runs, and a repeat runs nothing twice."""
    failed = threading.Event()
    ran: list[str] = []

    def order(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        ran.append(params.text)
        if params.text == "b":
            failed.set()
            raise error
        assert failed.wait(timeout=30)
        return ToolResult.ok(params)

    with Session.open(MemoryStore(clock=FakeClock()), "s") as session:
        door = executor(tool("order", order, **CONCURRENT), tool("pay", order, effect="external"), session=session)
        calls = [*three("order"), call("pay", "d", id="d")]
        with pytest.raises(error):
            door.execute_all(calls, reply="r")
        assert sorted(ran) == ["a", "b", "c"]
        assert {event.call_id: event.success for event in events(door)} == {"a": True, "b": False, "c": True}
        answers = door.execute_all(calls, reply="r")
    assert [message.success for message in answers] == [True, False, True, True]
    assert sorted(ran) == ["a", "b", "c", "d"]


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize(
    "interrupt",  # one of another thread does not end the wait of the main thread, as one that comes just before that
    [lambda: os.kill(os.getpid(), signal.SIGINT), lambda: signal.pthread_kill(threading.get_ident(), signal.SIGINT)],
    ids=["of the process", "of another thread"],
)
def test_ctrl_c_ends_all_of_them_at_once_and_none_runs_again(interrupt: Callable[[], None]) -> None:
    """What had started is unknown, as for a call by itself; a handler that goes on does not hold the program."""
    together, release = threading.Barrier(3, timeout=30), threading.Event()
    ran: list[str] = []

    def order(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        ran.append(params.text)
        if together.wait() == 0:
            interrupt()
        release.wait()
        return ToolResult.ok(params)

    door = executor(tool("order", order, **CONCURRENT))
    with pytest.raises(KeyboardInterrupt):
        door.execute_all(three("order"), reply="r")
    answers = door.execute_all(three("order"), reply="r")
    release.set()
    assert not any(message.success for message in answers)
    assert sorted(ran) == ["a", "b", "c"]
    assert not door.environment.session.turn.queue


AGAIN_AND_AGAIN = """
import os, signal, sqlite3, sys, threading
from handrail import ToolExecutor, store, tool
from handrail.runtime import Session, ToolCall
signal.signal(signal.SIGINT, signal.default_int_handler)
blocking = sqlite3.connect(sys.argv[1], isolation_level=None, check_same_thread=False)
together, ended = threading.Barrier(3), threading.Event()
@tool(effect="read")
def look(text: str) -> str:
    together.wait()
    return text
def interrupt() -> None:
    together.wait()
    blocking.execute("BEGIN IMMEDIATE")
    while not ended.wait(0.02):
        os.kill(os.getpid(), signal.SIGINT)
with store.open(f"sqlite:///{sys.argv[1]}") as desk, Session.open(desk, "s") as session:
    door = ToolExecutor([look], session=session)
    threading.Thread(target=interrupt).start()
    try:
        door.execute_all([ToolCall(text, "look", {"text": text}) for text in "ab"], reply="r")
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        ended.set()
        blocking.execute("ROLLBACK")
        print(len(session.turn.queue), flush=True)
        os._exit(0)
"""


def test_ctrl_c_again_and_again_leaves_no_call_that_holds_its_turn(tmp_path: Path) -> None:
    """While the records of the first one wait for the disk: nothing runs the calls any more, so they are closed."""
    line = (sys.executable, "-c", AGAIN_AND_AGAIN, str(tmp_path / "desk.db"))
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, "pending" in done.stderr) == (0, "0\n", False)


def test_an_approver_is_asked_one_question_at_a_time() -> None:
    """As a program expects that shows them on a screen."""
    asking = threading.Lock()
    asked: list[object] = []

    def approver(request: ApprovalRequest) -> bool:
        assert asking.acquire(blocking=False)
        asked.append(request.params)
        asking.release()
        return True

    policy = Decides(lambda _tool, _params: PolicyDecision.ask("sure?"))
    door = executor(tool("order", **CONCURRENT), policies=[policy], approver=approver)
    assert by_execute_all(door, three("order")) == ["a", "b", "c"]
    assert len(asked) == 3


def test_a_handler_that_blocks_its_loop_is_bounded_by_its_timeout() -> None:
    """As in a call by itself: it has a loop of its own, which the others do not wait for."""
    release = threading.Event()

    async def stuck(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        release.wait()
        return ToolResult.ok(params)

    door = executor(tool("stuck", stuck, timeout=timedelta(milliseconds=10), **READ), tool("look", **READ))
    answers = door.execute_all([call("look", id="a"), call("stuck", id="b"), call("look", id="c")], reply="r")
    release.set()
    assert [message.success for message in answers] == [True, False, True]


@pytest.mark.parametrize("answer", [by_execute_all, by_answer])
def test_calls_that_are_made_in_calls_side_by_side_do_not_wait_for_each_other(answer: Answer) -> None:
    """Each of three calls makes three in a session that they share, and its results come after its neighbours'."""

    @function_tool(effect="read")
    def look(text: str) -> str:
        """Look."""
        return text

    inner = executor(look)

    def ask(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        said = inner.execute_all(three("look"), reply=params.text)
        return ToolResult.ok(Note("".join(message.content for message in said)))

    door = executor(tool("ask", ask, **READ))
    assert answer(door, [call("ask", text, id=text) for text in "xyz"]) == ["abc", "abc", "abc"]
