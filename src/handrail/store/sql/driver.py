"""Where the SQL of a store is executed: drivers, their connections, and the places of calls and units.

A *driver* knows one kind of database. It lends connections, each of which one thread uses at a time, and
translates every error to one of `handrail.errors`. SQL is written with `?` for parameters.

A *place* is the right to write on SQLite, and of a call to have a connection on PostgreSQL. A call holds its place from
its first statement to its commit; a unit of work for a short transaction, where one transaction writes at a time. Units
go before calls, because calls that have ended wait for their units. The turn of a place is a future, so threads and
tasks wait in the same queues, for as long as `busy`. A thread that runs an event loop does not wait for a call, which
may need the loop to come to its end.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from handrail.errors import SessionUseError, StoreError, StoreUnavailableError
from handrail.process import current_pid
from handrail.session.persistence.protocol import FetchedRows
from handrail.store.locks import StoreOwner
from handrail.waiting import may_wait_for_calls

Durability: TypeAlias = Literal["full", "normal"]
"""The durability of a commit, which survives: `"full"` a loss of power, `"normal"` the death of the process."""

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
    """The names of types and other expressions of a kind of database.

    Attributes:
        number: 64 bits.
        bytes: any number of bytes.
        find_table: the question whether there is a table; takes its name.
        lock_tables: the question that excludes other processes that make the tables, until the transaction ends.
        clustered: orders the rows of a table by its key; may be empty.
        collation: compares texts character by character; may be empty.
    """

    number: str
    bytes: str
    find_table: str
    lock_tables: str = "SELECT 1"
    clustered: str = ""
    collation: str = ""


Query: TypeAlias = Callable[[str, StatementParameters], Rows]
"""The `query` of a connection, inside its transaction; or of a database, where each is a transaction of its own."""


class DriverConnection(Protocol):
    """A connection that one thread uses at a time, with at most one transaction; methods may raise a `StoreError`."""

    def query(self, sql: str, parameters: StatementParameters = ()) -> Rows:
        """Returns the rows of a statement."""
        ...

    def execute(self, sql: str, parameters: StatementParameters = ()) -> int:
        """Executes a statement that writes, whole or not at all; returns how many rows it has changed."""
        ...

    @property
    def in_transaction(self) -> bool:
        """True while a transaction is open."""
        ...

    def begin(self, *, reading: bool = False) -> None:
        """Begins a transaction that may write; or one that the database holds to reading, and to one state of it."""
        ...

    def commit(self) -> None:
        """Commits the transaction."""
        ...

    def rollback(self) -> None:
        """Rolls the transaction back, if there is one; raises no error of the store."""
        ...

    def execute_many(self, sql: str, rows: Sequence[StatementParameters]) -> object:
        """Executes a statement that writes with each of some rows."""
        ...

    def execute_native(
        self, sql: str, parameters: Sequence[Any] | Mapping[str, Any], *, reading: bool = False
    ) -> FetchedRows:
        """Executes one statement of a handler, in the syntax of the database's library; raises what that raises.

        A statement that fails has changed nothing, and the transaction stays open. With `reading`, the database holds
        this statement to reading, in a transaction that may write.
        """
        ...

    def is_refused_write(self, error: Exception) -> bool:
        """Tests whether the database has refused a statement because it writes where only reading is allowed."""
        ...

    def cancel(self) -> None:
        """Cancels the statement that another thread executes, perhaps with its transaction; raises no `StoreError`."""
        ...


class Driver(Protocol):
    """One database, reached through as many connections as its kind has use for.

    Attributes:
        url: names it to people, without any password.
        types: the names of its types.
        busy: how long to wait for it.
        one_writer: whether a transaction that writes excludes all other writers.
        poll_every: how often to look for changes of other processes.
        call_places: who may have a connection for a call; where there is one writer, units of work need a place too.
        owner: the store among the others that use the database; closed with the driver.
        now: returns its time, aware and in UTC.
    """

    url: str
    types: ColumnTypes
    busy: timedelta
    one_writer: bool
    poll_every: timedelta
    call_places: CallPlaces
    owner: StoreOwner
    now: Callable[[], datetime]

    def query(self, sql: str, parameters: StatementParameters = ()) -> Rows:
        """Returns the rows of a statement, which is a transaction of its own."""
        ...

    @property
    def now_waits(self) -> bool:
        """True if `now` asks a server at this moment."""
        ...

    def may_group(self, writes: Sequence[object]) -> bool:
        """Tests whether a unit of work may be written in one transaction with others."""
        ...

    def write_group(self, units: Sequence[Sequence[object]]) -> Sequence[bool] | None:
        """Writes units of work in one transaction, each of them whole or not at all.

        Returns which of them were written, when that is committed. `None` if the transaction failed: then nothing was
        written, unless the connection was lost in the moment of the commit. One that cannot begin is a `StoreError`.
        """
        ...

    def one_statement(self, writes: Sequence[object]) -> Statement | None:
        """Makes one statement of a unit of work, if it is of a kind that is one here: it saves round trips.

        The statement returns one row if every row that is compared is the one read, so that all is written; else none.
        Entries that do not follow the newest one raise `SessionError`.
        """
        ...

    def acquire(self, *, for_call: bool = False) -> DriverConnection:
        """Lends a connection to a unit, to be released in the same thread, or to a call; may raise a `StoreError`."""
        ...

    def release(self, connection: DriverConnection) -> None:
        """Takes a connection back; a transaction that is still open is rolled back.

        What a call has set or made on it (settings, temporary tables) does not reach the next borrower.
        """
        ...

    def close(self) -> None:
        """Closes all connections; idempotent."""
        ...


def check_process(process: int, url: str) -> None:
    """Refuses a process that was forked off the one that has opened a store, by a `StoreError`."""
    if current_pid() != process:
        raise StoreError(
            f"{url} was opened by process {process}, which this one was forked off; open it anew here", store=url
        )


_GIVEN: Future[None] = Future()
_GIVEN.set_result(None)


@dataclass(slots=True, eq=False)
class Place:
    """A place that was requested for a call or a unit; `behind_call` if it may have to wait for a call."""

    for_call: bool
    behind_call: bool = False
    turn: Future[None] = _GIVEN  # done when it is given, cancelled when it is withdrawn before


class CallPlaces:
    """The places of one database, from 1; any thread may release a place."""

    __slots__ = ("_busy", "_calls", "_holders", "_lock", "_number", "_units", "_url")

    def __init__(self, number: int, *, busy: timedelta, url: str) -> None:
        self._number = number
        self._busy = busy.total_seconds()
        self._url = url
        self._lock = threading.Lock()
        self._holders: set[Place] = set()
        self._units: deque[Place] = deque()
        self._calls: deque[Place] = deque()

    @property
    def waiting(self) -> int:
        """The number of requests that wait."""
        return sum(not place.turn.done() for queue in (self._units, self._calls) for place in tuple(queue))

    def is_used_by_calls(self) -> bool:
        """Tests whether a call holds a place, or waits for one."""
        holds = any(place.for_call for place in tuple(self._holders))
        return holds or any(not place.turn.done() for place in tuple(self._calls))

    def ask(self, *, for_call: bool = False) -> Place:
        """Requests a place, which is given as soon as there is one; to be released in any case."""
        with self._lock:
            if len(self._holders) < self._number and not (self._units or self._calls):
                place = Place(for_call)
                self._holders.add(place)
            else:
                place = Place(for_call, self.is_used_by_calls(), Future())
                (self._calls if for_call else self._units).append(place)
                self._give()
        return place

    def wait(self, place: Place) -> None:
        """Blocks this thread until a place is given or withdrawn, or `busy` has passed; `check` says which."""
        if place.turn is not _GIVEN:
            is_refused = place.behind_call and not may_wait_for_calls()
            with suppress(TimeoutError, CancelledError):
                place.turn.result(0.0 if is_refused else self._busy)

    async def wait_async(self, place: Place) -> None:
        """Waits as `wait` does; the task is suspended meanwhile."""
        if not place.turn.done():
            await asyncio.wait((asyncio.wrap_future(place.turn),), timeout=self._busy)

    def check(self, place: Place) -> None:
        """Withdraws a place that was not given.

        Raises:
            SessionUseError: it was not given, and this thread runs an event loop.
            StoreUnavailableError: it was not given.
        """
        if place.turn is _GIVEN or not place.turn.cancel():
            return
        if place.behind_call and not may_wait_for_calls():
            raise loop_would_wait(self._url)
        msg = (
            f"{self._url} cannot be used now: calls that write through context.connection, or units of work in other "
            "threads, do not come to their end; make fewer calls at a time, or keep their handlers short"
        )
        raise StoreUnavailableError(msg, store=self._url, waited=True)

    def release(self, place: Place) -> None:
        """Gives a place to the next request; one that was not given yet is withdrawn."""
        if place.turn is _GIVEN or not place.turn.cancel():
            with self._lock:
                self._holders.discard(place)
                self._give()

    def _give(self) -> None:
        """Gives the free places to the requests that wait, under the lock; they cannot be withdrawn any more."""
        for queue in (self._units, self._calls):
            while queue and len(self._holders) < self._number:
                place = queue.popleft()
                if place.turn.set_running_or_notify_cancel():
                    self._holders.add(place)
                    place.turn.set_result(None)


def loop_would_wait(url: str) -> SessionUseError:
    """Describes the refusal to wait for another call or write on the thread of an event loop."""
    return SessionUseError(
        f"another call writes to {url}, and waiting for it here would stop the event loop of this thread, which it may "
        "need to end. Nothing was written: await the asynchronous form of the method, whose name ends in `_async`, as "
        "`context.connection.execute_async`, `conversation.append_async` and `Session.open_async`, or call the method "
        "with `asyncio.to_thread`"
    )
