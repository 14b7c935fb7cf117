"""The store in a file of SQLite, for the processes of one machine.

The file is found once: a relative path is one from the folder that is current then, and a link is followed. A store
whose file was removed, or has another one in its place, refuses further work: what it wrote would be lost.

A store has a connection of its own, which one thread uses at a time, and another one that reads while that one writes.
There is one more for each call that writes through `context.connection` at the moment. The file is in WAL
mode: a reader does not wait for the writer, and finds what has been committed. One transaction
writes at a time, and begins by taking the right to (`BEGIN IMMEDIATE`), so that none fails for having read too early.
The locks of owners are files in the folder `<file>-holds` beside it (`handrail.store.sqlite.owner`). The time is the
machine's.
"""

from __future__ import annotations

import math
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, cast

from handrail.clock import SYSTEM_CLOCK, Clock
from handrail.crash_points import reached
from handrail.errors import StoreClosedError, StoreError, StoreUnavailableError
from handrail.loop_guard import check_blocking, may_wait_for_calls
from handrail.open_databases import track_connections
from handrail.process_identity import current_pid
from handrail.store.sql import statements
from handrail.store.sql.call_places import CallPlaces, Place, loop_would_wait
from handrail.store.sql.driver import (
    ColumnTypes,
    DriverConnection,
    Durability,
    FetchedRows,
    Rows,
    Statement,
    StatementExecutor,
    StatementParameters,
)
from handrail.store.sql.store import SqlStore
from handrail.store.sql.units import row_statement, write_group
from handrail.store.sqlite.file import OpenedFiles, SqliteFile, is_read_only
from handrail.store.sqlite.owner import FileOwner

_ALL = 10
"""Tenths of `busy`: all of them."""


