"""`handrail worker`: carries out the runs of a queue, until it is stopped."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Annotated, Any, Final

from cyclopts import CycloptsError, Parameter

from handrail.cli.options import COUNT, MORE_THAN_ZERO, PORT, NewStoreOptions
from handrail.cli.process_exit import interruptible, wake_on_signals
from handrail.cli.screen import Screen
from handrail.errors import AgentError
from handrail.operations.runs import DEFAULT_QUEUE, check_queue, check_writable
from handrail.worker.agents import Runnable, load_agents
from handrail.worker.queues import read_cron
from handrail.worker.resuming import OnChange, ResumeOptions
from handrail.worker.worker import Worker, open_queue, serve_health

_OUTAGES = {"SessionLostError", "StoreUnavailableError", "ConnectorException"}  # the last one of procrastinate
_HAND_BACK: Final = timedelta(seconds=5)


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
    health: Annotated[int | None, PORT] = None,
    options: NewStoreOptions = NewStoreOptions(),
) -> None:
    """Carry out the runs that are submitted, and those of workers that have died.

    On PostgreSQL, workers of many machines share a queue. On SQLite, workers of one machine may share the file; one
    suffices. SIGTERM, SIGHUP and Ctrl-C let runs end in the time of --grace, and hand back the others; 5 seconds later
    the process ends in any case, and at once by a second Ctrl-C.

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
            (the default), refuse leaves it to a worker that has that version. The version of a function has all modules
            of its package, or those beside its module.
        cron: Submit runs at times, in UTC: "0 6 * * * desk Good morning." has the five fields of crontab, an agent, and
            its input. Needs PostgreSQL. Repeatable.
        health: Serve /healthz and /metrics at this port of 127.0.0.1. By default they are not served.
        options: The store and the output format.
    """
    if not agents:
        raise CycloptsError(msg="name the --agents that it carries out: agent files, or modules")
    sys.path.insert(0, "")
    _begin_log()
    check_queue(queue, "worker")
    beat, patience = heartbeat.total_seconds(), grace.total_seconds()
    agents_by_name = _load(agents)
    entries = [read_cron(text) for text in cron]
    if strange := [entry.agent for entry in entries if entry.agent not in agents_by_name]:
        raise CycloptsError(msg=f"--cron names {strange[0]}, and the --agents are {', '.join(agents_by_name)}")

    stops: list[Callable[[], object]] = []

    async def serve() -> None:
        hands = open_queue(store, queue, concurrency=concurrency, heartbeat=beat, grace=patience, crons=entries)
        how = ResumeOptions(on_change=on_change, heartbeat=heartbeat)
        worker = Worker(store, agents_by_name, hands, queue, options=how, drain=drain)
        loop = asyncio.get_running_loop()
        wake_on_signals(loop)
        stops.append(partial(loop.call_soon_threadsafe, worker.stop))
        if signals:  # before there was anything to stop
            worker.stop()
        begins = f"Working on queue {queue} of {store.url}, with {', '.join(agents_by_name)}. Ctrl-C ends it."
        async with serve_health(worker, health, limit=3 * beat):
            Screen().remark(begins)
            await worker.serve()

    def stop_all() -> None:  # in a signal handler, which runs also while a function blocks the loop
        with suppress(RuntimeError):  # the loop has ended
            _ = [stop() for stop in stops]

    # The seconds after --grace are for runs that are handed back. An agent may ignore that it is cancelled, or block
    # the loop. Its run goes to another worker when this process has ended.
    ending = interruptible(stop_all, _say_stopping, grace=grace + _HAND_BACK, enough=2)
    with ending as signals, options.open(writing=True) as store:
        check_writable(store)
        _run(serve())


def _load(names: Sequence[str]) -> Mapping[str, Runnable]:
    try:
        return load_agents(names)
    except (AgentError, ImportError, ValueError) as error:
        raise CycloptsError(msg=f"--agents takes agent files and modules: {error}") from error


def _say_stopping(how_long: str) -> None:
    Screen().remark(f"Stopping{how_long}")


def _run(coroutine: Coroutine[Any, Any, None]) -> None:
    # `SystemExit` in a task of a function, such as one that calls a tool, leaves the loop. The task has ended with it,
    # and its run fails; the others continue.
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        serving = loop.create_task(coroutine)
        while not serving.done():
            with suppress(SystemExit, KeyboardInterrupt):
                loop.run_until_complete(serving)
        serving.result()


def _begin_log() -> None:
    logging.getLogger("handrail.worker").setLevel(logging.DEBUG)  # tracebacks of runs, which --debug shows
    for name in ("procrastinate", "psycopg"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    form = logging.Formatter("%(asctime)s UTC %(levelname)s %(message)s")
    form.converter = time.gmtime
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(form)
    handler.setLevel(logging.INFO)
    handler.addFilter(_is_news)
    logging.basicConfig(handlers=[handler])


def _is_news(record: logging.LogRecord) -> bool:
    # The worker says once that its store is away, and of each run why it has ended.
    return not (record.exc_info and type(record.exc_info[1]).__name__ in _OUTAGES)
