"""`handrail worker`: carries out the runs of a queue, until it is stopped."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Annotated

from cyclopts import CycloptsError, Parameter, validators

from handrail.cli.options import COUNT, FILLED, MORE_THAN_ZERO, StoreOptions
from handrail.cli.process_exit import wake_on_signals
from handrail.cli.screen import Screen
from handrail.operations.runs import DEFAULT_QUEUE
from handrail.worker.agents import load_agents
from handrail.worker.queues import read_cron
from handrail.worker.resuming import OnChange, ResumeOptions
from handrail.worker.worker import Worker, open_queue, serve_health

_LAST_SECONDS = timedelta(seconds=5)  # after --grace, for runs that are handed back
_PORTS = validators.Number(gte=1, lte=65_535)


def run_worker(  # noqa: PLR0913 - the options of the command
    *,
    agents: Annotated[tuple[str, ...], Parameter(metavar="FILE|MODULE", consume_multiple=True)],
    concurrency: Annotated[int, COUNT] = 4,
    queue: Annotated[str, FILLED] = DEFAULT_QUEUE,
    heartbeat: Annotated[timedelta, MORE_THAN_ZERO] = timedelta(seconds=10),
    grace: Annotated[timedelta, MORE_THAN_ZERO] = timedelta(seconds=30),
    drain: Annotated[bool, Parameter(negative="")] = False,
    on_change: OnChange = "warn",
    cron: Annotated[tuple[str, ...], Parameter(metavar="ENTRY")] = (),
    health: Annotated[int | None, Parameter(validator=_PORTS, metavar="PORT")] = None,
    options: StoreOptions = StoreOptions(),
) -> None:
    """Carry out the runs that are submitted, and those of workers that have died.

    On PostgreSQL, any number of workers share a queue. On SQLite, one process at a time works. SIGTERM and Ctrl-C let
    runs end in the time of --grace, and hand back the others.

    Example: `handrail worker --agents desk.agent --store postgresql://db/shop`

    Args:
        agents: Agent files, and modules with a list AGENTS of agents and functions.
        concurrency: How many runs it carries out at a time.
        queue: The queue; one for each tenant lets none wait for another's runs.
        heartbeat: A worker that shows no life for so long loses its runs to others.
        grace: How long runs may take to end when it is stopped.
        drain: Stop when no run is open and due.
        on_change: What happens to a run that another version of its agent has begun: it is continued with a warning, or
            left to a worker that has that version.
        cron: When to submit runs: "0 6 * * * desk Good morning." has the five fields of crontab, an agent, and its
            input. Needs PostgreSQL. Repeatable.
        health: Serve /healthz and /metrics at this port of this machine.
        options: The store; it is created if it does not exist.
    """
    if not agents:
        raise CycloptsError(msg="name the --agents that it carries out: agent files, or modules")
    sys.path.insert(0, "")
    logging.getLogger("handrail.worker").setLevel(logging.INFO)
    logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("procrastinate").setLevel(logging.ERROR)
    agents_by_name = load_agents(agents)
    entries = [read_cron(text) for text in cron]
    if strange := [entry.agent for entry in entries if entry.agent not in agents_by_name]:
        raise CycloptsError(msg=f"--cron names {strange[0]}, and the --agents are {', '.join(agents_by_name)}")

    async def serve() -> None:
        hands = open_queue(
            store,
            queue,
            concurrency=concurrency,
            heartbeat=heartbeat.total_seconds(),
            grace=grace.total_seconds(),
            crons=entries,
        )
        how = ResumeOptions(on_change=on_change, heartbeat=heartbeat)
        worker = Worker(store, agents_by_name, hands, queue, options=how, drain=drain)
        loop = asyncio.get_running_loop()
        wake_on_signals(loop)
        for number in (signal.SIGINT, signal.SIGTERM):
            with suppress(NotImplementedError):  # Windows
                loop.add_signal_handler(number, partial(_stop, worker, number, grace))
        Screen().remark(f"Working on queue {queue} of {store.url}, with {', '.join(agents_by_name)}. Ctrl-C ends it.")
        async with serve_health(worker, health, limit=3 * heartbeat.total_seconds()):
            await worker.serve()

    with options.open(writing=True, create=True) as store:
        asyncio.run(serve())


def _stop(worker: Worker, number: int, grace: timedelta) -> None:
    worker.stop()
    # An agent may ignore that it is cancelled. Its run goes to another worker when this process has ended.
    last = threading.Timer((grace + _LAST_SECONDS).total_seconds(), os._exit, (128 + number,))
    last.daemon = True
    last.start()
