"""A server of PostgreSQL: how it is reached, also after a fork, its clock, its errors, and the locks of owners.

A forked child has copies of the sockets of its parent. The server takes a connection for open while one copy is, so a
child that lives longer than its parent would keep the locks and the transactions of that one. In the child each
descriptor leads to `/dev/null` from the start. It is not closed there: libpq would close it once more, when its number
may belong to another file. Nor is the connection, which would end it for the parent. psycopg leaves connections alone
that are collected in another process than the one that opened them.

The child does not know of a connection that was being opened at that moment. So the parent closes it, which ends it on
the server, and opens another one.

Each opened store holds an advisory lock, which ends with its connection. The connection is used for nothing else. If it
is lost, the lock is lost, and acquired again on the next one. The server notices the death of a process at once; that
of a whole machine it detects by the keepalives of the connection, in about 10 s.

| lock | the kernel of this machine says that the process | the owner |
|---|---|---|
| any | has ended | is dead |
| held | runs, or is another machine's | lives |
| free | runs | has lost its connection, or closed its store: nothing is proved |
| free | is another machine's | is dead; or nothing is proved, for a minute after a start of the server |
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
from typing import Any, LiteralString, Self
from urllib.parse import quote
from weakref import WeakSet

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq.abc import PGconn
from psycopg.rows import RowFactory, tuple_row
from psycopg_pool import PoolTimeout

from handrail.clock import SYSTEM_CLOCK, Clock
from handrail.errors import StoreClosedError, StoreCorruptError, StoreError, StoreReadOnlyError, StoreUnavailableError
from handrail.process import ProcessName, current_pid, is_running, own_name
from handrail.store.locks import StoreOwner, new_owner
from handrail.store.sql.driver import CONNECTIONS, Durability, check_process
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
"""The meanings of errors of a server, by the prefix of their state."""

_KEEPALIVES = {"keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 2, "tcp_user_timeout": 10_000}
"""How either side of a connection finds out, in about 10 s, that the machine of the other one is gone."""

_TRUSTED_SECONDS = 1.0
_DUE_SECONDS = 0.95  # less, so that who finds that it is not due has the time to ask

# Of the process: a forked one lets the connections of all stores go. Some of them may have been closed.
_OPEN: WeakSet[psycopg.Connection[Any]] = WeakSet()


@dataclass(frozen=True)
class Server:
    """One database on a server, and how it is used.

    `conninfo` may hold a password, `url` has none. `durability` says whether a commit waits for the server's disk.
    `connections` is the most that are open for statements at one time, from 2.
    """

    conninfo: str = field(repr=False)
    url: str
    durability: Durability = "full"
    busy: timedelta = timedelta(seconds=5)
    read_only: bool = False
    connections: int = CONNECTIONS

    @cached_property
    def options(self) -> dict[str, Any]:
        """The options of psycopg: each statement is a transaction of its own, and keepalives of the URL count."""
        # libpq knows no shorter one.
        timeout = max(2, math.ceil(self.busy.total_seconds()))
        own = {"autocommit": True, "connect_timeout": timeout, "client_encoding": "utf8"}
        return {**_KEEPALIVES, **conninfo_to_dict(self.conninfo), **own}

    def connect(self) -> PsycopgConnection:
        """Opens a connection, or raises a `StoreError` with the cause."""
        try:
            connection = PsycopgConnection.connect(**self.options)
            self.set_up(connection)
            return connection
        except (psycopg.ProgrammingError, UnicodeError):  # their texts quote the conninfo
            msg = f"{self.url} is not an address of PostgreSQL; write postgresql://user@host:5432/database"
            failure = StoreError(msg, store=self.url)
        except psycopg.Error as error:
            failure = self.translate(error)
        raise failure  # without its cause, which keeps the conninfo, password and all

    def set_up(self, connection: PsycopgConnection) -> None:
        """Fixes what a transaction on this connection means, whatever the server's defaults are."""
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

    def translate(self, error: Exception, *, in_doubt: bool = False, is_lost: bool = False) -> StoreError:
        """Translates an error of psycopg; `in_doubt`: it answers a commit, `is_lost`: its connection has ended."""
        state = getattr(error, "sqlstate", None) or ("08" if isinstance(error, psycopg.OperationalError) else "")
        kind, text = next((kind, text) for states, kind, text in _MEANINGS if state.startswith(states))
        detail = str(error).strip().partition("\n")[0]
        meaning = kind(f"{self.url} {text.format(detail)}", store=self.url)
        if isinstance(meaning, StoreUnavailableError):
            meaning.in_doubt, meaning.connection_lost = in_doubt, is_lost
            meaning.waited = isinstance(error, PoolTimeout | psycopg.errors.LockNotAvailable)
        return meaning


