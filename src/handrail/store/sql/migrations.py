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

_SECOND: Migration = (
    # Calls are named by reply and call id. Columns that the INSERT of version 1 names are renamed, so that a process of
    # that version which still runs fails, instead of writing rows without a reply.
    "ALTER TABLE handrail_entries RENAME COLUMN version TO type_version",
    "ALTER TABLE handrail_entries ADD COLUMN reply TEXT NOT NULL DEFAULT ''",
    # The role is among the columns, so that the index covers the query: SQLite takes the primary key otherwise.
    """CREATE INDEX handrail_entries_of_calls ON handrail_entries (session_id, reply, call_id, role)
        WHERE role = 'log' AND call_id <> ''""",
    # The owner of a claim in parts. Version 1 wrote `session/call id`, and the session is the partition of most keys.
    "ALTER TABLE handrail_effects RENAME COLUMN owner TO owner_call",
    "ALTER TABLE handrail_effects ADD COLUMN owner_session TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE handrail_effects ADD COLUMN owner_reply TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE handrail_effects ADD COLUMN owner_process TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE handrail_effects ADD COLUMN arguments {bytes}",
    "ALTER TABLE handrail_effects ADD COLUMN applied_at {number}",
    """UPDATE handrail_effects SET owner_session = partition, owner_call = substr(owner_call, length(partition) + 2)
        WHERE partition <> '' AND substr(owner_call, 1, length(partition) + 1) = partition || '/'""",
    # The partition of a shared key does not name a session: the session is the longest id that the owner begins with.
    """UPDATE handrail_effects SET owner_session = coalesce((
            SELECT session_id FROM handrail_sessions
            WHERE substr(owner_call, 1, length(session_id) + 1) = session_id || '/'
            ORDER BY length(session_id) DESC LIMIT 1), '')
        WHERE partition = '' AND status IN ('running', 'unknown')""",
    """UPDATE handrail_effects SET owner_call = substr(owner_call, length(owner_session) + 2)
        WHERE partition = '' AND owner_session <> ''""",
    # For keys that sessions share. The others are found by their partition, which is the session.
    "CREATE INDEX handrail_effects_shared ON handrail_effects (owner_session) WHERE partition = ''",
    # The answers of people to calls that wait for approval.
    """CREATE TABLE handrail_answers (
        session_id TEXT NOT NULL, reply TEXT NOT NULL, call_id TEXT NOT NULL, given_at {number} NOT NULL,
        answer {bytes} NOT NULL,
        PRIMARY KEY (session_id, reply, call_id)
    ){clustered}""",
    # The version in which the tables were made, and a key of this store for hashes that cannot be computed without it.
    "ALTER TABLE handrail_schema ADD COLUMN made_in INTEGER NOT NULL DEFAULT 1",
    "ALTER TABLE handrail_schema ADD COLUMN hash_key {bytes}",
)

_THIRD: Migration = ()
# The tables are the same. The data of entries may have references to other entries, which an older Handrail would
# report as damage (`handrail.session.persistence.shared_texts`).

MIGRATIONS: tuple[Migration, ...] = (_FIRST, _SECOND, _THIRD)
"""How version n + 1 is made of version n, at index n; version 0 is a database without our tables."""


_KNOWS_ITS_ORIGIN = 2
"""The first version whose `handrail_schema` says in which version the tables were made."""


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
    if found == 0:
        link.execute("CREATE TABLE handrail_schema (version INTEGER NOT NULL)")
        link.execute("INSERT INTO handrail_schema (version) VALUES (?)", (known,))
    for migration in migrations[found:]:
        for statement in migration:
            link.execute(_in_words_of(database, statement))
    link.execute("UPDATE handrail_schema SET version = ?", (known,))
    if found < _KNOWS_ITS_ORIGIN <= known:
        made_in = found or known
        link.execute("UPDATE handrail_schema SET made_in = ?, hash_key = ?", (made_in, new_key()))


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
    types = database.driver.types
    return statement.format(number=types.number, bytes=types.bytes, clustered=types.clustered)


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
