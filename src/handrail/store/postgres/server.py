"""A server of PostgreSQL: how it is reached, and what its errors mean."""

from __future__ import annotations

import math
import os
import select
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import psycopg

from handrail.errors import StoreCorruptError, StoreError, StoreReadOnlyError, StoreUnavailableError
from handrail.store.postgres.connections import Connection
from handrail.store.sql.driver import Durability

_SHORTEST_TIMEOUT = 2  # seconds; libpq knows no shorter one
_UNAVAILABLE = ("08", "40", "53", "55", "57", "58")
"""Classes of errors that pass: connections, rollbacks, resources, locks, shutdowns, the machine."""
_CORRUPT = ("XX",)
_READ_ONLY = frozenset({"25006", "42501"})


@dataclass(frozen=True, slots=True)
class Server:
    """One database on a server, and how it is used.

    Attributes:
        conninfo: where it is; may hold a password.
        url: what names it to people, without the password.
        durability: whether a commit waits until the server's disk has it.
        busy: how long to wait for it.
        read_only: whether all writes are refused.
    """

    conninfo: str
    url: str
    durability: Durability = "full"
    busy: timedelta = timedelta(seconds=5)
    read_only: bool = False

    def __repr__(self) -> str:
        return f"Server({self.url})"

    @property
    def options(self) -> dict[str, Any]:
        """How psycopg opens a connection; each statement is a transaction of its own."""
        timeout = max(_SHORTEST_TIMEOUT, math.ceil(self.busy.total_seconds()))
        return {"autocommit": True, "connect_timeout": timeout, "client_encoding": "utf8"}

    def connect(self) -> Connection:
        """Open a connection.

        Raises:
            StoreError: there is none to be had; the message says why.
        """
        try:
            connection = Connection.connect(self.conninfo, **self.options)
            self.set_up(connection)
            return connection
        except psycopg.ProgrammingError:  # its text quotes the conninfo
            msg = f"{self.url} is no address of PostgreSQL; write postgresql://user@host:5432/database"
            failure = StoreError(msg, store=self.url)
        except psycopg.Error as error:
            failure = self.translated(error)
        raise failure  # without its cause, which keeps the conninfo, password and all

    def refuse_forked(self, process: int) -> None:
        """Refuse a connection that another process has opened: two processes cannot share one.

        Raises:
            StoreError: this process is not `process`, but one that it has forked off.
        """
        if os.getpid() != process:
            msg = f"{self.url} was opened by process {process}, which this one was forked off; open it anew here"
            raise StoreError(msg, store=self.url)

    def set_up(self, connection: Connection) -> None:
        """Settle what a transaction on this connection means, whatever the server's defaults are."""
        settings = {
            "default_transaction_isolation": "read committed",
            "default_transaction_read_only": "on" if self.read_only else "off",
            "lock_timeout": str(math.ceil(self.busy.total_seconds() * 1000)),
        }
        if self.durability == "normal":
            settings["synchronous_commit"] = "off"
        for name, value in settings.items():
            connection.execute("SELECT set_config(%s, %s, false)", (name, value))
        if self.durability == "full":
            connection.execute(
                "SELECT set_config('synchronous_commit', 'on', false) "
                "WHERE current_setting('synchronous_commit') = 'off'"
            )

    def translated(self, error: Exception, *, in_doubt: bool = False) -> StoreError:
        """What an error of psycopg means; `in_doubt` if it came in answer to a commit."""
        state = getattr(error, "sqlstate", None) or ""
        told = str(error).strip().partition("\n")[0]
        if state in _READ_ONLY:
            msg = f"{self.url} can be read, but not written to: {told}. Look at the rights of the user"
            return StoreReadOnlyError(msg, store=self.url)
        if state.startswith(_CORRUPT):
            return StoreCorruptError(f"{self.url} cannot be read: {told}", store=self.url)
        if state.startswith(_UNAVAILABLE) or (isinstance(error, psycopg.OperationalError) and not state):
            msg = f"{self.url} cannot be used now: {told}. Look whether the server runs, and who else uses it"
            return StoreUnavailableError(msg, store=self.url, in_doubt=in_doubt)
        return StoreError(f"{self.url} refuses: {told}", store=self.url)


def look_alive(connection: Connection) -> None:
    """Make sure that an idle connection has not been closed, without asking the server unless it has said something.

    Raises:
        psycopg.OperationalError: it has been closed.
    """
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    if poll.poll(0):
        connection.execute("SELECT 1")
