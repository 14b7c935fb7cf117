"""Files with something in them, for the tests of SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

from handrail.store import SqliteStore
from handrail.store.protocol import EffectInsert
from handrail.testing import FakeClock
from handrail.transaction import UnitOfWork
from tests.store.ledger_stores import running_row
from tests.store.session_rows import entries, held
from tests.store.units import append

NOBODY = 65534
CLOCK = FakeClock()


def filled(path: Path, count: int = 400) -> SqliteStore:
    """A store with rows, a session and entries."""
    store = SqliteStore(path, durability="normal", clock=CLOCK)
    store.apply(UnitOfWork(tuple(EffectInsert(running_row(CLOCK, f"key {number:04}")) for number in range(count))))
    append(store, held(store, CLOCK), 0, entries(1, 5), None)
    return store


@contextmanager
def written(path: Path) -> Generator[None]:
    """Another process that writes to the file during the block."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")


def edited(path: Path, sql: str, parameters: tuple[object, ...] = ()) -> SqliteStore:
    """A filled store of which somebody else has changed a row."""
    store = filled(path, 3)
    with closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute(sql, parameters).rowcount != 0
    return store
