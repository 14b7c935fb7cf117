"""Connections to a server, and what a process that is forked off gets of them: nothing.

A forked child has copies of the sockets of its parent. The server takes a connection for open while one copy is, so a
child that outlives its parent would keep the locks and the transactions of that one. In the child each descriptor
leads to `/dev/null` from the start. It is not closed there: libpq would close it once more, when its number may belong
to another file. Nor is the connection, which would end it for the parent. psycopg leaves connections alone that are
collected in another process than the one that opened them.

The child does not know of a connection that was being opened at that moment. So the parent closes it, which ends it on
the server, and opens another one.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Any, Self, TypeVar
from weakref import WeakSet

import psycopg
from psycopg.pq.abc import PGconn
from psycopg.rows import RowFactory, tuple_row

_Opened = TypeVar("_Opened", bound=psycopg.Connection[Any])

_OPEN: WeakSet[psycopg.Connection[Any]] = WeakSet()
"""The connections of this process; some of them may have been closed."""
_UNDISTURBED: set[int] = set()
"""The attempts to connect that no fork has come in between."""
_ATTEMPTS = count()
_guard = threading.RLock()
"""Guards both, and is held while this process forks; never while something is waited for."""


class Connection(psycopg.Connection[tuple[Any, ...]]):
    """A connection whose rows are tuples, and which no forked process inherits.

    Attributes:
        process: the id of the process that opened it.
    """

    def __init__(self, pgconn: PGconn, row_factory: RowFactory[tuple[Any, ...]] = tuple_row) -> None:
        """Made by `connect`."""
        super().__init__(pgconn, row_factory)
        self.process = os.getpid()

    @classmethod
    def connect(cls, conninfo: str = "", **options: Any) -> Self:  # noqa: ANN401 - as of psycopg
        """Connect to a server; the arguments are those of psycopg.

        Raises:
            psycopg.Error: it cannot be reached.
        """
        connect = super().connect
        return known_to_forks(lambda: connect(conninfo, **options))


def known_to_forks(connect: Callable[[], _Opened]) -> _Opened:
    """A connection of which a process that is forked off has no copy.

    Args:
        connect: opens it; called again if this process has forked meanwhile.
    """
    while True:
        with _guard:
            attempt = next(_ATTEMPTS)
            _UNDISTURBED.add(attempt)
        try:
            connection = connect()
            with _guard:
                _OPEN.add(connection)
                if attempt in _UNDISTURBED:
                    return connection
        finally:
            _UNDISTURBED.discard(attempt)
        connection.close()


def _before_fork() -> None:
    _guard.acquire()
    _UNDISTURBED.clear()


def _after_fork() -> None:
    _guard.release()


def _leave_to_parent() -> None:
    """Let the sockets go, and keep their descriptors taken."""
    try:
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for connection in _OPEN:
            with suppress(psycopg.Error):  # it has been closed
                os.dup2(null, connection.fileno(), inheritable=False)
        os.close(null)
        _OPEN.clear()
    finally:
        _guard.release()


if sys.platform != "win32":  # pragma: no branch - Windows has no fork
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_leave_to_parent)
