"""How many runs workers carry out, how soon they begin one, and what those cost that wait.

A worker is a process of `handrail worker`, and this module has its agents. Of the runs that workers are compared by,
most time is that of a model, which is waited for: so two of them take twice as many, until the cores are used up. The
runs whose model answers at once show where that is; server, workers and this process share the cores.
"""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from functools import cache, partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg

from benchmarks.timing import Limit
from handrail import ToolExecutor, store, tool
from handrail.adapters.tool_executor import PendingAnswers
from handrail.runtime import ToolCall
from handrail.store import Store
from handrail.worker import RunTask, submit
from tests.store.postgres_server import server_of_its_own

SUBMISSIONS, COMPARED = 10_000, (2, 4)

STARTED = "from submit to the start of a run, PostgreSQL"
STARTED_SQLITE = "from submit to the start of a run, SQLite (full)"
SCALED = {
    number: f"{number} workers, runs of five calls whose model takes 0.4 s, PostgreSQL, over one" for number in COMPARED
}
INSTANT = {
    number: f"{number} {'worker' if number == 1 else 'workers'}, runs of three calls whose model answers at once, "
    "PostgreSQL"
    for number in (1, *COMPARED)
}
INSTANT_SQLITE = "1 worker, runs of three calls whose model answers at once, SQLite (full)"
SUBMITTED = f"submitting {SUBMISSIONS:,} runs, PostgreSQL"
SUBMITTED_SQLITE = f"submitting {SUBMISSIONS:,} runs, SQLite (full)"
IDLE = "a worker without runs, PostgreSQL"
WAITING = f"a worker with {SUBMISSIONS:,} runs that wait for answers, PostgreSQL"
LIMITS = (
    Limit(STARTED, 50.0, "ms"),
    Limit(STARTED_SQLITE, 50.0, "ms"),
    *(Limit(case, 0.9 * number, "x", "at least") for number, case in SCALED.items()),
    *(Limit(case, None, "runs/s", "at least") for case in (*INSTANT.values(), INSTANT_SQLITE)),
    # 20 seconds.
    *(Limit(case, SUBMISSIONS / 20, "runs/s", "at least") for case in (SUBMITTED, SUBMITTED_SQLITE)),
    Limit(IDLE, None, "% of a core"),
    Limit(WAITING, None, "% of a core"),
)

_ROOT = Path(__file__).parents[1]
_CONCURRENCY, _THINKING, _HURRYING = 4, 24, 300
"""Runs of a worker at a time; runs for each worker whose model takes time; all runs whose model answers at once."""

_WAITS = (0.2, 0.3, 0.4, 0.5, 0.6)
_TO_START = timedelta(seconds=2)  # of a worker
_SETTLED_SECONDS, _WATCHED_SECONDS = 5.0, 20.0
_WAITING_QUEUE = "waiting"
_SERIAL = count()


@tool(effect="external")
async def pay(order: str) -> str:
    """Pay an order."""
    return f"{order} is paid"


async def _work(task: RunTask, calls: int, waits: Sequence[float]) -> str:
    executor, talk = ToolExecutor([pay], session=task.session), task.session.conversation
    while True:
        answers = await executor.answer_async()
        assert not isinstance(answers, PendingAnswers)
        if answers:
            await talk.append_async(*({"role": "tool", "content": each.content} for each in answers))
        made = len(talk) // 2
        if made == calls:
            return "done"
        if waits:
            await asyncio.sleep(waits[made])
        call = ToolCall(f"call-{made}", "pay", {"order": f"A-{made}"})
        await talk.append_async({"role": "assistant"}, calls=[call], reply=f"reply-{made}")


async def think(task: RunTask) -> str:
    """Makes five calls, and waits for its model before each: as long as any other run, at other moments."""
    return await _work(task, 5, random.sample(_WAITS, len(_WAITS)))


async def hurry(task: RunTask) -> str:
    """Makes three calls at once."""
    return await _work(task, 3, ())


async def begin(task: RunTask) -> str:
    """Says that it has begun."""
    print(task.input, flush=True)
    return "done"


AGENTS = [think, hurry, begin]
"""What the workers know."""


