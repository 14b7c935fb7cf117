"""A worker in one process: what it carries out, how it ends, what it says of itself, and how a run is cancelled."""

from __future__ import annotations

import asyncio
import re
import socket
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from handrail import store as stores
from handrail.errors import InvalidArgumentError, StoreUnavailableError
from handrail.operations.runs import cancel_run, retry_run, write_run
from handrail.prompt import ToolContext
from handrail.store import MemoryStore, Store
from handrail.worker import submit
from handrail.worker.agents import Runnable
from handrail.worker.queues import CarryOut, CronEntry, LocalQueue, QueuedRun, read_cron
from handrail.worker.resuming import ResumeOptions
from handrail.worker.worker import Worker, serve_health
from tests.kit import Kept, raises
from tests.store.kit import NOW
from tests.wording import Wording
from tests.worker.desks import Desk, answer_all, for_ever, later, run_now, until

pytestmark = pytest.mark.anyio

HEARTBEAT = timedelta(seconds=0.5)


@pytest.fixture
def store() -> MemoryStore:
    """An empty store, with the clock of the machine."""
    return MemoryStore()


def worker(
    store: Store, agents: Mapping[str, Runnable], *, grace: float = 60, number: int = 2, drain: bool = True
) -> Worker:
    """A worker over a queue of its own."""
    jobs, options = LocalQueue(concurrency=number, grace=grace), ResumeOptions(heartbeat=HEARTBEAT)
    return Worker(store, agents, jobs, "handrail", options=options, drain=drain)


