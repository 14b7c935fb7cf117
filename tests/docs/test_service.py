"""The service of `docs/how-to/serve-with-fastapi.md`: many sessions, clients that disconnect, and its end."""

from __future__ import annotations

import asyncio
import re
import runpy
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from handrail import store
from handrail.runtime import Session, ToolInvoked
from tests.architecture.sources import ROOT

pytestmark = pytest.mark.anyio

PAGE = ROOT / "docs" / "how-to" / "serve-with-fastapi.md"
SESSIONS = 200


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The service, saved as the page says, in a folder of its own."""
    (source,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(tmp_path)
    saved = tmp_path / "service.py"
    saved.write_text(source, "utf-8")
    return saved


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
    command = [sys.executable, "-m", "uvicorn", "service:app", "--uds", "service.sock"]
    with subprocess.Popen(command, cwd=service.parent, stderr=subprocess.PIPE, text=True) as process:
        try:
            until(process, "running on")
            with closing(httpx2.Client(transport=httpx2.HTTPTransport(uds="service.sock"), timeout=60)) as client:  # noqa: SIM117
                with another_writer() as other, ThreadPoolExecutor(1) as pool:
                    sent = pool.submit(client.post, "http://shop/customers/ann/orders/1", json={"article": "lamp"})
                    while client.get("http://shop/running").json() < 1:
                        pass
                    process.send_signal(signal.SIGTERM)
                    until(process, "Waiting for")
                    other.execute("COMMIT")
                    assert sent.result().json()["success"] is True
            until(process, "Application shutdown complete")
        finally:
            process.kill()
    assert ordered() == Counter({("ann", "lamp"): 1})
    with store.open("sqlite:///shop.db") as kept, Session.open(kept, "ann", create=False) as session:
        assert [event.result.success for event in session[ToolInvoked].all()] == [True]


def until(process: subprocess.Popen[str], text: str) -> None:
    """Read the log of the service until it has a text."""
    assert process.stderr is not None
    seen = list[str]()
    for line in process.stderr:
        seen.append(line)
        if text in line:
            return
    pytest.fail("".join(seen))
