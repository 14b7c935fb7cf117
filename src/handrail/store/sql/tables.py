"""The tables of a store, and the key that is in them.

The tables carry the prefix `handrail_`, because the program may have tables in the same database. Their version is in
`handrail_schema`, in one row. Every unit of work compares it, and nothing is written to tables of another version: a
statement that stands alone has the condition `statements.IS_CURRENT`, and a transaction asks for the version as it
begins (`Database.transaction`). No unit takes a round trip more.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from handrail.errors import StoreCorruptError, StoreReadOnlyError
from handrail.store.sql.database import Database, check_version
from handrail.store.sql.statements import TABLES_VERSION

TABLES: tuple[str, ...] = (
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
"""The statements that make them, with fields of `ColumnTypes` in braces."""


def make_tables(database: Database, *, new_key: Callable[[], bytes] = lambda: os.urandom(32)) -> None:
    """Makes the tables in a database that has none, in one transaction.

    Args:
        database: where they are to be.
        new_key: makes the key of a store, for hashes that must not be guessed.

    Raises:
        StoreVersionError: there are tables of another version.
        StoreReadOnlyError: there are none, and nothing can be written.
        StoreCorruptError: the version cannot be read.
        StoreError: the database cannot be read or written; it is unchanged.
    """
    driver = database.driver
    if driver.has_table(driver, "handrail_schema"):
        check_version(driver, database.url)
        return
    try:
        with database.transaction(any_version=True) as link:
            driver.lock_tables(link)
            if driver.has_table(link, "handrail_schema"):  # another process has made them meanwhile
                check_version(link, database.url)
                return
            for statement in TABLES:
                link.execute(statement.format_map(driver.types._asdict()))
            row = (TABLES_VERSION, new_key())
            link.execute("INSERT INTO handrail_schema (version, hash_key) VALUES (?, ?)", row)
    except StoreReadOnlyError as error:
        msg = f"{database.url} has no tables of Handrail; open it once for writing"
        raise StoreReadOnlyError(msg, store=database.url) from error


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
