"""The database inside the transaction of a call: what a handler has as `context.connection`.

An outermost call and those inside it have one such connection to a store, however often they ask for it. It is borrowed
with the first statement, is a participant of the call's transaction (a call inside the call is a savepoint of it), and
is enlisted on the outermost one: the unit in which that transaction is settled is written on this connection too, so
that what the handler wrote, the session's changes and the row of the ledger are committed atomically. If the
connection is lost before that, what was written is lost with it, and so the call cannot be committed.

Few calls have one at a time: they wait for a place before they borrow it (`handrail.store.sql.call_place`), so that the
commits of those that have one, and other calls, find a connection and can write.

Where one transaction writes at a time, a call that has only read so far has no place, and keeps no other one from
writing: its transaction may only read, until a statement is refused because it writes
(`handrail.store.sql.call_statements`).

A task waits for the place without holding its event loop, and its statements are executed in another thread
(`execute_async`).

A call that has timed out may be in the middle of a statement, in a thread that cannot be stopped: to roll the call back
is to cancel that statement first.

A call that may only read has a connection of its own, whose transaction the database holds to reading. It takes part in
no unit, and is returned when the handler has ended. In a call that reads inside one that writes, each statement is held
to reading on the connection of the outer one, so it finds what that one has written.

A handler may not execute statements that begin or end a transaction, because the transaction is its call's
(`handrail.store.sql.call_statements`). Through the driver's own connection it could
(`driver_connection`). So that connection is used by no other call again, and when the handler has ended it is compared
whether the transaction is the one that was begun: it has the first savepoint of the call. If it has not, what the
handler wrote may be committed without the call, so the effect of the call is unknown.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from handrail.errors import (
    CallTransactionEndedError,
    SessionError,
    StoreError,
    StoreUnavailableError,
    TransactionClosedError,
)
from handrail.loop_guard import check_blocking
from handrail.store.sql.call_place import CallPlace
from handrail.store.sql.call_statements import RecordedReads, check_statement
from handrail.store.sql.driver import Driver, DriverConnection, FetchedRows
from handrail.store.sql.driver_proxy import DriverProxy
from handrail.transaction import OutcomeRecord, Transaction, UnitStore, check_write, current
from handrail.turns import Turn
from handrail.waiting import outlast, run_in_thread

_UNIT = "handrail_unit"
_FIRST = "handrail_call_1"
"""The savepoint that each transaction that writes begins with: it stands as long as that transaction does."""

_ENDED = "the transaction of its call ended while the handler ran"
"""Why an effect is unknown, as the model reads it."""

_CANCEL_AGAIN_SECONDS = 0.05


class _WritesError(Exception):
    """A statement writes, and the call may only read until it has a place. Never leaves this module."""


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
        "_deferred",
        "_driver",
        "_ended",
        "_enlisted",
        "_forget",
        "_letting_go",
        "_link",
        "_lock",
        "_lost",
        "_place",
        "_recorded",
        "_refused",
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
        self._root = root
        self._driver = driver
        self._forget = forget
        self._place = CallPlace(self._driver)
        self._recorded = RecordedReads()
        self._lock = threading.RLock()
        self._letting_go = threading.Lock()  # so that no statement of the next one to borrow the link is cancelled
        self._link: DriverConnection | None = None
        self._enlisted = False
        self._lost = False
        self._refused: StoreError | None = None  # why the transaction cannot be committed, as far as the store says it
        self._ended: CallTransactionEndedError | None = None
        self._savepoints = 0
        self.reads: bool = not root.writes
        self._deferred = self._driver.one_writer and not self.reads  # whether its transaction may only read as yet

    def execute(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> FetchedRows:
        """Execute one statement; what it writes is committed with the call, and undone with it.

        Raises:
            ModelVisibleError: the call may not write (see `handrail.transaction.check_write`).
            SessionError: the statement would begin or end a transaction, which is the call's to do; or no call runs
                here.
            StoreError: the database cannot be reached, or the transaction has been lost.
            Exception: what the database says, as its driver raises it.
        """
        check_statement(sql)
        check_blocking("a statement of", self._driver.url)
        if self._needs_place:
            self._take_place()
        try:
            return self._executed(sql, parameters)
        except _WritesError:
            self._take_place()
        return self._executed(sql, parameters)

    async def execute_async(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> FetchedRows:
        """As `execute`, without holding the event loop while the call waits for its place, or for the statement.

        Raises:
            CancelledError: the task was cancelled. The statement has ended by then.
            Exception: as of `execute`.
        """
        check_statement(sql)
        if self._needs_place:
            await self._take_place_async()
        executed = partial(self._executed, sql, parameters)
        try:
            return await outlast(run_in_thread(executed))
        except _WritesError:
            await self._take_place_async()
        return await outlast(run_in_thread(executed))

    def driver_connection(self) -> DriverProxy:
        """The driver's own connection, in the transaction of the call; see `DatabaseConnection.driver_connection`.

        Raises:
            ReadOnlyViolation: the call may only read, and is made inside one that writes: the connection is that one's.
            Exception: as of `execute`.
        """
        check_blocking("connecting to", self._driver.url)
        if not (self.reads and self._driver.one_writer):
            self._take_place()
        return self._exposed()

    async def driver_connection_async(self) -> DriverProxy:
        """As `driver_connection`, without holding the event loop while the call waits for its place.

        Raises:
            CancelledError: the task was cancelled.
            Exception: as of `driver_connection`.
        """
        if not (self.reads and self._driver.one_writer):
            await self._take_place_async()
        return await outlast(run_in_thread(self._exposed))

    def _executed(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any]) -> FetchedRows:
        with self._in_use() as (transaction, link):
            if not transaction.writes:
                rows = self._read(transaction, link, sql, parameters)
            elif self._deferred and not self._place.is_held:
                rows = self._read_first(link, sql, parameters)
            else:
                self._begin_writing(link)
                rows = link.execute_native(sql, parameters)
            self._borrowed()  # the statement may have ended the transaction all the same
            return rows

    def _exposed(self) -> DriverProxy:
        with self._in_use() as (transaction, link):
            if not (transaction.writes or self.reads):
                raise transaction.read_only_violation("take the driver's connection of the call that made it")
            if self.reads:
                link.seal()
            else:
                self._begin_writing(link)
            self._savepoints += 1
            return DriverProxy(link.expose(), link, f"handrail_driver_{self._savepoints}", ended=self._ended_early)

    @contextmanager
    def _in_use(self) -> Generator[tuple[Transaction, DriverConnection]]:
        """Have the connection for a statement of the call that runs here."""
        transaction = self._of_this_call()
        with self._lock:
            written_before = self.is_borrowed
            try:
                if transaction.writes:
                    check_write(self, "write to the database")
                else:
                    self._begin_reading(transaction)
            except TransactionClosedError:
                if not written_before and not self._root.is_open():
                    self._release()  # it was acquired too late to be released elsewhere
                raise
            yield transaction, self._borrowed()

    def _of_this_call(self) -> Transaction:
        """The transaction of the call that runs here.

        Raises:
            SessionError: it is that of another call.
        """
        transaction = current()
        if transaction is None or transaction.root is not self._root:
            msg = "this connection belongs to another call; take context.connection of the call that runs here"
            raise SessionError(msg)
        return transaction

    def _begin_reading(self, transaction: Transaction) -> None:
        if self._link is None and not self._lost and transaction.is_open():
            self._begin()
        # After that, as `check_write` does: the call may have ended while its connection was acquired.
        if not transaction.is_open():
            raise TransactionClosedError(transaction.tool, "read the database")

    def _read(
        self,
        transaction: Transaction,
        link: DriverConnection,
        sql: str,
        parameters: Sequence[Any] | Mapping[str, Any],
    ) -> FetchedRows:
        """Execute a statement of a call that may only read."""
        try:
            if self._deferred:
                return self._recorded.read(link, sql, parameters)
            return link.execute_native(sql, parameters) if self.reads else link.query_native(sql, parameters)
        except Exception as error:
            if self._driver.is_refused_write(error):
                raise transaction.read_only_violation("write to the database") from error
            raise

    def _read_first(
        self, link: DriverConnection, sql: str, parameters: Sequence[Any] | Mapping[str, Any]
    ) -> FetchedRows:
        """Execute a statement of a call that has written nothing, and may not yet.

        Raises:
            _WritesError: the statement writes.
        """
        try:
            return self._recorded.read(link, sql, parameters)
        except Exception as error:
            if self._driver.is_refused_write(error):
                raise _WritesError from error
            raise

    def _begin_writing(self, link: DriverConnection) -> None:
        """Begin a transaction that may write in the place of the one that reads, if it has not begun.

        Raises:
            StoreUnavailableError: the database is busy, or what the call has read was changed.
        """
        if not self._deferred:
            return
        try:
            is_same = link.begin_writing(self._place.seconds_left)
        except StoreError:
            self._read_on(link)
            raise
        except BaseException:
            self._lost = True
            raise
        self._deferred = False
        self._lost = True  # unless it is found to be as it was
        self._set_savepoints(link)
        if (is_same and not self._recorded.is_outdated) or self._recorded.are_found_again(link):
            self._lost = False
            return
        url = self._driver.url
        msg = (
            f"{url} was changed by another call after {self._root.tool} had read from it through context.connection, "
            "and before it wrote; make the call again, or have it read and write in one statement"
        )
        raise StoreUnavailableError(msg, store=url)

    def _read_on(self, link: DriverConnection) -> None:
        """Read in another transaction than before; what was read is compared whenever the call begins to write."""
        self._recorded.is_outdated = True
        link.begin_reading()
        self._set_savepoints(link)

    def _set_savepoints(self, link: DriverConnection) -> None:
        """Set the savepoints of the calls inside this one again: nothing was written, so each of them is here."""
        for number in range(1, self._savepoints + 1):
            link.execute(f"SAVEPOINT handrail_call_{number}")

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
        """Go back to a savepoint; if the transaction was lost, all of it is undone, and it will not be committed.

        Raises:
            CallTransactionEndedError: the handler has ended the transaction.
        """
        with self._cancelled():
            link = self._link
            if self._ended is not None:
                raise self._ended
            if link is None or self._lost:
                return
            try:
                self._lost = not link.in_savepoint(f"ROLLBACK TO SAVEPOINT {snapshot}")
                if self._lost and link.is_exposed:
                    raise self._ended_early()
            except StoreError:
                self._lost = True
            finally:
                # One that is exposed may be closed by now, and ends with the call.
                if self._lost and not link.is_exposed:
                    link.rollback()

    # -------------------------------------------------------------------------------------------------------- enlisted

    queue = None
    waits = True

    def prepare(self) -> None:
        """Compare whether the transaction is the one that was begun, if the handler had the means to end it.

        Raises:
            CallTransactionEndedError: it is not. What the handler wrote may be committed.
        """
        with self._lock:
            link = self._link
            if self._ended is not None:
                raise self._ended
            if link is None or self._lost or self.reads or not link.is_exposed:
                return
            try:
                self._compare(link)
                link.reset_factories()
            except StoreError as error:
                self._refused = error
                self._lost = True  # the unit cannot be written

    def write(self) -> Sequence[object]:
        """Itself, if the call has executed anything that may write: the unit ends this transaction."""
        if not self.reads and (self.is_writing or self._lost):
            return (self,)
        self._release()  # the handler has ended
        return ()

    def after_commit(self) -> None:
        """Be listed no more."""
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
    def is_borrowed(self) -> bool:
        """Whether the call has executed anything that is not settled yet."""
        return self._link is not None or self._lost

    @property
    def is_writing(self) -> bool:
        """Whether the call has executed anything that may have written, and is not settled yet."""
        return self.is_borrowed and not (self.reads or self._deferred)

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
        link = self._borrowed()
        if link.is_exposed:
            link.seal()  # a late handler that still has the driver's connection finds none that takes writes
        link.commit()
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

    def _begin(self) -> None:
        """Begin the transaction. Whatever interrupts this, the outermost call knows of it, and will give it back."""
        self._enlist()
        self._deferred = self._deferred and not self._place.is_held
        self._link = self._driver.acquire_for_call(self._place.seconds_left)
        try:
            if self.reads or self._deferred:
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
        try:
            if link is not None:
                self._driver.release_from_call(link)
        finally:
            self._place.release()

    @property
    def _needs_place(self) -> bool:
        """Whether its first statement needs a place; where one transaction writes at a time, reading needs none."""
        return not self._driver.one_writer

    def _take_place(self) -> None:
        """Take a place; without the lock, so that the call can be undone meanwhile."""
        self._prepare_place()
        self._place.take()
        self._keep_place()

    async def _take_place_async(self) -> None:
        """As `_take_place`, in a task."""
        self._prepare_place()
        await self._place.take_async()
        self._keep_place()

    def _prepare_place(self) -> None:
        transaction = self._of_this_call()
        if not transaction.is_open():
            raise TransactionClosedError(transaction.tool, "use the database")
        if not self._place.is_held:
            self._enlist()

    def _keep_place(self) -> None:
        """Release the place if the call has ended while it was waited for: what has ended the call could not."""
        if self._root.state != "open":
            self._release()
            raise TransactionClosedError(self._root.tool, "use the database")

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
            if self._link is None or not self._link.is_exposed:
                yield
            else:  # a statement through the driver's connection does not take the lock
                with _cancelling(self._link):
                    yield
        finally:
            self._lock.release()

    def _ended_early(self) -> CallTransactionEndedError:
        """What is raised when the handler has ended the transaction; the effects that it belongs to are unknown now."""
        self._lost = True
        if self._ended is None:
            self._ended = CallTransactionEndedError(tool=self._root.tool, store=self._driver.url)
            for part in self._root.enlisted:
                if isinstance(part, OutcomeRecord):
                    part.outcome_unknown(_ENDED)
        return self._ended

    def _compare(self, link: DriverConnection) -> None:
        """Make sure that the transaction is the one that was begun; then no savepoint of it stands any more.

        Raises:
            CallTransactionEndedError: it is not.
            StoreError: the connection is lost, or a statement has failed.
        """
        if not link.in_savepoint(f"RELEASE SAVEPOINT {_FIRST}"):
            raise self._ended_early()

    def _borrowed(self) -> DriverConnection:
        link = self._link
        if self._ended is not None:
            raise self._ended
        if link is None or self._lost or not link.in_transaction:
            if link is not None and link.is_exposed and not (self._lost or self.reads):
                try:
                    self._compare(link)
                except StoreError as error:
                    self._refused = error
            self._lost = True
            msg = (
                f"the transaction that {self._root.tool} wrote in through context.connection has ended before the "
                f"call: {self._driver.url} has undone it, or a statement ended it. Its writes are not committed"
            )
            if self._refused is not None:
                msg = f"{msg}. {self._refused}"
            if isinstance(self._refused, StoreUnavailableError):
                # Another attempt would gain nothing: the transaction is gone with its connection.
                raise StoreUnavailableError(msg, store=self._driver.url, waited=True) from self._refused
            raise StoreError(msg, store=self._driver.url) from self._refused
        return link


@contextmanager
def _cancelling(link: DriverConnection) -> Generator[None]:
    """Cancel what other threads execute on a connection, now and as long as the block waits for it."""
    ended = threading.Event()

    def cancel() -> None:
        while not ended.wait(_CANCEL_AGAIN_SECONDS):
            link.cancel()

    link.cancel()
    canceller = threading.Thread(target=cancel, name="handrail-canceller", daemon=True)
    canceller.start()
    try:
        yield
    finally:
        ended.set()
        canceller.join()