def is_alive(connection: PsycopgConnection) -> bool:
    """Tests whether an idle connection can still be used; the server is not asked unless it has said something."""
    if not is_quiet(connection):
        try:
            connection.execute("SELECT 1")
        except psycopg.Error:
            return False
    return True


def is_quiet(connection: PsycopgConnection) -> bool:
    """Tests whether an idle connection is open, and the server has sent nothing, as it does before it closes one."""
    try:
        poll = select.poll()
        poll.register(connection.fileno(), select.POLLIN)
    except psycopg.Error:  # it is closed
        return False
    return not poll.poll(0)


class ServerClock:
    """The time of a server, as it was when last asked, and what has passed here since; asked again after a second.

    Clocks of two machines may disagree by hours about the time, but in one second by microseconds about its length.
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
        """True if the next `now` asks the server, or nearly so: between this and that, time passes."""
        return self._reported is None or self._clock.monotonic() - self._asked_at > _DUE_SECONDS

    def now(self) -> datetime:
        """Returns the server's time, aware and in UTC; a server that does not answer is a `StoreUnavailableError`."""
        with self._lock:
            here = self._clock.monotonic()
            if self._reported is None or here - self._asked_at > _TRUSTED_SECONDS:
                text = self._ask()
                after = self._clock.monotonic()
                self._reported, self._asked_at, here = text, (here + after) / 2, after
            return self._reported + timedelta(seconds=here - self._asked_at)


class PsycopgConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection of the process with the id `process`, of which a process that is forked off has no copy."""

    def __init__(self, pgconn: PGconn, row_factory: RowFactory[tuple[Any, ...]] = tuple_row) -> None:
        super().__init__(pgconn, row_factory)
        self.process: int = current_pid()

    @classmethod
    def connect(cls, conninfo: str = "", **options: Any) -> Self:  # noqa: ANN401 - as of psycopg
        """Connects to a server, and once more if this process has forked meanwhile; as `psycopg.Connection.connect`."""
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
    # A descriptor stays taken: its number may not become that of another file.
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for connection in _OPEN:
        with suppress(psycopg.Error):  # it has been closed
            os.dup2(null, connection.fileno(), inheritable=False)
    os.close(null)
    _OPEN.clear()


in_forked_process(_leave_to_parent)


def harmless_address(conninfo: str) -> str:
    """Returns the URL of a database for people and journals: user, host, port and name.

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


class ServerOwner(StoreOwner):
    """One opened store of a database; a `handrail.store.locks.StoreOwner`."""

    __slots__ = ("_connection", "_is_closed", "_is_locked", "_lock", "_server")

    def __init__(self, server: Server) -> None:
        super().__init__()
        self._server = server
        self._lock = threading.RLock()
        self._connection: PsycopgConnection = server.connect()
        self._is_locked: object = False
        self._is_closed = False

    @property
    def own_waits(self) -> bool:
        """True if the lock is still to be acquired, or the connection has something to say."""
        return not self._is_locked or not is_quiet(self._connection)

    def own(self) -> str:
        """Acquires the lock, unless it is held, and returns the name; no answer of the server is a `StoreError`."""
        if self.own_waits:
            # Before a lock that another thread may have had at the fork.
            check_process(self._connection.process, self._server.url)
            with self._lock:
                self._connect()
                self.name: str = self.name or new_owner()
                if not self._is_locked:  # nor is it while the server has not noticed that a connection was lost
                    [(self._is_locked,)] = self._ask(_LOCK, self.name)
        return self.name

    def lives(self, owner: str) -> bool | None:
        """Tests whether the owner of that name lives; `None` if the kernel and the lock do not prove it."""
        name, own = ProcessName.parse(owner.rpartition(" ")[0]), own_name()
        if name is None:
            return None
        is_here = bool(name.boot) and name.boot == own.boot
        if is_here and not is_running(name):
            return False
        [(is_locked, is_young)] = self._ask(_LIVES, owner, _START_SECONDS)
        return True if is_locked else None if is_here or is_young else False

    def close(self) -> None:
        """Releases the lock, with its connection."""
        self._is_closed = True
        self._connection.close()

    def _connect(self) -> None:
        if self._is_closed:
            raise StoreClosedError(f"{self._server.url} has been closed; open it again", store=self._server.url)
        if not is_alive(self._connection):
            self._is_locked = False
            self._connection.close()
            self._connection = self._server.connect()

    def _ask(self, sql: LiteralString, *values: object) -> list[tuple[object, ...]]:
        check_process(self._connection.process, self._server.url)
        with self._lock:
            for is_last in (False, True):
                self._connect()
                try:
                    return self._connection.execute(sql, values).fetchall()
                except psycopg.Error as error:
                    if is_last or not self._connection.closed:
                        raise self._server.translate(error) from error
        raise AssertionError  # pragma: no cover - the last attempt returns or raises
