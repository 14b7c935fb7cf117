"""A server of PostgreSQL: how it is reached, also after a fork, what its clock says, and what its errors mean.

The time of the server is known without asking it each time.

A forked child has copies of the sockets of its parent. The server takes a connection for open while one copy is, so a
child that lives longer than its parent would keep the locks and the transactions of that one. In the child each
descriptor leads to `/dev/null` from the start. It is not closed there: libpq would close it once more, when its number
may belong to another file. Nor is the connection, which would end it for the parent. psycopg leaves connections alone
that are collected in another process than the one that opened them.

The child does not know of a connection that was being opened at that moment. So the parent closes it, which ends it on
the server, and opens another one.
"""

from __future__ import annotations

import math
import os
import re
import select
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Self
from urllib.parse import quote
from weakref import WeakSet

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq.abc import PGconn
from psycopg.rows import RowFactory, tuple_row
from psycopg_pool import PoolTimeout

from handrail.clock import SYSTEM_CLOCK, Clock
from handrail.errors import StoreCorruptError, StoreError, StoreReadOnlyError, StoreUnavailableError
from handrail.process import current_pid
from handrail.store.sql.driver import CONNECTIONS, Durability
from handrail.threads import FORKING, forks, in_forked_process

_MEANINGS: tuple[tuple[tuple[str, ...], type[StoreError], str], ...] = (
    (
        ("25006", "42501"),
        StoreReadOnlyError,
        (
            "can be read, but not written to: {}. Look at the rights of the user, and whether the server is a standby "
            "or takes no writes (default_transaction_read_only)"
        ),
    ),
    (("XX",), StoreCorruptError, "cannot be read: {}"),
    # Classes of errors that pass: connections, rollbacks, resources, locks, shutdowns, the machine.
    (
        ("08", "40", "53", "55", "57", "58"),
        StoreUnavailableError,
        "cannot be used now: {}. Look whether the server runs, and who else uses it",
    ),
    (("",), StoreError, "refuses: {}"),
)
"""What the errors of a server mean, by what their states begin with."""

