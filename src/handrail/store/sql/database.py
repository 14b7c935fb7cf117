"""One database: executes statements, each as a transaction of its own, and transactions of several."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from handrail.crash_points import reached
from handrail.errors import StoreCorruptError, StoreUnavailableError, StoreVersionError
from handrail.store.sql.call_connection import CallConnection
from handrail.store.sql.call_connections import CallConnections
from handrail.store.sql.driver import Driver, DriverConnection, Rows, StatementExecutor, StatementParameters
from handrail.store.sql.statements import GET_VERSION, TABLES_VERSION
from handrail.transaction import UnitStore


class Database:
    """Executes statements and transactions.

    Attributes:
        driver: the database.
        url: what names it to people.
    """

    __slots__ = ("_calls", "driver", "url")

    def __init__(self, driver: Driver) -> None:
        self.driver: Driver = driver
        self.url: str = driver.url
        self._calls = CallConnections(driver)

    def query(self, sql: str, parameters: StatementParameters = ()) -> Rows:
        """All rows that a statement finds.

        Raises:
            StoreError: what went wrong.
        """
        return self.driver.query(sql, parameters)

    def execute(self, sql: str, parameters: StatementParameters = ()) -> int:
        """Execute a statement that writes; returns how many rows it has changed.

        Raises:
            StoreError: what went wrong; nothing has been written.
        """
        self._refuse_beside_writer()
        return self.driver.execute(sql, parameters)

    def change(self, sql: str, parameters: StatementParameters) -> Rows:
        """Execute a statement that writes, and may be repeated; returns the rows that it names in `RETURNING`.

        Raises:
            StoreError: what went wrong; nothing has been written.
        """
        self._refuse_beside_writer()
        return self.driver.change(sql, parameters)

    def execute_with_call(self, sql: str, parameters: StatementParameters) -> int:
        """As `execute`, but in the transaction of the call that runs here, if that is the only one that can write."""
        call = self._calls.borrowed() if self.driver.one_writer else None
        return self.driver.execute(sql, parameters) if call is None else call.link.execute(sql, parameters)

    @contextmanager
    def transaction(
        self, call: CallConnection | None = None, *, any_version: bool = False
    ) -> Generator[DriverConnection]:
        """A transaction that is committed at the end of the block, and undone if the block raises.

        Args:
            call: the connection of a call that has written through `context.connection`: then its transaction.
            any_version: whether the tables may have another version than that of this Handrail.

        Raises:
            StoreVersionError: the tables have another version.
            StoreError: it cannot be begun or committed; nothing counts, unless the connection was lost in the very
                moment of the commit.
        """
        if call is None:
            self._refuse_beside_writer()
        work = call or _OwnTransaction(self.driver, any_version=any_version)
        work.begin()
        try:
            reached("unit-begun")
            yield work.link
            reached("unit-before-commit")
            work.commit()
        except BaseException:
            work.rollback()
            raise
        reached("unit-after-commit")

    def connection(self, store: UnitStore) -> CallConnection:
        """The connection of the call that runs in this context.

        Raises:
            SessionError: no call runs here.
        """
        return self._calls.of_call(store)

    @property
    def is_beside_writer(self) -> bool:
        """Whether the call that runs here writes through `context.connection`, and so keeps all others from writing."""
        return self.driver.one_writer and self._calls.borrowed() is not None

    def _refuse_beside_writer(self) -> None:
        if self.is_beside_writer:
            msg = (
                f"the call that runs here writes to {self.url} through context.connection, and no other call can until "
                "it has ended; make nested calls that need the store before the first statement, or on PostgreSQL"
            )
            raise StoreUnavailableError(msg, store=self.url)


class _OwnTransaction:
    """A transaction on a connection of the driver's."""

    __slots__ = ("_any_version", "_driver", "link")

    link: DriverConnection

    def __init__(self, driver: Driver, *, any_version: bool) -> None:
        self._driver = driver
        self._any_version = any_version

    def begin(self) -> None:
        link = self._driver.acquire()
        try:
            if self._any_version:
                link.begin()
            else:
                _check_version(link.begin_with(GET_VERSION), self._driver.url)
        except BaseException:
            self._driver.release(link)
            raise
        self.link = link

    def commit(self) -> None:
        self.link.commit()
        self._driver.release(self.link)

    def rollback(self) -> None:
        self._driver.release(self.link)


def check_version(executor: StatementExecutor, store: str) -> None:
    """Refuses tables of another version: a Handrail of another version has made or changed them.

    Args:
        executor: executes the question.
        store: the URL of the store.

    Raises:
        StoreVersionError: they have another version.
        StoreCorruptError: they have none.
        StoreError: the store does not answer.
    """
    _check_version(executor.query(GET_VERSION), store)


def _check_version(rows: Rows, store: str) -> None:
    versions = [version for (version,) in rows]
    if versions == [TABLES_VERSION]:
        return
    if len(versions) != 1 or type(versions[0]) is not int:
        msg = f"{store} does not say which version its tables have; restore it from a copy"
        raise StoreCorruptError(msg, store=store)
    msg = (
        f"the tables of {store} have version {versions[0]}, and those of this Handrail have version {TABLES_VERSION}. "
        "Use a Handrail with tables of that version; nothing was written"
    )
    raise StoreVersionError(msg, store=store, found=versions[0], known=TABLES_VERSION)
