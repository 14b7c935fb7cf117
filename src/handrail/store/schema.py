"""The tables of a store, their version, and how an older one is brought forward.

The tables carry the prefix `handrail_`, because the program's own may stand beside them. Their version is in
`handrail_schema`, in one row. A migration is a list of statements that lead from one version to the next; opening a
store brings it forward in one transaction, and refuses one that is newer than this list.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from handrail.errors import StoreCorruptError, StoreVersionError
from handrail.store.database import Database
from handrail.store.links import Link

Migration: TypeAlias = Sequence[str]
"""The statements that lead from one version to the next, with the fields of `handrail.store.links.Types` in braces."""

_FIRST: Migration = (
    """CREATE TABLE handrail_effects (
        partition TEXT NOT NULL, key TEXT NOT NULL, effect_id TEXT NOT NULL, tool TEXT NOT NULL,
        params_hash TEXT NOT NULL, owner TEXT NOT NULL, status TEXT NOT NULL, fence {number} NOT NULL,
        created_at {number} NOT NULL, lease_until {number}, completed_at {number}, expires_at {number},
        message {bytes} NOT NULL, value {bytes}, exclude_value_from_context {number} NOT NULL, note TEXT NOT NULL,
        PRIMARY KEY (partition, key)
    ){clustered}""",
    """CREATE TABLE handrail_sessions (
        session_id TEXT NOT NULL PRIMARY KEY, tags TEXT NOT NULL, parent TEXT, created_at {number} NOT NULL,
        head {number} NOT NULL, token TEXT NOT NULL
    ){clustered}""",
    "CREATE INDEX handrail_sessions_by_age ON handrail_sessions (created_at, session_id)",
    """CREATE TABLE handrail_entries (
        session_id TEXT NOT NULL, number {number} NOT NULL, call_id TEXT NOT NULL, role TEXT NOT NULL,
        type_name TEXT NOT NULL, version {number} NOT NULL, start {number} NOT NULL, removed {number} NOT NULL,
        added {number} NOT NULL, items {bytes} NOT NULL,
        PRIMARY KEY (session_id, number)
    ){clustered}""",
    """CREATE TABLE handrail_checkpoints (
        session_id TEXT NOT NULL, number {number} NOT NULL, data {bytes} NOT NULL,
        PRIMARY KEY (session_id, number)
    )""",
    "CREATE TABLE handrail_decisions (journal_id TEXT NOT NULL PRIMARY KEY){clustered}",
)

MIGRATIONS: tuple[Migration, ...] = (_FIRST,)
"""How version n + 1 is made of version n, at index n; version 0 is a database without our tables."""


def bring_forward(database: Database, migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """Make the tables of the newest version, or bring older ones forward; writes nothing if there is nothing to do.

    Raises:
        StoreVersionError: the tables are newer than the newest migration. They are unchanged.
        StoreReadOnlyError: there is something to do, and nothing can be written.
        StoreCorruptError: the version cannot be read.
        StoreError: the database cannot be read or written; it is unchanged.
    """
    known = len(migrations)
    if _version(database, known) == known:
        return
    with database.unit() as unit:
        link: Link = unit.work.link
        database.driver.exclude_migrations(link)
        found = _version(database, known)
        for migration in migrations[found:]:
            for statement in migration:
                database.change(_in_words_of(database, statement))
        if found == 0:
            database.change("CREATE TABLE handrail_schema (version INTEGER NOT NULL)")
            database.change("INSERT INTO handrail_schema (version) VALUES (?)", (known,))
        else:
            database.change("UPDATE handrail_schema SET version = ?", (known,))


def _in_words_of(database: Database, statement: str) -> str:
    types = database.driver.types
    return statement.format(number=types.number, bytes=types.bytes, clustered=types.clustered)


def _version(database: Database, known: int) -> int:
    """The version of the tables; 0 if there are none."""
    if not database.has_table("handrail_schema"):
        return 0
    rows = database.ask("SELECT version FROM handrail_schema")
    found = rows[0][0] if len(rows) == 1 else None
    if type(found) is not int or found < 1:
        msg = f"{database.url} does not say which version its tables have; put it back from a copy"
        raise StoreCorruptError(msg, store=database.url)
    if found > known:
        msg = (
            f"{database.url} was written by a newer Handrail: its tables have version {found}, and this one knows "
            f"versions up to {known}. Install that Handrail; nothing was changed"
        )
        raise StoreVersionError(msg, store=database.url, found=found, known=known)
    return found