@contextmanager
def cases() -> Generator[dict[str, Callable[[], object]]]:
    """What is measured, by name; the server runs for the time of the block, with a worker for the runs that begin."""
    with ExitStack() as opened:
        folder = Path(opened.enter_context(TemporaryDirectory(prefix="handrail-bench-")))
        url, _ = opened.enter_context(server_of_its_own())
        file = f"sqlite:///{folder}/runs.db"
        kept, kept_sqlite = (opened.enter_context(store.open(each)) for each in (url, file))
        alone = cache(partial(_rate, kept, "think", 1, _THINKING))
        yield {
            STARTED: _starting(kept, opened),
            STARTED_SQLITE: _starting(kept_sqlite, opened),
            **{case: partial(_scale, kept, alone, number) for number, case in SCALED.items()},
            **{case: partial(_rate, kept, "hurry", number, _HURRYING) for number, case in INSTANT.items()},
            INSTANT_SQLITE: partial(_rate, kept_sqlite, "hurry", 1, _HURRYING),
            SUBMITTED: partial(_submit_many, kept),
            SUBMITTED_SQLITE: partial(_submit_many, kept_sqlite),
            IDLE: partial(_watch, kept, "idle"),
            WAITING: partial(_watch_waiting, kept, url),
        }


@contextmanager
def _worker(url: str, queue: str) -> Generator[subprocess.Popen[str]]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(_ROOT / "src"), str(_ROOT)))}
    command = [sys.executable, "-m", "handrail", "worker", "--agents", "benchmarks.workers", "--store", url]
    options = ["--queue", queue, "--concurrency", str(_CONCURRENCY)]
    with subprocess.Popen(
        [*command, *options], cwd=_ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _submit(kept: Store, agent: str, queue: str, *, at: datetime | None = None) -> str:
    session = f"{queue}-{next(_SERIAL)}"
    submit(kept, session, agent=agent, input=session, queue=queue, at=at)
    return session


def _start(kept: Store, process: subprocess.Popen[str], queue: str) -> None:
    session = _submit(kept, "begin", queue)
    assert process.stdout is not None
    assert process.stdout.readline() == f"{session}\n"


def _starting(kept: Store, opened: ExitStack) -> Callable[[], None]:
    """A run that begins; the worker works before the first one."""
    queue = f"start-{next(_SERIAL)}"
    process = opened.enter_context(_worker(kept.url, queue))
    _start(kept, process, queue)
    return partial(_start, kept, process, queue)


def _rate(kept: Store, agent: str, workers: int, runs: int) -> float:
    """The runs a second from when they are due, all at the same moment, to the end of the last one."""
    queue = f"{agent}-{next(_SERIAL)}"
    with ExitStack() as opened:
        for _ in range(workers):
            opened.enter_context(_worker(kept.url, queue))
        due = kept.now() + _TO_START * (workers + 1)
        sessions = {_submit(kept, agent, queue, at=due) for _ in range(runs)}
        assert kept.now() < due, "submitting took too long"
        while kept.now() < due or [*kept.due_runs(queue, kept.now() + _TO_START * 60, limit=1)]:
            time.sleep(0.2)
        ended = [row for row in kept.runs() if row.session_id in sessions]
    assert {row.status for row in ended} == {"finished"}
    return runs / (max(row.due_at for row in ended) - due).total_seconds()


def _scale(kept: Store, alone: Callable[[], float], workers: int) -> float:
    return _rate(kept, "think", workers, workers * _THINKING) / alone()


def _submit_many(kept: Store) -> float:
    begun = time.perf_counter()
    for number in range(SUBMISSIONS):
        submit(kept, f"{_WAITING_QUEUE}-{number}", agent="hurry", input="A-1", queue=_WAITING_QUEUE)
    return SUBMISSIONS / (time.perf_counter() - begun)


def _watch_waiting(kept: Store, url: str) -> float:
    _submit_many(kept)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("UPDATE handrail_runs SET status = 'waiting' WHERE queue = %s", (_WAITING_QUEUE,))
        connection.execute("DELETE FROM procrastinate_jobs")
    return _watch(kept, _WAITING_QUEUE)


def _watch(kept: Store, queue: str) -> float:
    """The processor time of a worker, in per cent of the time that passes."""
    with _worker(kept.url, queue) as process:
        time.sleep(_SETTLED_SECONDS)
        before = _processor_seconds(process.pid)
        time.sleep(_WATCHED_SECONDS)
        return 100 * (_processor_seconds(process.pid) - before) / _WATCHED_SECONDS


def _processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
