"""A store in a database: the ledger, sessions and decisions together, with their units of work."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from types import TracebackType
from typing import Self
from uuid import uuid4

from handrail.clock import SYSTEM_CLOCK, Clock
from handrail.session.storage import Connection
from handrail.store.session_locks import HeldSessions
from handrail.store.sql.database import Database
from handrail.store.sql.driver import Driver
from handrail.store.sql.ledger_sql import SqlLedger
from handrail.store.sql.migrations import bring_forward, has_old_slots, read_hash_key
from handrail.store.sql.store import SqlSessions


class SqlStore(SqlLedger, SqlSessions):
    """A `handrail.store.Store` in a database; any number of threads, sessions and ledgers may share it.

    Args:
        driver: the database.
        clock: measures how long somebody waits for a session.
        new_token: makes the tokens of holds.

    Raises:
        StoreError: the tables cannot be made or brought forward.
    """

    def __init__(
        self, driver: Driver, *, clock: Clock = SYSTEM_CLOCK, new_token: Callable[[], str] = lambda: uuid4().hex
    ) -> None:
        self._driver = driver
        self._database = Database(driver)
        self._new_token = new_token
        try:
            bring_forward(self._database)
        except BaseException:
            driver.close()
            raise
        self._held = HeldSessions(driver.locks, clock=clock, store=driver.url)
        self._processes = driver.processes
        self._claimed = set()
        self._now = driver.now
        self._has_old_slots = has_old_slots(self._database)
        self._hash_key: bytes | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.url}>"

    def __enter__(self) -> Self:
        """Return the store."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    @property
    def url(self) -> str:
        """What names the store to people, without any password; for a file by its absolute path."""
        return self._driver.url

    @property
    def poll_every(self) -> timedelta:
        """How often to look for what other processes have changed."""
        return self._driver.poll_every

    @property
    def has_old_slots(self) -> bool:
        """Whether it may hold slots that a version of Handrail wrote which did not know the replies of calls."""
        return self._has_old_slots

    def hash_key(self) -> bytes:
        """The random key of this store, for hashes of secrets; read when it is first asked for.

        Raises:
            StoreError: it cannot be read.
        """
        if self._hash_key is None:
            self._hash_key = read_hash_key(self._database)
        return self._hash_key

    def now(self) -> datetime:
        """The store's time, aware and in UTC."""
        return self._driver.now()

    def unit(self) -> AbstractContextManager[object]:
        """Commit what this thread writes in the block at one stroke, or nothing of it if the block raises.

        Raises:
            StoreUnavailableError: the store does not answer, on entering or on leaving; nothing has been committed,
                unless the connection was lost in the very moment of the commit.
        """
        return self._database.unit()

    def connection(self) -> Connection:
        """The database, inside the transaction of the call that runs in this context.

        Raises:
            SessionError: no call runs here.
        """
        return self._database.connection(self)

    def close(self) -> None:
        """Release all sessions, and close all connections. Calling it twice has the same effect.

        Claims of handlers that still run keep their leases, which this process no longer renews.
        """
        self._held.close()
        self._processes.close(claims=bool(self._claimed))
        self._driver.close()
