"""Undo of a session, whose process is killed by SIGKILL at named points and at random moments, until it is complete.

The next process is asked for the same undo. At the end state, files and books are compared with the start, and the
first plan and the report in the conversation with those of an undo that nothing has disturbed:

| what the desk has done | what is left of it |
|---|---|
| a slice, a file, what a program changed | nothing |
| a payment | one refund |
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count as count_from
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Literal, NoReturn

from chaos import postgres
from chaos.undo.desk import CALLS, Desk
from handrail.crash_points import arm
from handrail.testing.crash import CrashTrap

_ROOT = Path(__file__).parents[2]
_MOMENT = "a moment"

Database = Literal["sqlite", "postgres"]

_LONGEST_MOMENT = 0.3
"""How long a process lives at most that is killed at a moment."""

_MOST_ARRIVALS = 3
"""At which arrival at a point a process is killed at the latest."""

_MOST_IN_A_ROUND = 15
"""How often the undo of one session is killed; then it may end."""


@dataclass
class Count:
    """The outcome of the rounds.

    Attributes:
        rounds: how many sessions were undone.
        kills: how many processes were killed, by where.
        calls: how many calls were undone.
        twice: how many payments were refunded more than once.
        left_out: how many were not refunded.
        faults: what was wrong.
    """

    rounds: int = 0
    kills: Counter[str] = field(default_factory=Counter[str])
    calls: int = 0
    twice: int = 0
    left_out: int = 0
    faults: list[str] = field(default_factory=list[str])


@dataclass(frozen=True, slots=True)
class Ending:
    """What is left of a session that is undone.

    Attributes:
        name: the name of the round.
        plan: the steps of the first plan.
        report: the conversation, which says at its end what was undone.
        refunds: how often each order was refunded.
    """

    name: str
    plan: Any
    report: list[Any]
    refunds: Mapping[str, int]


def play(database: Database, kills: int, dice: random.Random) -> Count:
    """Kills processes until there are so many kills, and judges what is left; with faults, the folders stay."""
    count, folder = Count(), Path(mkdtemp(prefix="chaos-undo-"))
    with ExitStack() as stack:
        url = stack.enter_context(postgres.running()).url if database == "postgres" else f"sqlite:///{folder}/desk.db"
        first = Desk(folder / "undisturbed", url)
        undisturbed = _play_round(first, 0, dice, count, ())
        points = [entry["point"] for entry in first.books.read("begun")]
        while undisturbed is not None and count.kills.total() < kills and not count.faults:
            wanted = min(_MOST_IN_A_ROUND, kills - count.kills.total())
            ending = _play_round(Desk(folder / f"round-{count.rounds}", url), wanted, dice, count, points)
            if ending is not None:
                _judge(ending, undisturbed, count)
    if count.faults:
        count.faults.append(f"what is left is in {folder}")
    else:
        shutil.rmtree(folder)
    return count


def _play_round(desk: Desk, kills: int, dice: random.Random, count: Count, points: Sequence[str]) -> Ending | None:
    """Has a desk work, and undoes it in processes of which so many are killed; `None` if that did not end."""
    desk.begin()
    start = desk.read_state()
    desk.work()
    options = [str(desk.folder), desk.url, str(kills), str(dice.random()), *points]
    command = [sys.executable, "-m", "chaos.undo.kills", *options]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(_ROOT / "src"), str(_ROOT)))}
    with (desk.folder / "log.txt").open("a") as log:
        ended = subprocess.run(command, cwd=_ROOT, env=env, stderr=log, check=False)  # noqa: S603 - this program
    count.rounds += 1
    count.calls += len(CALLS)
    count.kills.update(entry["at"] for entry in desk.books.read("died"))
    if ended.returncode != 0:
        count.faults.append(f"{desk.folder.name}: the last process has ended with {ended.returncode}")
        return None
    if (left := desk.read_state()) != start:
        count.faults.append(f"{desk.folder.name}: left is {left}, at the start there was {start}")
    refunds = Counter(entry["order"] for entry in desk.books.read("refunded"))
    return Ending(desk.folder.name, desk.books.read("asked")[0], desk.read_messages(), refunds)


def _judge(ending: Ending, undisturbed: Ending, count: Count) -> None:
    """Compares what is left with what an undo leaves that nothing has disturbed."""
    orders = [arguments["order"] for name, arguments in CALLS if name == "pay"]
    count.twice += sum(ending.refunds[order] > 1 for order in orders)
    count.left_out += sum(not ending.refunds[order] for order in orders)
    for what in ("plan", "report", "refunds"):
        own, other = getattr(ending, what), getattr(undisturbed, what)
        if own != other:
            count.faults.append(f"{ending.name}: {what}: {own}; undisturbed: {other}")


# --------------------------------------------------------------------------------------------------------------- lives


def live_often(desk: Desk, kills: int, dice: random.Random, points: Sequence[str]) -> int:
    """Undoes the session of a desk in one process after the other, until one is not killed; its exit code.

    Half of the processes are killed at a point, half at a moment. Without points the books get those that are reached.
    """
    for number in count_from():
        sys.stderr.flush()
        blow = "" if number >= kills else dice.choice([*points, *([_MOMENT] * len(points))])
        nth, moment = dice.randint(1, _MOST_ARRIVALS), dice.random() * _LONGEST_MOMENT
        pid = os.fork()
        if pid == 0:
            _live(desk, blow, nth)
        if blow == _MOMENT:
            time.sleep(moment)
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        if code != -signal.SIGKILL:
            return code
        desk.books.write("died", at=blow)
    raise AssertionError


def _live(desk: Desk, blow: str, nth: int) -> NoReturn:
    code, reached = 1, set[str]()
    if blow != _MOMENT:
        arm(CrashTrap(blow, nth) if blow else reached.add)
    try:
        code = 0 if asyncio.run(desk.undo()) else 2
        for point in sorted(reached):
            desk.books.write("begun", point=point)
    except BaseException:  # noqa: BLE001 - a fork must not go on as its parent
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    at, address, wanted, seed, *named = sys.argv[1:]
    sys.exit(live_often(Desk(Path(at), address), int(wanted), random.Random(seed), named))