_KEEPALIVES = {"keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 2, "tcp_user_timeout": 10_000}
"""How either side of a connection finds out, in about 10 s, that the machine of the other one is gone."""

_TRUSTED_SECONDS = 1.0
_DUE_SECONDS = 0.95  # less, so that who finds that it is not due has the time to ask

# Of the process: a forked one lets the connections of all stores go. Some of them may have been closed.
_OPEN: WeakSet[psycopg.Connection[Any]] = WeakSet()


@dataclass(frozen=True)
class Server:
    """One database on a server, and how it is used.

    Attributes:
        conninfo: where it is; may hold a password.
        url: what names it to people, without the password.
        durability: whether a commit waits until the server's disk has it.
        busy: how long to wait for it.
        read_only: whether all writes are refused.
        pipelines: whether statements are sent before the ones before them are answered; some poolers do not allow it.
        connections: the most that are open for statements at one time, from 2.
    """

    conninfo: str = field(repr=False)
    url: str
    durability: Durability = "full"
    busy: timedelta = timedelta(seconds=5)
    read_only: bool = False
    pipelines: bool = True
    connections: int = CONNECTIONS

    @cached_property
    def options(self) -> dict[str, Any]:
        """How psycopg connects: each statement is a transaction of its own, and keepalives of the URL count."""
        # libpq knows no shorter one.
        timeout = max(2, math.ceil(self.busy.total_seconds()))
        own = {"autocommit": True, "connect_timeout": timeout, "client_encoding": "utf8"}
        return {**_KEEPALIVES, **conninfo_to_dict(self.conninfo), **own}

    def connect(self) -> PsycopgConnection:
        """Open a connection.

        Raises:
            StoreError: no connection is available; the message has the cause.
        """
        try:
            connection = PsycopgConnection.connect(**self.options)
            self.set_up(connection)
            return connection
        except (psycopg.ProgrammingError, UnicodeError):  # their texts quote the conninfo
            msg = f"{self.url} is not an address of PostgreSQL; write postgresql://user@host:5432/database"
            failure = StoreError(msg, store=self.url)
        except psycopg.Error as error:
            failure = self.translated(error)
        raise failure  # without its cause, which keeps the conninfo, password and all

    def set_up(self, connection: PsycopgConnection) -> None:
        """Settle what a transaction on this connection means, whatever the server's defaults are."""
        settings = {
            "default_transaction_isolation": "read committed",
            "lock_timeout": str(math.ceil(self.busy.total_seconds() * 1000)),
            # Else as the server has it, whose operator may have forbidden writing.
            "default_transaction_read_only": "on" if self.read_only else None,
            # A server that waits for more than its own disk still does.
            "synchronous_commit": "off" if self.durability == "normal" else "on",
            # On the server, which drops the locks.
            **{f"tcp_{name.removeprefix('tcp_')}": str(self.options[name]) for name in _KEEPALIVES},
        }
        connection.execute(
            "SELECT set_config(name, value, false) FROM unnest(%s::text[], %s::text[]) AS settings (name, value) "
            "WHERE value IS NOT NULL AND (name <> 'synchronous_commit' OR 'off' IN (value, current_setting(name)))",
            (list(settings), list(settings.values())),
        )

    def translated(self, error: Exception, *, in_doubt: bool = False, lost: bool = False) -> StoreError:
        """What an error of psycopg means.

        Args:
            error: the error.
            in_doubt: whether it came in answer to a commit.
            lost: whether its connection has come to its end.
        """
        state = getattr(error, "sqlstate", None) or ("08" if isinstance(error, psycopg.OperationalError) else "")
        kind, text = next((kind, text) for states, kind, text in _MEANINGS if state.startswith(states))
        said = str(error).strip().partition("\n")[0]
        meaning = kind(f"{self.url} {text.format(said)}", store=self.url)
        if isinstance(meaning, StoreUnavailableError):
            meaning.in_doubt, meaning.connection_lost = in_doubt, lost
            meaning.waited = isinstance(error, PoolTimeout | psycopg.errors.LockNotAvailable)
        return meaning


def is_alive(connection: PsycopgConnection) -> bool:
    """Whether an idle connection can still be used; the server is not asked unless it has said something."""
    if not is_quiet(connection):
        try:
            connection.execute("SELECT 1")
        except psycopg.Error:
            return False
    return True


def is_quiet(connection: PsycopgConnection) -> bool:
    """Whether an idle connection is open, and the server has said nothing on it, as it does before it closes one."""
    try:
        poll = select.poll()
        poll.register(connection.fileno(), select.POLLIN)
    except psycopg.Error:  # it is closed
        return False
    return not poll.poll(0)


class ServerClock:
    """The time of a server, as it was when last asked, and what has passed here since; asked again after a second.

    Clocks of two machines may disagree by hours about the time, but in one second by microseconds about its length.

    Args:
        ask: asks the server.
        clock: measures what has passed here.
    """

    __slots__ = ("_ask", "_asked_at", "_clock", "_lock", "_reported")

    def __init__(self, ask: Callable[[], datetime], *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._ask = ask
        self._clock = clock
        self._lock = threading.Lock()
        self._reported: datetime | None = None
        self._asked_at = 0.0

    @property
    def is_due(self) -> bool:
        """Whether the server is asked by the next `now`, or nearly so: between this and that, time passes."""
        return self._reported is None or self._clock.monotonic() - self._asked_at > _DUE_SECONDS

    def now(self) -> datetime:
        """The server's time, aware and in UTC.

        Raises:
            StoreUnavailableError: the server had to be asked, and does not answer.
        """
        with self._lock:
            here = self._clock.monotonic()
            if self._reported is None or here - self._asked_at > _TRUSTED_SECONDS:
                text = self._ask()
                after = self._clock.monotonic()
                self._reported, self._asked_at, here = text, (here + after) / 2, after
            return self._reported + timedelta(seconds=here - self._asked_at)


class PsycopgConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection whose rows are tuples, and of which a process that is forked off has no copy.

    Attributes:
        process: the id of the process that opened it.
    """

    def __init__(self, pgconn: PGconn, row_factory: RowFactory[tuple[Any, ...]] = tuple_row) -> None:
        """Made by `connect`."""
        super().__init__(pgconn, row_factory)
        self.process: int = current_pid()

    @classmethod
    def connect(cls, conninfo: str = "", **options: Any) -> Self:  # noqa: ANN401 - as of psycopg
        """Connect to a server, and once more if this process has forked meanwhile; the arguments are those of psycopg.

        Raises:
            psycopg.Error: it cannot be reached.
        """
        while True:
            with FORKING:
                before = forks()
            connection = super().connect(conninfo, **options)
            with FORKING:
                _OPEN.add(connection)
                if forks() == before:
                    return connection
            connection.close()


def _leave_to_parent() -> None:
    """Let the sockets go, and keep their descriptors taken."""
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for connection in _OPEN:
        with suppress(psycopg.Error):  # it has been closed
            os.dup2(null, connection.fileno(), inheritable=False)
    os.close(null)
    _OPEN.clear()


in_forked_process(_leave_to_parent)


def harmless_address(conninfo: str) -> str:
    """The URL of a database as people and journals may see it: user, host, port and name.

    It is read as libpq reads it, so that no sign in a password hides where that ends.

    Raises:
        StoreError: it cannot be read, or a password may be part of something else.
    """
    parts: dict[str, Any] = {"host": "@"}
    with suppress(psycopg.ProgrammingError, UnicodeError):  # their texts quote the conninfo
        if "\0" not in conninfo:  # libpq reads a text to its first NUL
            parts = conninfo_to_dict(conninfo)
    user, host, port, name = (str(parts.get(part) or "") for part in ("user", "host", "port", "dbname"))
    # A slash or a second @ in a password makes its end a part of the host, the port or the name of the database.
    if "@" in user + host + name or not re.fullmatch(r"[\d,]*", port):
        raise StoreError(
            "the URL of the store is not an address of PostgreSQL; write postgresql://user@host:5432/database, and the "
            "signs : / ? # @ of a password as %3A %2F %3F %23 %40",
            store="postgresql://...",
        )
    user = "" if ":" in user else user  # a password behind a colon that was written as %3A
    place = f"{quote(user)}{user and '@'}{quote(host, safe=',')}{port and ':'}{port}"
    return f"postgresql://{place}/{quote(name)}"
