"""Files with something in them, for the tests of SQLite."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from handrail.store import SqliteStore
from handrail.testing import FakeClock
from tests.store.ledger_stores import running_row
from tests.store.session_rows import entries, held

NOBODY = 65534
CLOCK = FakeClock()


def filled(path: Path, count: int = 400) -> SqliteStore:
    """A store with rows, a session and entries."""
    store = SqliteStore(path, durability="normal", clock=CLOCK)
    with store.unit():
        for number in range(count):
            store.insert(running_row(CLOCK, f"key {number:04}"))
    store.append(held(store, CLOCK), 0, entries(1, 5), None)
    return store


def edited(path: Path, sql: str, parameters: tuple[object, ...] = ()) -> SqliteStore:
    """A filled store of which somebody else has changed a row."""
    store = filled(path, 3)
    with closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute(sql, parameters).rowcount != 0
    return store
