"""The store in a file of SQLite, for the processes of one machine: how the file is opened, read and written.

The file is located once: a relative path is one from the folder that is current then, and a link is followed. A store
has a connection of its own, which one thread uses at a time, and another one that reads while that one writes. There is
one more for each call that writes through `context.connection` at the moment. The file is in WAL mode: a reader does
not wait for the writer, and sees what has been committed. One transaction writes at a time, and begins by acquiring the
write lock (`BEGIN IMMEDIATE`), so that none fails for having read too early. The time is the machine's.

A commit stands in the log until SQLite copies it into the database. A process whose log was removed writes on to a file
that no other process can find, and another one that opens the database makes a new log beside it. So device and inode
of the database, its log and the index of that are compared before each unit of work, and those of the database before
each read and at the end. No process changes them while another one uses the files: SQLite removes log and index with
the last connection, and this process has one. SQLite itself checks the content of the files.

The files are never opened here, only looked at: a process that closes one of them loses all locks that SQLite has on it
(https://www.sqlite.org/howtocorrupt.html, section 2.2).
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, cast

from handrail.clock import SYSTEM_CLOCK, Clock
from handrail.errors import StoreClosedError, StoreCorruptError, StoreError, StoreReadOnlyError, StoreUnavailableError
from handrail.process import current_pid, device_and_inode, track_connections
from handrail.session.persistence.protocol import FetchedRows
from handrail.store.locks import StoreOwner
from handrail.store.sql import statements
from handrail.store.sql.driver import (
    CallPlaces,
    ColumnTypes,
    DriverConnection,
    Durability,
    Place,
    Rows,
    Statement,
    StatementParameters,
    check_process,
)
from handrail.store.sql.store import SqlStore
from handrail.store.sql.units import row_statement, write_group
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
        file = SqliteFile(Path(path).resolve(), durability, busy, read_only)
        super().__init__(SqliteDriver(file, clock=clock), clock=clock)


class SqliteDriver:
    """A `handrail.store.sql.driver.Driver` over one file.

    A process that is forked off may not use it: SQLite allows no connection to be taken along.
    """

    types: ColumnTypes = ColumnTypes(
        number="INTEGER",
        bytes="BLOB",
        find_table="SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?",
        clustered=" WITHOUT ROWID",
    )
    """The types of SQLite."""

    one_writer = True
    """A transaction that writes keeps all others from writing."""

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
        self._lock = threading.Lock()  # who uses `_connection`
        self._connection = SqliteConnection(file)
        self._reading = threading.Lock()
        self._reader: SqliteConnection | None = None  # made when it is needed: a second one makes writing slower
        # The files that it uses as long as it is open; there since its first connection.
        paths = (str(file.path),) if file.read_only else (str(file.path), file.log, f"{file.path}-shm")
        self._files = [(path, identity) for path in paths if (identity := device_and_inode(path)) is not None]
        self._closed = False

    def query(self, sql: str, parameters: StatementParameters = ()) -> Rows:
        """Returns the rows of a statement."""
        self._check("reading")
        self.check_files(reading=True)
        if self._lock.acquire(blocking=False):
            try:
                return self._connection.query(sql, parameters)
            finally:
                self._lock.release()
        # A unit is being written: what is read does not wait for it.
        with self._reading:
            if self._reader is None:
                self.check_files()  # a connection makes the log that it misses
                self._reader = SqliteConnection(self._file)
            return self._reader.query(sql, parameters)

    def may_group(self, writes: Sequence[object]) -> bool:  # noqa: ARG002 - the interface's
        """Returns `True`: all units may be written in one transaction with others."""
        return True

    def write_group(self, units: Sequence[Sequence[object]]) -> Sequence[bool] | None:
        """Writes units in one transaction."""
        return write_group(self, units)

    def one_statement(self, writes: Sequence[object]) -> Statement | None:
        """Makes the statement of one row; for others there are no round trips to save."""
        return row_statement(writes)

    def acquire(self, *, for_call: bool = False) -> DriverConnection:
        """Lends the connection that writes, when no other unit or call of this process has it; a new one to a call."""
        self._check("writing to")
        if for_call:
            self.check_files()
            return SqliteConnection(self._file)
        place = self.call_places.ask()
        try:
            self.call_places.wait(place)
            self.call_places.check(place)
            self.check_files()
            self._own.restore()
            self._lock.acquire()  # a read in another thread has it at most for a moment
        except BaseException:
            self.call_places.release(place)
            raise
        self._place = place
        return self._connection

    def release(self, connection: DriverConnection) -> None:
        """Takes the connection back, or closes that of a call; a transaction that is still open is rolled back."""
        if connection is not self._connection:
            cast("SqliteConnection", connection).close()  # of a call, with what the call left on it
            return
        try:
            with suppress(sqlite3.ProgrammingError):  # it was closed meanwhile, and has rolled back
                connection.rollback()
        finally:
            place, self._place = self._place, None
            self._lock.release()
            if place is not None:
                self.call_places.release(place)

    def close(self) -> None:
        """Closes all connections; raises `StoreUnavailableError` if the database was removed or replaced meanwhile."""
        with self._lock, self._reading:
            was_open, self._closed = not self._closed, True
            self._connection.close()
            if self._reader is not None:
                self._reader.close()
        self.owner.close()
        if was_open and current_pid() == self._process and not self._file.read_only:
            self.check_files(reading=True)

    def _owners(self) -> list[str]:
        return [owner for (owner,) in self.query(statements.OWNERS)]

    def check_files(self, *, reading: bool = False) -> None:
        """Refuses to write where another process would not find it, or to read a database that is gone."""
        for path, identity in self._files[:1] if reading else self._files:
            if device_and_inode(path) != identity:
                msg = (
                    f"{self.url} cannot be used: {path} was removed or replaced while the store was open. Put it "
                    "back; or close the store in all processes, which copies what they have committed into the "
                    "database, and open it again. Nothing was written, and a killed process loses what is in the log "
                    "alone"
                )
                raise StoreUnavailableError(msg, store=self.url)

    def _check(self, operation: str) -> None:
        check_process(self._process, self.url)
        check_blocking(operation, self.url)
        if self._closed:
            raise StoreClosedError(f"{self.url} has been closed; open it again", store=self.url)


class SqliteConnection:
    """One connection to a file; a `handrail.store.sql.driver.DriverConnection`."""

    __slots__ = ("__weakref__", "_connection", "_file", "_release")

    def __init__(self, file: SqliteFile) -> None:
        self._file = file
        track_connections(file.path, 1)
        self._release = weakref.finalize(self, track_connections, file.path, -1)
        self._connection = file.connect()
        track_connections(file.path, 0)  # the log may be new

    @property
    def in_transaction(self) -> bool:
        """True while a transaction is open."""
        return self._connection.in_transaction

    def query(self, sql: str, parameters: StatementParameters = ()) -> Rows:
        """Returns the rows of a statement."""
        try:
            return self._connection.execute(sql, parameters).fetchall()
        except _REFUSALS as error:
            raise self._file.translate(error) from error

    def execute(self, sql: str, parameters: StatementParameters = ()) -> int:
        """Executes a statement that writes; returns how many rows it has changed."""
        return self._run(self._connection.execute, sql, parameters).rowcount

    def execute_many(self, sql: str, rows: Sequence[StatementParameters]) -> None:
        """Executes a statement that writes with each of some rows."""
        self._run(self._connection.executemany, sql, rows)

    def _run(self, run: Callable[[str, Any], sqlite3.Cursor], sql: str, values: object) -> sqlite3.Cursor:
        try:
            return run(sql, values)
        except _REFUSALS as error:
            raise self._file.translate(error) from error

    def begin(self, *, reading: bool = False) -> None:
        """Begins a transaction that may write, as soon as no other one may; or one of a connection that only reads."""
        if reading:
            self.execute("PRAGMA query_only = ON")
        self.execute("BEGIN" if reading else "BEGIN IMMEDIATE")

    def commit(self) -> None:
        """Commits the transaction."""
        self.execute("COMMIT")

    def rollback(self) -> None:
        """Rolls the transaction back, if there is one."""
        self._connection.rollback()

    def execute_native(
        self, sql: str, parameters: Sequence[Any] | Mapping[str, Any], *, reading: bool = False
    ) -> FetchedRows:
        """Executes one statement of a handler; raises what `sqlite3` raises."""
        if reading:
            self.execute("PRAGMA query_only = ON")
        try:
            cursor = self._connection.execute(sql, parameters)
            return FetchedRows(cursor.fetchall(), cursor.rowcount)
        finally:
            if reading:
                self.execute("PRAGMA query_only = OFF")

    def is_refused_write(self, error: Exception) -> bool:
        """Tests whether SQLite has refused a statement because it writes."""
        return isinstance(error, sqlite3.Error) and isinstance(self._file.translate(error), StoreReadOnlyError)

    def cancel(self) -> None:
        """Cancels the statement that another thread executes; one that writes takes the transaction along."""
        self._connection.interrupt()

    def close(self) -> None:
        """Closes the connection."""
        self._connection.close()
        self._release()


_STATEMENTS = 128
_RETRY_SECONDS = 0.01
_FIRST_LOOK = "SELECT count(*) FROM sqlite_master"
_PRIMARY = 0xFF
_OF_THE_DISK = frozenset({sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN})
_OTHERS = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_MEANINGS: tuple[tuple[frozenset[int], type[StoreError], str], ...] = (
    # A page that another file says is there.
    (
        frozenset({sqlite3.SQLITE_IOERR_SHORT_READ}),
        StoreCorruptError,
        "cannot be read: the file, or its log, was cut short; restore it from a copy",
    ),
    (
        frozenset({sqlite3.SQLITE_READONLY}),
        StoreReadOnlyError,
        "can be read, but not written to: {}. Look at the rights of the file and its folder, and at its disk",
    ),
    (
        frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}),
        StoreCorruptError,
        "cannot be read: {}. It is not a database, or is damaged; restore it from a copy",
    ),
    (
        frozenset({sqlite3.SQLITE_CANTOPEN}),
        StoreError,
        "cannot be opened: {}. Look whether it is a file, in a folder that exists; one that is only read has to exist",
    ),
    (
        frozenset({*_OTHERS, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_PROTOCOL})
        | {sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_INTERRUPT},
        StoreUnavailableError,
        "cannot be used now: {}. Look who else writes to it, and whether its disk is full",
    ),
)
"""The meanings of errors of SQLite, by their codes."""


@dataclass(frozen=True, slots=True)
class SqliteFile:
    """One file, and how it is opened: its `path` is absolute and free of links, so that one file has one name."""

    path: Path
    durability: Durability = "full"
    busy: timedelta = timedelta(seconds=5)
    read_only: bool = False

    @property
    def url(self) -> str:
        """The URL that names it to people."""
        return f"sqlite:///{self.path}"

    @property
    def log(self) -> str:
        """The path of its write-ahead log."""
        return f"{self.path}-wal"

    def connect(self) -> sqlite3.Connection:
        """Opens the file, and makes it if it is missing; one that is not a database is unchanged: `StoreError`."""
        self._look()
        try:
            return self._open()
        except sqlite3.Error as error:
            raise self.translate(error) from error

    def translate(self, error: Exception) -> StoreError:
        """Translates an error of `sqlite3`."""
        code = getattr(error, "sqlite_errorcode", 0)
        primary = code & _PRIMARY
        if primary in _OF_THE_DISK and self.path.exists() and not _may_write(self.path.parent):
            primary = sqlite3.SQLITE_READONLY  # SQLite does not distinguish it
        kind, text = next(
            ((kind, text) for codes, kind, text in _MEANINGS if {code, primary} & codes), (StoreError, "refuses: {}")
        )
        meaning = kind(f"{self.url} {text.format(error)}", store=self.url)
        if isinstance(meaning, StoreUnavailableError):
            meaning.waited = code == sqlite3.SQLITE_BUSY
        return meaning

    def _look(self) -> None:
        """Refuses a database in a folder that does not exist, and one whose log was removed."""
        if not self.path.parent.is_dir():
            msg = f"{self.url} cannot be opened: the folder {self.path.parent} does not exist; create it"
            raise StoreError(msg, store=self.url)
        log, index = Path(self.log), Path(f"{self.path}-shm")
        # SQLite makes the log before its index, and removes the index first; twice, because another process may do so.
        if not (self.read_only or log.exists()) and index.exists() and not log.exists():
            msg = (
                f"{self.url} cannot be opened: its log {log} was removed, perhaps with what was committed last. Put it "
                f"back; or close the store in all processes; or, if none has it open, remove {index} to do without that"
            )
            raise StoreUnavailableError(msg, store=self.url)

    def _open(self) -> sqlite3.Connection:
        # A reader makes files beside the database, too; SQLite does without them if nothing there can change.
        sealed = not _may_write(self.path.parent) and not Path(self.log).exists()
        mode = "ro&immutable=1" if sealed else "ro" if self.read_only else "rwc"
        connection = sqlite3.connect(
            f"{self.path.as_uri()}?mode={mode}",
            uri=True,
            timeout=self.busy.total_seconds(),
            isolation_level=None,
            check_same_thread=False,
            cached_statements=_STATEMENTS,
        )
        try:
            connection.execute(_FIRST_LOOK).fetchall()
            if mode == "rwc" and _may_write(self.path):
                self._write_ahead(connection)
            connection.execute(f"PRAGMA synchronous = {self.durability}")
        except BaseException:
            connection.close()
            raise
        return connection

    def _write_ahead(self, connection: sqlite3.Connection) -> None:
        """Turns the write-ahead log on; while another process does the same, SQLite does not wait by itself."""
        until = time.monotonic() + self.busy.total_seconds()
        while connection.execute("PRAGMA journal_mode").fetchone() != ("wal",):
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute(_FIRST_LOOK).fetchall()  # makes the log
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & _PRIMARY not in _OTHERS or time.monotonic() >= until:
                    raise
                time.sleep(_RETRY_SECONDS)


def _may_write(path: Path) -> bool:
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)