def log(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What it has logged, with times left out."""
    return [re.sub(r"[0-9.]+ s", "<time>", one.getMessage()) for one in caplog.records if "worker" in one.name]


def signals(reached: asyncio.Event, then: Callable[[ToolContext], Any] = for_ever) -> Callable[[ToolContext], Any]:
    """A handler that writes, says so, and then does what it is to."""

    async def inside(context: ToolContext) -> None:
        context.session[Kept].append(Kept("begun"))
        reached.set()
        await then(context)

    return inside


async def test_worker_drains_what_is_due_in_its_queue(
    store: MemoryStore, caplog: pytest.LogCaptureFixture, wording: Wording
) -> None:
    """One line of log a run; what is due later, of another queue, or waits for an answer, is left."""
    caplog.set_level("INFO", "handrail.worker")
    desk, asks = Desk(), Desk(approver=later)

    async def fails(_: object) -> None:
        raise ValueError("no such order")

    agents = {"desk": desk.desk, "asks": asks.desk, "fails": fails}
    for name in agents:
        submit(store, f"run-{name}", agent=name, input="Pay.")
    submit(store, "late", agent="desk", input="Pay.", at=store.now().replace(year=9000))
    submit(store, "other", agent="desk", input="Pay.", queue="tenant-7")
    drained = worker(store, agents)
    await drained.serve()
    states = {row.session_id: row.status for row in store.runs()}
    ended = {"run-desk": "finished", "run-asks": "waiting", "run-fails": "failed"}
    assert states == {**ended, "late": "open", "other": "open"}
    assert drained.outcomes == {"finished": 1, "waiting": 1, "failed": 1}
    assert sorted(log(caplog)) == wording
    answer_all(store, "run-asks")
    await worker(store, agents).serve()
    assert asks.paid == ["run-asks-0"]


async def test_highest_priority_comes_first_and_then_the_oldest(store: MemoryStore) -> None:
    """No more runs at a time than said."""
    desk = Desk(replies=1)
    at_once: list[int] = []
    drained = worker(store, {"desk": desk.desk}, number=1)
    desk.before = lambda _: at_once.append(len(drained.running))
    for session_id, priority in (("a", 0), ("b", -1), ("c", 7), ("d", 7), ("e", 0)):
        submit(store, session_id, agent="desk", input="Pay.", priority=priority)
    await drained.serve()
    assert (desk.paid, at_once) == ([f"{session_id}-0" for session_id in "cdaeb"], [1] * 5)


async def test_run_of_an_agent_that_is_not_known_is_left_to_another_worker(
    store: MemoryStore, caplog: pytest.LogCaptureFixture, wording: Wording
) -> None:
    """It says why it waits, the log does once for the agent, and nothing is counted.

    One that another worker has, or that waits, is left as it is; one whose deadline has passed fails.
    """
    for session_id in ("s1", "has", "waits"):
        submit(store, session_id, agent="desk", input="Pay.")
    begun = run_now(store, "has").change("open", worker="host - 1 0", due_at=store.now() + timedelta(hours=1))
    waits = run_now(store, "waits").change("waiting")
    assert all(write_run(store, run) for run in (begun, waits))

    class Lost(LocalQueue):
        async def work(self, carry_out: CarryOut, stop: asyncio.Event) -> None:
            for session_id in ("s1", "has", "waits", "s2", "s1", "late"):
                await carry_out(session_id)
            stop.set()

    submit(store, "s2", agent="desk", input="Pay.")
    deadline = store.now() + timedelta(seconds=0.1)
    submit(store, "late", agent="desk", input="Pay.", deadline=deadline)
    await until(lambda: store.now() > deadline)
    await Worker(store, {"clerk": Desk().desk}, Lost(concurrency=1, grace=1), "handrail").serve()
    run = run_now(store)
    assert (run.row.status, run.data.attempts, run.row.due_at > store.now()) == ("open", 0, True)
    assert (run.data.text, log(caplog)) == wording
    assert (run_now(store, "has"), run_now(store, "waits")) == (begun, waits)
    assert (run_now(store, "s2").row.status, run_now(store, "late").row.status) == ("open", "failed")


async def test_attempt_that_has_nothing_to_do_is_neither_logged_nor_counted(
    store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    """A job that is handed out again, of a run that has ended meanwhile, or that another worker has begun."""
    caplog.set_level("INFO", "handrail.worker")
    desk = Desk(replies=0)
    submit(store, "s1", agent="desk", input="Pay.")
    submit(store, "has", agent="desk", input="Pay.")
    begun = run_now(store, "has").change("open", worker="host - 1 0", due_at=store.now() + timedelta(hours=1))
    assert write_run(store, begun)

    class Forgetful(LocalQueue):
        async def work(self, carry_out: CarryOut, stop: asyncio.Event) -> None:
            for session_id in ("s1", "s1", "has", "deleted"):
                await carry_out(session_id)
            stop.set()

    forgetful = Worker(store, {"desk": desk.desk}, Forgetful(concurrency=1, grace=1), "handrail")
    await forgetful.serve()
    assert (forgetful.outcomes, len(desk.tasks), len(log(caplog))) == ({"finished": 1}, 1, 1)


async def test_outage_is_logged_when_it_begins_and_when_it_is_over(
    store: MemoryStore, caplog: pytest.LogCaptureFixture, wording: Wording
) -> None:
    """However often it is tried."""
    caplog.set_level("INFO", "handrail.worker")
    tries: list[bool] = []

    class Away(LocalQueue):
        async def work(self, carry_out: CarryOut, stop: asyncio.Event) -> None:
            tries.append(True)
            if len(tries) <= 2:
                raise StoreUnavailableError("the queue is away", store="db")
            await super().work(carry_out, stop)

        async def sweep(self, due: Sequence[QueuedRun]) -> bool:
            swept.append(away.swept_at)
            return len(tries) > 2 and await super().sweep(due)

    submit(store, "s1", agent="desk", input="Pay.")
    away = Worker(store, {"desk": Desk().desk}, Away(concurrency=1, grace=1), "handrail", drain=False)
    begun, swept = away.swept_at, list[float]()
    serving = asyncio.create_task(away.serve())
    await until(lambda: run_now(store).row.status != "open")
    assert len(swept) > 2  # by which its health is judged
    assert {*swept[:3]} == {begun} != {away.swept_at}
    away.stop()
    await serving
    assert [line for line in log(caplog) if "s1" not in line] == wording


@pytest.mark.parametrize("ends", [True, False], ids=["ends", "hands back"])
async def test_worker_that_is_stopped_ends_its_runs_or_hands_them_back(
    store: MemoryStore, ends: bool, caplog: pytest.LogCaptureFixture, wording: Wording
) -> None:
    """In the time given; what is handed back is free at once, no attempt was counted, and nothing else is begun."""
    caplog.set_level("INFO", "handrail.worker")
    reached, may_pay = asyncio.Event(), asyncio.Event()
    inside = signals(reached, lambda context: may_pay.wait() if ends else for_ever(context))
    stopped = worker(store, {"desk": Desk(inside=inside).desk}, grace=60 if ends else 0.01, number=1, drain=False)
    for session_id in ("s1", "s2"):
        submit(store, session_id, agent="desk", input="Pay.")
    serving = asyncio.create_task(stopped.serve())
    await reached.wait()
    stopped.stop()
    may_pay.set()
    await serving
    first, second = (run_now(store, session_id) for session_id in ("s1", "s2"))
    assert (first.row.status, first.data.attempts) == (("finished", 1) if ends else ("open", 0))
    assert (second.row.version, store.held_sessions(), stopped.running) == (1, frozenset(), set())
    assert log(caplog) == wording


async def test_traceback_of_a_function_that_fails_is_logged_for_who_asks_for_it(
    store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    """As `handrail --debug worker` does."""
    caplog.set_level("DEBUG", "handrail.worker")

    async def desk(_: object) -> None:
        raise ValueError("no such order")

    submit(store, "s1", agent="desk", input="Pay.")
    await worker(store, {"desk": desk}).serve()
    (record,) = (one for one in caplog.records if one.exc_info)
    assert (record.levelname, isinstance(record.exc_info and record.exc_info[1], ValueError)) == ("DEBUG", True)


async def test_cancelled_run_stops_its_running_call_once(store: MemoryStore) -> None:
    """The handler may end in its own time, what it wrote is rolled back, and the worker goes on."""
    interrupted: list[str] = []
    reached = asyncio.Event()

    async def cleans_up(context: ToolContext) -> None:
        try:
            await for_ever(context)
        except asyncio.CancelledError:
            interrupted.append("handler")
            try:
                await asyncio.sleep(1)  # longer than the worker takes to look again
            except asyncio.CancelledError:
                interrupted.append("cleanup")
            raise

    submit(store, "s1", agent="desk", input="Pay.")
    goes_on = worker(store, {"desk": Desk(inside=signals(reached, cleans_up)).desk, "next": Desk().desk}, drain=False)
    serving = asyncio.create_task(goes_on.serve())
    await reached.wait()
    cancel_run(store, "s1", by="Ada")
    await until(lambda: not goes_on.running)
    submit(store, "s2", agent="next", input="Pay.")
    await until(lambda: run_now(store, "s2").row.status != "open")
    goes_on.stop()
    await serving
    assert interrupted == ["handler"]
    assert (run_now(store).row.status, goes_on.outcomes) == ("cancelled", {"cancelled": 1, "finished": 1})
    with store.session("s1", wait=NOW) as session:
        assert not session[Kept].all()


@pytest.mark.timeout(20)
async def test_run_that_is_cancelled_and_repeated_at_once_is_begun_anew(store: MemoryStore) -> None:
    """As a person does whose run hangs: the call that hangs is stopped."""
    desk = Desk(replies=1, inside=signals(reached := asyncio.Event()))
    submit(store, "s1", agent="desk", input="Pay.")
    goes_on = worker(store, {"desk": desk.desk}, grace=0.1, drain=False)
    serving = asyncio.create_task(goes_on.serve())
    await reached.wait()
    cancel_run(store, "s1")
    retry_run(store, "s1")
    await until(lambda: run_now(store).row.status == "finished")
    goes_on.stop()
    await serving
    assert (len(desk.tasks), desk.paid) == (2, [])


async def test_run_that_cannot_be_read_does_not_keep_others_waiting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, wording: Wording
) -> None:
    """It is logged once, whether its row or the data in it is damaged."""
    caplog.set_level("INFO", "handrail.worker")
    path = tmp_path / "desk.db"
    with stores.open(f"sqlite:///{path}") as store:
        for number in range(3):
            submit(store, f"s{number}", agent="desk", input="Pay.")
        with closing(sqlite3.connect(path, isolation_level=None)) as database:
            database.execute("UPDATE handrail_runs SET priority = 1.5 WHERE session_id = 's0'")
            database.execute("UPDATE handrail_runs SET data = x'3f' WHERE session_id = 's1'")
        goes_on = Worker(store, {"desk": Desk().desk}, LocalQueue(concurrency=1, grace=1), "handrail")
        serving = asyncio.create_task(goes_on.serve())
        await until(lambda: run_now(store, "s2").row.status != "open")
        goes_on.stop()
        await serving
    assert [line.replace(str(path), "<path>") for line in log(caplog)] == wording


async def request(port: int, text: str) -> tuple[str, str]:
    """The status and the body of an answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(text.encode())
    head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    return head.partition("\r\n")[0], body


async def test_health_and_metrics_are_served_on_this_machine(store: MemoryStore, wording: Wording) -> None:
    """`/healthz` as long as it looks for runs; anything else is answered, and ends nothing."""
    with socket.create_server(("127.0.0.1", 0)) as one:
        port = one.getsockname()[1]
    for name in ("s1", "s2"):
        submit(store, name, agent="desk", input="Pay.")
    drained = worker(store, {"desk": Desk().desk})
    await drained.serve()
    async with serve_health(drained, port, limit=60):
        assert await request(port, "GET /metrics HTTP/1.1\r\n\r\n") == wording
        paths = [*("GET /healthz HTTP/1.1\r\n", "GET / HTTP/1.1\r\n", "\r\n", "x" * 100_000 + "\r\n"), "GET \xff\r\n"]
        assert [(await request(port, path))[0] for path in paths[:3]] == wording
        for path in paths[3:]:
            assert not (await request(port, path))[0].startswith("HTTP/1.1 200")
        drained.swept_at -= 61
        assert await request(port, paths[0]) == wording


@pytest.mark.parametrize("text", ["", "0 6 * * * desk", "@daily desk Go."])
def test_entry_for_cron_is_checked_when_it_is_read(text: str, wording: Wording) -> None:
    """Not by a worker that then never submits anything."""
    assert read_cron(" 0 6  * * 1-5\tdesk Good  morning.") == CronEntry("0 6 * * 1-5", "desk", "Good  morning.")
    with raises(InvalidArgumentError, wording):
        read_cron(text)
