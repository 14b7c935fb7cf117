"""What happens to the store itself while the workers are at work."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from itertools import cycle
from typing import Protocol

from chaos.postgres import Mode, Server

_HELD_SECONDS = 1.5
"""How long the write lock of SQLite is kept: longer than the workers' stores wait for it."""


class Trouble(Protocol):
    """Something bad, over and over, each time that it is asked for."""

    def strike(self) -> str:
        """Begin; returns what is being done, in a few words."""
        ...

    def end(self) -> None:
        """Wait until it is over, if it has begun."""
        ...


class _InBackground:
    """A trouble that a process of its own makes; one at a time."""

    def __init__(self) -> None:
        self._pid: int | None = None

    def begin(self, act: Callable[[], object]) -> None:
        self.end()
        pid = os.fork()
        if pid:
            self._pid = pid
            return
        try:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            act()
        finally:
            os._exit(0)

    def end(self) -> None:
        """Wait until it is over, if it has begun."""
        if self._pid is not None:
            os.waitpid(self._pid, 0)
            self._pid = None


class BusySqlite(_InBackground):
    """Another process has the write lock for longer than anybody waits.

    Args:
        path: the database.
    """

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path

    def strike(self) -> str:
        """Take the lock; see `Trouble`."""
        self.begin(self.hold)
        return f"the database is locked for {_HELD_SECONDS} s"

    def hold(self) -> None:
        """Has the lock for its time."""
        connection = sqlite3.connect(self._path, isolation_level=None, timeout=10)
        connection.execute("BEGIN IMMEDIATE")
        time.sleep(_HELD_SECONDS)
        connection.execute("ROLLBACK")


class RestartedPostgres(_InBackground):
    """The server is stopped and started again: by ending what is connected, and by dropping dead, in turn.

    Args:
        server: the server.
    """

    def __init__(self, server: Server) -> None:
        super().__init__()
        self._server = server
        self._modes: Iterator[Mode] = cycle(("fast", "immediate"))

    def strike(self) -> str:
        """Restart; see `Trouble`."""
        mode = next(self._modes)
        self.begin(lambda: self._server.restart(mode))
        return f"the server is restarted ({mode})"
