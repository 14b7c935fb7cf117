"""What a program writes while it runs, passed on to subscribers of the session, and how long it has written nothing.

A program may write faster than a person reads, so its output is passed on in pieces: one every fifth of a second at
most, and of what was written meanwhile only the end. The result of the call has all that `max_kept_bytes` allows.
"""

from __future__ import annotations

import codecs
import math
from collections.abc import Callable
from dataclasses import dataclass

QUIET_SECONDS = 10.0
"""After how long without output a program is reported to be quiet; then again after twice as long, and so on."""

MOST_LIVE_BYTES = 4096
"""How much of the output is passed on at once."""

_PAUSE_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class ToolNames:
    """The prefix of one toolset's tool names. A run of an agent binds it where they have one.

    Attributes:
        prefix: precedes the name of each tool.
    """

    prefix: str


@dataclass(frozen=True, slots=True)
class ProgramProgress:
    """A program has written something, or has been quiet for some time.

    Subscribers of the session are notified while the call runs. It is not stored, and has no slice.

    Attributes:
        reply: the reply of the model that asked for the call; `None` if it was not given.
        call_id: the id of the call.
        tool: the name of the tool.
        text: what the program has written since the last such event, or the end of that; empty if it is quiet.
        quiet_seconds: for how long it has written nothing.
    """

    reply: str | None
    call_id: str
    tool: str
    text: str
    quiet_seconds: float = 0.0


class LiveOutput:
    """The output of one program since it was passed on last. Used by one thread."""

    __slots__ = ("_decoder", "_last", "_new", "_notify", "_passed", "_quiet")

    def __init__(self, notify: Callable[[str, float], object]) -> None:
        """Call `notify` with each piece, and seconds without output: one of the two is empty."""
        self._notify = notify
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._new = bytearray()
        self._last: float | None = None
        self._passed = -math.inf
        self._quiet = QUIET_SECONDS

    def add(self, chunk: bytes) -> None:
        """Add output."""
        self._new += chunk
        if len(self._new) > MOST_LIVE_BYTES:
            del self._new[:-MOST_LIVE_BYTES]

    def pass_on(self, now: float) -> float:
        """Pass on what is due; returns after how many seconds something may be due.

        Args:
            now: seconds since some fixed moment.
        """
        if self._last is None:
            self._last = now
        if self._new:
            self._last, self._quiet = now, QUIET_SECONDS
            if now - self._passed < _PAUSE_SECONDS:
                return self._passed + _PAUSE_SECONDS - now
            self._passed = now
            self.finish()
        elif now - self._last >= self._quiet:
            self._notify("", self._quiet)
            self._quiet *= 2
        return self._last + self._quiet - now

    def finish(self) -> None:
        """Pass on what has not been passed on yet."""
        text = self._decoder.decode(bytes(self._new)).replace("\0", "\u2400")
        self._new.clear()
        if text:
            self._notify(text, 0.0)
