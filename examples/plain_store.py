"""A store over `sqlite3` in the plainest way, for `docs/how-to/write-a-store.md`: it passes the tests of all stores."""

import sqlite3
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

from handrail.clock import SYSTEM_CLOCK, Clock
from handrail.errors import StoreError, StoreUnavailableError
from handrail.session.persistence.protocol import FetchedRows
from handrail.store.locks import StoreOwner
from handrail.store.sql.driver import CallPlaces, ColumnTypes, Statement
from handrail.store.sql.store import SqlStore
from handrail.store.sql.units import row_statement, write_group


class PlainConnection:
    """One connection, with at most one transaction."""

    def __init__(self, path: Path, url: str, busy: timedelta) -> None:
        self.url = url
        self.database = sqlite3.connect(
            path, timeout=busy.total_seconds(), isolation_level=None, check_same_thread=False
        )

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return self.database.in_transaction

    def query(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a statement."""
        return self._executed(sql, parameters).fetchall()

    def execute(self, sql: str, parameters: Sequence[object] = ()) -> int:
        """Execute a statement; returns the number of rows it has changed."""
        return self._executed(sql, parameters).rowcount

    def execute_many(self, sql: str, rows: Sequence[Sequence[object]]) -> None:
        """Execute a statement for each row."""
        for row in rows:
            self.execute(sql, row)

    def begin(self, *, reading: bool = False) -> None:
        """Begin a transaction."""
        self.execute(f"PRAGMA query_only = {int(reading)}")
        self.execute("BEGIN" if reading else "BEGIN IMMEDIATE")

    def commit(self) -> None:
        """Commit it."""
        self.execute("COMMIT")

    def rollback(self) -> None:
        """Roll it back, if one is open."""
        if self.database.in_transaction:
            self.database.rollback()

    def execute_native(
        self, sql: str, parameters: Sequence[Any] | Mapping[str, Any], *, reading: bool = False
    ) -> FetchedRows:
        """A statement of a handler, which the database holds to reading if the call may not write."""
        if reading:
            self.execute("PRAGMA query_only = ON")
        try:
            cursor = self.database.execute(sql, parameters)
            return FetchedRows(cursor.fetchall(), cursor.rowcount)
        finally:
            if reading:
                self.execute("PRAGMA query_only = OFF")

    def is_refused_write(self, error: Exception) -> bool:
        """Whether the database refused a write of a call that may only read."""
        return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_READONLY

    def cancel(self) -> None:
        """Interrupt the statement that runs, from another thread."""
        self.database.interrupt()

    def _executed(self, sql: str, parameters: Sequence[object]) -> sqlite3.Cursor:
        """Execute a statement of Handrail; what goes wrong is an error of the store, and nothing was written."""
        try:
            return self.database.execute(sql, parameters)
        except sqlite3.OperationalError as error:
            raise StoreUnavailableError(f"{self.url} cannot be used now: {error}", store=self.url) from error
        except (sqlite3.Error, OverflowError, ValueError) as error:
            raise StoreError(f"{self.url} refuses: {error}", store=self.url) from error


class PlainDriver:
    """A database of one process."""

    types = ColumnTypes(
        number="INTEGER",
        bytes="BLOB",
        find_table="SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?",
    )
    one_writer = True  # a transaction that writes keeps all others from writing
    poll_every = timedelta(milliseconds=20)
    now_waits = False

    def __init__(self, path: Path, *, busy: timedelta = timedelta(seconds=5), clock: Clock = SYSTEM_CLOCK) -> None:
        self.url = f"plain:{path}"
        self.busy = busy
        self.now = clock.now
        self.owner: StoreOwner = StoreOwner()  # proves life in this process, and no death
        self.call_places = CallPlaces(1, busy=busy, url=self.url)
        self._path = path
        self._places: dict[int, Any] = {}

    def query(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a statement, in a transaction of its own."""
        connection = PlainConnection(self._path, self.url, self.busy)
        with closing(connection.database):
            return connection.query(sql, parameters)

    def acquire(self, *, for_call: bool = False) -> PlainConnection:
        """Return a connection for a unit, or for a call."""
        connection = PlainConnection(self._path, self.url, self.busy)
        if not for_call:  # a call has waited for its place already
            place = self._places[id(connection)] = self.call_places.ask()
            self.call_places.wait(place)
            self.call_places.check(place)
        return connection

    def release(self, connection: Any) -> None:  # noqa: ANN401 - a connection of this driver
        """Close a connection; an open transaction is rolled back."""
        connection.rollback()
        connection.database.close()
        place = self._places.pop(id(connection), None)
        if place is not None:
            self.call_places.release(place)

    def may_group(self, writes: Sequence[object]) -> bool:  # noqa: ARG002 - of the protocol
        """Whether a unit may be written in one transaction with others."""
        return True

    def write_group(self, units: Sequence[Sequence[object]]) -> Sequence[bool] | None:
        """Write units in one transaction; `None` if they have to be written one by one."""
        return write_group(self, units)

    def one_statement(self, writes: Sequence[object]) -> Statement | None:
        """Return a unit as one statement, if it is one."""
        return row_statement(writes)

    def close(self) -> None:
        """No connection is kept."""


def open_plain_store(path: Path, *, busy: timedelta = timedelta(seconds=5), clock: Clock = SYSTEM_CLOCK) -> SqlStore:
    """Open a store over a file."""
    return SqlStore(PlainDriver(path, busy=busy, clock=clock), clock=clock)


if __name__ == "__main__":
    with (
        tempfile.TemporaryDirectory() as folder,
        open_plain_store(Path(folder, "desk.db")) as store,
        store.session("night") as session,
    ):
        print(session.session_id, "in", store.url.partition(":")[0])
