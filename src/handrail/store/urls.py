"""Which store a URL means."""

from __future__ import annotations

import re
from datetime import timedelta
from functools import partial
from pathlib import PurePath
from typing import get_args
from urllib.parse import quote, unquote

from handrail.clock import SYSTEM_CLOCK, Clock
from handrail.errors import InvalidArgumentError, StoreError
from handrail.errors.developer import check_argument
from handrail.store.memory import MemoryStore
from handrail.store.protocol import Store
from handrail.store.sql.driver import CONNECTIONS, Durability
from handrail.store.sqlite.store import SqliteStore

_FORMS = (
    '"memory:", "sqlite:///desk.db" (a path from the current folder; "sqlite:////srv/desk.db" is absolute, and a ? is '
    'written as %3F) or "postgresql://user@host/database"'
)


_PLAIN = re.compile(r"[\w./+-]*:?/{0,3}[\w./+-]*")
"""Words and paths, after a scheme or without one: neither a user nor an option."""

_SCHEMES = frozenset({"memory", "sqlite", "postgresql", "postgres"})

_PATH = re.compile(r"///(?!:memory:$)([^?]+)", re.DOTALL)
"""A file of SQLite: neither a database in memory, as it is named elsewhere, nor with options."""


def open(  # noqa: A001, PLR0913 - each is an option of the store; it is called `handrail.store.open`
    url: str,
    *,
    durability: Durability = "full",
    busy: timedelta = timedelta(seconds=5),
    read_only: bool = False,
    connections: int = CONNECTIONS,
    clock: Clock | None = None,
) -> Store:
    """Opens the store that a URL names; close it with `close`, or use it as a context manager.

    Args:
        url: `"memory:"`, `"sqlite:///desk.db"` or `"postgresql://..."`.
        durability: what a commit survives: `"full"` a loss of power, `"normal"` only the death of the process.
        busy: how long to wait for a database that is busy, or does not answer.
        read_only: whether all writes are refused; the store must exist already.
        connections: the most connections to PostgreSQL that are open for statements at one time, from 2; three quarters
            of them are for calls that use `context.connection`. One more is open for the locks of sessions.
        clock: by what leases and expiries are measured; `None` for the store's own: the machine's for memory and
            SQLite, the server's for PostgreSQL.

    Raises:
        InvalidArgumentError: `url` is a path, or `durability` or `connections` has another value.
        StoreError: the URL is of no such form, or the store cannot be opened.
    """
    check_argument("store.open", "url", url, str, _expected(url))
    refuse = partial(InvalidArgumentError, function="store.open")
    if connections < 2:  # noqa: PLR2004 - one for a call, and one for a unit of work
        raise refuse(argument="connections", value=connections, expected="2 or more")
    if durability not in get_args(Durability):
        raise refuse(argument="durability", value=durability, expected=" or ".join(map(repr, get_args(Durability))))
    scheme, colon, rest = url.partition(":")
    if colon and scheme == "memory" and not rest:
        return MemoryStore(clock=clock or SYSTEM_CLOCK)
    if scheme == "sqlite" and (file := _PATH.fullmatch(rest)) is not None:
        path = unquote(file[1])
        return SqliteStore(path, durability=durability, busy=busy, read_only=read_only, clock=clock or SYSTEM_CLOCK)
    if scheme in {"postgresql", "postgres"} and rest.startswith("//"):
        from handrail.store.postgres import PostgresStore, Server, harmless_address  # noqa: PLC0415 - the core does not load psycopg

        server = Server(url, harmless_address(url), durability, busy, read_only, connections)
        return PostgresStore(server, clock=clock)
    text = harmless_text(url)
    raise StoreError(f"{text!r} is not a store URL; write {_FORMS}", store=text)


def _expected(url: object) -> str:
    if isinstance(url, PurePath):
        return f'the URL of a store: "sqlite:///{quote(str(url))}"'
    return f"the URL of a store: {_FORMS}"


def harmless_text(text: str) -> str:
    """Returns what may be shown of a text that is not the URL of a store, and may hold a password anywhere."""
    # A word alone may be a password that was put into the wrong variable.
    if _PLAIN.fullmatch(text) and ({"/", "."} & {*text} or text.removesuffix(":") in _SCHEMES | {""}):
        return text
    scheme, colon, rest = text.partition(":")
    is_address = rest.startswith("//") and _PLAIN.fullmatch(scheme)
    return f"{scheme}:..." if colon and (is_address or scheme in _SCHEMES) else "..."
