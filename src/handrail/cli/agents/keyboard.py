"""What a person types while a run waits: read on the event loop, so that Ctrl-C ends the waiting at once."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TextIO

if sys.platform != "win32":  # pragma: no branch - there, what was typed ahead is read as well
    import termios

_CHUNK = 4096


def forget_typed(stream: TextIO) -> None:
    """Forget what was typed so far: it must not answer a question that nobody has seen yet."""
    if sys.platform != "win32":  # pragma: no branch
        termios.tcflush(stream.fileno(), termios.TCIFLUSH)


async def typed_line(stream: TextIO) -> str | None:
    """The next line that is typed, without the blanks around it; `None` at the end of the input.

    No thread is left behind that would hold on to the keyboard when the run is ended.
    """
    descriptor = stream.fileno()
    line = b""
    while not line.endswith(b"\n"):
        await _readable(descriptor)
        chunk = os.read(descriptor, _CHUNK)
        if not chunk and not line:
            return None
        if not chunk:
            break
        line += chunk
    return line.decode(errors="replace").strip()


async def _readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)
