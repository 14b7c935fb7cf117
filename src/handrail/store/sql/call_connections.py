"""The connections of the calls that run: which of them have one, and which one writes."""

from __future__ import annotations

import threading
from weakref import WeakValueDictionary

from handrail.errors import SessionError
from handrail.store.sql.call_connection import CallConnection
from handrail.store.sql.driver import Driver
from handrail.transaction import Transaction, UnitStore, current


class CallConnections:
    """The connections of the calls that run; at most one for each outermost transaction.

    One without a write is listed for as long as a handler holds it; any other one belongs to what is
    enlisted in its transaction, and so it is listed until that is settled.

    Args:
        driver: the database.

    Attributes:
        driver: the database.
    """

    __slots__ = ("_listed", "_lock", "driver")

    def __init__(self, driver: Driver) -> None:
        self.driver: Driver = driver
        self._lock = threading.Lock()
        self._listed: WeakValueDictionary[int, CallConnection] = WeakValueDictionary()

    def of_call(self, store: UnitStore) -> CallConnection:
        """The connection of the call that runs in this context.

        Raises:
            SessionError: no call runs here.
        """
        transaction = current()
        if transaction is None:
            msg = "no call runs here, so no transaction is open to write in; use context.connection inside a handler"
            raise SessionError(msg)
        root = transaction.root
        with self._lock:
            found = self._listed.get(id(root))
            if found is None:
                found = self._listed[id(root)] = CallConnection(
                    root, store=store, driver=self.driver, forget=self.forget
                )
            return found

    def borrowed(self) -> CallConnection | None:
        """The connection of the call that runs in this context, if that call may have written on it."""
        if not self._listed:
            return None
        transaction = current()
        found = None if transaction is None else self._listed.get(id(transaction.root))
        return found if found is not None and found.is_writing else None

    def forget(self, root: Transaction) -> None:
        """List the connection of an outermost transaction no more."""
        with self._lock:
            self._listed.pop(id(root), None)
