"""Locks between the processes that share a PostgreSQL server: advisory locks, which the server drops with a connection.

They are all on one connection, used for nothing else. If it is lost, its locks are lost; they are taken again on the
next one, unless another process has taken them meanwhile. The server notices the death of a process at once; that of a
whole machine it finds out by the keepalives of the connection, in about 10 s.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import LiteralString

import psycopg

from handrail.store.postgres.server import PsycopgConnection, Server, is_alive

# The tables are part of the key, because two stores may live in two schemas of one database.
_KEY: LiteralString = "hashtextextended(%s, to_regclass('handrail_sessions')::oid::bigint)"
_LOCK: LiteralString = f"SELECT pg_try_advisory_lock({_KEY})"
# The server shows a key of 64 bits in two halves.
_GRANTED: LiteralString = "(classid::bigint << 32) | objid::bigint"
_FROM_LOCKS: LiteralString = (
    "FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1 "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)
_LOCKED: LiteralString = (
    "SELECT id FROM unnest(%s::text[]) AS asked (id) WHERE hashtextextended(id, "  # noqa: S608 - our own words
    f"to_regclass('handrail_sessions')::oid::bigint) IN (SELECT {_GRANTED} {_FROM_LOCKS})"
)
_EVICT: LiteralString = f"SELECT pg_terminate_backend(pid) {_FROM_LOCKS} AND {_GRANTED} = {_KEY}"
_UNLOCK: LiteralString = f"SELECT pg_advisory_unlock({_KEY})"


class AdvisoryLocks:
    """The locks of one store; a `handrail.store.session_locks.LockBackend`.

    A process that is forked off leaves the connection and its locks to the one that opened it.

    Args:
        server: where they are.
    """

    __slots__ = ("_connection", "_locked", "_process", "_server")

    def __init__(self, server: Server) -> None:
        self._server = server
        self._connection: PsycopgConnection = server.connect(with_locks=True)
        self._locked: set[str] = set()
        self._process = os.getpid()

    def lock(self, session_id: str, *, evict: bool = False) -> bool:
        """Take the lock of a session if it is free; returns whether it was taken.

        With `evict`, the connection that has it is ended. Its holder loses the locks of its other sessions too, until
        it connects again.

        Raises:
            StoreError: the server cannot say, or may not end the connection; or this process was forked off.
        """
        taken = self._ask(_LOCK, session_id) == [(True,)]
        if evict and not taken:
            self._ask(_EVICT, session_id)
            taken = self._ask(_LOCK, session_id) == [(True,)]
        if taken:
            self._locked.add(session_id)
        return taken

    def unlock(self, session_id: str) -> None:
        """Release a lock; one that was lost, or a server that is down, is not an error."""
        if os.getpid() != self._process:
            return
        self._locked.discard(session_id)
        with suppress(psycopg.Error):
            self._connection.execute(_UNLOCK, (session_id,))

    def locked(self, session_ids: Sequence[str]) -> Sequence[str]:
        """Those of some sessions that this process or another one has locked.

        Raises:
            StoreError: the server cannot say, or this process was forked off.
        """
        return [str(found) for (found,) in self._ask(_LOCKED, list(session_ids))]

    def refresh(self) -> None:
        """Take the locks again if their connection was lost.

        Raises:
            StoreError: the server does not answer, or this process was forked off.
        """
        self._server.refuse_forked(self._process)
        if not is_alive(self._connection):
            self._connection.close()
            self._connection = self._server.connect(with_locks=True)
            for session_id in tuple(self._locked):
                self._relock(session_id)

    def close(self) -> None:
        """Give up all locks, with their connection."""
        if os.getpid() != self._process:
            return
        self._locked.clear()
        self._connection.close()

    def _ask(self, sql: LiteralString, value: object) -> list[tuple[object, ...]]:
        """The answer to a query; asked once more if the connection is lost."""
        for is_last in (False, True):
            self.refresh()
            try:
                return self._connection.execute(sql, (value,)).fetchall()
            except psycopg.Error as error:
                if is_last or not self._connection.closed:
                    raise self._server.translated(error) from error
        raise AssertionError  # pragma: no cover - the last attempt returns or raises

    def _relock(self, session_id: str) -> None:
        try:
            self._connection.execute(_LOCK, (session_id,))
        except psycopg.Error as error:
            raise self._server.translated(error) from error
