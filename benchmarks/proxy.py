"""A TCP proxy before a server of PostgreSQL: it delays what passes, and counts round trips.

It runs in a process of its own, so that it does not share the interpreter lock with what is measured. Each chunk is
stamped on arrival and forwarded, in order, when the delay has passed: the delay does not limit the throughput, and data
that is sent ahead of the answers is delayed once. asyncio sets TCP_NODELAY on the sockets of both sides.

A round trip is a change of direction: the client sends after it has been given an answer, or for the first time. Each
connection is counted for itself. With a delay, what the client sends without waiting for an answer is not counted, even
if the server has begun to answer.

The process reads commands from standard input, a line each, and answers with a line: `delay SECONDS` sets the delay of
one direction for what arrives from then on, `round-trips` tells how many there have been.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from asyncio import Queue, StreamReader, StreamWriter
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from selectors import SelectSelector
from urllib.parse import urlencode

from psycopg.conninfo import conninfo_to_dict

_CHUNK = 1 << 16


def _nothing() -> None:
    pass


class _Forwarder:
    """The proxy itself.

    Args:
        server: the address of the server; one without a port is the path of a Unix socket.
    """

    def __init__(self, server: str) -> None:
        self._server = server
        self._delay = 0.0
        self._round_trips = 0

    async def serve(self) -> None:
        """Print the port, then answer commands until standard input ends."""
        listener = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        commands = StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(commands), sys.stdin.buffer
        )
        print(listener.sockets[0].getsockname()[1], flush=True)
        while line := await commands.readline():
            name, _, argument = line.decode().strip().partition(" ")
            if name == "delay":
                self._delay = float(argument)
            print(self._round_trips, flush=True)

    async def _connected(self, reader: StreamReader, writer: StreamWriter) -> None:
        host, colon, port = self._server.rpartition(":")
        if colon:
            upstream = await asyncio.open_connection(host, int(port))
        else:
            upstream = await asyncio.open_unix_connection(self._server)
        answered = True

        def sent() -> None:
            nonlocal answered
            self._round_trips += answered
            answered = False

        def delivered() -> None:
            nonlocal answered
            answered = True

        await asyncio.gather(
            self._forward(reader, upstream[1], arrived=sent), self._forward(upstream[0], writer, delivered=delivered)
        )

    async def _forward(
        self,
        reader: StreamReader,
        writer: StreamWriter,
        *,
        arrived: Callable[[], None] = _nothing,
        delivered: Callable[[], None] = _nothing,
    ) -> None:
        """Forward one direction until its end; notify of each chunk when it arrives and when it is forwarded."""
        loop = asyncio.get_running_loop()
        waiting: Queue[tuple[float, bytes]] = Queue()
        writing = asyncio.ensure_future(_write_when_due(waiting, writer, delivered))
        data = b"-"
        while data:
            data = b""
            with suppress(ConnectionError):
                data = await reader.read(_CHUNK)
            if data:
                arrived()
            waiting.put_nowait((loop.time() + self._delay, data))
        await writing


async def _write_when_due(
    waiting: Queue[tuple[float, bytes]], writer: StreamWriter, delivered: Callable[[], None]
) -> None:
    """Write each chunk when it is due, and close after an empty one."""
    loop = asyncio.get_running_loop()
    while True:
        due, data = await waiting.get()
        if (left := due - loop.time()) > 0:
            await asyncio.sleep(left)
        if not data:
            break
        delivered()
        writer.write(data)
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


class Proxy:
    """The other end of the proxy's process.

    Args:
        process: the process; it has printed its port.
        url: the database behind the proxy.
    """

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self._process = process
        self.url = url

    def delay(self, seconds: float) -> None:
        """Delay each direction by that much from now on."""
        self._ask(f"delay {seconds}")

    def round_trips(self) -> int:
        """How many there have been."""
        return int(self._ask("round-trips"))

    def _ask(self, command: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline()


@contextmanager
def proxied(url: str) -> Generator[Proxy]:
    """A proxy before the server of a database, without a delay yet."""
    named = conninfo_to_dict(url)
    host, port = str(named.pop("host", "127.0.0.1")), named.pop("port", 5432)
    server = f"{host}/.s.PGSQL.{port}" if host.startswith("/") else f"{host}:{port}"
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.proxy", server],
        cwd=Path(__file__).parents[1],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            place = {"host": "127.0.0.1", "port": process.stdout.readline().strip()}
            user, database = named.pop("user", ""), named.pop("dbname", "")
            yield Proxy(process, f"postgresql://{user}@/{database}?{urlencode(named | place)}")
        finally:
            process.kill()


def main() -> None:
    """Serve until standard input ends."""
    # `select` waits to the microsecond; `epoll` would round each delay up to whole milliseconds.
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(SelectSelector())) as runner:
        runner.run(_Forwarder(sys.argv[1]).serve())


if __name__ == "__main__":
    main()
