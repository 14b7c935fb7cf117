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

from handrail.cli.options import COUNT, MORE_THAN_ZERO, NewStoreOptions
from handrail.cli.process_exit import wake_on_signals
from handrail.cli.screen import Screen
from handrail.errors import AgentError
from handrail.operations.runs import DEFAULT_QUEUE, check_queue, check_writable
from handrail.worker.agents import load_agents
from handrail.worker.queues import read_cron
from handrail.worker.resuming import OnChange, ResumeOptions
from handrail.worker.worker import Worker, open_queue, serve_health

_OUTAGES = {"SessionLostError", "StoreUnavailableError", "ConnectorException"}  # the last one of procrastinate


def run_worker(  # noqa: PLR0913 - the options of the command
    *,
    agents: Annotated[tuple[str, ...], Parameter(metavar="FILE|MODULE", consume_multiple=True)],
    concurrency: Annotated[int, COUNT] = 4,
    queue: Annotated[str, Parameter(metavar="NAME")] = DEFAULT_QUEUE,
    heartbeat: Annotated[timedelta, MORE_THAN_ZERO] = timedelta(seconds=10),
    grace: Annotated[timedelta, MORE_THAN_ZERO] = timedelta(seconds=30),
    drain: Annotated[bool, Parameter(negative="")] = False,
    on_change: OnChange = "warn",
    cron: Annotated[tuple[str, ...], Parameter(metavar="ENTRY")] = (),
    health: Annotated[int | None, Parameter(validator=validators.Number(gte=1, lte=65_535), metavar="PORT")] = None,
    options: NewStoreOptions = NewStoreOptions(),
) -> None:
    """Carry out the runs that are submitted, and those of workers that have died.

    On PostgreSQL, workers of many machines share a queue. On SQLite, workers of one machine may share the file; one
    suffices. SIGTERM and Ctrl-C let runs end in the time of --grace, and hand back the others.

    Example: `handrail worker --agents desk.agent --store postgresql://db/shop`

    Args:
        agents: Agent files, and names of Python modules with a list AGENTS of agents and functions.
        concurrency: How many runs it carries out at the same time; 4 by default.
        queue: The queue whose runs it carries out. By default it is called handrail. With a queue for each tenant, none
            waits for the runs of another.
        heartbeat: Other workers continue the runs of one that has not renewed them for so long; 10s by default.
        grace: How long runs may take to end when it is stopped; 30s by default.
        drain: Stop as soon as no run is due, instead of waiting for more.
        on_change: What happens to a run that another version of its agent has begun: warn continues it with a warning
            (the default), refuse leaves it to a worker that has that version.
        cron: Submit runs at times, in UTC: "0 6 * * * desk Good morning." has the five fields of crontab, an agent, and
            its input. Needs PostgreSQL. Repeatable.
        health: Serve /healthz and /metrics at this port of 127.0.0.1. By default they are not served.
        options: The store and the output format.
    """
    if not agents:
        raise CycloptsError(msg="name the --agents that it carries out: agent files, or modules")
    sys.path.insert(0, "")
    logging.getLogger("handrail.worker").setLevel(logging.INFO)
    logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger().handlers[0].addFilter(_is_news)
    for name in ("procrastinate", "psycopg"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    check_queue(queue, "worker")
    beat, patience = heartbeat.total_seconds(), grace.total_seconds()
    try:
        agents_by_name = load_agents(agents)
    except (AgentError, ImportError) as error:
        raise CycloptsError(msg=f"--agents takes agent files and modules: {error}") from error
    entries = [read_cron(text) for text in cron]
    if strange := [entry.agent for entry in entries if entry.agent not in agents_by_name]:
        raise CycloptsError(msg=f"--cron names {strange[0]}, and the --agents are {', '.join(agents_by_name)}")

    async def serve() -> None:
        hands = open_queue(store, queue, concurrency=concurrency, heartbeat=beat, grace=patience, crons=entries)
        how = ResumeOptions(on_change=on_change, heartbeat=heartbeat)
        worker = Worker(store, agents_by_name, hands, queue, options=how, drain=drain)
        loop = asyncio.get_running_loop()
        wake_on_signals(loop)
        for number in (signal.SIGINT, signal.SIGTERM):
            with suppress(NotImplementedError):  # Windows
                loop.add_signal_handler(number, partial(_stop, worker, number, grace))
        Screen().remark(f"Working on queue {queue} of {store.url}, with {', '.join(agents_by_name)}. Ctrl-C ends it.")
        async with serve_health(worker, health, limit=3 * beat):
            await worker.serve()

    with options.open(writing=True) as store:
        check_writable(store)
        asyncio.run(serve())


def _is_news(record: logging.LogRecord) -> bool:
    # The worker says once that its store is away, and of each run why it has ended.
    return not (record.exc_info and type(record.exc_info[1]).__name__ in _OUTAGES)


def _stop(worker: Worker, number: int, grace: timedelta) -> None:
    worker.stop()
    # An agent may ignore that it is cancelled. Its run goes to another worker when this process has ended. The seconds
    # after --grace are for runs that are handed back.
    last = threading.Timer(grace.total_seconds() + 5, os._exit, (128 + number,))
    last.daemon = True
    last.start()
