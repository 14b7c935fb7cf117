"""What the SQL of a store is executed on: links and drivers.

A *driver* knows one kind of database. It gives out *links*, a link being one connection that one thread uses at a
time, and turns what goes wrong into errors of `handrail.errors`: everything above it meets no other. SQL is written
with `?` for parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from handrail.errors import StoreError
from handrail.process import current_pid
from handrail.store.owners import StoreOwner
from handrail.store.sql.call_places import CallPlaces

Durability: TypeAlias = Literal["full", "normal"]
"""What a commit survives: `"full"` a loss of power, `"normal"` the death of the process."""

StatementParameters: TypeAlias = Sequence[object]
"""The values of a statement's question marks."""

Rows: TypeAlias = list[tuple[Any, ...]]
"""The rows that a statement found."""


CONNECTIONS = 16
"""The most connections of one store to a server, unless it is opened with another number; servers take about 100."""


class Statement(NamedTuple):
    """A statement with the values of its question marks."""

    sql: str
    parameters: StatementParameters


class ColumnTypes(NamedTuple):
    """What a kind of database calls its types.

    Attributes:
        number: 64 bits.
        bytes: any number of bytes.
        clustered: what makes a table be kept in the order of its key; may be empty.
        moment: what shows a time to people; `{}` stands for microseconds since 1970.
        text: what shows text to people; `{}` stands for bytes in UTF-8.
        ordered: what makes texts be compared character by character; may be empty.
        function: the statement that makes a function of these; may be empty.
        find_table: the question whether there is a table; takes its name.
        lock_tables: the question that keeps other processes from making the tables until the transaction ends.
    """

    number: str
    bytes: str
    moment: str
    text: str
    find_table: str
    lock_tables: str = "SELECT 1"
    clustered: str = ""
    ordered: str = ""
    function: str = ""


class FetchedRows:
    """What a handler's statement came to; a `handrail.session.persistence.protocol.DatabaseCursor`.

    Attributes:
        rowcount: how many rows the statement changed or found; -1 where the database does not report it.
    """

    __slots__ = ("_left", "rowcount")

    def __init__(self, rows: Rows, rowcount: int) -> None:
        self._left = iter(rows)
        self.rowcount: int = rowcount

    def fetchone(self) -> tuple[Any, ...] | None:
        """The next row; `None` if there is none left."""
        return next(self._left, None)

    def fetchall(self) -> Rows:
        """All rows that are left."""
        return list(self._left)


class QueryExecutor(Protocol):
    """What answers questions: a link, inside its transaction; a database, each as a transaction of its own."""

    def query(self, sql: str, parameters: StatementParameters = ()) -> Rows:
        """All rows that a statement finds.

        Raises:
            StoreError: what went wrong.
        """
        ...


class DriverConnection(QueryExecutor, Protocol):
    """A connection that one thread uses at a time, with at most one transaction."""

    def execute(self, sql: str, parameters: StatementParameters = ()) -> int:
        """Execute a statement that writes; returns how many rows it has changed.

        Raises:
            StoreError: what went wrong; nothing has been written.
        """
        ...

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        ...

    def begin(self, *, reading: bool = False) -> None:
        """Begin a transaction that may write; or one that the database holds to reading, and to one state of it.

        Raises:
            StoreError: it could not be begun.
        """
        ...

    def commit(self) -> None:
        """Commit the transaction.

        Raises:
            StoreError: it could not be committed.
        """
        ...

    def rollback(self) -> None:
        """Undo the transaction, if there is one; raises no error of the store."""
        ...

    def execute_many(self, sql: str, rows: Sequence[StatementParameters]) -> object:
        """Execute a statement that writes with each of some rows.

        Raises:
            StoreError: what went wrong.
        """
        ...

    def execute_native(
        self, sql: str, parameters: Sequence[Any] | Mapping[str, Any], *, reading: bool = False
    ) -> FetchedRows:
        """Execute one statement of a handler, in the words of the driver; raises what the driver raises.

        A statement that fails has changed nothing, and the transaction stays open. With `reading`, the database holds
        this statement to reading, in a transaction that may write.
        """
        ...

    def is_refused_write(self, error: Exception) -> bool:
        """Whether the database has refused a statement because it writes where only reading is allowed."""
        ...

    def cancel(self) -> None:
        """Have the statement fail that another thread executes, if one does; raises no error of the store.

        The transaction may be lost with it.
        """
        ...


class Driver(QueryExecutor, Protocol):
    """One database, reached through as many connections as its kind has use for.

    Attributes:
        url: what names it to people, without any password.
        types: what it calls its types.
        busy: how long to wait for it.
        one_writer: whether a transaction that writes keeps all others from writing.
        lanes: how many groups of units of work are written at the same time, from 1.
        poll_every: how often to look for what other processes have changed.
        call_places: who may have a connection for a call; where there is one writer, units of work take a place too.
        owner: the store among the others that use the database; closed with the driver.
        now: returns its time, aware and in UTC.
    """

    url: str
    types: ColumnTypes
    busy: timedelta
    one_writer: bool
    lanes: int
    poll_every: timedelta
    call_places: CallPlaces
    owner: StoreOwner
    now: Callable[[], datetime]

    @property
    def now_waits(self) -> bool:
        """Whether `now` asks a server at this moment."""
        ...

    def may_group(self, writes: Sequence[object]) -> bool:
        """Whether a unit of work may be written in one transaction with others."""
        ...

    def write_group(self, units: Sequence[Sequence[object]]) -> Sequence[bool] | None:
        """Write units of work in one transaction, each of them whole or not at all.

        Returns:
            Which of them were written, when that is committed. `None` if the transaction failed: then nothing was
            written, unless the connection was lost in the moment of the commit.

        Raises:
            StoreError: the transaction could not be begun.
        """
        ...

    def one_statement(self, writes: Sequence[object]) -> Statement | None:
        """A unit of work as one statement, if it is of a kind that is one here: it saves round trips.

        It finds one row if every row that is compared is the one seen, so that all is written; else none.

        Raises:
            SessionError: entries do not follow the newest one.
        """
        ...

    def acquire(self, *, for_call: bool = False) -> DriverConnection:
        """A connection for one unit of work, to be released in the same thread; or for a call, released in any thread.

        Raises:
            StoreError: none is available.
        """
        ...

    def release(self, link: DriverConnection) -> None:
        """Take a connection back; a transaction that is still open is undone.

        What else a call's statements have left on the connection (settings, temporary tables) does not reach the next
        one.
        """
        ...

    def close(self) -> None:
        """Close all connections; idempotent."""
        ...


def check_process(process: int, url: str) -> None:
    """Refuses a process that was forked off the one that has opened a store.

    Raises:
        StoreError: it was.
    """
    if current_pid() != process:
        raise StoreError(
            f"{url} was opened by process {process}, which this one was forked off; open it anew here", store=url
        )
