"""The service of `docs/how-to/serve-with-fastapi.md` in processes of its own: starts, asks and looks at them."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Generator
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

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
            while state_of(pid) != "T":
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


def workers_of(process: subprocess.Popen[str], number: int) -> list[int]:
    """The pids of workers, when so many more of them have started."""
    log = "".join(until(process, "Application startup complete", number))
    return [int(pid) for pid in re.findall(r"Started server process \[(\d+)\]", log)]


def state_of(pid: int) -> str:
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


def calls_of(customer: str) -> list[bool]:
    """Whether each call of a session has succeeded; no process may have it open."""
    with (
        store.open("sqlite:///shop.db") as kept,
        Session.open(kept, customer, create=False, wait=timedelta(0)) as session,
    ):
        return [event.result.success for event in session[ToolInvoked].all()]
