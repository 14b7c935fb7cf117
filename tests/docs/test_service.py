"""The program of `docs/how-to/serve-with-fastapi.md`, served to many sessions, and killed."""

from __future__ import annotations

import asyncio
import os
import re
import runpy
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest

from handrail import store
from handrail.runtime import Session, ToolInvoked
from tests.architecture.sources import ROOT

PAGE = ROOT / "docs" / "how-to" / "serve-with-fastapi.md"


def saved_in(folder: Path) -> Path:
    """Save the program of the page in a folder, as the page says; returns its file."""
    (source,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    saved = folder / "service.py"
    saved.write_text(source, "utf-8")
    return saved


class Answer(NamedTuple):
    """What a client is answered.

    Attributes:
        status: the status of HTTP.
        repeated: whether it comes from the record; None for a refusal.
    """

    status: int
    repeated: bool | None


class Client:
    """A client of one process of the service: one connection for orders, and one to look at it meanwhile."""

    def __init__(self) -> None:
        self._orders, self._looks = _connection(), _connection()
        for connection in (self._orders, self._looks):
            connection.get("/running")

    def order(self, customer: str, number: int) -> Answer:
        """Order a lamp, and wait for the answer."""
        answer = self._orders.post(f"/customers/{customer}/orders/{number}", json={"article": "lamp"})
        return Answer(answer.status_code, answer.json().get("repeated"))

    def wait_for_a_call(self) -> None:
        """Wait until a call runs in the process."""
        while self._looks.get("/running").json() < 1:
            os.sched_yield()

    def close(self) -> None:
        """Close the connections."""
        self._orders.close()
        self._looks.close()


def _connection() -> httpx2.Client:
    once = httpx2.HTTPTransport(uds="service.sock", limits=httpx2.Limits(max_connections=1))
    return httpx2.Client(transport=once, base_url="http://shop", timeout=60)


@contextmanager
def client_apart_from(*others: int) -> Generator[Client]:
    """A client of the one process that is left when these workers are stopped, as they are while it is connected."""
    with ExitStack() as stopped:
        for pid in others:
            os.kill(pid, signal.SIGSTOP)
            stopped.callback(os.kill, pid, signal.SIGCONT)
            while read_state(pid) != "T":
                os.sched_yield()
        opened = Client()
    with closing(opened):
        yield opened


@contextmanager
def served(service: Path, *options: str) -> Generator[subprocess.Popen[str]]:
    """The service, as `uvicorn` serves it with these options, while the block runs."""
    # The connections of a client stay those that they are, and a worker that is stopped for a moment is not replaced. A
    # worker that is killed while uvicorn waits for its sign of life is replaced when that time has passed, not before.
    kept = ("--timeout-keep-alive", "600", "--timeout-worker-healthcheck", "20")
    command = [sys.executable, "-m", "uvicorn", "service:app", "--uds", "service.sock", *kept, *options]
    with subprocess.Popen(
        command, cwd=service.parent, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):  # all of them have ended
                os.killpg(process.pid, signal.SIGKILL)  # the workers, too


def until(process: subprocess.Popen[str], text: str, times: int = 1) -> list[str]:
    """Read the log of the service until it has had a text that often; returns what was read."""
    assert process.stderr is not None
    seen = list[str]()
    for line in process.stderr:
        seen.append(line)
        times -= text in line
        if not times:
            return seen
    pytest.fail("".join(seen))


def find_workers(process: subprocess.Popen[str], number: int) -> list[int]:
    """The pids of workers, when so many more of them have started."""
    log = "".join(until(process, "Application startup complete", number))
    return [int(pid) for pid in re.findall(r"Started server process \[(\d+)\]", log)]


def read_state(pid: int) -> str:
    """The letter of the kernel for what a process does; T when it is stopped."""
    return Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(") ")[2][0]


@contextmanager
def another_writer() -> Generator[sqlite3.Connection]:
    """Another process, as it were, that writes to the database until it commits: calls wait for it."""
    with closing(sqlite3.connect("shop.db", isolation_level=None, timeout=20)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield other


def ordered() -> Counter[tuple[str, str]]:
    """How often each customer has ordered each article."""
    with closing(sqlite3.connect("shop.db")) as tables:
        return Counter(tables.execute("SELECT customer, article FROM orders"))


def read_calls(customer: str) -> list[bool]:
    """Whether each call of a session has succeeded; no process may have it open."""
    with (
        store.open("sqlite:///shop.db") as kept,
        Session.open(kept, customer, create=False, wait=timedelta(0)) as session,
    ):
        return [event.result.success for event in session[ToolInvoked].all()]


pytestmark = pytest.mark.anyio


SESSIONS = 200


FRESH, REPEATED, ELSEWHERE = Answer(200, repeated=False), Answer(200, repeated=True), Answer(503, repeated=None)


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The service, saved as the page says, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    return saved_in(tmp_path)


async def test_sessions_share_a_store_and_clients_may_disconnect(service: Path) -> None:
    """Calls of clients that are gone run to their end; a repeated request is answered from the record.

    The number of another order and a name that no session can have are the client's mistakes.
    """
    app: Any = runpy.run_path(str(service))["app"]
    customers = [f"c{number}" for number in range(SESSIONS)]
    async with (
        app.router.lifespan_context(app),
        httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://shop", timeout=60) as client,
    ):

        async def send(customer: str) -> Any:
            answer = await client.post(f"/customers/{customer}/orders/1", json={"article": "lamp"})
            assert answer.status_code == 200
            return answer.json()

        with another_writer() as other:
            sent = [asyncio.create_task(send(customer)) for customer in customers]
            while (await client.get("/running")).json() < SESSIONS:  # noqa: ASYNC110 - as another process would ask
                await asyncio.sleep(0)
            gone = sent[::10]
            for request in gone:
                request.cancel()
            await asyncio.wait(gone)
            other.execute("COMMIT")
        answers = await asyncio.gather(*(request for request in sent if request not in gone))
        repeated = await asyncio.gather(*map(send, customers))
        taken = await client.post("/customers/c0/orders/1", json={"article": "desk"})
        unnamable = await client.post("/customers/c%00/orders/1", json={"article": "desk"})
    assert (taken.status_code, unnamable.status_code) == (409, 422)
    assert answers == [{"text": "lamp is ordered", "success": True, "repeated": False}] * (SESSIONS - len(gone))
    assert repeated == [{"text": "lamp is ordered", "success": True, "repeated": True}] * SESSIONS
    assert ordered() == Counter({(customer, "lamp"): 1 for customer in customers})


def test_service_that_is_stopped_lets_its_calls_end(service: Path) -> None:
    """SIGTERM comes while a call waits: its client has the answer, and the session can be opened at once."""
    with served(service) as process:
        until(process, "running on")
        with client_apart_from() as client:
            assert stopped_in_calls(process, {"ann": client}) == [FRESH]
        until(process, "Application shutdown complete")
    assert ordered() == Counter({("ann", "lamp"): 1})
    assert read_calls("ann") == [True]


@pytest.mark.timeout(120)  # four processes start
def test_workers_serve_the_sessions_of_one_store_and_one_of_them_is_killed(service: Path) -> None:
    """Each session is served by the worker that has opened it; the other one answers 503, until the first is killed.

    A call that was running then is made by the worker that is asked next, and one that had ended is answered from the
    record. The worker in the place of the killed one serves, too. SIGTERM lets the calls of all workers end.
    """
    with served(service, "--workers", "2") as process:
        first, second = find_workers(process, 2)
        with client_apart_from(first) as client:
            with client_apart_from(second) as doomed:
                assert at_once((doomed, "ann"), (client, "bob")) == [FRESH, FRESH]
                assert sorted(at_once((doomed, "eve"), (client, "eve"))) == [FRESH, ELSEWHERE]
                killed_in_a_call(first, doomed, "ann")
            assert [client.order("ann", number) for number in (1, 2, 2)] == [REPEATED, FRESH, REPEATED]
            assert [client.order(customer, 1) for customer in ("bob", "eve")] == [REPEATED, REPEATED]
            find_workers(process, 1)
            with client_apart_from(second) as replaced:
                assert replaced.order("dan", 1) == FRESH
                assert stopped_in_calls(process, {"ann": client, "dan": replaced}) == [FRESH, FRESH]
        assert process.wait() == 0
    assert ordered() == Counter({("ann", "lamp"): 3, ("bob", "lamp"): 1, ("eve", "lamp"): 1, ("dan", "lamp"): 2})
    assert [read_calls(customer) for customer in ("ann", "dan")] == [[True] * 3, [True] * 2]


def at_once(*asked: tuple[Client, str]) -> list[Answer]:
    """What clients are answered that send the first order of a customer, each its own, at the same time."""
    with ThreadPoolExecutor(len(asked)) as pool:
        sent = [pool.submit(client.order, customer, 1) for client, customer in asked]
    return [answer.result() for answer in sent]


def killed_in_a_call(worker: int, client: Client, customer: str) -> None:
    """Kill a worker while the second order of a customer runs; the client gets no answer."""
    with another_writer() as other, ThreadPoolExecutor(1) as pool:
        lost = pool.submit(client.order, customer, 2)
        client.wait_for_a_call()
        os.kill(worker, signal.SIGKILL)
        assert isinstance(lost.exception(), httpx2.TransportError)
        other.execute("COMMIT")


def stopped_in_calls(process: subprocess.Popen[str], asked: dict[str, Client]) -> list[Answer]:
    """Stop the service while the last orders of customers run, one in each process; returns what they are answered."""
    with another_writer() as other, ThreadPoolExecutor(len(asked)) as pool:
        sent = [pool.submit(client.order, customer, 9) for customer, client in asked.items()]
        for client in asked.values():
            client.wait_for_a_call()
        process.send_signal(signal.SIGTERM)
        until(process, "Waiting for connections", len(asked))
        other.execute("COMMIT")
        return [answer.result() for answer in sent]
