"""Calls of several sessions on one event loop, whose claims and commits are written in groups.

The program is run in a process of its own, which is killed. A lock on the database keeps the first units from being
written until those of all calls have been handed over, so that those that come after them wait together.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import threading
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path

import psycopg

from handrail import store
from handrail.adapters.tool_executor import ToolExecutor
from handrail.crash_points import arm
from handrail.prompt import External, ToolContext, ToolResult
from handrail.runtime import Session, ToolMessage
from tests.kit import Handler, Note, call, executor, tool

SESSIONS = tuple(f"agent-{number}" for number in range(5))
"""Two groups may be written at the same time, and the first of each may be of one unit: so the third has three."""

CALL = call("charge")
LEASE = timedelta(minutes=1)
"""No lease is renewed meanwhile: renewals that are due together are a group, too. A dead owner is not waited for."""
_TURNS_OF_THE_LOOP = 20
"""After so many, each task that can continue has come to where it waits for its store."""


def crash(url: str, folder: str, phase: str, point: str) -> None:
    """Make a call in each session, and die at a point while claims or commits are written; the target of a crash."""
    asyncio.run(_crash(url, Path(folder), phase, point))


async def _crash(url: str, folder: Path, phase: str, point: str) -> None:
    claimed, gate, asked = asyncio.Semaphore(0), asyncio.Event(), threading.Event()

    async def charge(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        claimed.release()
        await gate.wait()
        _note(folder, context.session.session_id)
        return ToolResult.ok(params)

    with ExitStack() as opened:
        executors = _executors(url, charge, opened)
        if phase == "claims are written":
            _die_in_group(point, asked)
            with _held(url):
                calls = [asyncio.ensure_future(each.execute_async(CALL, reply="r")) for each in executors]
                await _settle()
        else:
            calls = [asyncio.ensure_future(each.execute_async(CALL, reply="r")) for each in executors]
            for _ in executors:
                await claimed.acquire()
            _die_in_group(point, asked)
            with _held(url):
                gate.set()
                await _settle()
        asked.set()
        await asyncio.gather(*calls)


def _die_in_group(point: str, asked: threading.Event) -> None:
    """Kill this process at a point, once the thread that comes to it writes a group and all units have been asked for.

    A pipeline sends the statements of a group before the server answers: the lock on the database does not delay it.
    """
    in_group: set[int] = set()

    def reached(now: str) -> None:
        thread = threading.get_ident()
        if now == "unit-group-written":
            in_group.add(thread)
        if now == point and thread in in_group:
            asked.wait()
            os.kill(os.getpid(), signal.SIGKILL)

    arm(reached)


def ask(url: str, folder: Path) -> dict[str, ToolMessage]:
    """Make the same calls again, one by one."""

    async def charge(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        _note(folder, context.session.session_id)
        return ToolResult.ok(params)

    with ExitStack() as opened:
        executors = _executors(url, charge, opened)
        return {name: each.execute(CALL, reply="r") for name, each in zip(SESSIONS, executors, strict=True)}


def ledger(url: str) -> dict[str, str]:
    """The status of each effect, by its session."""
    with store.open(url) as kept:
        found = {row.partition: row.status for row in kept.rows()}
    return {name: found.get(name, "absent") for name in SESSIONS}


def charges(folder: Path) -> dict[str, int]:
    """How often the effect of each session has happened."""
    path = folder / "charges.txt"
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    return {name: lines.count(name) for name in SESSIONS}


def _note(folder: Path, name: str) -> None:
    with (folder / "charges.txt").open("a", encoding="utf-8") as book:
        book.write(f"{name}\n")


def _executors(url: str, handler: Handler, opened: ExitStack) -> list[ToolExecutor]:
    kept = opened.enter_context(store.open(url))
    charging = tool("charge", handler, effect=External(lease=LEASE))
    return [
        executor(charging, session=opened.enter_context(Session.open(kept, name, wait=timedelta(seconds=20))))
        for name in SESSIONS
    ]


@contextmanager
def _held(url: str) -> Generator[None]:
    """Keep all others from writing to the ledger and the sessions."""
    if url.startswith("sqlite:///"):
        connection = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            connection.close()
    else:
        with psycopg.connect(url) as server:
            server.execute("LOCK TABLE handrail_effects, handrail_sessions IN SHARE MODE")
            yield
            server.rollback()


async def _settle() -> None:
    for _ in range(_TURNS_OF_THE_LOOP):
        await asyncio.sleep(0)