class SqliteStore(SqlStore):
    """A `handrail.store.Store` in a file.

    Args:
        path: the file; it is made if it is missing, its folder is not.
        durability: what a commit survives: `"full"` a loss of power, `"normal"` the death of the process.
        busy: how long to wait while another process writes.
        read_only: whether all writes are refused.
        clock: the machine's time.

    Raises:
        StoreError: the file cannot be opened, is not a store, or is one of a newer Handrail.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        durability: Durability = "full",
        busy: timedelta = timedelta(seconds=5),
        read_only: bool = False,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        file = SqliteFile(Path(path), durability, busy, read_only)
        super().__init__(SqliteDriver(file, clock=clock), clock=clock)


class SqliteDriver:
    """A `handrail.store.sql.driver.Driver` over one file.

    A process that is forked off may not use it: SQLite allows no connection to be taken along.

    Args:
        file: the file.
        clock: the machine's time.

    Raises:
        StoreError: the file cannot be opened, or is not a database.
    """

    types: ColumnTypes = ColumnTypes(
        number="INTEGER",
        bytes="BLOB",
        moment="strftime('%Y-%m-%dT%H:%M:%fZ', {} / 1000000.0, 'unixepoch')",
        text="CAST({} AS TEXT)",
        clustered=" WITHOUT ROWID",
    )
    """What SQLite calls its types."""

    one_writer = True
    """A transaction that writes keeps all others from writing."""

    lanes = 1
    """One group at a time: there is one writer."""

    records_at_opening = 0
    """They are read when they are needed: another question costs little."""

    # As an expression, so that SQLite sorts what it finds in the index of records. To save that, it would read the rows
    # in their order, and all of the items in each row, because `reply` is stored behind them.
    number_of_records = "+number"
    """What records are sorted by."""

    poll_every: timedelta = timedelta(milliseconds=20)
    """How often to look for what other processes have changed."""

    def __init__(self, file: SqliteFile, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self.url: str = file.url
        self.owner: FileOwner = FileOwner(
            Path(f"{file.path}-holds"), store=file.url, in_use=self._owners, read_only=file.read_only
        )
        self.now: Callable[[], datetime] = clock.now
        self.now_waits: bool = False
        self._file = file
        self.busy: timedelta = file.busy
        self._busy = file.busy.total_seconds()
        self._process = current_pid()
        self.call_places: CallPlaces = CallPlaces(1)  # taken by units too: one of this process writes at a time
        self._place: Place | None = None  # of the unit that is written
        self._lock = threading.RLock()  # who uses `_link`
        self._link = SqliteConnection(file)
        self._reading = threading.Lock()
        self._reader: SqliteConnection | None = None  # made when it is needed: a second one makes writing slower
        self._files = OpenedFiles(file)
        self._writer = 0  # the thread that writes a unit
        self._closed = False

    def query(self, sql: str, parameters: StatementParameters = ()) -> Rows:
        """All rows that a statement finds."""
        self._check()
        check_blocking("reading", self.url)
        self._files.check_database()
        if self._lock.acquire(blocking=False):
            try:
                if not self._writer:
                    return self._link.query(sql, parameters)
            finally:
                self._lock.release()
        # A unit is being written: what is read does not wait for it.
        with self._reading:
            if self._reader is None:
                self._files.check()  # a connection makes the log that it misses
                self._reader = SqliteConnection(self._file)
            return self._reader.query(sql, parameters)

    def change(self, sql: str, parameters: StatementParameters) -> Rows:
        """Execute a statement that writes; returns the rows that it names in `RETURNING`."""
        self._enter()
        try:
            return self._link.query(sql, parameters)
        finally:
            self._leave()

    def execute(self, sql: str, parameters: StatementParameters = ()) -> int:
        """Execute a statement that writes; returns how many rows it has changed."""
        self._enter()
        try:
            return self._link.execute(sql, parameters)
        finally:
            self._leave()

    def may_group(self, writes: Sequence[object]) -> bool:  # noqa: ARG002 - the interface's
        """All units may be written in one transaction with others."""
        return True

    def write_group(self, units: Sequence[Sequence[object]]) -> Sequence[bool] | None:
        """Write units in one transaction."""
        self.acquire()
        link = self._link
        try:
            link.begin()
            try:
                written = write_group(link, units)
                if written is None:
                    return None
                reached("unit-before-commit")
                link.commit()
            except StoreError:
                return None
            return written
        finally:
            self.release(link)

    def one_statement(self, writes: Sequence[object]) -> Statement | None:
        """That of one row; for others there are no round trips to save."""
        return row_statement(writes)

    def acquire(self) -> DriverConnection:
        """The connection, for one unit of work; other threads wait until it is released."""
        self._enter()
        self._writer = threading.get_ident()
        return self._link

    def release(self, link: DriverConnection) -> None:
        """Take the connection back from a unit; a transaction that is still open is undone."""
        try:
            link.rollback()
        finally:
            self._writer = 0
            self._leave()

    def acquire_for_call(self) -> DriverConnection:
        """A connection for a call."""
        self._check()
        check_blocking("connecting to", self.url)
        self._files.check()
        return SqliteConnection(self._file)

    def release_from_call(self, link: DriverConnection) -> None:
        """Close a connection of a call, with what the call left on it; a transaction that is still open is undone."""
        cast("SqliteConnection", link).close()  # what `acquire_for_call` has given

    def is_refused_write(self, error: Exception) -> bool:
        """Whether SQLite has refused a statement because it writes."""
        return isinstance(error, sqlite3.Error) and is_read_only(error)

    def has_table(self, statements: StatementExecutor, name: str) -> bool:
        """Whether there is a table of that name."""
        return bool(statements.query("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (name,)))

    def lock_tables(self, link: DriverConnection) -> None:
        """No other transaction can write meanwhile."""

    def close(self) -> None:
        """Close all connections; idempotent.

        Raises:
            StoreUnavailableError: the database was removed or replaced, and what was committed is gone with it.
        """
        with self._lock, self._reading:
            was_open, self._closed = not self._closed, True
            self._link.close()
            if self._reader is not None:
                self._reader.close()
        self.owner.close()
        if was_open and current_pid() == self._process and not self._file.read_only:
            self._files.check_database()

    def check_process(self) -> None:
        """Refuse a process that was forked off the one that has opened the store.

        Raises:
            StoreError: it was.
        """
        if current_pid() != self._process:
            msg = f"{self.url} was opened by process {self._process}, which this one was forked off; open it anew here"
            raise StoreError(msg, store=self.url)

    def _owners(self) -> list[str]:
        """The owners that are in use."""
        return [owner for (owner,) in self.query(statements.OWNERS)]

    def _check(self) -> None:
        """Refuse a process that was forked off, and a store that was closed."""
        self.check_process()
        if self._closed:
            raise StoreClosedError(f"{self.url} has been closed; open it again", store=self.url)

    def _enter(self) -> None:
        """Wait until no other unit or call of this process writes, and take the connection that writes."""
        self._check()
        check_blocking("writing to", self.url)
        if self._writer == threading.get_ident():
            msg = f"{self.url} cannot be written to here: a unit of work is being written in this thread"
            raise StoreUnavailableError(msg, store=self.url)
        until = time.monotonic() + self._busy
        place = self.call_places.ask()
        try:
            self._await_place(place)
            self._lock.acquire()  # a read in another thread has it at most for a moment
            try:
                self._files.check()
                self._link.wait_for_others(until - time.monotonic())
            except BaseException:
                self._lock.release()
                raise
        except BaseException:
            self.call_places.release(place)
            raise
        self._place = place

    def _await_place(self, place: Place) -> None:
        if place.done():
            return
        behind_call = not may_wait_for_calls() and self.call_places.is_used_by_calls()
        place.wait(0.0 if behind_call else self._busy)
        if not place.cancel():
            return
        if behind_call:
            raise loop_would_wait(self.url)
        msg = f"{self.url} cannot be used now: a unit of work in another thread does not come to its end"
        raise StoreUnavailableError(msg, store=self.url, waited=True)

    def _leave(self) -> None:
        place, self._place = self._place, None
        self._lock.release()
        if place is not None:
            self.call_places.release(place)


class SqliteConnection:
    """One connection to a file; a `handrail.store.sql.driver.DriverConnection`.

    Args:
        file: what it is connected to.

    Raises:
        StoreError: the file cannot be opened, or is not a database.
    """

    __slots__ = ("__weakref__", "_connection", "_file", "_release", "_tenths")

    def __init__(self, file: SqliteFile) -> None:
        self._file = file
        track_connections(file.path, 1)
        self._release = weakref.finalize(self, track_connections, file.path, -1)
        self._connection = file.connect()
        track_connections(file.path, 0)  # the log may be new
        self._tenths = _ALL

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        try:
            return self._connection.in_transaction
        except sqlite3.ProgrammingError:  # it has been closed
            return False

    def query(self, sql: str, parameters: StatementParameters = ()) -> Rows:
        """All rows that a statement finds; text that is not UTF-8 comes as bytes."""
        try:
            return self._connection.execute(sql, parameters).fetchall()
        except sqlite3.Error as error:
            if "Could not decode" in str(error):
                return self._ask_bytes(sql, parameters)
            raise self._file.translated(error) from error
        except ValueError as error:
            raise self._file.translated(error) from error

    def execute(self, sql: str, parameters: StatementParameters = ()) -> int:
        """Execute a statement that writes; returns how many rows it has changed."""
        try:
            return self._connection.execute(sql, parameters).rowcount
        except (sqlite3.Error, ValueError, OverflowError) as error:
            raise self._file.translated(error) from error

    def execute_many(self, sql: str, rows: Sequence[StatementParameters]) -> int:
        """Execute a statement that writes with each of the rows; returns how many it has changed in all."""
        try:
            return self._connection.executemany(sql, rows).rowcount
        except (sqlite3.Error, ValueError, OverflowError) as error:
            raise self._file.translated(error) from error

    def begin(self) -> None:
        """Begin a transaction that may write, as soon as no other one may."""
        self.execute("BEGIN IMMEDIATE")

    def begin_with(self, query: str) -> Rows:
        """Begin a transaction, and ask a question in it."""
        self.begin()
        return self.query(query)

    def begin_reading(self) -> None:
        """Begin a transaction on a connection that SQLite holds to reading from now on."""
        self.execute("PRAGMA query_only = ON")
        self.execute("BEGIN")

    def wait_for_others(self, seconds: float) -> None:
        """Wait so long for other processes that write; in tenths of `busy`, because to set it takes a statement."""
        busy = self._file.busy.total_seconds()
        tenths = min(_ALL, max(0, math.ceil(_ALL * seconds / busy))) if busy else _ALL
        if tenths != self._tenths:
            self.execute(f"PRAGMA busy_timeout = {math.ceil(1000 * busy * tenths / _ALL)}")
            self._tenths = tenths

    def commit(self) -> None:
        """Commit the transaction."""
        self.execute("COMMIT")

    def rollback(self) -> None:
        """Undo the transaction, if there is one; raises no error of the store."""
        self._connection.rollback()

    def execute_native(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any]) -> FetchedRows:
        """Execute one statement of a handler; raises what `sqlite3` raises."""
        cursor = self._connection.execute(sql, parameters)
        return FetchedRows(cursor.fetchall(), cursor.rowcount)

    def query_native(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any]) -> FetchedRows:
        """Execute one statement of a handler that may only read; raises what `sqlite3` raises."""
        self.execute("PRAGMA query_only = ON")
        try:
            return self.execute_native(sql, parameters)
        finally:
            self.execute("PRAGMA query_only = OFF")

    def cancel(self) -> None:
        """Have the statement fail that another thread executes; one that writes takes the transaction along."""
        with suppress(sqlite3.ProgrammingError):  # it has been closed
            self._connection.interrupt()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
        self._release()

    def _ask_bytes(self, sql: str, parameters: StatementParameters) -> Rows:
        self._connection.text_factory = _text_or_bytes
        try:
            return self._connection.execute(sql, parameters).fetchall()
        finally:
            self._connection.text_factory = str


def _text_or_bytes(text: bytes) -> str | bytes:
    try:
        return text.decode()
    except UnicodeDecodeError:
        return text
