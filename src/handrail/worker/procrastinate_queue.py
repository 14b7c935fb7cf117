"""The queue that the workers of many machines share: procrastinate, in the database of the store.

Of its jobs, only their sessions and priorities are used: no retries, no results, and nothing of what it knows about
workers. A worker of procrastinate ends when its database is away; here it begins anew.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha256
from typing import Any, Final, cast

import psycopg

try:
    from croniter import croniter
    from procrastinate import App, PsycopgConnector
    from procrastinate.exceptions import AlreadyEnqueued, ConnectorException
except ModuleNotFoundError as _error:
    raise ImportError(
        f'workers on PostgreSQL need {_error.name}, not installed here: pip install "handrail[worker]"'
    ) from _error

from handrail.errors import InvalidArgumentError, StoreError, StoreUnavailableError
from handrail.operations.runs import MOST_REQUESTS, RunData, store_run
from handrail.redaction import redacted_logger
from handrail.runtime.execution import ASYNC
from handrail.store.postgres import PostgresStore
from handrail.worker.queues import CarryOut, CronEntry, QueuedRun

_RUN_TASK: Final = "handrail.run"
_WAITING: Final = (
    "SELECT queueing_lock FROM procrastinate_jobs WHERE status = 'todo' AND queueing_lock = ANY(%(names)s)"
)
# What drops what there is of the queue, functions first.
_DROPS: Final = """
SELECT format('DROP %s IF EXISTS %s CASCADE', replace(type, 'composite ', ''), identity)
FROM pg_depend, pg_identify_object(classid, objid, 0) WHERE refclassid = 'pg_namespace'::regclass
AND refobjid = current_schema()::regnamespace AND type IN ('function', 'table', 'type', 'composite type')
AND identity LIKE '%.procrastinate%' ORDER BY 1
"""
_ERRORS: Final = (ConnectorException, psycopg.Error, OSError)
_log = redacted_logger("handrail.worker")


class ProcrastinateQueue:
    """See `handrail.worker.queues.Queue`.

    Attributes:
        sweep_seconds: the time between two sweeps.
    """

    def __init__(  # noqa: PLR0913 - what a queue is
        self,
        store: PostgresStore,
        name: str,
        *,
        concurrency: int,
        heartbeat: float,
        grace: float,
        crons: Iterable[CronEntry] = (),
    ) -> None:
        self._name = name
        self._heartbeat = heartbeat
        self._url = store.url
        self._carry_out: CarryOut | None = None
        self._is_open = False
        # It sets `autocommit` where it needs that.
        options = {name: value for name, value in store.server.options.items() if name != "autocommit"}
        self._app = App(connector=PsycopgConnector(kwargs=options, min_size=1, max_size=4))
        self._run_app = partial(
            self._app.run_worker_async,
            queues=[name],
            concurrency=concurrency,
            fetch_job_polling_interval=heartbeat / 2,
            shutdown_graceful_timeout=grace,
            delete_jobs="always",
            install_signal_handlers=False,
            update_heartbeat_interval=heartbeat / 3,
            stalled_worker_timeout=heartbeat * 6,
        )
        self._app.task(name=_RUN_TASK, queue=name)(self._work_on)
        for entry in dict.fromkeys(crons):
            self._schedule(store, entry)

    @property
    def sweep_seconds(self) -> float:
        """See `Queue`; at random, so that workers do not sweep at the same moment."""
        return self._heartbeat * random.uniform(0.15, 0.25) if self._is_open else 0.05  # noqa: S311 - no secret

    def _schedule(self, store: PostgresStore, entry: CronEntry) -> None:
        name = f"{entry.agent}-{sha256(repr(entry).encode()).hexdigest()[:8]}"
        data = RunData(agent=entry.agent, input=entry.input, request_limit=MOST_REQUESTS)

        async def submit_run(timestamp: int) -> None:
            # One session for each time, so that workers which all see it submit one run.
            await ASYNC.write_to(store, partial(store_run, store, f"{name}-{timestamp}", data, queue=self._name))

        task = self._app.task(name=f"handrail.cron:{name}", queue=self._name)(submit_run)
        if not croniter.is_valid(entry.cron):
            expected = "the five fields of crontab: 0 6 * * *"
            raise InvalidArgumentError(function="cron", argument="entry", value=entry.cron, expected=expected)
        self._app.periodic(cron=entry.cron)(task)

    async def work(self, carry_out: CarryOut, stop: asyncio.Event) -> None:
        """See `Queue`."""
        self._carry_out = carry_out
        try:
            async with self._app.open_async():
                await self._make_tables()
                self._is_open = True
                await self._run_worker(stop)
        except _ERRORS as error:
            cause = error.__cause__ or error  # that of procrastinate has no text
            if not isinstance(cause, psycopg.errors.UndefinedTable):
                text = f"the queue in {self._url} is away: {cause}"  # without the statement, in other lines
                raise StoreUnavailableError(text.partition("\n")[0], store=self._url) from error
            _log.warning("the queue in %s is gone, and is made anew", self._url)
        finally:
            self._is_open = False

    async def _run_worker(self, stop: asyncio.Event) -> None:
        worker = asyncio.ensure_future(self._run_app())
        stopped = asyncio.ensure_future(stop.wait())
        try:
            await asyncio.wait({worker, stopped}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
            worker.cancel()
            with suppress(asyncio.CancelledError):
                await worker

    async def _make_tables(self) -> None:
        async with cast("PsycopgConnector", self._app.connector).pool.connection() as connection:
            # One worker after the other: none drops what another one has just made.
            await connection.execute("SELECT pg_advisory_xact_lock(hashtext('procrastinate ' || current_schema()))")
            if not await self._app.check_connection_async():
                for (drop,) in await (await connection.execute(_DROPS)).fetchall():
                    await connection.execute(drop)
                await connection.execute(self._app.schema_manager.get_schema())

    async def _work_on(self, session: str) -> None:
        task = cast("asyncio.Task[None]", asyncio.current_task())
        # It fails if the end of its job cannot be written, and procrastinate drops it: asyncio would report that.
        task.add_done_callback(lambda task: task.cancelled() or task.exception())
        if self._carry_out is not None:
            await self._carry_out(session)

    async def sweep(self, due: Sequence[QueuedRun]) -> bool:
        """See `Queue`."""
        if due and self._is_open:
            with suppress(*_ERRORS):  # the next sweep finds them again
                jobs = {_name_job(run): run for run in due}
                rows = await self._app.connector.execute_query_all_async(_WAITING, names=[*jobs])
                waiting = {row["queueing_lock"] for row in rows}
                for run in (run for name, run in jobs.items() if name not in waiting):
                    with suppress(AlreadyEnqueued):
                        await _configure(self._app, self._name, run).defer_async(session=run.session_id)
        return self._is_open


def _name_job(run: QueuedRun) -> str:
    # One that was begun has a job of its own: another one may wait behind many runs.
    return f"{run.session_id} again" if run.has_begun else run.session_id


def _configure(app: App, queue: str, run: QueuedRun, **options: Any) -> Any:  # noqa: ANN401 - procrastinate's
    return app.configure_task(_RUN_TASK, queue=queue, queueing_lock=_name_job(run), priority=run.rank, **options)


_DEFERRING: Final = App(connector=PsycopgConnector())


def defer_run(store: PostgresStore, queue: str, run: QueuedRun) -> None:
    """Adds a run to the queue of a store, if workers have made it; a failure is left to the next sweep."""
    with suppress(AlreadyEnqueued, StoreError, *_ERRORS), store.borrow() as connection:
        _configure(_DEFERRING, queue, run, connection=connection).defer(session=run.session_id)
