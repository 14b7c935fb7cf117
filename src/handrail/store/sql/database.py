"""One database: its tables, its statements, each of which is a transaction of its own, its transactions, and removal.

The tables carry the prefix `handrail_`, because the program may have tables in the same database. Their version is in
`handrail_schema`, in one row. Every unit of work compares it, and nothing is written to tables of another version: a
statement that stands alone has the condition `statements.IS_CURRENT`, and a transaction asks for the version as it
begins (`Database.transaction`).

A session is deleted in one transaction, with all its rows.

Expired effects are removed in the order of their keys, a page in each transaction. Where one transaction excludes all
other writers, there is a short pause after each one: writers of other processes poll, and would find the database
locked each time.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import datetime

from handrail.crash_points import reached
from handrail.errors import SessionError, StoreCorruptError, StoreUnavailableError, StoreVersionError
from handrail.process import current_pid
from handrail.store.sql import statements
from handrail.store.sql.call_connection import CallConnection, connection_in
from handrail.store.sql.driver import Driver, DriverConnection, Query, Rows, StatementParameters, check_process
from handrail.store.sql.statements import GET_SCHEMA, TABLES_VERSION
from handrail.store.sql.tables import TABLES, to_micros
from handrail.transaction import UnitStore, current


class Database:
    """Executes statements and transactions on a driver."""

    __slots__ = ("_lock", "_process", "driver", "url")

    def __init__(self, driver: Driver) -> None:
        self.driver: Driver = driver
        self.url: str = driver.url
        self._process = current_pid()
        self._lock = threading.Lock()

    def check_process(self) -> None:
        """Refuses a process that was forked off the one that has opened the database."""
        check_process(self._process, self.url)

    def query(self, sql: str, parameters: StatementParameters = ()) -> Rows:
        """Returns the rows of a statement."""
        return self.driver.query(sql, parameters)

    def execute(self, sql: str, parameters: StatementParameters = ()) -> int:
        """Executes a statement that writes, whole or not at all; returns how many rows it has changed."""
        with self._writer() as connection:
            return connection.execute(sql, parameters)

    def change(self, sql: str, parameters: StatementParameters) -> Rows:
        """Executes a statement that writes; returns the rows of its `RETURNING`."""
        with self._writer() as connection:
            return connection.query(sql, parameters)

    def execute_with_call(self, sql: str, parameters: StatementParameters) -> int:
        """Executes a statement in the transaction of the call that runs here, if only that one can write."""
        call = self.writing_call()
        return self.execute(sql, parameters) if call is None else call.connection.execute(sql, parameters)

    @contextmanager
    def transaction(
        self, call: CallConnection | None = None, *, any_version: bool = False
    ) -> Generator[DriverConnection]:
        """Runs a block as a transaction that is committed at its end, and undone if it raises.

        With the connection of a call it is that call's. `any_version` allows tables of another version.

        Raises:
            StoreVersionError: the tables have another version.
            StoreError: it cannot be begun or committed; nothing counts, unless the connection was lost in the commit.
        """
        with self._writer() if call is None else call.unit() as connection:
            if call is None:
                connection.begin()
                if not any_version:
                    check_version(connection.query, self.url)
            reached("unit-begun")
            yield connection
            reached("unit-before-commit")
            connection.commit()
        reached("unit-after-commit")

    def connection(self, store: UnitStore) -> CallConnection:
        """Returns the connection of the call that runs in this context; it is settled with the outermost one.

        Raises:
            SessionError: no call runs here.
            TransactionClosedError: the call has ended.
        """
        if (transaction := current()) is None:
            msg = "no call runs here, so no transaction is open to write in; use context.connection inside a handler"
            raise SessionError(msg)
        with self._lock:
            call = connection_in(transaction, self.driver)
            if call is None:
                call = CallConnection(transaction.root, store=store, driver=self.driver)
                transaction.root.enlist(call)
            return call

    def writing_call(self) -> CallConnection | None:
        """Finds the call that runs here, if it writes through `context.connection`, and so excludes other writers."""
        call = connection_in(current(), self.driver) if self.driver.one_writer else None
        return call if call is not None and call.is_writing else None

    @contextmanager
    def _writer(self) -> Generator[DriverConnection]:
        if self.writing_call() is not None:
            msg = (
                f"the call that runs here writes to {self.url} through context.connection, and no other call can until "
                "it has ended; make nested calls that need the store before the first statement, or on PostgreSQL"
            )
            raise StoreUnavailableError(msg, store=self.url)
        connection = self.driver.acquire()
        try:
            yield connection
        finally:
            self.driver.release(connection)


def check_version(query: Query, store: str) -> bytes:
    """Refuses tables of another version, and returns the random key of the store, for hashes of secrets.

    Raises:
        StoreVersionError: they have another version.
        StoreCorruptError: they have none, or no key.
        StoreError: the store does not answer.
    """
    rows = query(GET_SCHEMA, ())
    if len(rows) != 1 or [*map(type, rows[0])] != [int, bytes] or not rows[0][1]:
        msg = f"{store} does not say which version its tables have, or has no key for hashes; restore it from a copy"
        raise StoreCorruptError(msg, store=store)
    version: int = rows[0][0]
    key: bytes = rows[0][1]
    if version != TABLES_VERSION:
        msg = (
            f"the tables of {store} have version {version}, and those of this Handrail have version {TABLES_VERSION}. "
            "Use a Handrail with tables of that version; nothing was written"
        )
        raise StoreVersionError(msg, store=store, version=version, supported_version=TABLES_VERSION)
    return key


def make_tables(database: Database, *, new_key: Callable[[], bytes] = lambda: os.urandom(32)) -> bytes:
    """Makes the tables in a database that has none, in one transaction; returns the key of the store.

    Raises:
        StoreVersionError: there are tables of another version.
        StoreReadOnlyError: there are none, and nothing can be written.
        StoreCorruptError: the version or the key cannot be read.
        StoreError: the database cannot be read or written; it is unchanged.
    """
    types = database.driver.types
    if not database.query(types.find_table, ("handrail_schema",)):
        with database.transaction(any_version=True) as connection:
            connection.query(types.lock_tables)
            # Another process may have made them meanwhile.
            if not connection.query(types.find_table, ("handrail_schema",)):
                for definition in (one for table in TABLES for one in table.definition):
                    connection.execute(definition.format_map(types._asdict()))
                row = (TABLES_VERSION, new_key())
                connection.execute("INSERT INTO handrail_schema (version, hash_key) VALUES (?, ?)", row)
    return check_version(database.query, database.url)


EFFECTS_AT_ONCE = 5000
"""The most effects that one transaction looks at when it removes expired ones."""

_PAUSE, _LONGEST_PAUSE = 0.5, 0.05


def remove_expired(
    database: Database, now: datetime, *, page: int = EFFECTS_AT_ONCE, pause: Callable[[float], object] = time.sleep
) -> int:
    """Removes the effects that have expired by `now`; returns how many. One transaction looks at `page` effects."""
    moment, count, after = to_micros(now), 0, ("", "")
    while True:
        page_end = database.query(statements.LAST_OF_PAGE, (*after, page - 1))
        before = time.perf_counter()
        with database.transaction() as connection:
            if not page_end:
                return count + connection.execute(statements.REMOVE_LAST_EXPIRED, (*after, moment))
            last = (str(page_end[0][0]), str(page_end[0][1]))
            count += connection.execute(statements.REMOVE_EXPIRED, (*after, moment, *last))
        after = last
        _let_others_write(database, time.perf_counter() - before, pause)


def _let_others_write(database: Database, lasted: float, pause: Callable[[float], object]) -> None:
    if database.driver.one_writer:
        pause(min(_PAUSE * lasted, _LONGEST_PAUSE))
