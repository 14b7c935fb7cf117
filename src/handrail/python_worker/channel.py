"""Messages between an agent and the process that evaluates its Python: a length, and as many bytes of JSON.

Neither side believes the other. A message of more than `MOST_MESSAGE_BYTES`, one that is not a JSON object, and a wait
beyond the given time end the conversation: nothing is read after a part of a message.
"""

from __future__ import annotations

import json
import os
import select
import struct
from collections.abc import Callable, Mapping
from typing import Any, cast

WorkerMessage = dict[str, Any]
"""A JSON object."""

MOST_MESSAGE_BYTES = 64 * 1024 * 1024
"""The largest message, in bytes of JSON: 64 MiB."""

MESSAGE_LENGTH = struct.Struct("<I")
"""Precedes a message."""

_CHUNK = 1 << 20
_MILLISECONDS = 1000


class ChannelError(Exception):
    """A conversation that has ended; it cannot be resumed."""


class ChannelClosedError(ChannelError):
    """The other side has closed its end: it is seen in writing or in reading, as it happens."""

    def __init__(self) -> None:
        super().__init__("the other side has ended")


class ChannelTimeoutError(ChannelError):
    """The other side has not answered in time."""


class ChannelGarbledError(ChannelError):
    """What the other side has sent is not a message.

    Attributes:
        data: its first bytes.
    """

    def __init__(self, message: str, data: bytes = b"") -> None:
        super().__init__(message)
        self.data = data


class Channel:
    """One side of a conversation. One thread uses it."""

    __slots__ = ("_monotonic", "_reading", "_writing")

    def __init__(self, reading: int, writing: int, monotonic: Callable[[], float]) -> None:
        """Converse over two descriptors, which are made not to block; `monotonic` measures time in seconds."""
        self._reading = reading
        self._writing = writing
        self._monotonic = monotonic
        for descriptor in (reading, writing):
            os.set_blocking(descriptor, False)

    def send(self, message: Mapping[str, Any], until: float | None = None) -> None:
        """Send a message.

        Args:
            message: what to send; JSON alone.
            until: when to stop, in monotonic time; `None` for never.

        Raises:
            ChannelError: it was not sent, or only in part.
            ValueError: it is too large.
        """
        # Lone surrogates are escaped, as everything that is not ASCII; so any text of Python's can be sent.
        body = json.dumps(message, separators=(",", ":")).encode()
        if len(body) > MOST_MESSAGE_BYTES:
            raise ValueError(f"the message has {len(body):,} bytes, and {MOST_MESSAGE_BYTES:,} can be sent")
        rest = memoryview(MESSAGE_LENGTH.pack(len(body)) + body)
        while rest:
            try:
                rest = rest[os.write(self._writing, rest[:_CHUNK]) :]
            except BlockingIOError:
                self._wait(self._writing, select.POLLOUT, until)
            except OSError as error:
                raise ChannelClosedError from error

    def receive(self, until: float | None = None) -> WorkerMessage:
        """The next message; `until` as for `send`.

        Raises:
            ChannelError: there is none, or not a whole one.
        """
        prefix = self._exactly(MESSAGE_LENGTH.size, until)
        (length,) = MESSAGE_LENGTH.unpack(prefix)
        if length > MOST_MESSAGE_BYTES:
            raise ChannelGarbledError(f"a message of {length:,} bytes is announced", prefix)
        body = self._exactly(length, until)
        try:
            message: object = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise ChannelGarbledError("a message is not JSON", body[:200]) from error
        if not isinstance(message, dict):
            raise ChannelGarbledError("a message is not a JSON object", body[:200])
        return cast("WorkerMessage", message)

    def is_quiet(self) -> bool:
        """Whether the other side is there, and has sent nothing that was not received."""
        poll = select.poll()
        poll.register(self._reading, select.POLLIN)
        return not poll.poll(0)

    def close(self) -> None:
        """Close the descriptors."""
        for descriptor in {self._reading, self._writing}:
            os.close(descriptor)

    def rest(self, most_bytes: int, until: float) -> bytes:
        """What else the other side has sent, not as a message: for a reader who wants to know why it was none."""
        found = bytearray()
        try:
            while len(found) < most_bytes:
                found += self._some(most_bytes - len(found), until)
        except ChannelError:
            pass
        return bytes(found)

    def _exactly(self, size: int, until: float | None) -> bytes:
        found = bytearray()
        while len(found) < size:
            found += self._some(min(size - len(found), _CHUNK), until)
        return bytes(found)

    def _some(self, most: int, until: float | None) -> bytes:
        while True:
            try:
                data = os.read(self._reading, most)
            except BlockingIOError:
                self._wait(self._reading, select.POLLIN, until)
                continue
            except OSError as error:
                raise ChannelClosedError from error
            if not data:
                raise ChannelClosedError
            return data

    def _wait(self, descriptor: int, event: int, until: float | None) -> None:
        left = None if until is None else until - self._monotonic()
        if left is not None and left <= 0:
            raise ChannelTimeoutError("the other side has not answered in time")
        poll = select.poll()
        poll.register(descriptor, event)
        # Rounded up, so that a wait of less than a millisecond does not spin.
        poll.poll(None if left is None else int(left * _MILLISECONDS) + 1)
