"""One database with the units of work on it: where a statement runs, and which watchers are notified."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from handrail.errors import StoreUnavailableError
from handrail.store.sql.call_connection import CallConnection, CallConnections
from handrail.store.sql.driver import Driver, DriverConnection, Rows, StatementExecutor, StatementParameters
from handrail.store.units import InnerUnit, Unit, Watchers, open_unit
from handrail.transaction import UnitStore


class Database:
    """Executes statements: in the unit that is open in the context, or each by itself.

    Attributes:
        driver: the database.
        url: what names it to people.
        watchers: which are notified of changed rows.
    """

    __slots__ = ("_calls", "driver", "url", "watchers")

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.url = driver.url
        self.watchers = Watchers()
        self._calls = CallConnections(driver)

    def unit(self) -> AbstractContextManager[Unit[Any]]:
        """A unit of work; on the connection of the call that runs here, if that call has written on one."""
        outer = open_unit(self)
        return self._unit() if outer is None else InnerUnit(outer)

    def joined(self) -> AbstractContextManager[Unit[Any]]:
        """The unit that is open here, or a new one; without a savepoint, for writes that fail before the first one."""
        outer = open_unit(self)
        return self._unit() if outer is None else nullcontext(outer)

    def separate(self) -> AbstractContextManager[Unit[Any]]:
        """The unit that is open here, or a new one; like `execute`, it never belongs to the call that runs here.

        Raises:
            StoreUnavailableError: that call writes through `context.connection`, and no other call can until it ends.
        """
        outer = open_unit(self)
        if outer is not None:
            return nullcontext(outer)
        self._refuse_beside_writer()
        return Unit(self, _UnitWork(self.driver), self.watchers)

    @property
    def link(self) -> DriverConnection | None:
        """The connection of the unit that is open in this context."""
        unit = open_unit(self)
        if unit is None:
            return None
        link: DriverConnection = unit.work.link
        return link

    def query(self, sql: str, parameters: StatementParameters = ()) -> Rows:
        """All rows that a statement finds.

        Raises:
            StoreError: what went wrong.
        """
        return (self.link or self.driver).query(sql, parameters)

    def execute(self, sql: str, parameters: StatementParameters = ()) -> int:
        """Execute a statement that writes; returns how many rows it has changed.

        Raises:
            StoreError: what went wrong; nothing has been written.
        """
        link = self.link
        if link is not None:
            return link.execute(sql, parameters)
        self._refuse_beside_writer()
        return self.driver.execute(sql, parameters)

    def change_with_call(self, sql: str, parameters: StatementParameters) -> int:
        """As `execute`, but in the transaction of the call that runs here, if that is the only one that can write."""
        call = self._calls.borrowed() if self.driver.one_writer and self.link is None else None
        return self.execute(sql, parameters) if call is None else call.link.execute(sql, parameters)

    def has_table(self, name: str) -> bool:
        """Whether there is a table of that name."""
        statements: StatementExecutor = self.link or self.driver
        return self.driver.has_table(statements, name)

    def _refuse_beside_writer(self) -> None:
        if self.driver.one_writer and self._calls.borrowed() is not None:
            msg = (
                f"the call that runs here writes to {self.url} through context.connection, and no other call can until "
                "it has ended; make nested calls that need the store before the first statement, or on PostgreSQL"
            )
            raise StoreUnavailableError(msg, store=self.url)

    def _unit(self) -> Unit[Any]:
        return Unit(self, self._calls.borrowed() or _UnitWork(self.driver), self.watchers)

    def connection(self, store: UnitStore) -> CallConnection:
        """The connection of the call that runs in this context.

        Raises:
            SessionError: no call runs here.
        """
        return self._calls.of_call(store)


class _UnitWork:
    """A unit on a connection of its own."""

    __slots__ = ("_driver", "_savepoints", "link")

    link: DriverConnection

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._savepoints = 0

    def begin(self) -> None:
        link = self._driver.acquire()
        try:
            link.begin()
        except BaseException:
            self._driver.release(link)
            raise
        self.link = link

    def commit(self) -> None:
        self.link.commit()
        self._driver.release(self.link)

    def rollback(self) -> None:
        self._driver.release(self.link)

    def savepoint(self) -> str:
        self._savepoints += 1
        name = f"handrail_savepoint_{self._savepoints}"
        self.link.execute(f"SAVEPOINT {name}")
        return name

    def rollback_to(self, savepoint: str) -> None:
        self.link.execute(f"ROLLBACK TO SAVEPOINT {savepoint}")
