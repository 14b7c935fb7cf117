"""The store in PostgreSQL, for the processes of many machines.

A statement that stands alone is a transaction of its own, on a connection of the pool; a unit, and a call that writes
through `context.connection`, have one each for as long as they last. The lock of the store as an owner is on a
connection of its own (`ServerOwner`). A connection that was closed while idle, as by a restart of the server, is
noticed before anything is sent on it, and replaced.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import chain, count
from typing import Any, cast

import psycopg
from psycopg.pq import TransactionStatus
from psycopg_pool import ConnectionPool, PoolClosed

from handrail.clock import SYSTEM_CLOCK, Clock
from handrail.crash_points import reached
from handrail.errors import SessionError, StoreClosedError, StoreError, StoreUnavailableError
from handrail.session.persistence.protocol import FetchedRows
from handrail.store.locks import StoreOwner
from handrail.store.postgres.one_statement import may_group, one_statement
from handrail.store.postgres.server import PsycopgConnection, Server, ServerClock, ServerOwner, is_alive
from handrail.store.protocol import list_crash_points
from handrail.store.sql.driver import (
    CallPlaces,
    ColumnTypes,
    DriverConnection,
    Rows,
    Statement,
    StatementParameters,
    check_process,
)
from handrail.store.sql.store import SqlStore
from handrail.waiting import check_blocking


class PostgresStore(SqlStore):
    """A `handrail.store.Store` on a server of PostgreSQL, with the server's clock unless another one is given.

    Attributes:
        server: the database, for others who use it, too.

    Raises:
        StoreError: the server cannot be reached, or its tables are those of a newer Handrail.
    """

    def __init__(self, server: Server, *, clock: Clock | None = None) -> None:
        self.server: Server = server
        self._connections = PostgresDriver(server, clock=clock)
        super().__init__(self._connections, clock=clock or SYSTEM_CLOCK)

    @contextmanager
    def borrow(self) -> Generator[PsycopgConnection]:
        """Lends a connection, on which each statement is a transaction of its own."""
        connection = self._connections.acquire()
        try:
            yield connection.connection
        finally:
            self._connections.release(connection)


class PostgresDriver:
    """A `handrail.store.sql.driver.Driver` over one database of a server.

    A process that is forked off may not use it, and inherits none of its connections.
    """

    types: ColumnTypes = ColumnTypes(
        number="BIGINT",
        bytes="BYTEA",
        # Not `to_regclass`: within a transaction it may not see a table that another one has made meanwhile.
        find_table="SELECT 1 FROM pg_tables WHERE schemaname = ANY(current_schemas(false)) AND tablename = ?",
        lock_tables="SELECT 1 FROM pg_advisory_xact_lock(hashtextextended('handrail_schema', 0))",
        collation=' COLLATE "C"',
    )
    """The types of PostgreSQL."""

    one_writer = False
    """Transactions write beside each other."""

    poll_every: timedelta = timedelta(milliseconds=50)
    """How often to look for what other processes have changed."""

    def __init__(self, server: Server, *, clock: Clock | None = None) -> None:
        self.url: str = server.url
        self.busy: timedelta = server.busy
        self._server = server
        self._process = os.getpid()
        self.owner: StoreOwner = ServerOwner(server)
        self._server_clock = ServerClock(self._server_time)
        self.now: Callable[[], datetime] = self._server_clock.now if clock is None else clock.now
        self._asks_time = clock is None
        self.call_places: CallPlaces = CallPlaces(
            max(1, server.connections * 3 // 4), busy=server.busy, url=server.url
        )  # the commits of calls, and other calls, need the connections that are left
        self._pool: ConnectionPool[PsycopgConnection] = ConnectionPool(
            connection_class=PsycopgConnection,
            kwargs=server.options,
            min_size=1,
            max_size=server.connections,
            open=True,
            configure=server.set_up,
            timeout=server.busy.total_seconds(),
            # After an outage the next caller connects at once: attempts that began in it are not waited for.
            reconnect_timeout=server.busy.total_seconds(),
            name=f"handrail-{os.getpid()}",
            num_workers=1,
        )

    @property
    def now_waits(self) -> bool:
        """True if `now` asks the server at this moment, or in the next one."""
        return self._asks_time and self._server_clock.is_due

    def query(self, sql: str, parameters: StatementParameters = ()) -> Rows:
        """Returns the rows of a statement; executed once more if its connection is lost."""
        for is_last in (False, True):
            connection = self.acquire()
            try:
                return connection.query(sql, parameters)
            except StoreUnavailableError as error:
                if is_last or not error.connection_lost:
                    raise
            finally:
                self.release(connection)
        raise AssertionError  # pragma: no cover - the last attempt returns or raises

    def may_group(self, writes: Sequence[object]) -> bool:
        """Tests whether a unit is one statement that waits for none of another session: all would wait with it."""
        return may_group(writes)

    def write_group(self, units: Sequence[Sequence[object]]) -> Sequence[bool] | None:
        """Writes units in one pipeline, which is one transaction and one round trip."""
        statements: list[Statement] = []
        with suppress(SessionError):  # the entries of a unit do not follow each other: it fails alone
            statements = [statement for writes in units if (statement := one_statement(writes)) is not None]
        if len(statements) < len(units):
            return None
        for point in chain.from_iterable(map(list_crash_points, units)):
            reached(point)
        connection = self.acquire()
        try:
            return connection.execute_all(statements)
        except StoreError:
            return None
        finally:
            self.release(connection)

    def one_statement(self, writes: Sequence[object]) -> Statement | None:
        """Makes one statement of a unit, if it appends to a session: see `handrail.store.postgres.one_statement`."""
        return one_statement(writes)

    def acquire(self, *, for_call: bool = False) -> PostgresConnection:
        """Lends a connection; those that were closed while idle are replaced."""
        check_process(self._process, self.url)
        check_blocking("a statement of", self.url)
        try:
            # The pool can check them itself, but waits after each one that is closed, and a restart closes them all.
            connection = self._pool.getconn()
            while not is_alive(connection):
                self._pool.putconn(connection)
                connection = self._pool.getconn()
            return PostgresConnection(self._server, connection, for_call=for_call)
        except PoolClosed:
            raise StoreClosedError(f"{self.url} has been closed; open it again", store=self.url) from None
        except psycopg.Error as error:
            raise self._server.translate(error) from error

    def release(self, connection: DriverConnection) -> None:
        """Takes a connection back, from a call as new; a transaction that is still open is rolled back."""
        own = cast("PostgresConnection", connection)  # what `acquire` has given
        own.rollback()
        if own.for_call:
            own.clean()
        self._pool.putconn(own.connection)

    def close(self) -> None:
        """Closes all connections; idempotent. In a forked process nothing is closed."""
        if os.getpid() == self._process:
            self._pool.close()
            self.owner.close()

    def _server_time(self) -> datetime:
        moment: datetime = self.query("SELECT clock_timestamp()")[0][0]
        return moment.astimezone(UTC)


class PostgresConnection:
    """One connection to a server, a `handrail.store.sql.driver.DriverConnection`; of a call or of a unit."""

    __slots__ = ("_in_unit", "_server", "connection", "for_call")

    def __init__(self, server: Server, connection: PsycopgConnection, *, for_call: bool) -> None:
        self.connection: PsycopgConnection = connection
        self.for_call: bool = for_call
        self._server = server
        self._in_unit = False

    @property
    def in_transaction(self) -> bool:
        """True while a transaction is open that can still be committed."""
        return self.connection.info.transaction_status == TransactionStatus.INTRANS

    def query(self, sql: str, parameters: StatementParameters = ()) -> Rows:
        """Returns the rows of a statement."""
        with self._translate_errors():
            return self._execute_raw(sql, parameters).fetchall()

    def execute(self, sql: str, parameters: StatementParameters = ()) -> int:
        """Executes a statement that writes; returns how many rows it has changed."""
        with self._translate_errors(in_doubt=not self._in_unit):
            return self._execute_raw(sql, parameters).rowcount

    def _execute_raw(self, sql: str, parameters: StatementParameters) -> psycopg.RawCursor[tuple[Any, ...]]:
        """Executes one of our statements. Raw, because psycopg would parse each long one anew, every time."""
        check_process(self.connection.process, self._server.url)
        return psycopg.RawCursor(self.connection).execute(_numbered(sql), parameters, binary=True)

    @contextmanager
    def _translate_errors(self, *, in_doubt: bool = False) -> Generator[None]:
        try:
            yield
        except (psycopg.Error, ValueError) as error:
            is_lost = self.connection.closed
            raise self._server.translate(error, in_doubt=in_doubt and is_lost, is_lost=is_lost) from error

    def execute_all(self, statements: Sequence[Statement]) -> list[bool]:
        """Executes statements in one pipeline, as one transaction; returns which of them found or changed a row."""
        cursors: list[psycopg.RawCursor[tuple[Any, ...]]] = []
        with self._translate_errors(in_doubt=True):
            with self.connection.pipeline():
                for sql, parameters in statements:
                    cursors.append(self._execute_raw(sql, parameters))
                    reached("unit-group-written")
            return [cursor.rowcount > 0 for cursor in cursors]

    def begin(self, *, reading: bool = False) -> None:
        """Begins a transaction that may write; or one that may only read, and sees one state of the database."""
        self.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY" if reading else "BEGIN")
        self._in_unit = True

    def commit(self) -> None:
        """Commits the transaction."""
        if not self.in_transaction and not self.connection.closed:
            msg = f"{self._server.url} refuses to commit: a statement of the transaction has failed"
            raise StoreError(msg, store=self._server.url)
        self._in_unit = False  # whatever comes now, comes in answer to the commit
        self.execute("COMMIT")

    def rollback(self) -> None:
        """Rolls the transaction back, if there is one; raises no error of the store."""
        self._in_unit = False
        if self.connection.info.transaction_status != TransactionStatus.IDLE:
            with suppress(psycopg.Error):
                self.connection.execute("ROLLBACK")

    def execute_many(self, sql: str, rows: Sequence[StatementParameters]) -> None:
        """Executes a statement that writes with each of some rows, in one round trip."""
        with self._translate_errors(), self.connection.pipeline():
            for row in rows:
                self._execute_raw(sql, row)

    def execute_native(
        self, sql: str, parameters: Sequence[Any] | Mapping[str, Any], *, reading: bool = False
    ) -> FetchedRows:
        """Executes one statement of a handler, as a savepoint of its own; raises what psycopg raises."""
        check_process(self.connection.process, self._server.url)
        with self.connection.transaction():
            if reading:
                self.connection.execute(b"SET LOCAL transaction_read_only = on")
            # Without parameters prepared, so that the server takes no second statement.
            cursor = self.connection.execute(sql.encode(), parameters or None, prepare=True if not parameters else None)
            return FetchedRows(cursor.fetchall() if cursor.description else [], cursor.rowcount)

    def is_refused_write(self, error: Exception) -> bool:
        """Tests whether the server has refused a statement because it writes."""
        return isinstance(error, psycopg.errors.ReadOnlySqlTransaction)

    def cancel(self) -> None:
        """Cancels the statement that another thread executes, if there is one."""
        if self.connection.info.transaction_status != TransactionStatus.ACTIVE:
            return
        with suppress(psycopg.Error):  # it has been closed, or the server does not answer
            self.connection.cancel_safe(timeout=2.0)

    def clean(self) -> None:
        """Resets what statements have set or made on the connection, or else closes it."""
        try:
            # In words that it has not seen: psycopg looks only then whether its own prepared statements are gone too.
            self.connection.execute(f"DISCARD ALL -- {time.monotonic_ns()}".encode())
            self._server.set_up(self.connection)
        except psycopg.Error:
            self.connection.close()


@lru_cache(maxsize=256)
def _numbered(sql: str) -> bytes:
    numbers = count(1)
    return re.sub(r"\?", lambda _: f"${next(numbers)}", sql).encode()
