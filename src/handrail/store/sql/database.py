"""One database: its tables, its statements, each of which is a transaction of its own, and its transactions of several.

The tables carry the prefix `handrail_`, because the program may have tables in the same database. Their version is in
`handrail_schema`, in one row. Every unit of work compares it, and nothing is written to tables of another version: a
statement that stands alone has the condition `statements.IS_CURRENT`, and a transaction asks for the version as it
begins (`Database.transaction`).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager

from handrail.crash_points import reached
from handrail.errors import (
    SessionError,
    StoreCorruptError,
    StoreReadOnlyError,
    StoreUnavailableError,
    StoreVersionError,
)
from handrail.process import current_pid
from handrail.store.sql.call_connection import CallConnection, connection_in
from handrail.store.sql.driver import Driver, DriverConnection, QueryExecutor, Rows, StatementParameters, check_process
from handrail.store.sql.statements import GET_SCHEMA, TABLES_VERSION
from handrail.store.sql.tables import TABLES, VIEWS
from handrail.transaction import UnitStore, current


class Database:
    """Executes statements and transactions.

    Attributes:
        driver: the database.
        url: what names it to people.
    """

    __slots__ = ("_lock", "_process", "driver", "url")

    def __init__(self, driver: Driver) -> None:
        self.driver: Driver = driver
        self.url: str = driver.url
        self._process = current_pid()
        self._lock = threading.Lock()

    def check_process(self) -> None:
        """Refuse a process that was forked off the one that has opened the database.

        Raises:
            StoreError: it was.
        """
        check_process(self._process, self.url)

    def query(self, sql: str, parameters: StatementParameters = ()) -> Rows:
        """All rows that a statement finds.

        Raises:
            StoreError: what went wrong.
        """
        return self.driver.query(sql, parameters)

    def execute(self, sql: str, parameters: StatementParameters = ()) -> int:
        """Execute a statement that writes; returns how many rows it has changed.

        Raises:
            StoreError: what went wrong; nothing has been written.
        """
        with self._writer() as link:
            return link.execute(sql, parameters)

    def change(self, sql: str, parameters: StatementParameters) -> Rows:
        """Execute a statement that writes; returns the rows that it names in `RETURNING`.

        Raises:
            StoreError: what went wrong; nothing has been written.
        """
        with self._writer() as link:
            return link.query(sql, parameters)

    def execute_with_call(self, sql: str, parameters: StatementParameters) -> int:
        """As `execute`, but in the transaction of the call that runs here, if that is the only one that can write."""
        call = self._writing_call()
        return self.execute(sql, parameters) if call is None else call.link.execute(sql, parameters)

    @contextmanager
    def transaction(
        self, call: CallConnection | None = None, *, any_version: bool = False
    ) -> Generator[DriverConnection]:
        """A transaction that is committed at the end of the block, and undone if the block raises.

        Args:
            call: the connection of a call that has written through `context.connection`: then its transaction.
            any_version: whether the tables may have another version than that of this Handrail.

        Raises:
            StoreVersionError: the tables have another version.
            StoreError: it cannot be begun or committed; nothing counts, unless the connection was lost in the very
                moment of the commit.
        """
        with self._writer() if call is None else call.unit() as link:
            if call is None:
                link.begin()
                if not any_version:
                    check_version(link, self.url)
            reached("unit-begun")
            yield link
            reached("unit-before-commit")
            link.commit()
        reached("unit-after-commit")

    def connection(self, store: UnitStore) -> CallConnection:
        """The connection of the call that runs in this context; it is settled with the outermost one.

        Raises:
            SessionError: no call runs here.
            TransactionClosedError: the call has ended.
        """
        transaction = current()
        if transaction is None:
            msg = "no call runs here, so no transaction is open to write in; use context.connection inside a handler"
            raise SessionError(msg)
        with self._lock:
            call = connection_in(transaction, self.driver)
            if call is None:
                call = CallConnection(transaction.root, store=store, driver=self.driver)
                transaction.root.enlist(call)
            return call

    @property
    def is_beside_writer(self) -> bool:
        """Whether the call that runs here writes through `context.connection`, and so keeps all others from writing."""
        return self._writing_call() is not None

    def _writing_call(self) -> CallConnection | None:
        call = connection_in(current(), self.driver) if self.driver.one_writer else None
        return call if call is not None and call.is_writing else None

    @contextmanager
    def _writer(self) -> Generator[DriverConnection]:
        """A connection that writes, to be used by this thread; a transaction that is left open is undone."""
        if self.is_beside_writer:
            msg = (
                f"the call that runs here writes to {self.url} through context.connection, and no other call can until "
                "it has ended; make nested calls that need the store before the first statement, or on PostgreSQL"
            )
            raise StoreUnavailableError(msg, store=self.url)
        link = self.driver.acquire()
        try:
            yield link
        finally:
            self.driver.release(link)


def check_version(executor: QueryExecutor, store: str) -> bytes:
    """Refuses tables of another version: a Handrail of another version has made or changed them.

    Args:
        executor: executes the question.
        store: the URL of the store.

    Returns:
        The random key of the store, for hashes of secrets.

    Raises:
        StoreVersionError: they have another version.
        StoreCorruptError: they have none, or no key.
        StoreError: the store does not answer.
    """
    rows = executor.query(GET_SCHEMA)
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

    Args:
        database: where they are to be.
        new_key: makes the key of a store, for hashes that must not be guessed.

    Raises:
        StoreVersionError: there are tables of another version.
        StoreReadOnlyError: there are none, and nothing can be written.
        StoreCorruptError: the version or the key cannot be read.
        StoreError: the database cannot be read or written; it is unchanged.
    """
    types = database.driver.types
    if not database.query(types.find_table, ("handrail_schema",)):
        try:
            with database.transaction(any_version=True) as link:
                link.query(types.lock_tables)
                if not link.query(types.find_table, ("handrail_schema",)):  # no other process has made them meanwhile
                    made = (each.format_map(types._asdict()) for table in TABLES for each in table.definition)
                    for statement in filter(None, (*made, types.function, *(view.definition(types) for view in VIEWS))):
                        link.execute(statement)
                    row = (TABLES_VERSION, new_key())
                    link.execute("INSERT INTO handrail_schema (version, hash_key) VALUES (?, ?)", row)
        except StoreReadOnlyError as error:
            msg = f"{database.url} has no tables of Handrail; open it once for writing"
            raise StoreReadOnlyError(msg, store=database.url) from error
    return check_version(database, database.url)
