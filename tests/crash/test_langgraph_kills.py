"""Graphs of LangGraph that are killed while their node runs calls: at named points, and as in `make chaos`."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from chaos.langgraph import kills
from chaos.langgraph.desk import Call, Desk, Task, run_task
from chaos.langgraph.kills import Kind
from handrail.testing import Crashed
from tests.crash.forks import fork_to_crash
from tests.extent import FULL, SHORT

TASK = Task("thread", [Call("pay", "A-1"), Call("pay", "A-2")])
BIG = replace(TASK, calls=[Call("pay", "big-1"), Call("pay", "big-2")])
WAYS: dict[str, tuple[Task, bool]] = {
    "invoke": (TASK, False),
    "ainvoke": (replace(TASK, mode="ainvoke"), False),
    "each call a task": (replace(TASK, sends=True), False),
    "approval": (BIG, False),
    "approval, ainvoke": (replace(BIG, mode="ainvoke"), False),
    "continued in a fork": (TASK, True),
    "fork of an approval": (BIG, True),
}
"""What is killed, and whether it is forked then from the checkpoint before the calls."""

POINTS = {"before-claim": "paid later", "after-claim": "not paid", "after-handler": "paid", "after-record": "recorded"}
"""Where the process is killed in its second payment, and what became of that."""


def check(desk: Desk, task: Task, outcome: str) -> None:
    """One payment has its receipt; the other one too, unless its outcome is unknown."""
    orders, paid = sorted(call.order for call in task.calls), sorted(desk.books.read("paid"))
    assert (paid in [[order] for order in orders]) if outcome == "not paid" else paid == orders
    assert len(desk.books.read("asked")) == 1
    statuses = sorted(answer.status for answer in desk.answers(task))
    assert statuses == ["success" if outcome in {"paid later", "recorded"} else "error", "success"]


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.short(8)
def test_process_that_is_killed_in_a_payment_pays_nothing_twice(way: str, point: str, tmp_path: Path) -> None:
    """The next process asks no model, and answers what is recorded from its record; the rest runs, or is unknown."""
    task, forks = WAYS[way]
    assert isinstance(fork_to_crash(run_task, str(tmp_path), task.line, at=point, nth=2), Crashed)
    desk = Desk(tmp_path)
    desk.run(replace(task, forks=forks))
    check(desk, task, POINTS[point])


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("task", [TASK, BIG], ids=["plain", "approval"])
@pytest.mark.short(2)
def test_process_that_is_killed_in_a_fork_pays_nothing_twice(task: Task, point: str, tmp_path: Path) -> None:
    """It was killed before the first payment, forked, and killed in the second one; then the fork is continued."""
    assert isinstance(fork_to_crash(run_task, str(tmp_path), task.line, at="before-claim"), Crashed)
    fork = replace(task, forks=True)
    assert isinstance(fork_to_crash(run_task, str(tmp_path), fork.line, at=point, nth=2), Crashed)
    desk = Desk(tmp_path)
    desk.run(task)
    check(desk, task, POINTS[point])


_SOME: list[Kind] = ["sends", "fork"]


@pytest.mark.timeout(300)  # of the full form: a kill costs a start of two programs
def test_process_that_is_killed_at_random_pays_nothing_twice() -> None:
    """Messages, payments and ledger agree."""
    kinds = kills.kinds_of(20) if FULL else _SOME[:1] if SHORT else _SOME
    count = kills.play(kinds, random.Random("0"))  # noqa: S311 - no secret
    assert count.faults == []
    assert count.twice == 0
    assert count.kills > 0
    assert sum(count.answers.values()) == count.calls > 0
