"""The database of a PostgreSQL store in a dry run: one transaction for all calls, which is rolled back at the end.

A call is a savepoint of it. Rows that a call changes stay locked until the end, so statements do not wait long, and
what a sequence has counted stays counted.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from handrail.store.postgres.store import PostgresConnection, PostgresDriver
from handrail.store.sql.driver import CallPlaces

if TYPE_CHECKING:
    from handrail.store.postgres.server import Server
    from handrail.store.sql.driver import DriverConnection

STATEMENT_TIMEOUT: Final = timedelta(seconds=30)
"""How long a statement of a dry run may take in PostgreSQL, or wait for a lock."""

_CALL: Final = "handrail_rehearsed_call"


class RehearsedDatabase(PostgresDriver):
    """A driver that lends all calls one connection, whose transaction is never committed."""

    def __init__(self, server: Server) -> None:
        super().__init__(replace(server, connections=2, read_only=False))  # nothing is committed
        self.call_places: CallPlaces = CallPlaces(1, busy=server.busy, url=server.url)
        self._own_server = server
        self._shared = super().acquire(for_call=True)
        self._shared.begin()
        limit = int(STATEMENT_TIMEOUT.total_seconds() * 1000)
        self._shared.execute(f"SET LOCAL statement_timeout = {limit}")
        self._shared.execute(f"SET LOCAL lock_timeout = {limit}")

    def acquire(self, *, for_call: bool = False) -> PostgresConnection:
        """Lends the connection to a call."""
        return RehearsedCall(self._own_server, self._shared.connection, for_call=for_call)

    def release(self, connection: DriverConnection) -> None:
        """Rolls back what a call has not committed."""
        connection.rollback()

    def close(self) -> None:
        """Rolls everything back, and closes all connections."""
        super().release(self._shared)
        super().close()


class RehearsedCall(PostgresConnection):
    """The connection of a dry run as one of its calls has it."""

    __slots__ = ("_is_open",)

    _is_open: bool

    @property
    def in_transaction(self) -> bool:
        """True from the first statement of the call to its end, unless the transaction was lost."""
        return getattr(self, "_is_open", False) and super().in_transaction

    def begin(self, *, reading: bool = False) -> None:
        """Begins the call, which may be held to reading."""
        self.execute(f"SAVEPOINT {_CALL}")
        self._is_open = True
        if reading:
            self.execute("SET LOCAL transaction_read_only = on")

    def commit(self) -> None:
        """Commits the call, within the transaction."""
        self.execute(f"RELEASE SAVEPOINT {_CALL}")
        self._is_open = False

    def rollback(self) -> None:
        """Rolls the call back, if it was not committed."""
        if self.in_transaction:
            self.execute(f"ROLLBACK TO SAVEPOINT {_CALL}")
            self.execute(f"RELEASE SAVEPOINT {_CALL}")
        self._is_open = False
