"""The database inside the transaction of a call: `context.connection` of a handler.

An outermost call and those inside it have one such connection to a store, enlisted on the outermost one. Its
transaction begins with the first statement, and on SQLite it acquires the writer then, also if that statement reads. It
is a participant of the call's transaction (a nested call is a savepoint of it), and the unit that settles the call is
written on this connection too: everything commits atomically.

| phase | its connection | until |
|---|---|---|
| not begun | none | the first statement, or the end of the call |
| begun | one that is in a transaction | the call is settled |
| lost | one that is in none any more: nothing is executed, and the call cannot be committed | the call is settled |
| settled | none, and the outermost transaction is closed, so no statement begins another one | |

Before its first statement a call waits for a place (`handrail.store.sql.driver`), which it holds to its end. A call
that has timed out may be in the middle of a statement, in a thread that cannot be stopped: to roll the call back is to
cancel that statement first.

A call that may only read has a transaction that the database holds to reading, and takes part in no unit. In a call
that reads inside one that writes, each statement is held to reading on the connection of the outer one, so it sees the
outer call's writes.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from handrail.errors import SessionError, StoreError, TransactionClosedError
from handrail.session.persistence.protocol import FetchedRows
from handrail.store.sql.driver import Driver, DriverConnection, Place
from handrail.transaction import Transaction, UnitStore, check_write, current
from handrail.turns import Turn
from handrail.waiting import await_shielded, check_blocking, run_in_thread

_EXECUTED = re.compile(
    r"\s*(?!(?:ABORT|BEGIN|COMMIT|END|RELEASE|ROLLBACK|SAVEPOINT|START|PREPARE"
    r"|ATTACH|DETACH|DISCARD|PRAGMA|RESET|SET|VACUUM)\b)[a-z(]",
    re.IGNORECASE,
)


def check_statement(sql: str) -> None:
    """Refuses a statement that would begin, end or change the transaction or the connection, by a `SessionError`.

    It has to begin with its word: databases differ in what else may come before it, as comments in comments.
    """
    if not _EXECUTED.match(sql):
        raise SessionError(
            "context.connection executes a statement that begins with a word, without a comment before it, and none "
            "that begins or ends a transaction or changes the connection, as COMMIT, SET and PRAGMA do: these are the "
            "call's. It commits when the call succeeds and is undone when the call fails; raise to undo it"
        )


class CallConnection:
    """The connection of one call to a store; see `handrail.session.persistence.protocol.DatabaseConnection`.

    No other call waits for its `turn`, because it belongs to one call.
    """

    __slots__ = ("_connection", "_place", "_releasing", "_root", "_savepoints", "_statement", "driver", "store", "turn")

    def __init__(self, root: Transaction, *, store: UnitStore, driver: Driver) -> None:
        self.turn: Turn = Turn()
        self.store: UnitStore | None = store
        self._root = root
        self.driver: Driver = driver
        self._statement = threading.RLock()  # while a statement is executed, the unit is written, or all is undone
        self._releasing = threading.Lock()  # so that no statement of the next one to borrow the connection is cancelled
        self._place: Place | None = None
        self._connection: DriverConnection | None = None
        self._savepoints = 0

    def execute(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> FetchedRows:
        """Executes one statement; its writes are committed with the call, and undone with it.

        Raises:
            ModelVisibleError: the call may not write (see `handrail.transaction.check_write`).
            SessionError: the statement would begin or end a transaction; or no call runs here.
            SessionUseError: other calls have all places, and this thread runs an event loop.
            StoreError: the database cannot be reached, or the transaction has been lost.
            Exception: the error of the database, as its driver raises it.
        """
        check_statement(sql)
        check_blocking("a statement of", self.driver.url)
        if (place := self._request_place()) is not None:
            self.driver.call_places.wait(place)
        return self._execute_in_call(place, sql, parameters)

    async def execute_async(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> FetchedRows:
        """Executes one statement without blocking the event loop; a task that is cancelled waits for its end."""
        check_statement(sql)
        if (place := self._request_place()) is not None:
            await self.driver.call_places.wait_async(place)
        return await await_shielded(run_in_thread(partial(self._execute_in_call, place, sql, parameters)))

    def _request_place(self) -> Place | None:
        with self._releasing:  # what settles the call has closed it before, so it finds the place that is asked for
            self._check_call()
            if not self._root.writes and self.driver.one_writer:
                return None
            if self._place is None or self._place.turn.cancelled():
                self._place = self.driver.call_places.ask(for_call=True)
            return self._place

    def _execute_in_call(
        self, place: Place | None, sql: str, parameters: Sequence[Any] | Mapping[str, Any]
    ) -> FetchedRows:
        with self._statement:
            transaction = self._check_call()
            if place is not None:
                self.driver.call_places.check(place)
            if transaction.writes:
                check_write(self, "write to the database")
            connection = self._begin()
            try:
                reading = self._root.writes and not transaction.writes
                rows = connection.execute_native(sql, parameters, reading=reading)
            except Exception as error:
                if not transaction.writes and connection.is_refused_write(error):
                    raise transaction.read_only_violation("write to the database") from error
                raise
            self._begin()  # the statement may have ended the transaction all the same
            return rows

    def _check_call(self) -> Transaction:
        transaction = current()
        if transaction is None or transaction.root is not self._root:
            msg = "this connection belongs to another call; take context.connection of the call that runs here"
            raise SessionError(msg)
        if not transaction.is_open():
            raise TransactionClosedError(transaction.tool, "use the database")
        return transaction

    # ------------------------------------------------------------------------------------------------- a participant

    restore_waits = True
    """Restoring a snapshot is a statement."""

    def snapshot(self) -> str:
        """Sets a savepoint, in a transaction that is begun now if there is none, and returns its name."""
        with self._statement:
            self._savepoints += 1
            name = f"handrail_call_{self._savepoints}"
            self._begin().execute(f"SAVEPOINT {name}")
            return name

    def restore(self, snapshot: str, /) -> None:
        """Rolls back to a savepoint; if the transaction was lost, all of it is undone, and it will not be committed."""
        with self._hold_statement():
            self._undo(snapshot)

    # -------------------------------------------------------------------------------------------------------- enlisted

    queue = None
    waits = True

    def prepare(self) -> None:
        """Does nothing: the unit ends this transaction."""

    def write(self) -> Sequence[object]:
        """Returns itself if the call has executed anything that may write: the unit ends this transaction."""
        if self.is_writing:
            return (self,)
        self.after_rollback()  # the handler has ended
        return ()

    def after_rollback(self) -> None:
        """Rolls back, if anything was written, and releases the connection."""
        with self._hold_statement():
            self._release()

    after_commit = after_rollback
    """Give the connection back."""

    in_doubt = after_rollback
    """Give the connection back. Only the database knows whether the writes were committed."""

    # ---------------------------------------------------------------------------------------------- writing the unit

    @property
    def is_writing(self) -> bool:
        """True if the call has executed anything that may have written, and is not settled yet."""
        return self._connection is not None and self._root.writes

    @property
    def connection(self) -> DriverConnection:
        """The connection in the transaction of the call, which has begun it; raises `StoreError` if that was lost."""
        if self._connection is None or not self._connection.in_transaction:
            msg = (
                f"the transaction that {self._root.tool} wrote in through context.connection has ended before the "
                f"call: {self.driver.url} has undone it, or a statement ended it. Its writes are not committed"
            )
            raise StoreError(msg, store=self.driver.url)
        return self._connection

    @contextmanager
    def unit(self) -> Generator[DriverConnection]:
        """Runs a block as a unit in the call's transaction, which the block commits; late writers wait.

        If the block raises, the unit is undone, and what the handler wrote before stays.
        """
        with self._statement:
            before = self.snapshot()
            try:
                yield self.connection
            except BaseException:
                self._undo(before)
                raise
            self._release()

    # --------------------------------------------------------------------------------------------- its connection

    def _begin(self) -> DriverConnection:
        if self._connection is None:
            self._connection = self.driver.acquire(for_call=True)
            try:
                self._connection.begin(reading=not self._root.writes)
            except BaseException:
                self._release()
                raise
        return self.connection

    def _undo(self, savepoint: str) -> None:
        connection = self._connection
        if connection is not None and connection.in_transaction:
            try:
                connection.execute(f"ROLLBACK TO SAVEPOINT {savepoint}")
            except StoreError:
                connection.rollback()  # it is lost

    def _release(self) -> None:
        with self._releasing:
            connection, place = self._connection, self._place
            self._connection = self._place = None
        try:
            if connection is not None:
                self.driver.release(connection)
        finally:
            if place is not None:
                self.driver.call_places.release(place)

    @contextmanager
    def _hold_statement(self) -> Generator[None]:
        """Acquires the lock; cancels the statement of a late handler that has it, also the next one meanwhile."""
        while not self._statement.acquire(timeout=0.02):
            with self._releasing:
                if (
                    self._connection is not None
                ):  # pragma: no branch - it is none while a late handler waits to borrow one
                    self._connection.cancel()
        try:
            yield
        finally:
            self._statement.release()


def connection_in(transaction: Transaction | None, driver: Driver) -> CallConnection | None:
    """Finds the connection to a database that a call has, in this call or in one around it; `None` for none."""
    for part in () if transaction is None else transaction.root.enlisted:
        if isinstance(part, CallConnection) and part.driver is driver:
            return part
    return None
