"""The tables of a store, their version, and how older ones are migrated.

The tables carry the prefix `handrail_`, because the program may have tables in the same database. Their version is in
`handrail_schema`, in one row. A migration is a list of statements that lead from one version to the next; opening a
store migrates it in one transaction, and refuses one that is newer than this list.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TypeAlias

from handrail.errors import StoreCorruptError, StoreReadOnlyError, StoreVersionError
from handrail.store.sql.database import Database
from handrail.store.sql.driver import DriverConnection, StatementExecutor
from handrail.store.sql.version import GET_VERSION

Migration: TypeAlias = Sequence[str]
"""The statements that lead from one version to the next, with fields of `ColumnTypes` in braces."""

_FIRST: Migration = (
    # The key is for hashes that cannot be computed without this store.
    "CREATE TABLE handrail_schema (version INTEGER NOT NULL, hash_key {bytes})",
    # The owner is the call that has claimed the effect: its session, its reply, its id, its process.
    """CREATE TABLE handrail_effects (
        partition TEXT{ordered} NOT NULL, key TEXT NOT NULL, effect_id TEXT NOT NULL, tool TEXT NOT NULL,
        params_hash TEXT NOT NULL, owner_session TEXT NOT NULL, owner_reply TEXT NOT NULL, owner_call TEXT NOT NULL,
        owner_process TEXT NOT NULL, status TEXT NOT NULL, fence {number} NOT NULL, created_at {number} NOT NULL,
        lease_until {number}, completed_at {number}, expires_at {number}, applied_at {number}, message {bytes} NOT NULL,
        value {bytes}, exclude_value_from_context {number} NOT NULL, note TEXT NOT NULL, arguments {bytes},
        PRIMARY KEY (partition, key)
    ){clustered}""",
    # For keys that sessions share. The others are found by their partition, which is the session.
    "CREATE INDEX handrail_effects_shared ON handrail_effects (owner_session) WHERE partition = ''",
    """CREATE TABLE handrail_sessions (
        session_id TEXT NOT NULL PRIMARY KEY, tags TEXT NOT NULL, parent TEXT, created_at {number} NOT NULL,
        head {number} NOT NULL, token TEXT NOT NULL
    ){clustered}""",
    "CREATE INDEX handrail_sessions_by_age ON handrail_sessions (created_at, session_id)",
    """CREATE TABLE handrail_entries (
        session_id TEXT NOT NULL, number {number} NOT NULL, reply TEXT NOT NULL, call_id TEXT NOT NULL,
        role TEXT NOT NULL, type_name TEXT NOT NULL, type_version {number} NOT NULL, start {number} NOT NULL,
        removed {number} NOT NULL, added {number} NOT NULL, items {bytes} NOT NULL,
        PRIMARY KEY (session_id, number)
    ){clustered}""",
    # The role is among the columns, so that the index covers the query: SQLite takes the primary key otherwise.
    """CREATE INDEX handrail_entries_of_calls ON handrail_entries (session_id, reply, call_id, role)
        WHERE role = 'log' AND call_id <> ''""",
    """CREATE TABLE handrail_checkpoints (
        session_id TEXT NOT NULL, number {number} NOT NULL, data {bytes} NOT NULL,
        PRIMARY KEY (session_id, number)
    )""",
    "CREATE TABLE handrail_decisions (journal_id TEXT NOT NULL PRIMARY KEY){clustered}",
    # The answers of people to calls that wait for approval.
    """CREATE TABLE handrail_answers (
        session_id TEXT NOT NULL, reply TEXT NOT NULL, call_id TEXT NOT NULL, given_at {number} NOT NULL,
        answer {bytes} NOT NULL,
        PRIMARY KEY (session_id, reply, call_id)
    ){clustered}""",
)

MIGRATIONS: tuple[Migration, ...] = (_FIRST,)
"""How version n + 1 is made of version n, at index n; version 0 is a database without our tables."""


def migrate(
    database: Database,
    migrations: Sequence[Migration] = MIGRATIONS,
    *,
    new_key: Callable[[], bytes] = lambda: os.urandom(32),
) -> None:
    """Make the tables of the newest version, or migrate older ones; writes nothing if there is nothing to do.

    Args:
        database: where the tables are.
        migrations: all that there are.
        new_key: makes the key of a store, for hashes that must not be guessed.

    Raises:
        StoreVersionError: the tables are newer than the newest migration. They are unchanged.
        StoreReadOnlyError: there is something to do, and nothing can be written.
        StoreCorruptError: the version cannot be read.
        StoreError: the database cannot be read or written; it is unchanged.
    """
    known = len(migrations)
    if _version(database, database.driver, known) == known:
        return
    try:
        with database.transaction(any_version=True) as link:
            database.driver.exclude_migrations(link)
            _migrate(database, link, migrations, new_key)
    except StoreReadOnlyError as error:
        msg = f"{database.url} was made by an older Handrail, or is empty; open it once for writing to migrate it"
        raise StoreReadOnlyError(msg, store=database.url) from error


def _migrate(
    database: Database, link: DriverConnection, migrations: Sequence[Migration], new_key: Callable[[], bytes]
) -> None:
    known = len(migrations)
    found = _version(database, link, known)
    for migration in migrations[found:]:
        for statement in migration:
            link.execute(_in_words_of(database, statement))
    if found == 0:
        link.execute("INSERT INTO handrail_schema (version, hash_key) VALUES (?, ?)", (known, new_key()))
    else:
        link.execute("UPDATE handrail_schema SET version = ?", (known,))


def read_hash_key(database: Database) -> bytes:
    """The random key of the store, for hashes of secrets.

    Raises:
        StoreCorruptError: it has no version.
        StoreError: the database cannot be read.
    """
    found = database.query("SELECT hash_key FROM handrail_schema")
    key: object = found[0][0] if len(found) == 1 else None
    if type(key) is not bytes or not key:
        msg = f"{database.url} has no key for the hashes of secrets; something other than Handrail has changed it"
        raise StoreCorruptError(msg, store=database.url)
    return key


def _in_words_of(database: Database, statement: str) -> str:
    return statement.format_map(database.driver.types._asdict())


def _version(database: Database, statements: StatementExecutor, known: int) -> int:
    """The version of the tables; 0 if there are none."""
    if not database.driver.has_table(statements, "handrail_schema"):
        return 0
    rows = statements.query(GET_VERSION)
    found = rows[0][0] if len(rows) == 1 else None
    if type(found) is not int or found < 1:
        msg = f"{database.url} does not say which version its tables have; restore it from a copy"
        raise StoreCorruptError(msg, store=database.url)
    if found > known:
        msg = (
            f"{database.url} was written by a newer Handrail: its tables have version {found}, and this one knows "
            f"versions up to {known}. Install that Handrail; nothing was changed"
        )
        raise StoreVersionError(msg, store=database.url, found=found, known=known)
    return found
