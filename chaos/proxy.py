"""A proxy before a server of PostgreSQL that cuts connections at random, and loses answers.

A connection is cut before the server has what the client sent, or after it has executed that and before the client has
its answer, as that of a COMMIT.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from psycopg.conninfo import conninfo_to_dict

_CHUNK = 1 << 16
_COMMITS_ARE_LOST = 6  # so many times as often as other answers
_QUIET = 3  # messages of a connection that pass in any case


class Proxy:
    """A proxy in a thread of its own; as long as the server is away, it refuses connections.

    Args:
        url: the server, on a Unix socket.
        dice: decides what is cut and lost.
        often: how often that happens to a message, from 0 to 1.
        delay: what passes is delayed so long in each direction, in seconds.

    Attributes:
        counts: how many connections were cut, and how many answers were lost; those of a COMMIT, too.
        often: as above; it may change.
        url: where the proxy is, while it runs.
    """

    def __init__(self, url: str, *, dice: random.Random, often: float, delay: float = 0.0) -> None:
        self.counts: Counter[str] = Counter()
        self.often = often
        self.url = ""
        self._address = conninfo_to_dict(url)
        self._socket = Path(str(self._address["host"]), f".s.PGSQL.{self._address.get('port', 5432)}")
        self._dice = dice
        self._delay = delay
        self._ready = threading.Event()

    @contextmanager
    def running(self) -> Generator[None]:
        """The proxy, while the block runs."""
        thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        thread.start()
        self._ready.wait()
        yield
        self._loop.call_soon_threadsafe(self._ended.set)
        thread.join()

    async def _serve(self) -> None:
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        user, database = quote(str(self._address["user"])), quote(str(self._address["dbname"]))
        self.url = f"postgresql://{user}@127.0.0.1:{port}/{database}?sslmode=disable"
        self._ready.set()
        await self._ended.wait()
        server.close()  # what is connected yet ends with the loop

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            from_server, to_server = await asyncio.open_unix_connection(self._socket)
        except OSError:
            writer.transport.abort()
            return
        connection = _Connection(writer, to_server)
        with suppress(asyncio.CancelledError):  # the proxy ends
            await asyncio.gather(self._send(connection, reader), self._answer(connection, from_server))

    async def _send(self, connection: _Connection, reader: asyncio.StreamReader) -> None:
        """Pass on what the client sends, until it is cut off, or the answer is to be lost."""
        number = 0
        with suppress(OSError):
            while data := await reader.read(_CHUNK):
                await self._wait()
                number += 1
                is_commit = b"COMMIT" in data
                if number > _QUIET and self._dice.random() < self.often:
                    self.counts["cut"] += 1
                    break
                if number > _QUIET and self._dice.random() < self.often * (_COMMITS_ARE_LOST if is_commit else 1):
                    self.counts.update(["lost", "commits"] if is_commit else ["lost"])
                    connection.loses_answer = True
                connection.to_server.write(data)
                await connection.to_server.drain()
        connection.cut()

    async def _answer(self, connection: _Connection, reader: asyncio.StreamReader) -> None:
        with suppress(OSError):
            while data := await reader.read(_CHUNK):
                if connection.loses_answer:
                    break
                await self._wait()
                connection.to_client.write(data)
                await connection.to_client.drain()
        connection.cut()

    async def _wait(self) -> None:
        if self._delay:
            await asyncio.sleep(self._delay)


@dataclass(slots=True)
class _Connection:
    """A connection through the proxy: both ends, and whether the next answer of the server is lost."""

    to_client: asyncio.StreamWriter
    to_server: asyncio.StreamWriter
    loses_answer: bool = False

    def cut(self) -> None:
        """End it on both sides at once."""
        for writer in (self.to_client, self.to_server):
            writer.transport.abort()
