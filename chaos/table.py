"""The table that handlers write to in the store's own database; it takes every row, so a second one would be seen.

What is applied of an effect is a row, too: in the place of a session it has the key of the effect.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing

import psycopg

APPLICATION = -1
"""The number in a row that belongs to an effect."""

_CREATE = "CREATE TABLE notes (session_id text NOT NULL, n integer NOT NULL)"
_SQLITE = "sqlite:///"


def path_of(url: str) -> str | None:
    """The file of a SQLite database; `None` for another."""
    return url.removeprefix(_SQLITE) if url.startswith(_SQLITE) else None


def create(url: str) -> None:
    """Make the table."""
    path = path_of(url)
    if path is None:
        with psycopg.connect(url) as postgres:
            postgres.execute(_CREATE)
        return
    with closing(sqlite3.connect(path)) as sqlite:
        sqlite.execute(_CREATE)


def insert_for(url: str) -> str:
    """The SQL that adds a row: the session's id, and the number of the call."""
    mark = "%s" if path_of(url) is None else "?"
    return f"INSERT INTO notes (session_id, n) VALUES ({mark}, {mark})"  # noqa: S608 - there is no data in it


def applications_of(url: str) -> dict[str, int]:
    """How many rows were written for each effect that is applied, by its key."""
    query = "SELECT session_id, count(*) FROM notes WHERE n < 0 GROUP BY session_id"
    path = path_of(url)
    if path is None:
        with psycopg.connect(url) as postgres:
            found = postgres.execute(query).fetchall()
    else:
        with closing(sqlite3.connect(path)) as sqlite:
            found = sqlite.execute(query).fetchall()
    return {str(key): int(times) for key, times in found}


def rows_of(url: str, session_id: str) -> list[int]:
    """The numbers that a session has in the table."""
    path = path_of(url)
    if path is None:
        with psycopg.connect(url) as postgres:
            found = postgres.execute("SELECT n FROM notes WHERE session_id = %s", (session_id,)).fetchall()
    else:
        with closing(sqlite3.connect(path)) as sqlite:
            found = sqlite.execute("SELECT n FROM notes WHERE session_id = ?", (session_id,)).fetchall()
    return [int(row[0]) for row in found]


def report_faults(url: str) -> list[str]:
    """What the database itself finds wrong with its file; PostgreSQL has looked when it was started."""
    path = path_of(url)
    if path is None:
        return []
    with closing(sqlite3.connect(path)) as sqlite:
        return [row[0] for row in sqlite.execute("PRAGMA integrity_check") if row[0] != "ok"]
