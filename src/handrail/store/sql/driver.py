"""What the SQL of a store is executed on: links and drivers.

A *driver* knows one kind of database. It gives out *links*, a link being one connection that one thread uses at a
time, and turns what goes wrong into errors of `handrail.errors`: everything above it meets no other. SQL is written
with `?` for parameters.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from handrail.errors import SessionUseError, StoreError, StoreUnavailableError
from handrail.loop_guard import may_wait_for_calls
from handrail.process_identity import current_pid
from handrail.store.locks import StoreOwner

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
        collation: what makes texts be compared character by character; may be empty.
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
    collation: str = ""
    function: str = ""


class FetchedRows:
    """What a handler's statement came to; a `handrail.session.persistence.protocol.DatabaseCursor`.

    Attributes:
        rowcount: how many rows the statement changed or found; -1 where the database does not report it.
    """

    __slots__ = ("_rows", "rowcount")

    def __init__(self, rows: Rows, rowcount: int) -> None:
        self._rows = iter(rows)
        self.rowcount: int = rowcount

    def fetchone(self) -> tuple[Any, ...] | None:
        """The next row; `None` if there is none left."""
        return next(self._rows, None)

    def fetchall(self) -> Rows:
        """All rows that are left."""
        return list(self._rows)


Query: TypeAlias = Callable[[str, StatementParameters], Rows]
"""The `query` of a connection, inside its transaction; or of a database, where each is a transaction of its own."""


class DriverConnection(Protocol):
    """A connection that one thread uses at a time, with at most one transaction."""

    def query(self, sql: str, parameters: StatementParameters = ()) -> Rows:
        """Returns the rows of a statement.

        Raises:
            StoreError: what went wrong.
        """
        ...

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


class Driver(Protocol):
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

    def query(self, sql: str, parameters: StatementParameters = ()) -> Rows:
        """Returns the rows of a statement, which is a transaction of its own.

        Raises:
            StoreError: what went wrong.
        """
        ...

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


class Place:
    """A place that was asked for.

    Attributes:
        for_call: whether a call has asked for it, not a unit of work.
        behind_call: whether it may have to wait for a call.
        turn: done when the place is given, cancelled when it is withdrawn before that; `None` if it was free.
    """

    __slots__ = ("behind_call", "for_call", "turn")

    def __init__(self, *, for_call: bool, behind_call: bool = False, turn: Future[None] | None = None) -> None:
        self.for_call: bool = for_call
        self.behind_call: bool = behind_call
        self.turn: Future[None] | None = turn

    def done(self) -> bool:
        """Whether it is given or withdrawn."""
        return self.turn is None or self.turn.done()

    def cancel(self) -> bool:
        """Withdraw it if it was not given yet; returns whether it is withdrawn."""
        return self.turn is not None and self.turn.cancel()

    def cancelled(self) -> bool:
        """Whether it was withdrawn."""
        return self.turn is not None and self.turn.cancelled()


class CallPlaces:
    """The places of one database; one may be released by another thread than the one that has asked for it.

    Args:
        number: how many there are, from 1.
        busy: how long to wait for one.
        url: names the database to people.
    """

    __slots__ = ("_busy", "_calls", "_holders", "_lock", "_number", "_units", "_url")

    def __init__(self, number: int, *, busy: timedelta, url: str) -> None:
        """Begin with all places free."""
        self._number = number
        self._busy = busy.total_seconds()
        self._url = url
        self._lock = threading.Lock()
        self._holders: set[Place] = set()
        self._units: deque[Place] = deque()
        self._calls: deque[Place] = deque()

    @property
    def waiting(self) -> int:
        """How many places are waited for."""
        return sum(not place.done() for queue in (self._units, self._calls) for place in tuple(queue))

    def is_used_by_calls(self) -> bool:
        """Whether a call holds a place, or waits for one."""
        holds = any(place.for_call for place in tuple(self._holders))
        return holds or any(not place.done() for place in tuple(self._calls))

    def ask(self, *, for_call: bool = False) -> Place:
        """A place, which is given as soon as there is one; to be released in any case."""
        with self._lock:
            if len(self._holders) < self._number and not (self._units or self._calls):
                place = Place(for_call=for_call)
                self._holders.add(place)
                return place
            place = Place(for_call=for_call, behind_call=self.is_used_by_calls(), turn=Future())
            (self._calls if for_call else self._units).append(place)
            self._give()
        return place

    def wait(self, place: Place) -> None:
        """Block this thread until a place is given or withdrawn, or `busy` has passed; `check` says which."""
        if place.turn is not None:
            is_refused = place.behind_call and not may_wait_for_calls()
            with suppress(TimeoutError, CancelledError):
                place.turn.result(0.0 if is_refused else self._busy)

    async def wait_async(self, place: Place) -> None:
        """As `wait`; the task is suspended meanwhile."""
        if place.turn is not None and not place.turn.done():
            await asyncio.wait((asyncio.wrap_future(place.turn),), timeout=self._busy)

    def check(self, place: Place) -> None:
        """Withdraw a place that was not given.

        Raises:
            SessionUseError: it was not, and this thread runs an event loop.
            StoreUnavailableError: it was not.
        """
        if not place.cancel():
            return
        if place.behind_call and not may_wait_for_calls():
            raise loop_would_wait(self._url)
        msg = (
            f"{self._url} cannot be used now: calls that write through context.connection, or units of work in other "
            "threads, do not come to their end; make fewer calls at a time, or keep their handlers short"
        )
        raise StoreUnavailableError(msg, store=self._url, waited=True)

    def release(self, place: Place) -> None:
        """Give a place to the next one that waits; if it was not given yet, it is withdrawn."""
        if not place.cancel():
            with self._lock:
                self._holders.discard(place)
                if self._units or self._calls:
                    self._give()

    def _give(self) -> None:
        """Give the free places to those who wait, under the lock; one that is given cannot be withdrawn any more."""
        for queue in (self._units, self._calls):
            while queue and len(self._holders) < self._number:
                place = queue.popleft()
                if place.turn is not None and place.turn.set_running_or_notify_cancel():
                    self._holders.add(place)
                    place.turn.set_result(None)


def loop_would_wait(url: str) -> SessionUseError:
    """What is refused on the thread of an event loop: to wait for another call or write."""
    return SessionUseError(
        f"another call writes to {url}, and waiting for it here would stop the event loop of this thread, which it may "
        "need to end. Nothing was written: await the asynchronous form of the method, whose name ends in `_async`, as "
        "`context.connection.execute_async`, `conversation.append_async` and `Session.open_async`, or call the method "
        "with `asyncio.to_thread`"
    )
