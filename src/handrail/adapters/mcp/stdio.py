"""Standard input and output as the streams of a server, on the event loop.

The SDK's own streams make each read and write on a worker thread, which takes half of the time of a call. While the
server runs, the descriptors of the process lead elsewhere: what a tool prints goes to standard error, and what it reads
is empty. Only pipes and sockets are served so: a loop cannot wait for files, and would keep a terminal, or an output
that is standard error, too, from blocking for every process that has it. Those are left to the SDK.
"""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from typing import Any, Final

from mcp.server.stdio import stdio_server

_LONGEST_LINE: Final = 16 * 1024 * 1024


@asynccontextmanager
async def standard_streams() -> AsyncGenerator[tuple[Any, Any]]:
    """The streams of messages of this process, for the SDK's server."""
    with ExitStack() as stack:
        streams: tuple[Any, ...] = ()
        if _are_own():
            streams = await _open(stack)
        async with stdio_server(*streams) as messages:
            yield messages


def _are_own() -> bool:
    modes = [os.fstat(descriptor).st_mode for descriptor in (0, 1)]
    return all(stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) for mode in modes) and not os.path.sameopenfile(1, 2)


async def _open(stack: ExitStack) -> tuple[_Lines, _Output]:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(_LONGEST_LINE)
    private_in, private_out = os.dup(0), os.dup(1)
    stack.callback(_restore, private_in, private_out)
    protocol = asyncio.StreamReaderProtocol(reader)
    receiving, _ = await loop.connect_read_pipe(lambda: protocol, os.fdopen(os.dup(private_in), "rb", 0))
    stack.callback(receiving.close)
    sending, flow = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin, os.fdopen(os.dup(private_out), "wb", 0)
    )
    stack.callback(sending.close)
    sys.stdout.flush()
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return _Lines(reader), _Output(asyncio.StreamWriter(sending, flow, None, loop))


def _restore(private_in: int, private_out: int) -> None:
    sys.stdout.flush()
    for private, descriptor in ((private_in, 0), (private_out, 1)):
        os.set_blocking(private, True)
        os.dup2(private, descriptor)
        os.close(private)


class _Lines:
    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader

    def __aiter__(self) -> AsyncIterator[str]:
        return self

    async def __anext__(self) -> str:
        try:
            line = await self._reader.readuntil(b"\n")
        except asyncio.IncompleteReadError as end:
            if not end.partial:
                raise StopAsyncIteration from None
            line = end.partial
        except asyncio.LimitOverrunError:
            line = await self._skip()
        return line.decode("utf-8", "replace")

    async def _skip(self) -> bytes:
        # A line that is too long is not a message; the server continues with the next one.
        while chunk := await self._reader.read(_LONGEST_LINE):
            if b"\n" in chunk:
                break
        return b""


class _Output:
    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    async def write(self, text: str) -> None:
        self._writer.write(text.encode())

    async def flush(self) -> None:
        await self._writer.drain()
