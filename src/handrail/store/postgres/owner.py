"""The owners of a database of PostgreSQL: each opened store holds an advisory lock, which ends with its connection.

The connection is used for nothing else. If it is lost, the lock is lost, and is taken again on the next one. The server
notices the death of a process at once; that of a whole machine it finds out by the keepalives of the connection, in
about 10 s.

| lock | the kernel of this machine says that the process | the owner |
|---|---|---|
| any | has ended | is dead |
| held | runs, or is another machine's | lives |
| free | runs | has lost its connection, or closed its store: nothing is proved |
| free | is another machine's | is dead; or nothing is proved, for a minute after a start of the server |
"""

from __future__ import annotations

import threading
from typing import LiteralString

import psycopg

from handrail.errors import StoreClosedError
from handrail.process import ProcessName, is_running, own_name
from handrail.store.owners import new_owner
from handrail.store.postgres.server import PsycopgConnection, Server, is_alive, is_quiet
from handrail.store.sql.driver import check_process

# The tables are part of the key, because two stores may live in two schemas of one database.
_KEY: LiteralString = "hashtextextended(%s, to_regclass('handrail_sessions')::oid::bigint)"
_LOCK: LiteralString = f"SELECT pg_try_advisory_lock({_KEY})"
# The server shows a key of 64 bits in two halves.
_LIVES: LiteralString = (
    "SELECT EXISTS (SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1 "  # noqa: S608 - ours
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
    f"AND (classid::bigint << 32) | objid::bigint = {_KEY}), "
    "pg_postmaster_start_time() > clock_timestamp() - make_interval(secs => %s)"
)

_START_SECONDS = 60
"""So long after a start of the server owners are given to take their locks again."""


class ServerOwner:
    """One opened store of a database; a `handrail.store.owners.StoreOwner`.

    Args:
        server: where it is.

    Attributes:
        name: the name of the store; empty until its lock is taken.
    """

    __slots__ = ("_connection", "_is_closed", "_is_locked", "_lock", "_server", "name")

    def __init__(self, server: Server) -> None:
        self._server = server
        self._lock = threading.RLock()
        self._connection: PsycopgConnection = server.connect()
        self.name: str = ""
        self._is_locked: object = False
        self._is_closed = False

    @property
    def own_waits(self) -> bool:
        """Whether the lock is still to be taken, or the connection has something to say."""
        return not self._is_locked or not is_quiet(self._connection)

    def own(self) -> str:
        """The name of this store, whose lock is held from now on.

        Raises:
            StoreError: the server does not answer, or this process was forked off.
        """
        if self.own_waits:
            # Before a lock that another thread may have had at the fork.
            check_process(self._connection.process, self._server.url)
            with self._lock:
                self._connect()
                self.name = self.name or new_owner()
                if not self._is_locked:  # nor is it while the server has not noticed that a connection was lost
                    [(self._is_locked,)] = self._ask(_LOCK, self.name)
        return self.name

    def lives(self, owner: str) -> bool | None:
        """Whether the owner of that name lives; `None` if the kernel and the lock do not prove it.

        Raises:
            StoreError: the server does not answer, or this process was forked off.
        """
        name, own = ProcessName.parse(owner.rpartition(" ")[0]), own_name()
        if name is None:
            return None
        is_here = bool(name.boot) and name.boot == own.boot
        if is_here and not is_running(name):
            return False
        [(is_locked, is_young)] = self._ask(_LIVES, owner, _START_SECONDS)
        return True if is_locked else None if is_here or is_young else False

    def close(self) -> None:
        """Release the lock, with its connection."""
        self._is_closed = True
        self._connection.close()

    def _connect(self) -> None:
        """Connect again if the connection was lost, and the lock with it."""
        if self._is_closed:
            raise StoreClosedError(f"{self._server.url} has been closed; open it again", store=self._server.url)
        if not is_alive(self._connection):
            self._is_locked = False
            self._connection.close()
            self._connection = self._server.connect()

    def _ask(self, sql: LiteralString, *values: object) -> list[tuple[object, ...]]:
        """The answer to a query; asked once more if the connection is lost."""
        check_process(self._connection.process, self._server.url)
        with self._lock:
            for is_last in (False, True):
                self._connect()
                try:
                    return self._connection.execute(sql, values).fetchall()
                except psycopg.Error as error:
                    if is_last or not self._connection.closed:
                        raise self._server.translated(error) from error
        raise AssertionError  # pragma: no cover - the last attempt returns or raises
