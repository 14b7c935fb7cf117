"""The queue that workers share, on a server of PostgreSQL: whatever becomes of jobs, each run is carried out once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

import psycopg
import pytest
from procrastinate import App, PsycopgConnector

from handrail import store as stores
from handrail.errors import InvalidArgumentError, SessionLostError, StoreUnavailableError
from handrail.operations.runs import HIGHEST_PRIORITY, LONGEST_QUEUE, RunData, store_run, write_run
from handrail.process import own_name
from handrail.session import Session
from handrail.store import Store
from handrail.worker import submit
from handrail.worker.queues import CronEntry
from handrail.worker.resuming import ResumeOptions
from handrail.worker.worker import Worker, open_queue
from tests.kit import refusal
from tests.store.kit import NOW
from tests.store.postgres_server import doomed, end_connections, fresh_url
from tests.worker.desks import Desk, run_now, until

pytestmark = pytest.mark.anyio

HEARTBEAT = timedelta(seconds=0.5)
_DROP = (
    "SELECT format('DROP %s %I CASCADE', '{0}', {1}name) FROM pg_{2} "
    "WHERE {1}name LIKE 'procrastinate%' AND {1}namespace = current_schema()::regnamespace AND {3}"
)
_KINDS = (
    ("TABLE", "rel", "class", "relkind = 'r'"),
    ("TYPE", "typ", "type", "typtype IN ('e', 'c')"),
    ("ROUTINE", "pro", "proc", "true"),
)


@pytest.fixture
def url() -> Generator[str]:
    """An empty schema."""
    with fresh_url() as url:
        yield doomed(url)


@pytest.fixture
def store(url: str) -> Generator[Store]:
    """The store of a program that submits runs."""
    with stores.open(url) as store:
        yield store


@asynccontextmanager
async def working(
    url: str, desk: Desk, *, queue: str = "handrail", crons: Sequence[CronEntry] = ()
) -> AsyncGenerator[None]:
    """A worker with a store of its own works while the block runs, and is stopped then."""
    with stores.open(url) as own:
        jobs = open_queue(own, queue, concurrency=2, heartbeat=HEARTBEAT.total_seconds(), grace=30, crons=crons)
        worker = Worker(own, {"desk": desk.desk}, jobs, queue, options=ResumeOptions(heartbeat=HEARTBEAT))
        serving = asyncio.create_task(worker.serve())
        try:
            yield
        finally:
            worker.stop()
            await serving


async def finished(store: Store, *session_ids: str) -> None:
    """Return when runs have ended, which they must with an answer."""
    await until(lambda: all(run_now(store, name).row.status != "open" for name in session_ids))
    assert {run_now(store, name).row.status for name in session_ids} == {"finished"}


def query(url: str, sql: str = "SELECT queueing_lock FROM procrastinate_jobs ORDER BY id") -> list[object]:
    """The first column of what a statement returns: of the queue its jobs."""
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(sql.encode())
        return [row[0] for row in cursor.fetchall()] if cursor.description else []


async def test_runs_are_carried_out_whenever_they_are_submitted(store: Store, url: str) -> None:
    """Before there is a queue, and while workers work; in the queue of a tenant, too. No job is left behind."""
    desk = Desk()
    submit(store, "early", agent="desk", input="Pay.")
    tenant = "t" * LONGEST_QUEUE
    submit(store, "own", agent="desk", input="Pay.", queue=tenant, priority=HIGHEST_PRIORITY)
    async with working(url, desk), working(url, desk), working(url, desk, queue=tenant):
        await finished(store, "early", "own")
        names = [f"s{number}" for number in range(5)]
        for name in names:
            await asyncio.to_thread(submit, store, name, agent="desk", input="Pay.")
        await finished(store, *names)
        await until(lambda: not query(url))
    assert sorted(desk.paid) == sorted(f"{name}-{number}" for name in ("early", "own", *names) for number in range(2))


@pytest.mark.parametrize("kinds", [_KINDS, _KINDS[:1]], ids=["all", "tables"])
async def test_queue_that_was_dropped_loses_nothing(store: Store, url: str, kinds: Sequence[Sequence[str]]) -> None:
    """It is made anew, whatever is left of it, and filled from the sessions, by workers that are at work."""
    desk = Desk()
    async with working(url, desk):
        submit(store, "s1", agent="desk", input="Pay.")
        await finished(store, "s1")
        store_run(store, "s2", RunData(agent="desk", input="Pay."))
        for kind in kinds:
            for drop in query(url, _DROP.format(*kind)):
                await asyncio.to_thread(query, url, str(drop))  # it waits for the transactions of the workers
        await finished(store, "s2")
    assert len(desk.paid) == 4


async def test_job_that_is_handed_out_twice_runs_once(store: Store, url: str) -> None:
    """By two workers: the session of the run is held by one of them."""
    may_pay = asyncio.Event()
    desk = Desk(inside=lambda _: may_pay.wait())
    submit(store, "s1", agent="desk", input="Pay.")
    async with working(url, desk), working(url, desk):
        await until(lambda: desk.tasks)
        for _ in range(3):  # without a lock that refuses a second one
            async with App(connector=PsycopgConnector(conninfo=url)).open_async() as app:
                await app.configure_task("handrail.run", queue="handrail").defer_async(session="s1")
        await until(lambda: len(query(url)) == 1)
        may_pay.set()
        await finished(store, "s1")
    assert (desk.paid, len(desk.tasks)) == (["s1-0", "s1-1"], 1)


async def test_run_of_a_worker_that_shows_no_life_is_taken_from_it(store: Store, url: str) -> None:
    """It holds the session, and its connection lives: it is evicted, and what it writes is refused."""
    run, desk = submit(store, "s1", agent="desk", input="Pay."), Desk()
    with stores.open(url) as hung, Session.open(hung, "s1", wait=NOW) as held:
        assert write_run(hung, run.change("open", worker=str(own_name()), due_at=store.now() + HEARTBEAT, attempts=1))
        async with working(url, desk), working(url, desk):
            await finished(store, "s1")
        with pytest.raises(SessionLostError):
            held.conversation.append({"role": "user", "content": "I am back."})
    assert (desk.paid, len(desk.tasks), run_now(store).data.attempts) == (["s1-0", "s1-1"], 1, 2)


async def test_worker_begins_anew_when_its_connections_are_cut(store: Store, url: str) -> None:
    """Those of the queue, and those of the store; what is submitted then is carried out."""
    desk = Desk()
    async with working(url, desk):
        submit(store, "s1", agent="desk", input="Pay.")
        await finished(store, "s1")
        assert end_connections(url)
        await until(lambda: submitted(store, "s2"))
        await finished(store, "s2")


def submitted(store: Store, session_id: str) -> bool:
    """Submit a run, from a program whose connections have been cut, too."""
    try:
        submit(store, session_id, agent="desk", input="Pay.")
    except StoreUnavailableError:
        return False
    return True


async def test_entry_for_cron_submits_one_run_for_each_time(store: Store, url: str) -> None:
    """However many workers have it, and whatever else falls on that time."""
    desk, entries = Desk(replies=0), [CronEntry("* * * * * *", "desk", text) for text in ("Hello.", "Good morning.")]
    async with working(url, desk, crons=entries), working(url, desk, crons=[*entries, entries[0]]):
        await until(lambda: len([*store.runs()]) >= 4)
        await finished(store, *(row.session_id for row in store.runs()))
    tasks = [(task.session.session_id.rpartition("-")[2], task.input) for task in desk.tasks]
    assert len({*tasks}) == len(tasks) == len([*store.runs()])
    assert {text for _, text in tasks} == {"Hello.", "Good morning."}


@pytest.mark.parametrize("fields", ["99 6 * * *", "0 6 * * x"])
def test_entry_for_cron_is_checked_before_a_worker_begins(store: Store, fields: str) -> None:
    """Not by a worker that then never submits anything."""
    crons = [CronEntry(fields, "desk", "Go.")]
    refusal(InvalidArgumentError, open_queue, store, "q", concurrency=1, heartbeat=1, grace=1, crons=crons)
