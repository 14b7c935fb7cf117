"""What an idempotent call costs on a store, beside what the database itself takes for a claim and a record.

The floor of a store is one row inserted and the same row updated, each in a transaction of its own, by the bare driver
with the same settings, and then the same call with everything in memory. The call on the store does more than that: it
also asks whether the session is still held, and writes the session's events, its changes and the record of the call.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import psycopg

from benchmarks.calls import ARGUMENTS, Found, Lookup
from benchmarks.timing import Bound
from handrail import store
from handrail.adapters.tool_executor import ToolExecutor
from handrail.prompt import MarkdownSection, Prompt, PromptTemplate, Tool, ToolContext, ToolResult
from handrail.runtime import IdempotencyConfig, Session, ToolCall
from handrail.store.sql.driver import Durability
from tests.store.postgres_server import server_of_its_own

BOUNDS = (Bound("SQLite (normal)", "floor of SQLite (normal)", 2.0), Bound("PostgreSQL", "floor of PostgreSQL", 1.5))

SETTINGS: tuple[tuple[Durability, str], ...] = (("normal", "NORMAL"), ("full", "FULL"))
"""How SQLite is opened, and what it calls it."""

_COLUMNS = """
    id TEXT PRIMARY KEY, effect_id TEXT, tool TEXT, params_hash TEXT, owner TEXT, status TEXT, fence INTEGER,
    created_at BIGINT, lease_until BIGINT, completed_at BIGINT, expires_at BIGINT, message TEXT, value {blob}
"""
_CLAIM = "INSERT INTO floor VALUES (?, ?, ?, ?, ?, 'running', 1, ?, ?, NULL, NULL, '', NULL) ON CONFLICT DO NOTHING"
_RECORD = (
    "UPDATE floor SET status = 'done', completed_at = ?, expires_at = ?, message = ?, value = ?, lease_until = NULL "
    "WHERE id = ? AND fence = 1 AND status = 'running'"
)
_VALUE = b'{"entity_id":"abc-123","url":"https://example.org/abc-123"}'


def _find(params: Lookup, *, context: ToolContext) -> ToolResult[Found]:
    return ToolResult.ok(Found(params.entity_id, f"https://example.org/{params.entity_id}"))


def _calling(session: Session) -> Callable[[], object]:
    """Calls of an idempotent tool in a session, each with a key of its own."""
    tool = Tool[Lookup, Found](
        name="charge", description="External.", handler=_find, effect="external", idempotency=IdempotencyConfig()
    )
    section = MarkdownSection(title="Tools", key="tools", template="Use them.", tools=[tool])
    executor = ToolExecutor(
        prompt=Prompt(PromptTemplate(ns="benchmarks", key="durable", sections=[section])), session=session
    )
    number = 0

    def call() -> object:
        nonlocal number
        number += 1
        arguments = ARGUMENTS.replace("abc-123", f"abc-{number}")
        message = executor.execute(ToolCall(f"call-{number}", "charge", arguments))
        assert message.success, message.content
        assert not message.replayed
        return message

    return call


def _floor(execute: Callable[[str, tuple[Any, ...]], Any], in_memory: Callable[[], object]) -> Callable[[], object]:
    """A claim and a record by the bare driver, and a call in memory."""

    def call() -> object:
        key = uuid4().hex
        claimed = execute(_CLAIM, (key, key, "charge", "a" * 64, "session/call", 1, 60_000_001))
        recorded = execute(_RECORD, (2, 86_400_000_002, "", _VALUE, key))
        assert claimed.rowcount == recorded.rowcount == 1
        return in_memory()

    return call


def _sqlite(folder: Path, synchronous: str) -> sqlite3.Connection:
    connection = sqlite3.connect(folder / f"floor-{synchronous}.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    connection.execute(f"CREATE TABLE floor ({_COLUMNS.format(blob='BLOB')})")
    return connection


def _postgres(url: str) -> Callable[[str, tuple[Any, ...]], Any]:
    connection = psycopg.connect(url, autocommit=True, prepare_threshold=1)
    connection.execute("CREATE TABLE floor (" + _COLUMNS.format(blob="BYTEA") + ")")
    claim, record = _CLAIM.replace("?", "%s"), _RECORD.replace("?", "%s")

    def execute(sql: str, parameters: tuple[Any, ...]) -> Any:  # noqa: ANN401 - a cursor
        return connection.execute(claim if sql is _CLAIM else record, parameters)

    return execute


@contextmanager
def cases() -> Generator[dict[str, Callable[[], object]]]:
    """What is measured, by name; the databases are there for the time of the block."""
    with ExitStack() as opened:
        folder = Path(opened.enter_context(TemporaryDirectory(prefix="handrail-bench-")))
        url, _ = opened.enter_context(server_of_its_own())
        found: dict[str, Callable[[], object]] = {"idempotent call in memory": _calling(Session())}
        in_memory = _calling(Session())
        for durability, synchronous in SETTINGS:
            kept = opened.enter_context(store.open(f"sqlite:///{folder}/{durability}.db", durability=durability))
            session = opened.enter_context(Session.open(kept, "bench"))
            found[f"floor of SQLite ({durability})"] = _floor(_sqlite(folder, synchronous).execute, in_memory)
            found[f"SQLite ({durability})"] = _calling(session)
        kept = opened.enter_context(store.open(url))
        session = opened.enter_context(Session.open(kept, "bench"))
        found["floor of PostgreSQL"] = _floor(_postgres(url), in_memory)
        found["PostgreSQL"] = _calling(session)
        yield found
