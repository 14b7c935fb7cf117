"""Runs that workers carry out while these are killed, stopped and cut off; `chaos.workers.verdict` judges them."""

from __future__ import annotations

import random
import shutil
import time
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from pathlib import Path
from tempfile import mkdtemp
from typing import Literal, get_args

from chaos import postgres
from chaos.books import Books
from chaos.postgres import Mode
from chaos.proxy import Proxy
from chaos.troubles import BusySqlite
from chaos.workers.agents import AGENTS, POISON, PROJECT
from chaos.workers.storm import Blow, Storm
from chaos.workers.verdict import Count, judge
from handrail import store as stores
from handrail.errors import HandrailError
from handrail.store import Store
from handrail.worker import AgentFunction, submit

Database = Literal["sqlite", "postgres"]

_INPUT = "pay"
_OFTEN = 0.002
_PATIENCE = 300.0


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is done.

    Attributes:
        runs: how many runs there are.
        workers: how many workers there are at a time.
        kills: how many are killed.
        stops: how many are stopped past their heartbeat, and continue then.
        restarts: how often the store is restarted, or locked.
        is_whole: whether the tables of the queue are dropped in the middle, and the notes of one more run kill its
            process.
        interval: the mean time between two of these, in seconds.
        pause: how long a call pauses at most before its effect, and after it, in seconds.
    """

    runs: int
    workers: int
    kills: int
    stops: int
    restarts: int
    is_whole: bool = True
    interval: float = 1.5
    pause: float = 0.6

    @classmethod
    def for_kills(cls, kills: int, database: Database, workers: int) -> Plan:
        """The plan in which so many workers are killed; on SQLite one process is."""
        runs, restarts = max(20, kills * 5 // 2), max(1, kills // 20)
        if database == "sqlite":
            return cls(runs, 1, kills, 0, restarts)
        return cls(runs, workers, kills, max(2, kills // 4), restarts)

    def blows(self, dice: random.Random) -> list[Blow]:
        """What is done to the workers, in order: the queue is dropped in the middle."""
        amounts: dict[Blow, int] = {"kill": self.kills, "stop": self.stops, "restart": self.restarts}
        blows: list[Blow] = [blow for blow, amount in amounts.items() for _ in range(amount)]
        dice.shuffle(blows)
        if self.is_whole:
            blows.insert(len(blows) // 2, "drop")
        return blows


def play(database: Database, plan: Plan, dice: random.Random) -> Count:
    """Has workers carry out runs while it storms; with faults, the folder is kept."""
    folder = Path(mkdtemp(prefix="chaos-workers-"))
    for name, text in PROJECT.items():
        (folder / name).write_text(text, encoding="utf-8")
    begun, count = time.monotonic(), Count()
    with ExitStack() as stack:
        storm = _place(database, plan, folder, dice, stack)
        store = stack.enter_context(stores.open(storm.server_url or storm.url))
        ids = _storm(storm, store, plan, count)
        count.seconds = time.monotonic() - begun
        judge(store, Books(folder), count, ids=ids, deaths=storm.deaths)
        count.happened.update(storm.counts)
        if storm.proxy is not None:
            count.happened.update(storm.proxy.counts)
        store.close()
    if count.faults:
        count.faults.append(f"what is left is in {folder}")
    else:
        shutil.rmtree(folder)
    return count


def _place(database: Database, plan: Plan, folder: Path, dice: random.Random, stack: ExitStack) -> Storm:
    if database == "sqlite":
        path = str(folder / "desk.db")
        return Storm(folder, f"sqlite:///{path}", "", None, BusySqlite(path).hold, plan.workers, plan.pause, dice)
    server = stack.enter_context(postgres.running())
    modes: cycle[Mode] = cycle(get_args(Mode))
    proxy = Proxy(server.url, dice=dice, often=0.0)
    stack.enter_context(proxy.running())

    def restart() -> None:
        server.restart(next(modes))

    return Storm(folder, proxy.url, server.url, proxy, restart, plan.workers, plan.pause, dice)


def _storm(storm: Storm, store: Store, plan: Plan, count: Count) -> Sequence[str]:
    """Has it storm until the runs have ended; returns their sessions, the first of each agent undisturbed."""
    runs = [(f"run-{number}", AGENTS[number % len(AGENTS)]) for number in range(plan.runs)]
    first, waiting = deque(runs[: len(AGENTS)]), deque(runs[len(AGENTS) :])
    if plan.is_whole:
        waiting.insert(len(waiting) // 2, (POISON, AGENTS[0]))
    blows = plan.blows(storm.dice)
    with storm.running():
        storm.wait_until(partial(_submit, store, first))
        if not storm.wait_until(partial(_have_ended, store), seconds=_PATIENCE):
            count.faults.append("the first runs did not end")
            return []
        storm.cut_often(_OFTEN)
        for number, blow in enumerate(blows):
            # Half of them wait when it begins; the others come meanwhile.
            rest = len(runs) * (len(blows) - number - 1) // (2 * len(blows))
            storm.wait_until(partial(_submit, store, waiting, rest=rest))
            storm.wait_until(lambda: False, seconds=storm.dice.expovariate(1 / plan.interval))
            storm.strike(blow)
        storm.cut_often(0.0)
        if not storm.wait_until(partial(_have_ended, store), seconds=_PATIENCE):
            count.faults.append(f"not every run had ended {_PATIENCE:g} s after the storm")
    return [session_id for session_id, _ in runs]


def _submit(store: Store, waiting: deque[tuple[str, AgentFunction]], *, rest: int = 0) -> bool:
    """Submits runs until so many are left; returns whether the store has taken them."""
    with suppress(HandrailError):  # the server is restarted: they are submitted again
        while len(waiting) > rest:
            session_id, agent = waiting[0]
            submit(store, session_id, agent=agent, input=_INPUT)
            waiting.popleft()
    return len(waiting) <= rest


def _have_ended(store: Store) -> bool:
    with suppress(HandrailError):
        return all(row.status in {"finished", "failed"} for row in store.runs())
    return False
