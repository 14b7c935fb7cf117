"""`handrail submit`, `handrail runs` and `handrail worker`: what they print, and workers that are killed."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest

from handrail import store as stores
from handrail.operations.runs import cancel_run, write_run
from handrail.store import Store
from handrail.worker import submit
from tests.architecture.sources import ROOT
from tests.cli.desk import ENTRY, SESSION, Command, effect
from tests.store.kit import insert
from tests.store.postgres_server import fresh_url
from tests.wording import Wording
from tests.worker.desks import run_now

TAKEN = "<port>"
SHOP = """
import asyncio, os, sys, threading
from datetime import timedelta
from tests.worker.desks import Desk, later

async def waits(context):
    with open("begun", "w") as begun:
        begun.write("x")
    while not os.path.exists("go"):
        await asyncio.sleep(0.02)

class Clerk(Desk):
    async def clerk(self, task):
        return await self.desk(task)

def blocked(context):
    with open("begun", "w") as begun:
        begun.write("x")
    threading.Event().wait()

def ends(context):
    sys.exit(7)

class Blocks(Desk):
    async def blocks(self, task):
        return await self.desk(task)

class Exits(Desk):
    async def exits(self, task):
        return await self.desk(task)

AGENTS = [
    Desk(inside=waits, lease=timedelta(seconds=1)).desk,
    Clerk(approver=later).clerk,
    Blocks(inside=blocked).blocks,
    Exits(inside=ends).exits,
]
"""


@pytest.fixture
def url(tmp_path: Path) -> str:
    """An empty SQLite store."""
    url = f"sqlite:///{tmp_path / 'desk.db'}"
    stores.open(url).close()
    return url


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that workers are started in: their module `shop`, whose payments wait for a file `go`."""
    (tmp_path / "corner_shop.py").write_text(SHOP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BANK", str(tmp_path / "bank"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(ROOT / "src"), str(ROOT))))
    return tmp_path


@pytest.fixture
def begun(shop: Path) -> Generator[int]:
    """The end of a pipe from which a byte is read for each payment that is begun."""
    os.mkfifo(shop / "begun")
    end = os.open(shop / "begun", os.O_RDWR)  # so that no payment waits for a reader
    yield end
    os.close(end)


def submitted(store: Store, handrail: Command) -> None:
    """Runs in each state."""
    for name in ("one", "two"):
        assert handrail("submit", name, "Pay A-1.", "--agent", "desk", "--priority", "7").code == 0
    submit(store, "late", agent="clerk", input="Pay.", at=store.now().replace(year=9000), queue="tenant-7")
    cancel_run(store, "two", by="Ada")


# --------------------------------------------------------------------------------------------------------- submit, runs


def test_run_is_submitted_once(handrail: Command, wording: Wording) -> None:
    """What is said the second time is how it is; another input is refused."""
    words = ("submit", "order-17", "Refund it.", "--agent", "desk")
    first, second = (handrail(*words, *more) for more in ((), ("--priority", "9")))
    assert (first.code, second.code, first.out, first.err) == (0, 0, second.out, "")
    assert re.sub(r"due .*\.", "due <time>.", second.err) == wording
    document = handrail.document(*words)
    assert [document[key] for key in ("session_id", "status", "priority", "request_limit")] == [
        "order-17",
        "open",
        0,
        50,
    ]
    ran = handrail("submit", "order-17", "Pay it.", "--agent", "desk")
    assert (ran.code, ran.out, ran.err) == (1, "", wording)


@pytest.mark.parametrize(
    "words",
    [
        ("s", "Go."),
        ("s", "--agent", "desk"),
        ("s", "Go.", "--agent", "desk", "--at", "soon"),
        ("s", "Go.", "--agent", "desk", "--at", "0001-01-01T00:00"),
        ("s", "Go.", "--agent", "desk", "--deadline", "0s"),
        ("s", "Go.", "--agent", "desk", "--deadline", "9999999d"),
        ("", "Go.", "--agent", "desk"),
        ("s", "Go.", "--agent", "desk", "--priority", "9999999999"),
        ("s", "Go.", "--agent", "desk", "--priority", "1.5"),
        ("s", "Go.", "--agent", "desk", "--queue", "q" * 99),
    ],
    ids=["agent", "input", "at", "year one", "deadline", "far", "session", "priority", "fraction", "queue"],
)
@pytest.mark.short(10)
def test_run_that_cannot_be_is_not_submitted(
    handrail: Command, store: Store, words: tuple[str, ...], wording: Wording
) -> None:
    """It says what is wrong: a mistake of the command line has a code of its own, and nothing is stored."""
    ran = handrail("submit", *words)
    assert (ran.code, ran.out, ran.err) == (1 if words == ("s", "--agent", "desk") else 2, "", wording)
    assert [*store.sessions()] == []


def test_runs_are_listed_with_their_states(handrail: Command, store: Store, wording: Wording) -> None:
    """The newest first; one that a worker has begun is running."""
    submitted(store, handrail)
    assert write_run(store, run_now(store, "one").change("open", worker="host - 1 0"))
    rows = handrail.rows("runs", "list")
    expected = [("late", "open"), ("two", "cancelled"), ("one", "running")]
    assert [(row["session_id"], row["status"]) for row in rows] == expected
    assert [row["session_id"] for row in handrail.rows("runs", "list", "--status", "running")] == ["one"]
    filters = "--agent clerk", "--queue tenant-7", "--limit 1", "--status open --agent clerk"
    for words in filters:
        assert [row["session_id"] for row in handrail.rows("runs", "list", *words.split())] == ["late"]
    assert [line.split("  ")[0] for line in handrail("runs", "list").out.splitlines()] == wording
    assert handrail("runs", "list", "--status", "finshed").err == wording


def test_rows_that_cannot_be_read_do_not_hide_the_others(
    handrail: Command, tmp_path: Path, url: str, wording: Wording
) -> None:
    """Of sessions and of runs; the exit code says that some are left out."""
    with stores.open(url) as store:
        for name in ("one", "two", "three"):
            submit(store, name, agent="desk", input="Pay.")
    with closing(sqlite3.connect(tmp_path / "desk.db", isolation_level=None)) as database:
        database.execute("""UPDATE handrail_sessions SET tags = '{"a": 1}' WHERE session_id = 'two'""")
        database.execute("UPDATE handrail_runs SET priority = 1.5 WHERE session_id = 'two'")
        database.execute("UPDATE handrail_runs SET data = x'3f' WHERE session_id = 'three'")
    for words, names in (("sessions list", ["three", "one"]), ("runs list", ["one"]), ("approvals list", [])):
        ran = handrail(*words.split(), "--format", "json", "--store", url)
        assert (ran.code, [json.loads(line)["session_id"] for line in ran.out.splitlines()]) == (1, names)
        assert ran.err.replace(str(tmp_path), "<folder>") == wording


def test_one_run_is_shown_and_awaited(handrail: Command, store: Store, wording: Wording) -> None:
    """The exit code says how it ended, or that it has not in the time given."""
    submitted(store, handrail)
    document = handrail.document("runs", "show", "two")
    assert (document["status"], document["text"], document["input"]) == ("cancelled", wording, "Pay A-1.")
    assert [handrail("runs", "wait", *words).code for words in (("two",), ("one", "--timeout", "1s"))] == [1, 75]
    for command in ("show", "wait", "cancel", "retry"):
        ran = handrail("runs", command, "none")
        assert (ran.code, ran.out, ran.err) == (1, "", wording)


def test_run_is_cancelled_and_repeated(handrail: Command, store: Store, wording: Wording) -> None:
    """Who did it and why is recorded; one that has ended is not cancelled, one that has not is not repeated."""
    submitted(store, handrail)
    ran = handrail("runs", "cancel", "one", "--by", "Ada", "--reason", "it is paid")
    assert (ran.code, ran.out, run_now(store, "one").data.text) == (0, wording, wording)
    assert not ran.err
    submit(store, "runs", agent="desk", input="Pay.")
    assert write_run(store, run_now(store, "runs").change("open", worker="host - 1 0"))
    assert handrail("runs", "cancel", "runs").err == wording
    ran = handrail("runs", "cancel", "one")
    assert (ran.code, ran.err) == (1, wording)
    assert handrail.document("runs", "retry", "one")["status"] == "open"
    ran = handrail("runs", "retry", "late")
    assert (ran.code, ran.err) == (1, wording)


# --------------------------------------------------------------------------------------------------------------- worker


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--agents", "none.agent"),
        ("--agents", "no_such_module"),
        ("--agents", "handrail"),
        ("--agents", "corner_shop", "corner_shop"),
        ("--agents", "corner_shop", "--cron", "0 6 * * * desk"),
        ("--agents", "corner_shop", "--cron", "0 6 * * * desk Go."),
        ("--agents", ""),
        ("--agents", "corner_shop", "--heartbeat", "0s"),
        ("--agents", "corner_shop", "--heartbeat", "9999999999999d"),
        ("--agents", "corner_shop", "--health", "80.5"),
        ("--agents", "corner_shop", "--health", TAKEN),
        ("--agents", "corner_shop", "--queue", "q" * 99),
    ],
    ids=[
        *("none", "file", "module", "no-list", "twice", "cron", "cron-on-sqlite", "empty", "heartbeat", "far"),
        *("health", "taken", "queue"),
    ],
)
@pytest.mark.short(13)
def test_worker_that_could_not_work_does_not_start(
    handrail: Command, shop: Path, words: tuple[str, ...], wording: Wording
) -> None:
    """It says what is wrong, without a traceback; the store and a port that is taken are no mistakes of the command."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        ran = handrail("worker", *(port if word == TAKEN else word for word in words))
    err = ran.err.replace(port, TAKEN)
    assert (ran.code, ran.out, err) == (1 if TAKEN in words or "Go." in " ".join(words) else 2, "", wording)


def test_worker_of_a_store_that_is_only_read_does_not_start(shop: Path, handrail: Command, wording: Wording) -> None:
    """As any command that writes, and not by a worker that waits for ever."""
    with fresh_url() as url:  # it ends with options of the session
        stores.open(url).close()
        read_only = f"{url}{quote(' -cdefault_transaction_read_only=on')}"
        ran = handrail("worker", "--agents", "corner_shop", "--store", read_only)
    assert (ran.code, ran.out, ran.err.partition("written to")[2]) == (1, "", wording)


def test_run_says_that_effects_of_it_are_unknown(handrail: Command, store: Store, wording: Wording) -> None:
    """And with which commands a person settles them."""
    submit(store, SESSION, agent="desk", input="Pay.")
    insert(store, effect("call:r1/c1", "unknown", store.now(), partition=SESSION))
    assert handrail("runs", "show", SESSION).out.splitlines()[-1] == wording
    assert "ledger" not in handrail("runs", "show", SESSION, "--format", "json").out


@contextmanager
def worker(url: str, *options: str) -> Generator[subprocess.Popen[str]]:
    """A worker as a process."""
    words = (*ENTRY, "worker", "--agents", "corner_shop", "--store", url, "--heartbeat", "1s", *options)
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=lambda number: number.name)
@pytest.mark.short(2)
def test_run_of_a_worker_that_ends_or_stops_is_continued_by_another(
    database_url: str, shop: Path, begun: int, handrail: Command, number: signal.Signals
) -> None:
    """What it was paying is unknown to the model and not paid again; the rest is paid once."""
    with stores.open(database_url) as store:
        submit(store, "s1", agent="desk", input="Pay.")
    with worker(database_url) as first:
        os.read(begun, 1)
        first.send_signal(number)
        (shop / "go").touch()
        with worker(database_url):
            ran = handrail("runs", "wait", "s1", "--store", database_url)
    assert (ran.code, "finished" in ran.out) == (0, True)
    assert (shop / "bank").read_text().split() == ["s1-1"]


@pytest.mark.usefixtures("ended_by_default")
@pytest.mark.parametrize(
    "number, ends", [(signal.SIGTERM, True), (signal.SIGTERM, False), (signal.SIGHUP, False)], ids=str
)
@pytest.mark.short(1)
def test_termination_ends_a_worker_in_order(  # noqa: PLR0913, PLR0917 - fixtures
    url: str, shop: Path, begun: int, store: Store, number: signal.Signals, ends: bool, wording: Wording
) -> None:
    """What ends in the time of `--grace` ends, the other run is open again, and no attempt was counted."""
    submit(store, "s1", agent="desk", input="Pay.")
    with worker(url, "--grace", "30s" if ends else "1s", "--concurrency", "1") as process:
        os.read(begun, 1)
        process.send_signal(number)
        if ends:
            (shop / "go").touch()
        err = process.communicate()[1]
    run = run_now(store, "s1")
    assert (run.row.status, run.data.attempts) == (("finished", 1) if ends else ("open", 0))
    assert (process.returncode, err.splitlines()[0]) == (0, wording)
    assert "Traceback" not in err


@pytest.mark.usefixtures("ended_by_default")
def test_second_ctrl_c_ends_a_worker_at_once(url: str, shop: Path, begun: int, store: Store) -> None:
    """Also one whose event loop a function blocks."""
    submit(store, "s1", agent="blocks", input="Pay.")
    with worker(url) as process:
        os.read(begun, 1)
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        while "Stopping" not in (line := process.stderr.readline()):
            assert line, f"it has ended with {process.wait()}"
        process.send_signal(signal.SIGINT)
        err = process.communicate(timeout=60)[1]
    assert (process.returncode, err) == (130, "")


def test_tool_that_ends_its_process_fails_its_run(shop: Path, store: Store, handrail: Command) -> None:
    """And neither the worker nor the runs beside it."""
    (shop / "go").touch()
    for name, agent in (("exits", "exits"), ("beside", "desk")):
        submit(store, name, agent=agent, input="Pay.")
    os.mkfifo(shop / "begun")
    end = os.open(shop / "begun", os.O_RDWR)
    assert handrail("worker", "--agents", "corner_shop", "--drain").code == 0
    os.close(end)
    statuses = {name: run_now(store, name).row.status for name in ("exits", "beside")}
    assert (statuses, "SystemExit(7)" in run_now(store, "exits").data.text) == (
        {"exits": "failed", "beside": "finished"},
        True,
    )


def test_answer_for_a_run_that_was_cancelled_says_that_nothing_resumes_it(
    shop: Path, store: Store, handrail: Command, wording: Wording
) -> None:
    """But a retry."""
    submit(store, "s1", agent="clerk", input="Pay.")
    assert handrail("worker", "--agents", "corner_shop", "--drain").code == 0
    cancel_run(store, "s1")
    (question,) = handrail.rows("approvals", "list")
    assert handrail("approvals", "answer", "s1", question["call_id"], "yes", "--by", "Ada").out == wording
