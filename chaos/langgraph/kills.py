"""Rounds in which a graph of LangGraph runs calls, and its process is killed by SIGKILL at a random moment.

The next process continues the thread, or forks it from the checkpoint before the calls; in some rounds it is killed
again. At the end the files of the bank, the ledger and the messages of the thread are compared:

| the message says | the bank has paid | the ledger says |
|---|---|---|
| a success | once | done |
| that it is unknown | at most once | unknown |

Nothing is paid twice, whatever was killed, and the model is asked for its calls once.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import mkdtemp
from typing import Literal, get_args

from langchain_core.messages import ToolMessage

from chaos.langgraph.desk import Call, Desk, Task
from handrail import store as stores

Kind = Literal["invoke", "ainvoke", "sends", "approval", "fork"]
"""How the graph is run: each call a task of its own, a person asked about calls, and forked after a kill."""

KINDS: tuple[Kind, ...] = get_args(Kind)

_ROOT = Path(__file__).parents[2]
_PATIENCE = 60.0
_LONGEST_WAIT = 0.1
"""How long a payment waits at most before it is made, and after that."""

_LONGEST_DELAY = 0.3
"""After which time of the first payment the process is killed, at the latest."""

_MOST_CALLS = 4


@dataclass
class Count:
    """What came of the rounds.

    Attributes:
        rounds: how many rounds there were.
        kills: how many processes were killed.
        under_way: how many payments had begun at a kill, and were not recorded.
        calls: how many calls were made.
        answers: how many of them were answered so at last.
        twice: how many were paid more than once.
        faults: what was wrong.
    """

    rounds: int = 0
    kills: int = 0
    under_way: int = 0
    calls: int = 0
    answers: Counter[str] = field(default_factory=Counter[str])
    twice: int = 0
    faults: list[str] = field(default_factory=list[str])


def play(kinds: Sequence[Kind], dice: random.Random) -> Count:
    """Plays a round of each kind, and judges what is left; with faults, the folder is kept."""
    count = Count()
    for kind in kinds:
        folder = Path(mkdtemp(prefix="chaos-langgraph-"))
        count.rounds += 1
        faults = [f"{kind}: {fault}" for fault in _play(kind, folder, count, dice)]
        if faults:
            count.faults += [*faults, f"what is left is in {folder}"]
        else:
            shutil.rmtree(folder)
    return count


def kinds_of(rounds: int) -> list[Kind]:
    """The kinds of so many rounds, each in turn."""
    return [KINDS[at % len(KINDS)] for at in range(rounds)]


def _play(kind: Kind, folder: Path, count: Count, dice: random.Random) -> Generator[str]:
    desk, task = Desk(folder), _task(kind, dice)
    for _ in range(1 + (dice.random() < 1 / 4)):
        if (fault := _run_killed(desk, task, count, dice)) is not None:
            yield fault
            return
        task = replace(task, forks=kind == "fork")
    ended = _process(folder, task).wait(_PATIENCE)
    if ended != 0:
        yield f"the last process has ended with {ended}"
        return
    yield from _judge(desk, task, count)


def _task(kind: Kind, dice: random.Random) -> Task:
    def call(number: int) -> Call:
        name = "pay_soon" if dice.random() < 1 / 2 else "pay"
        is_big = kind == "approval" and (number == 0 or dice.random() < 1 / 2)
        order = f"{'big' if is_big else 'order'}-{number}"
        return Call(name, order, dice.random() * _LONGEST_WAIT, dice.random() * _LONGEST_WAIT)

    calls = [call(number) for number in range(dice.randint(1, _MOST_CALLS))]
    is_async = kind == "ainvoke" or (kind in {"sends", "approval"} and dice.random() < 1 / 2)
    return Task("thread", calls, "ainvoke" if is_async else "invoke", sends=kind == "sends")


def _run_killed(desk: Desk, task: Task, count: Count, dice: random.Random) -> str | None:
    """Kills a process some time after it has begun to pay; in the second time it may have nothing to begin."""
    begun = len(desk.books.read("begun"))
    process = _process(desk.folder, task)
    until = time.monotonic() + _PATIENCE
    while len(desk.books.read("begun")) == begun and process.poll() is None:
        if time.monotonic() > until:
            process.kill()
            process.wait()
            return "no payment was begun"
        time.sleep(0.002)
    time.sleep(dice.random() * _LONGEST_DELAY)
    if process.poll() is None:
        count.kills += 1
        process.kill()
        count.under_way += len(_rows(desk, "running"))
    elif process.returncode != 0:
        return f"a process has ended with {process.returncode}"
    process.wait()
    return None


def _process(folder: Path, task: Task) -> subprocess.Popen[bytes]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(_ROOT / "src"), str(_ROOT)))}
    command = [sys.executable, "-m", "chaos.langgraph.desk", str(folder), task.line]
    with (folder / "log.txt").open("a") as log:
        return subprocess.Popen(command, cwd=_ROOT, env=env, stderr=log)  # noqa: S603 - this program


def _rows(desk: Desk, *states: str) -> list[bytes]:
    with stores.open(desk.url) as store:
        return [row.arguments or b"" for row in store.rows() if row.status in states]


def _judge(desk: Desk, task: Task, count: Count) -> Generator[str]:
    paid, messages = Counter(desk.books.read("paid")), desk.answers(task)
    if len(messages) != len(task.calls):
        yield f"{len(task.calls)} calls have {len(messages)} answers"
        return
    if (asked := len(desk.books.read("asked"))) != 1:
        yield f"the model was asked {asked} times"
    with stores.open(desk.url) as store:
        rows = [(row.arguments or b"", str(row.status)) for row in store.rows()]
    for call, message in zip(task.calls, messages, strict=True):
        states = {status for arguments, status in rows if f'"{call.order}"'.encode() in arguments}
        answer = "done" if message.status == "success" else "unknown"
        count.calls += 1
        count.answers[answer] += 1
        count.twice += paid[call.order] > 1
        if paid[call.order] > 1 or states != {answer} or (answer == "done" and not paid[call.order]):
            yield f"{call.order}: {_describe(message)}; paid {paid[call.order]} times; the ledger says {states}"


def _describe(message: ToolMessage) -> str:
    return f"{message.status}, {str(message.content)[:200]}"
