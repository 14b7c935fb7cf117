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

import os
import sqlite3
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, cast

from handrail.clock import SYSTEM_CLOCK, Clock
from handrail.crash_points import reached
from handrail.errors import StoreClosedError, StoreError, StoreReadOnlyError
from handrail.process import current_pid, track_connections
from handrail.store.owners import StoreOwner
from handrail.store.sql import statements
from handrail.store.sql.call_places import CallPlaces, Place
from handrail.store.sql.driver import (
    ColumnTypes,
    DriverConnection,
    Durability,
    FetchedRows,
    Rows,
    Statement,
    StatementParameters,
    check_process,
)
from handrail.store.sql.store import SqlStore
from handrail.store.sql.units import row_statement, write_group
from handrail.store.sqlite.file import OpenedFiles, SqliteFile
from handrail.store.sqlite.owner import FileOwner
from handrail.waiting import check_blocking

_REFUSALS = (sqlite3.Error, ValueError, OverflowError)


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
        find_table="SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?",
        clustered=" WITHOUT ROWID",
    )
    """What SQLite calls its types."""

    one_writer = True
    """A transaction that writes keeps all others from writing."""

    lanes = 1
    """One group at a time: there is one writer."""

    poll_every: timedelta = timedelta(milliseconds=20)
    """How often to look for what other processes have changed."""

    def __init__(self, file: SqliteFile, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self.url: str = file.url
        folder = Path(f"{file.path}-holds")
        self._own = FileOwner(folder, store=file.url, in_use=self._owners, read_only=file.read_only)
        self.owner: StoreOwner = self._own
        self.now: Callable[[], datetime] = clock.now
        self.now_waits: bool = False
        self._file = file
        self.busy: timedelta = file.busy
        self._process = current_pid()
        # Taken by units too: one of this process writes at a time.
        self.call_places: CallPlaces = CallPlaces(1, busy=file.busy, url=file.url)
        self._place: Place | None = None  # of the unit that is written
        self._lock = threading.Lock()  # who uses `_link`
        self._link = SqliteConnection(file)
        self._reading = threading.Lock()
        self._reader: SqliteConnection | None = None  # made when it is needed: a second one makes writing slower
        self._files = OpenedFiles(file)
        self._closed = False

    def query(self, sql: str, parameters: StatementParameters = ()) -> Rows:
        """All rows that a statement finds."""
        self._check("reading")
        self._files.check(reading=True)
        if self._lock.acquire(blocking=False):
            try:
                return self._link.query(sql, parameters)
            finally:
                self._lock.release()
        # A unit is being written: what is read does not wait for it.
        with self._reading:
            if self._reader is None:
                self._files.check()  # a connection makes the log that it misses
                self._reader = SqliteConnection(self._file)
            return self._reader.query(sql, parameters)

    def may_group(self, writes: Sequence[object]) -> bool:  # noqa: ARG002 - the interface's
        """All units may be written in one transaction with others."""
        return True

    def write_group(self, units: Sequence[Sequence[object]]) -> Sequence[bool] | None:
        """Write units in one transaction."""
        link = self.acquire()
        try:
            link.begin()
            with suppress(StoreError):
                if (written := write_group(link, units)) is not None:
                    reached("unit-before-commit")
                    link.commit()
                return written
            return None
        finally:
            self.release(link)

    def one_statement(self, writes: Sequence[object]) -> Statement | None:
        """That of one row; for others there are no round trips to save."""
        return row_statement(writes)

    def acquire(self, *, for_call: bool = False) -> DriverConnection:
        """The connection that writes, when no other unit or call of this process does; a new one for a call."""
        self._check("writing to")
        if for_call:
            self._files.check()
            return SqliteConnection(self._file)
        place = self.call_places.ask()
        try:
            self.call_places.wait(place)
            self.call_places.check(place)
            self._files.check()
            self._own.restore()
            self._lock.acquire()  # a read in another thread has it at most for a moment
        except BaseException:
            self.call_places.release(place)
            raise
        self._place = place
        return self._link

    def release(self, link: DriverConnection) -> None:
        """Take the connection back, or close that of a call; a transaction that is still open is undone."""
        if link is not self._link:
            cast("SqliteConnection", link).close()  # of a call, with what the call left on it
            return
        try:
            link.rollback()
        finally:
            place, self._place = self._place, None
            self._lock.release()
            if place is not None:
                self.call_places.release(place)

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
            self._files.check(reading=True)

    def _owners(self) -> list[str]:
        """The owners that are in use."""
        return [owner for (owner,) in self.query(statements.OWNERS)]

    def _check(self, operation: str) -> None:
        """Refuse a process that was forked off, a store that was closed, and to block an event loop that is guarded."""
        check_process(self._process, self.url)
        check_blocking(operation, self.url)
        if self._closed:
            raise StoreClosedError(f"{self.url} has been closed; open it again", store=self.url)


class SqliteConnection:
    """One connection to a file; a `handrail.store.sql.driver.DriverConnection`.

    Args:
        file: what it is connected to.

    Raises:
        StoreError: the file cannot be opened, or is not a database.
    """

    __slots__ = ("__weakref__", "_connection", "_file", "_release")

    def __init__(self, file: SqliteFile) -> None:
        self._file = file
        track_connections(file.path, 1)
        self._release = weakref.finalize(self, track_connections, file.path, -1)
        self._connection = file.connect()
        track_connections(file.path, 0)  # the log may be new

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return self._connection.in_transaction

    def query(self, sql: str, parameters: StatementParameters = ()) -> Rows:
        """All rows that a statement finds."""
        try:
            return self._connection.execute(sql, parameters).fetchall()
        except _REFUSALS as error:
            raise self._file.translated(error) from error

    def execute(self, sql: str, parameters: StatementParameters = ()) -> int:
        """Execute a statement that writes; returns how many rows it has changed."""
        try:
            return self._connection.execute(sql, parameters).rowcount
        except _REFUSALS as error:
            raise self._file.translated(error) from error

    def execute_many(self, sql: str, rows: Sequence[StatementParameters]) -> None:
        """Execute a statement that writes with each of some rows."""
        try:
            self._connection.executemany(sql, rows)
        except _REFUSALS as error:
            raise self._file.translated(error) from error

    def begin(self, *, reading: bool = False) -> None:
        """Begin a transaction that may write, as soon as no other one may; or one of a connection that only reads."""
        if reading:
            self.execute("PRAGMA query_only = ON")
        self.execute("BEGIN" if reading else "BEGIN IMMEDIATE")

    def commit(self) -> None:
        """Commit the transaction."""
        self.execute("COMMIT")

    def rollback(self) -> None:
        """Undo the transaction, if there is one; raises no error of the store."""
        self._connection.rollback()

    def execute_native(
        self, sql: str, parameters: Sequence[Any] | Mapping[str, Any], *, reading: bool = False
    ) -> FetchedRows:
        """Execute one statement of a handler; raises what `sqlite3` raises."""
        if reading:
            self.execute("PRAGMA query_only = ON")
        try:
            cursor = self._connection.execute(sql, parameters)
            return FetchedRows(cursor.fetchall(), cursor.rowcount)
        finally:
            if reading:
                self.execute("PRAGMA query_only = OFF")

    def is_refused_write(self, error: Exception) -> bool:
        """Whether SQLite has refused a statement because it writes."""
        return isinstance(error, sqlite3.Error) and isinstance(self._file.translated(error), StoreReadOnlyError)

    def cancel(self) -> None:
        """Have the statement fail that another thread executes; one that writes takes the transaction along."""
        self._connection.interrupt()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
        self._release()
