"""Empty stores of every kind to test with.

A store that nobody refers to any more is cleaned up after by itself, so that tests can make as many as they like. The
connections to PostgreSQL are used again, because opening them costs more than most tests.
"""

from __future__ import annotations

import atexit
import runpy
import tempfile
import weakref
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import psycopg

from handrail.clock import Clock
from handrail.errors import StoreUnavailableError
from handrail.store import MemoryStore, Store
from handrail.store.postgres import Server
from handrail.store.postgres.store import PostgresDriver
from handrail.store.sql.database import Database
from handrail.store.sql.store import SqlStore
from handrail.store.sqlite.store import SqliteDriver, SqliteFile
from tests.architecture.sources import ROOT
from tests.store.postgres_server import fresh_url

PLAIN_STORE = ROOT / "examples" / "plain_store.py"

MakeStore = Callable[[Clock], Store]


class _Driver(PostgresDriver):
    """Remembers whether it can be used again."""

    closed = False

    def close(self) -> None:
        """Close all connections."""
        self.closed = True
        super().close()


_TABLES = ("effects", "sessions", "entries", "checkpoints", "decisions", "answers", "runs")
_EMPTY = f"WITH {', '.join(f'{table} AS (DELETE FROM handrail_{table})' for table in _TABLES)} SELECT"  # noqa: S608 - constants
"""Deletes the few rows of a test; TRUNCATE makes new files for each table, which takes twenty times as long."""

_BUSY = timedelta(seconds=20)  # a slow machine must not fail a test
_SERIAL = count(1)
_folder: list[tempfile.TemporaryDirectory[str]] = []
_free: list[_Driver] = []


def memory(clock: Clock) -> Store:
    """A store in memory."""
    return MemoryStore(clock=clock)


def sqlite(clock: Clock) -> Store:
    """A store in a file of its own."""
    path = _new_path()
    driver = SqliteDriver(SqliteFile(path, durability="normal", busy=_BUSY), clock=clock)
    store = SqlStore(driver, clock=clock)
    weakref.finalize(store, _remove, driver, path)
    return store


def postgres(clock: Clock) -> Store:
    """A store in a schema of its own, on the server that all tests share."""
    driver = _free.pop() if _free else _new_driver()
    driver.now = clock.now
    store = SqlStore(driver, clock=clock)
    Database(driver).execute(_EMPTY)
    weakref.finalize(store, _keep, driver).atexit = False
    return store


def third(clock: Clock) -> Store:
    """The store that a page of the docs shows how to write, in a file of its own."""
    path = _new_path()
    store: Store = _plain_store()["open_plain_store"](path, busy=_BUSY, clock=clock)
    weakref.finalize(store, path.unlink, missing_ok=True).atexit = False
    return store


STORES: dict[str, MakeStore] = {"memory": memory, "sqlite": sqlite, "postgres": postgres}
"""Makes an empty store that measures time by a clock; by its name."""

ALL_STORES: dict[str, MakeStore] = {**STORES, "third": third}
"""These, and one that is not Handrail's own."""


def _new_path() -> Path:
    if not _folder:
        _folder.append(tempfile.TemporaryDirectory(prefix="handrail-sqlite-"))
        atexit.register(_folder[0].cleanup)
    return Path(_folder[0].name) / f"{next(_SERIAL)}.db"


@cache
def _plain_store() -> dict[str, Any]:
    """What the example defines."""
    return runpy.run_path(str(PLAIN_STORE))


def _remove(driver: SqliteDriver, path: Path) -> None:
    # At the end of the process the folder has gone before; and a test may have given up its rights.
    with suppress(OSError, StoreUnavailableError):
        driver.close()
        path.unlink()


def _keep(driver: _Driver) -> None:
    if not driver.closed:
        _free.append(driver)


def _new_driver() -> _Driver:
    schema = fresh_url()
    driver = _Driver(Server(schema.__enter__(), "postgresql://tests", busy=_BUSY))

    def leave() -> None:
        driver.close()
        with suppress(psycopg.Error):  # a run in one process has stopped its server before
            schema.__exit__(None, None, None)

    atexit.register(leave)
    return driver
