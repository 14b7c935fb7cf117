"""How many durable calls many agents make together, beside one agent: on one loop, on threads, in processes.

Each agent has a stored session of its own and a tool with the effect "external" that returns at once; between two calls
it lets the others run, as while it waits for its model. So what is measured is the runtime and its store.

This module is also the program of a process of its own: it opens a session, then reads how many calls it is to make
from standard input, a line each time, and answers with a line when they are made.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Barrier

from benchmarks import round_trips
from benchmarks.proxy import Proxy, proxied
from benchmarks.stored_agents import StoredAgent, agents_in, call_together
from benchmarks.timing import Block, Bound, Limit
from handrail import store
from handrail.runtime import Session
from tests.store.postgres_server import server_of_its_own

AGENTS, THREADS, PROCESSES = 200, 16, 4

ONE = "one agent, synchronous entry, SQLite (full)"
ONE_INLINE = f"{ONE}, def handler"
ONE_ASYNC = "one agent, asynchronous entry, SQLite (full)"
ON_LOOP = f"{AGENTS} agents on one loop, ten calls each, SQLite (full)"
ON_THREADS = f"{THREADS} threads, SQLite (full)"
ONE_PROCESS = "one process, SQLite (full)"
IN_PROCESSES = f"{PROCESSES} processes, SQLite (full)"
BOUNDS = (
    Bound(ONE_ASYNC, ONE, 1.6),
    Bound(ON_LOOP, ONE, 5.0, "at least"),
    Bound(ON_THREADS, ONE, 3.0, "at least"),
    Bound(IN_PROCESSES, ONE_PROCESS, 1.0, "at least"),
)

FAR = f"{AGENTS} agents on one loop, PostgreSQL 5 ms away"
LIMITS = (Limit(FAR, 2_000.0, "calls/s", "at least"), *round_trips.LIMITS)

_OF_ONE, _ON_LOOP, _ON_THREADS, _IN_PROCESSES = 50, 10, 10, 25
"""How many calls an agent makes in a block."""

_DELAY = 0.005  # seconds in each direction
_ROUNDS = 5
_LONGEST = 10.0  # seconds; after so many no further round begins


@contextmanager
def cases() -> Generator[dict[str, Callable[[], object]]]:
    """What is measured, by name; databases, threads and processes are there for the time of the block."""
    with ExitStack() as opened:
        folder = Path(opened.enter_context(TemporaryDirectory(prefix="handrail-bench-")))
        url, _ = opened.enter_context(server_of_its_own())
        proxy = opened.enter_context(proxied(url))
        yield {
            **_one_agent(folder, opened),
            **_on_loop(folder, opened),
            ON_THREADS: _on_threads(folder, opened),
            **_in_processes(folder, opened),
            FAR: _far(proxy, opened),
            **round_trips.cases(proxy, opened),
        }


def _one_agent(folder: Path, opened: ExitStack) -> dict[str, Callable[[], object]]:
    """One agent through each entry; each has a file of its own."""
    kept = opened.enter_context(store.open(f"sqlite:///{folder}/inline.db"))
    inline = StoredAgent(opened.enter_context(Session.open(kept, "agent")), is_async=False)
    [blocking] = agents_in(f"sqlite:///{folder}/one.db", 1, opened)
    suspending = agents_in(f"sqlite:///{folder}/one-async.db", 1, opened)
    runner = opened.enter_context(asyncio.Runner())
    return {
        ONE: Block(_OF_ONE, lambda: _call_often(blocking, _OF_ONE)),
        ONE_INLINE: Block(_OF_ONE, lambda: _call_often(inline, _OF_ONE)),
        ONE_ASYNC: Block(_OF_ONE, lambda: runner.run(call_together(suspending, _OF_ONE))),
    }


def _on_loop(folder: Path, opened: ExitStack) -> dict[str, Callable[[], object]]:
    agents = agents_in(f"sqlite:///{folder}/loop.db", AGENTS, opened)
    runner = opened.enter_context(asyncio.Runner())
    return {ON_LOOP: Block(AGENTS * _ON_LOOP, lambda: runner.run(call_together(agents, _ON_LOOP)))}


def _on_threads(folder: Path, opened: ExitStack) -> Callable[[], object]:
    agents = agents_in(f"sqlite:///{folder}/threads.db", THREADS, opened)
    pool = opened.enter_context(ThreadPoolExecutor(THREADS))
    together = Barrier(THREADS)  # so that no thread takes the calls of two agents

    def work(agent: StoredAgent) -> None:
        together.wait()
        _call_often(agent, _ON_THREADS)

    return Block(THREADS * _ON_THREADS, lambda: [*pool.map(work, agents)])


def _in_processes(folder: Path, opened: ExitStack) -> dict[str, Callable[[], object]]:
    """Processes on one file; alone, one of them works while the others wait."""
    url = f"sqlite:///{folder}/processes.db"
    processes = [opened.enter_context(_process(url, f"agent-{place}")) for place in range(PROCESSES)]
    return {
        ONE_PROCESS: Block(_IN_PROCESSES, lambda: _work(processes[:1])),
        IN_PROCESSES: Block(PROCESSES * _IN_PROCESSES, lambda: _work(processes)),
    }


@contextmanager
def _process(url: str, session_id: str) -> Generator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.throughput", url, session_id],
        cwd=Path(__file__).parents[1],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            _await_line(process)
            yield process
        finally:
            process.kill()


def _work(processes: Sequence[subprocess.Popen[str]]) -> None:
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(f"{_IN_PROCESSES}\n")
        process.stdin.flush()
    for process in processes:
        _await_line(process)


def _await_line(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    if not process.stdout.readline():
        raise SystemExit("a process of the benchmark has ended; its error is above")


def _far(proxy: Proxy, opened: ExitStack) -> Callable[[], float]:
    """The calls per second over a proxy that delays them; sessions are opened, and the agents warmed up, without."""
    agents = agents_in(proxy.url, AGENTS, opened)
    runner = opened.enter_context(asyncio.Runner())

    def calls_per_second() -> float:
        runner.run(call_together(agents, 2))
        proxy.delay(_DELAY)
        try:
            return _median_rate(lambda each: runner.run(call_together(agents, each)))
        finally:
            proxy.delay(0)

    return calls_per_second


def _median_rate(run: Callable[[int], object]) -> float:
    """The calls per second of all agents, the median of rounds of about a second; slow ones are fewer, of a call each.

    Args:
        run: has each agent make so many calls.
    """
    rates: list[float] = []
    each, begun = 1, time.perf_counter()
    while len(rates) < _ROUNDS and time.perf_counter() - begun < _LONGEST:
        start = time.perf_counter()
        run(each)
        taken = time.perf_counter() - start
        rates.append(AGENTS * each / taken)
        each = max(1, round(each / taken))
    return statistics.median(rates)


def _call_often(agent: StoredAgent, times: int) -> None:
    for _ in range(times):
        agent.call()


def main() -> None:
    """Be one process of several on one file, until standard input ends."""
    url, session_id = sys.argv[1:]
    answer = partial(print, "done", flush=True)
    with store.open(url) as kept, Session.open(kept, session_id) as session:
        agent = StoredAgent(session)
        answer()
        for line in sys.stdin:
            _call_often(agent, int(line))
            answer()


if __name__ == "__main__":
    main()
