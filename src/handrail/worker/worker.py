"""A worker: it carries out runs that a queue hands to it, keeps the queue filled, and says how it does."""

from __future__ import annotations

import asyncio
import socket
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from handrail.errors import HandrailError, StoreError
from handrail.operations import skip_unreadable
from handrail.operations.runs import StoredRun, find_run, write_run
from handrail.readable import clean
from handrail.redaction import redacted_logger
from handrail.runtime.execution import ASYNC
from handrail.store import Store
from handrail.worker.agents import Runnable, digest_agent
from handrail.worker.queues import CronEntry, LocalQueue, Queue, QueuedRun
from handrail.worker.resuming import Again, Attempt, ResumeOptions, RunOutcome, has_ended

if TYPE_CHECKING:
    from handrail.store.postgres import PostgresStore

MOST_SWEPT: Final = 1_000
"""The most runs that are due which a worker looks at in one go; the others follow."""

MOST_BESIDE: Final = 4
"""How often a run may have ended with its worker before it is begun without others beside it."""

_LATER: Final = timedelta(seconds=5)
_OUTAGE_SECONDS: Final = 1.0  # until it is tried again
_log = redacted_logger("handrail.worker")


class Worker:
    """Carries out the runs of one queue.

    Attributes:
        running: the sessions of the runs that it carries out at this moment.
        outcomes: how many attempts have come to which outcome; those that found nothing to do are left out.
        swept_at: when it last looked for open runs, and its queue answered, by the clock of `time.monotonic`.
    """

    def __init__(  # noqa: PLR0913 - what a worker is
        self,
        store: Store,
        agents: Mapping[str, Runnable],
        queue: Queue,
        name: str,
        *,
        options: ResumeOptions = ResumeOptions(),  # noqa: B008 - it is a constant
        drain: bool = False,
    ) -> None:
        self._store = store
        self._agents = agents
        self._queue = queue
        self._name = name
        self._heartbeat = options.heartbeat
        # The versions are those that were loaded.
        self._options = {name: replace(options, version=digest_agent(agent)) for name, agent in agents.items()}
        self._drain = drain
        self._stop = asyncio.Event()
        self._changes = asyncio.Condition()
        self._alone = 0  # the runs that run alone, or wait for that
        self._resting: dict[str, float] = {}  # sessions, and until when they are left alone here
        self._is_away = False  # the store, or the queue
        self._reported: set[str] = set()  # why runs are left alone, once each
        self.running: set[str] = set()
        self.outcomes: Counter[str] = Counter()
        self._count = _counter()
        self.swept_at: float = time.monotonic()

    def stop(self) -> None:
        """Has it end: runs that do not end in the time given are handed back."""
        self._stop.set()

    async def serve(self) -> None:
        """Works until it is stopped."""
        sweeping = asyncio.create_task(self._sweep())
        try:
            while not self._stop.is_set():
                try:
                    await self._queue.work(self._carry_out, self._stop)
                except StoreError as error:
                    self._say_away(error)
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._stop.wait(), _OUTAGE_SECONDS)
        finally:
            sweeping.cancel()
            await asyncio.wait({sweeping})

    async def _sweep(self) -> None:
        while True:
            try:
                due = await ASYNC.write_to(self._store, self._find_due)
                is_well = await self._queue.sweep(due)
                self.swept_at = time.monotonic() if is_well else self.swept_at
                if self._is_away and is_well:
                    self._is_away = False
                    self._reported.clear()
                    _log.warning("the store and its queue answer again")
                if self._drain and not due and not self.running:
                    self.stop()
            except HandrailError as error:
                self._say_away(error)
                await asyncio.sleep(_OUTAGE_SECONDS)
            await asyncio.sleep(self._queue.sweep_seconds)

    def _say_away(self, error: HandrailError) -> None:
        # Once, until all of it answers again.
        if not self._is_away:
            _log.warning("runs cannot be looked for: %s", " ".join(str(error).split()))
        self._is_away = True

    def _find_due(self) -> Sequence[QueuedRun]:
        now, faults = self._store.now(), list[str]()
        rows = [*skip_unreadable(self._store.due_runs(self._name, now + self._heartbeat, limit=MOST_SWEPT), faults)]
        for fault in faults:
            self._report(fault)
        self._resting = {name: until for name, until in self._resting.items() if until > time.monotonic()}
        rows = [row for row in rows if row.session_id not in self._resting]
        due = [row for row in rows if row.due_at <= now or (row.worker and has_ended(row.worker))]
        is_new = b'"attempts":0,'  # the data is not decoded: a row that is damaged keeps no other one waiting
        return [QueuedRun(row.session_id, row.priority, has_begun=is_new not in row.data) for row in due]

    async def _carry_out(self, session_id: str) -> None:
        if session_id in self.running:  # the queue has handed it out twice
            return
        begin = time.monotonic()
        try:
            run = await ASYNC.write_to(self._store, partial(find_run, self._store, session_id))
        except HandrailError as error:
            self._leave(session_id, str(error))
            return
        # It may end this process, too, and with it what runs beside it.
        is_alone = run is not None and bool(run.row.worker) and run.data.attempts >= MOST_BESIDE
        try:
            async with self._place(session_id, is_alone=is_alone):
                outcome = await self._resume(session_id, run)
        except asyncio.CancelledError:
            _log.info("run %s: handed back after %.1f s", clean(session_id), time.monotonic() - begin)
            raise
        if outcome is None:
            return
        if isinstance(outcome, Again):  # its row may not say so: it cannot be written
            self._resting[session_id] = time.monotonic() + min(outcome.after, _LATER).total_seconds()
        kind = "cancelled" if getattr(outcome, "is_cancelled", False) else type(outcome).__name__.lower()
        self.outcomes[kind] += 1
        self._count(kind)
        why = f": {getattr(outcome, 'why', getattr(outcome, 'error', ''))}".removesuffix(": ")
        _log.info("run %s: %s after %.1f s%s", clean(session_id), kind, time.monotonic() - begin, clean(why))
        _log.debug("run %s", clean(session_id), exc_info=getattr(outcome, "error", None))

    def _leave(self, session_id: str, why: str) -> None:
        # For another worker, or until it can be read.
        self._resting[session_id] = time.monotonic() + _LATER.total_seconds()
        self._report(why, f"run {session_id}: ")

    def _report(self, why: str, where: str = "") -> None:
        if why not in self._reported:
            self._reported.add(why)
            _log.warning("%s%s", clean(where), " ".join(clean(why).split()))

    @asynccontextmanager
    async def _place(self, session_id: str, *, is_alone: bool) -> AsyncGenerator[None]:
        # One that is to run alone waits until no other runs; none begins as long as it waits or runs.
        self._alone += is_alone
        try:
            async with self._changes:
                await self._changes.wait_for(lambda: not (self.running if is_alone else self._alone))
                self.running.add(session_id)
            yield
        finally:
            self.running.discard(session_id)
            self._alone -= is_alone
            async with self._changes:
                self._changes.notify_all()

    async def _resume(self, session_id: str, run: StoredRun | None) -> RunOutcome | None:
        # `None` if it was not begun: it has ended or waits, another worker has it, or the store is away.
        if run is None or run.row.status != "open":
            return None
        name = run.data.agent
        try:
            if name in self._agents:
                attempt = Attempt(self._store, session_id, self._agents[name], self._options[name], name)
                outcome = await attempt.carry_out()
                if attempt.run is not None and attempt.run.row.version > run.row.version:
                    return outcome
                self._resting[session_id] = time.monotonic() + _OUTAGE_SECONDS
                return None
            why = f"no agent {name} is known here; another worker may know it"
            if not run.row.worker:
                await ASYNC.write_to(self._store, partial(self._put_off, run, why))
            self._leave(session_id, why)
            return None
        except HandrailError as error:
            why = str(error)
        except Exception as error:  # noqa: BLE001 - logged; the time in its row passes, and it is begun again
            _log.exception("run %s", session_id)
            why = repr(error)
        return Again(_LATER, why)

    def _put_off(self, run: StoredRun, why: str) -> None:
        late = run.describe_lateness(now := self._store.now())
        write_run(self._store, run.change("failed" if late else "open", due_at=now + _LATER, text=late or why))


