"""The database inside the transaction of a call: what a handler has as `context.connection`.

An outermost call and those inside it have one such connection to a store, however often they ask for it. Its
transaction is begun with the first statement, and on SQLite it takes the writer then, also if that statement reads. It
is a participant of the call's transaction (a call inside the call is a savepoint of it), and is enlisted on the
outermost one: the unit in which that transaction is settled is written on this connection too, so that what the handler
wrote, the session's changes and the row of the ledger are committed atomically. If the connection is lost before that,
what was written is lost with it, and so the call cannot be committed.

Before its first statement a call waits for a place (`handrail.store.sql.call_places`), which it keeps to its end: so
the commits of those that have one, and other calls, find a connection. A task waits without holding its event loop, and
its statements are executed in another thread (`execute_async`). A thread that runs an event loop does not wait for
another call, which may need the loop to come to its end: it is refused.

A call that has timed out may be in the middle of a statement, in a thread that cannot be stopped: to roll the call back
is to cancel that statement first.

A call that may only read has a connection of its own, whose transaction the database holds to reading. It takes part in
no unit, and is returned when the handler has ended. In a call that reads inside one that writes, each statement is held
to reading on the connection of the outer one, so it finds what that one has written.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from handrail.errors import SessionError, SessionUseError, StoreError, StoreUnavailableError, TransactionClosedError
from handrail.loop_guard import check_blocking, loop_is_running
from handrail.store.sql.call_places import Place
from handrail.store.sql.driver import Driver, DriverConnection, FetchedRows
from handrail.transaction import Transaction, UnitStore, check_write, current
from handrail.turns import Turn
from handrail.waiting import outlast, run_in_thread

_UNIT = "handrail_unit"

_CANCEL_AGAIN_SECONDS = 0.05

# What databases do not read alike is not passed over: comments in comments, and a carriage return that ends a line.
_COMMAND = re.compile(
    r"(?is)(?>[\s;\ufeff]|--[^\r\n]*(?:\r?\n|\Z)|/\*(?:(?!/\*|\*/).)*\*/)*+([a-z_]+|\(|\Z)", re.IGNORECASE | re.DOTALL
)

_CONTROL = frozenset(
    {
        *("ABORT", "BEGIN", "COMMIT", "END", "RELEASE", "ROLLBACK", "SAVEPOINT", "START", "PREPARE"),
        *("ATTACH", "DETACH", "DISCARD", "PRAGMA", "RESET", "SET", "VACUUM"),
    }
)


def check_statement(sql: str) -> None:
    """Refuses a handler's statement that would begin, end or change the transaction, or change the connection.

    Raises:
        SessionError: it would; or it begins with neither a word nor a simple comment.
    """
    begin = _COMMAND.match(sql)
    if begin is None:
        msg = "context.connection executes statements that begin with a word, or with simple comments before it"
        raise SessionError(msg)
    command = begin[1].upper()
    if command in _CONTROL:
        msg = (
            f"context.connection does not execute {command}: the transaction and the connection are the call's. It "
            "commits when the call succeeds and is undone when the call fails; raise to undo it"
        )
        raise SessionError(msg)


class CallConnection:
    """The connection of one call; see `handrail.session.persistence.protocol.DatabaseConnection`.

    Args:
        root: the outermost transaction of the call.
        store: the store that it belongs to.
        driver: what it is borrowed from.
        forget: called with the transaction when that is settled.

    Attributes:
        turn: its turn; no other call waits for it, because it belongs to one call.
        store: the store that it belongs to.
        reads: whether the call may only read, so that the connection is held to it.
    """

    __slots__ = (
        "__weakref__",
        "_driver",
        "_enlisted",
        "_forget",
        "_letting_go",
        "_link",
        "_lock",
        "_lost",
        "_place",
        "_root",
        "_savepoints",
        "reads",
        "store",
        "turn",
    )

    def __init__(
        self, root: Transaction, *, store: UnitStore, driver: Driver, forget: Callable[[Transaction], object]
    ) -> None:
        self.turn: Turn = Turn()
        self.store: UnitStore | None = store
        self.reads: bool = not root.writes
        self._root = root
        self._driver = driver
        self._forget = forget
        self._lock = threading.RLock()
        self._letting_go = threading.Lock()  # so that no statement of the next one to borrow the link is cancelled
        self._place: Place | None = None
        self._link: DriverConnection | None = None
        self._enlisted = False
        self._lost = False
        self._savepoints = 0

    def execute(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> FetchedRows:
        """Execute one statement; what it writes is committed with the call, and undone with it.

        Raises:
            ModelVisibleError: the call may not write (see `handrail.transaction.check_write`).
            SessionError: the statement would begin or end a transaction, which is the call's to do; or no call runs
                here.
            SessionUseError: other calls have all places, and this thread runs an event loop.
            StoreError: the database cannot be reached, or the transaction has been lost.
            Exception: what the database says, as its driver raises it.
        """
        check_statement(sql)
        check_blocking("a statement of", self._driver.url)
        if (place := self._ask()) is not None:
            on_loop = loop_is_running() and self._driver.call_places.is_used_by_calls(but=place)
            place.wait(0.0 if on_loop else self._driver.busy.total_seconds())
            self._check_place(place, on_loop=on_loop)
        return self._executed(sql, parameters)

    async def execute_async(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> FetchedRows:
        """As `execute`, without holding the event loop while the call waits for its place, or for the statement.

        Raises:
            CancelledError: the task was cancelled. The statement has ended by then.
            Exception: as of `execute`.
        """
        check_statement(sql)
        if (place := self._ask()) is not None:
            await place.wait_async(self._driver.busy.total_seconds())
            self._check_place(place)
        return await outlast(run_in_thread(partial(self._executed, sql, parameters)))

    def _executed(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any]) -> FetchedRows:
        transaction = self._check_call()
        with self._lock:
            link = self._begun(transaction)
            try:
                if transaction.writes or self.reads:
                    rows = link.execute_native(sql, parameters)
                else:
                    rows = link.query_native(sql, parameters)
            except Exception as error:
                if not transaction.writes and self._driver.is_refused_write(error):
                    raise transaction.read_only_violation("write to the database") from error
                raise
            self._borrowed()  # the statement may have ended the transaction all the same
            return rows

    def _begun(self, transaction: Transaction) -> DriverConnection:
        """The connection for a statement of the call that runs here."""
        is_first = not self._is_borrowed
        try:
            if transaction.writes:
                check_write(self, "write to the database")
            elif is_first and transaction.is_open():
                self._begin()
        finally:
            if is_first and not self._root.is_open():
                self._release()  # it was acquired too late to be released elsewhere
        if not transaction.is_open():
            raise TransactionClosedError(transaction.tool, "use the database")
        return self._borrowed()

    def _check_call(self) -> Transaction:
        """The transaction of the call that runs here; raises `SessionError` if it is that of another call."""
        transaction = current()
        if transaction is None or transaction.root is not self._root:
            msg = "this connection belongs to another call; take context.connection of the call that runs here"
            raise SessionError(msg)
        return transaction

    # ----------------------------------------------------------------------------------------------------- its place

    def _ask(self) -> Place | None:
        """The place that the call has to wait for; `None` if it needs none. All threads and tasks of it share one."""
        transaction = self._check_call()
        if not transaction.is_open():
            raise TransactionClosedError(transaction.tool, "use the database")
        if self.reads and self._driver.one_writer:
            return None
        self._enlist()
        with self._letting_go:
            if self._place is None:
                self._place = self._driver.call_places.ask(for_call=True)
            return self._place

    def _check_place(self, place: Place, *, on_loop: bool = False) -> None:
        """Withdraw a place that was not given, or that the call has no use for any more."""
        if self._root.state != "open":
            if self._link is None:
                self._release()  # what has ended the call may have come before the place was asked for
            raise TransactionClosedError(self._root.tool, "use the database")
        if not place.cancel():
            return
        with self._letting_go:
            self._place = None if self._place is place else self._place
        url = self._driver.url
        if on_loop:
            raise SessionUseError(
                f"other calls write to {url} through context.connection, and waiting for them here would stop the "
                "event loop of this thread; in an `async def` handler, use `await context.connection.execute_async()`"
            )
        msg = (
            f"{url} cannot be used now: calls that write through context.connection do not come to their end; "
            "make fewer of them at a time, or keep their handlers short"
        )
        raise StoreUnavailableError(msg, store=url)

    # ------------------------------------------------------------------------------------------------- a participant

    restore_waits = True
    """Restoring a snapshot is a statement."""

    def snapshot(self) -> str:
        """Set a savepoint, in a transaction that is begun now if there is none, and return its name."""
        with self._lock:
            if self._link is None:
                self._begin()
            link = self._borrowed()
            self._savepoints += 1
            name = f"handrail_call_{self._savepoints}"
            link.execute(f"SAVEPOINT {name}")
            return name

    def restore(self, snapshot: str, /) -> None:
        """Go back to a savepoint; if the transaction was lost, all of it is undone, and it will not be committed."""
        with self._cancelled():
            link = self._link
            if link is None or self._lost:
                return
            try:
                link.execute(f"ROLLBACK TO SAVEPOINT {snapshot}")
            except StoreError:
                self._lost = True
                link.rollback()

    # -------------------------------------------------------------------------------------------------------- enlisted

    queue = None
    waits = True

    def prepare(self) -> None:
        """Nothing: the unit ends this transaction."""

    def write(self) -> Sequence[object]:
        """Itself, if the call has executed anything that may write: the unit ends this transaction."""
        if self.is_writing:
            return (self,)
        self._release()  # the handler has ended
        return ()

    def after_commit(self) -> None:
        """Unregister the connection, and give it back."""
        self._forget(self._root)
        self._release()

    def in_doubt(self) -> None:
        """Give the connection back. Only the database knows whether the writes were committed."""
        self.after_rollback()

    def after_rollback(self) -> None:
        """Undo what was written, if anything was, and give the connection back."""
        with self._cancelled():
            self._forget(self._root)
            self._release()

    # ---------------------------------------------------------------------------------------------- writing the unit

    @property
    def link(self) -> DriverConnection:
        """What a unit on this connection is written through.

        Raises:
            StoreError: the transaction was lost.
        """
        return self._borrowed()

    @property
    def is_writing(self) -> bool:
        """Whether the call has executed anything that may have written, and is not settled yet."""
        return self._is_borrowed and not self.reads

    def begin(self) -> None:
        """Begin to write the unit, at a savepoint of the call's transaction; late writers wait until it is written.

        Raises:
            StoreError: the transaction was lost.
        """
        self._lock.acquire()
        try:
            self._borrowed().execute(f"SAVEPOINT {_UNIT}")
        except BaseException:
            self._lock.release()
            raise

    def commit(self) -> None:
        """Commit the call's transaction, with the unit."""
        self._borrowed().commit()
        self._release()
        self._lock.release()

    def rollback(self) -> None:
        """Undo what the unit wrote; what the handler wrote before stays."""
        try:
            self._borrowed().execute(f"ROLLBACK TO SAVEPOINT {_UNIT}")
        except StoreError:
            self._lost = True
        finally:
            self._lock.release()

    # ------------------------------------------------------------------------------------------------------- its link

    @property
    def _is_borrowed(self) -> bool:
        """Whether the call has executed anything that is not settled yet."""
        return self._link is not None or self._lost

    def _begin(self) -> None:
        """Begin the transaction. Whatever interrupts this, the outermost call knows of it, and will give it back."""
        self._enlist()
        self._link = self._driver.acquire_for_call()
        try:
            if self.reads:
                self._link.begin_reading()
            else:
                self._link.begin()
        except BaseException:
            self._release()
            raise

    def _enlist(self) -> None:
        """Have the outermost call settle this connection, so that it releases what is acquired for it."""
        with self._letting_go:
            if not self._enlisted:
                self._root.enlist(self)
                self._enlisted = True

    def _release(self) -> None:
        with self._letting_go:
            link, self._link = self._link, None
            place, self._place = self._place, None
        try:
            if link is not None:
                self._driver.release_from_call(link)
        finally:
            if place is not None:
                self._driver.call_places.release(place)

    @contextmanager
    def _cancelled(self) -> Generator[None]:
        """Take the lock; if a late handler has it, cancel its statement, and the next one if it was between two."""
        free = self._lock.acquire(blocking=False)
        while not free:
            with self._letting_go:
                if self._link is not None:  # pragma: no branch - it is none while a late handler waits to borrow one
                    self._link.cancel()
            free = self._lock.acquire(timeout=_CANCEL_AGAIN_SECONDS)
        try:
            yield
        finally:
            self._lock.release()

    def _borrowed(self) -> DriverConnection:
        link = self._link
        if link is None or self._lost or not link.in_transaction:
            self._lost = True
            msg = (
                f"the transaction that {self._root.tool} wrote in through context.connection has ended before the "
                f"call: {self._driver.url} has undone it, or a statement ended it. Its writes are not committed"
            )
            raise StoreError(msg, store=self._driver.url)
        return link
