"""The database inside the transaction of a call: what a handler has as `context.connection`.

A call has at most one such connection to a store. It is borrowed with the first statement, is a participant of the
call's transaction (a call inside the call is a savepoint of it), and is enlisted on the outermost one: the unit in
which that transaction is settled is written on this connection too, so that what the handler wrote, what became of the
session and the row of the ledger are committed at one stroke. If the connection is lost before that, what was written
is lost with it, and so the call cannot be committed.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from handrail.errors import SessionError, StoreError, TransactionClosedError
from handrail.store.control import refuse_control
from handrail.store.links import Driver, FetchedRows, Link
from handrail.transaction import Transaction, UnitStore, check_write, current
from handrail.turns import Turn

_UNIT = "handrail_unit"


class CallConnection:
    """The connection of one call; see `handrail.session.storage.Connection`.

    Args:
        root: the outermost transaction of the call.
        store: the store that it belongs to.
        driver: where the connection is borrowed.
        calls: where it is listed while it is borrowed.

    Attributes:
        turn: its turn; nobody else ever waits for it, because it belongs to one call.
        store: the store that it belongs to.
    """

    __slots__ = ("_calls", "_driver", "_link", "_lock", "_lost", "_marks", "_root", "_settling", "store", "turn")

    def __init__(
        self, root: Transaction, *, store: UnitStore, driver: Driver, calls: dict[int, CallConnection]
    ) -> None:
        self.turn = Turn()
        self.store: UnitStore | None = store
        self._root = root
        self._driver = driver
        self._calls = calls
        self._lock = threading.RLock()
        self._link: Link | None = None
        self._lost = False
        self._settling = False
        self._marks = 0

    def execute(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> FetchedRows:
        """Execute one statement; what it writes is committed with the call, and undone with it.

        Raises:
            ToldToModel: the call may not write (see `handrail.transaction.check_write`).
            SessionError: the statement would begin or end a transaction, which is the call's to do; or no call runs
                here.
            StoreError: the database cannot be reached, or the transaction has been lost.
            Exception: what the database says, as its driver raises it.
        """
        refuse_control(sql)
        transaction = current()
        if transaction is None or transaction.root is not self._root:
            msg = "this connection belongs to another call; take context.connection of the call that runs here"
            raise SessionError(msg)
        with self._lock:
            try:
                check_write(self, "write to the database")
            except TransactionClosedError:
                if not self._root.is_open():
                    self.undone()
                raise
            link = self._borrowed()
            rows = link.execute(sql, parameters)
            self._borrowed()  # the statement may have ended the transaction all the same
            return rows

    # ------------------------------------------------------------------------------------------------- a participant

    def snapshot(self) -> str:
        """Set a savepoint, in a transaction that is begun now if there is none, and return its name."""
        with self._lock:
            if self._link is None:
                self._begin()
            link = self._borrowed()
            self._marks += 1
            name = f"handrail_call_{self._marks}"
            link.change(f"SAVEPOINT {name}")
            return name

    def restore(self, snapshot: str, /) -> None:
        """Go back to a savepoint; if the transaction was lost, all of it is undone, and it will not be committed."""
        with self._lock:
            if self._link is not None and not self._lost:
                self._link.change(f"ROLLBACK TO SAVEPOINT {snapshot}")

    # -------------------------------------------------------------------------------------------------------- enlisted

    def committing(self) -> None:
        """Have the unit that is open end the transaction. Called inside that unit."""
        self._settling = True

    def committed(self) -> None:
        """Be listed no more."""
        self._calls.pop(id(self._root), None)

    def in_doubt(self) -> None:
        """Give the connection back; what was written has been kept or not, as the database says."""
        self.undone()

    def undone(self) -> None:
        """Undo what was written, and give the connection back."""
        with self._lock:
            link, self._link = self._link, None
            self._calls.pop(id(self._root), None)
            if link is not None:
                self._driver.take_back(link)

    # --------------------------------------------------------------------------------------------- the work of a unit

    @property
    def link(self) -> Link:
        """What a unit on this connection is written through.

        Raises:
            StoreError: the transaction was lost.
        """
        return self._borrowed()

    @property
    def is_borrowed(self) -> bool:
        """Whether the call has executed anything."""
        return self._link is not None

    def begin(self) -> None:
        """Begin a unit as a savepoint of the call's transaction; late writers wait until it ends.

        Raises:
            StoreError: the transaction was lost.
        """
        self._lock.acquire()
        try:
            self._settling = False
            self._borrowed().change(f"SAVEPOINT {_UNIT}")
        except BaseException:
            self._lock.release()
            raise

    def commit(self) -> None:
        """Commit the call's transaction if that is what the unit is for; else leave what was written to it."""
        link = self._borrowed()
        if self._settling:
            link.commit()
            self._link = None
            self._driver.take_back(link)
        else:
            link.change(f"RELEASE SAVEPOINT {_UNIT}")
        self._lock.release()

    def rollback(self) -> None:
        """Undo what the unit wrote; what the handler wrote before stays."""
        try:
            self._borrowed().change(f"ROLLBACK TO SAVEPOINT {_UNIT}")
        except StoreError:
            self._lost = True
        finally:
            self._lock.release()

    def mark(self) -> str:
        """Set a savepoint inside the unit, and return its name."""
        self._marks += 1
        name = f"handrail_mark_{self._marks}"
        self._borrowed().change(f"SAVEPOINT {name}")
        return name

    def back_to(self, mark: str) -> None:
        """Go back to a savepoint."""
        self._borrowed().change(f"ROLLBACK TO SAVEPOINT {mark}")

    def _begin(self) -> None:
        link = self._driver.lend()
        try:
            link.begin()
        except BaseException:
            self._driver.take_back(link)
            raise
        self._link = link
        self._calls[id(self._root)] = self
        self._root.enlist(self)

    def _borrowed(self) -> Link:
        link = self._link
        if link is None or self._lost or not link.in_transaction:
            self._lost = True
            msg = (
                f"the transaction that {self._root.tool} wrote in through context.connection has ended before the "
                f"call: {self._driver.url} has undone it, or a statement ended it. Nothing of it is kept"
            )
            raise StoreError(msg, store=self._driver.url)
        return link


def connection_of_call(calls: dict[int, CallConnection], *, store: UnitStore, driver: Driver) -> CallConnection:
    """The connection of the call that runs in this context.

    Raises:
        SessionError: no call runs here.
    """
    transaction = current()
    if transaction is None:
        msg = "no call runs here, so there is no transaction to write in; use context.connection inside a handler"
        raise SessionError(msg)
    root = transaction.root
    found = calls.get(id(root))
    return CallConnection(root, store=store, driver=driver, calls=calls) if found is None else found


def borrowed_by_call(calls: dict[int, CallConnection]) -> CallConnection | None:
    """The connection of the call that runs in this context, if that call has executed anything on it."""
    if not calls:
        return None
    transaction = current()
    return None if transaction is None else calls.get(id(transaction.root))