def _counter() -> Callable[[str], object]:
    # Counts attempts by their outcomes in OpenTelemetry, if its API is installed; without a provider it does nothing.
    try:
        from opentelemetry import metrics  # noqa: PLC0415 - an extra
    except ImportError:
        return lambda _outcome: None
    meter = metrics.get_meter("handrail.worker")
    counter = meter.create_counter("handrail.worker.runs", "{run}", "Attempts at runs of workers, by outcome.")
    return lambda outcome: counter.add(1, {"outcome": outcome})


def open_queue(  # noqa: PLR0913 - what a queue is
    store: Store, name: str, *, concurrency: int, heartbeat: float, grace: float, crons: Sequence[CronEntry] = ()
) -> Queue:
    """The queue of a store, by its name: on PostgreSQL that of all workers, else one of this process.

    Raises:
        StoreError: there are entries for cron, and the store is not in PostgreSQL.
        ImportError: the extra `worker` is not installed.
    """
    if store.url.startswith("postgres"):
        from handrail.worker.procrastinate_queue import ProcrastinateQueue  # noqa: PLC0415 - needs an extra

        return ProcrastinateQueue(
            cast("PostgresStore", store), name, concurrency=concurrency, heartbeat=heartbeat, grace=grace, crons=crons
        )
    if crons:
        raise StoreError("runs at the times of crontab need a store in PostgreSQL", store=store.url)
    return LocalQueue(concurrency=concurrency, grace=grace)


@asynccontextmanager
async def serve_health(worker: Worker, port: int | None, *, limit: float) -> AsyncGenerator[None]:
    """Serves `/healthz` and `/metrics`, in the text format of Prometheus, at a port of this machine.

    A worker is not healthy if it has looked for runs last, or its queue has answered last, more than `limit` seconds
    ago. Without a port nothing is served.
    """

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, ValueError, asyncio.LimitOverrunError, TimeoutError):
            line = (await asyncio.wait_for(reader.readline(), 5)).split()
            path = line[1].decode() if len(line) > 1 else ""
            is_well = time.monotonic() - worker.swept_at <= limit
            status, body = {
                "/healthz": ("200 OK", "ok\n") if is_well else ("503 Service Unavailable", "no look at the store\n"),
                "/metrics": ("200 OK", describe_metrics(worker)),
            }.get(path, ("404 Not Found", "/healthz or /metrics\n"))
            head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {len(body)}\r\n"
            writer.write(f"{head}Connection: close\r\n\r\n{body}".encode())
            await writer.drain()
        writer.close()

    if port is None:
        yield
        return
    async with await asyncio.start_server(answer, sock=socket.create_server(("127.0.0.1", port))):
        yield


def describe_metrics(worker: Worker) -> str:
    """The metrics of a worker, in the text format of Prometheus."""
    lines = [
        "# TYPE handrail_runs_running gauge",
        f"handrail_runs_running {len(worker.running)}",
        "# TYPE handrail_runs_total counter",
        *(f'handrail_runs_total{{outcome="{name}"}} {number}' for name, number in sorted(worker.outcomes.items())),
    ]
    return "\n".join([*lines, ""])
