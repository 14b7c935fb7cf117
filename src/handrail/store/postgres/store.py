"""The store in PostgreSQL, for the processes of many machines."""

from __future__ import annotations

from handrail.clock import SYSTEM_CLOCK, Clock
from handrail.store.postgres.driver import PostgresDriver
from handrail.store.postgres.server import Server
from handrail.store.sql.sql_store import SqlStore


class PostgresStore(SqlStore):
    """A `handrail.store.Store` on a server of PostgreSQL.

    `now` is the server's clock (`handrail.store.postgres.server_time`), unless another one is given.

    Args:
        server: the database, and how it is used.
        clock: measures leases and expiries in place of the server; only tests have use for one.

    Raises:
        StoreError: the server cannot be reached, or its tables are those of a newer Handrail.
    """

    def __init__(self, server: Server, *, clock: Clock | None = None) -> None:
        super().__init__(PostgresDriver(server, clock=clock), clock=clock or SYSTEM_CLOCK)
