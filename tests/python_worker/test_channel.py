"""Messages between two processes that do not believe each other."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Generator

import pytest

from handrail.python_worker import channel
from handrail.python_worker.channel import (
    MESSAGE_LENGTH,
    MOST_MESSAGE_BYTES,
    Channel,
    ChannelClosedError,
    ChannelGarbledError,
    ChannelTimeoutError,
    WorkerMessage,
)


class Ends:
    """Two channels that are connected, and the descriptor of the second."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self.descriptor = theirs.detach()
        here = ours.detach()
        self.here = Channel(here, here, lambda: 0.0)
        self.there = Channel(self.descriptor, self.descriptor, lambda: 0.0)


@pytest.fixture
def ends() -> Generator[Ends]:
    """A conversation."""
    ends = Ends()
    yield ends
    for end in (ends.here, ends.there):
        try:
            end.close()
        except OSError:
            continue


def test_messages_arrive_whole_and_in_order(ends: Ends) -> None:
    """Also with lone surrogates, and when they are larger than the buffer of the system."""
    sent: list[WorkerMessage] = [{"a": "\ud800é"}, {"b": "x" * 3_000_000}, {"c": [1, None, {"d": 2.5}]}]

    def send() -> None:
        for message in sent:
            ends.here.send(message)

    sender = threading.Thread(target=send)
    sender.start()
    received = [ends.there.receive() for _ in sent]
    sender.join()
    assert received == sent


@pytest.mark.parametrize(
    "data",
    [
        MESSAGE_LENGTH.pack(MOST_MESSAGE_BYTES + 1),
        MESSAGE_LENGTH.pack(5) + b"12345",
        MESSAGE_LENGTH.pack(2) + b"[]",
        MESSAGE_LENGTH.pack(3) + b"\xff\xff\xff",
        MESSAGE_LENGTH.pack(200_000) + b"[" * 200_000,
        b"Traceback (most recent call last):",
    ],
    ids=["too large", "a number", "a list", "not UTF-8", "too deep", "text"],
)
def test_what_is_not_a_message_ends_the_conversation(data: bytes, ends: Ends) -> None:
    """A length without bound is not waited for."""
    os.set_blocking(ends.descriptor, True)
    os.write(ends.descriptor, data)
    with pytest.raises(ChannelGarbledError):
        ends.here.receive()


def test_rest_shows_what_was_sent_instead(ends: Ends) -> None:
    """The beginning is in the exception."""
    os.write(ends.descriptor, b"Traceback: no module named x")
    ends.there.close()
    with pytest.raises(ChannelGarbledError) as caught:
        ends.here.receive()
    assert caught.value.data + ends.here.rest(100, 0.0) == b"Traceback: no module named x"
    assert ends.here.rest(100, 0.0) == b""


def test_end_of_the_other_side_is_seen_by_both_directions(ends: Ends) -> None:
    """In the middle of a message too."""
    os.write(ends.descriptor, MESSAGE_LENGTH.pack(10) + b"{")
    ends.there.close()
    with pytest.raises(ChannelClosedError) as received:
        ends.here.receive()
    with pytest.raises(ChannelClosedError) as sent:
        ends.here.send({"a": 1})
    assert str(received.value) == str(sent.value)  # which of them a caller gets depends on the moment


def test_channel_is_quiet_while_the_other_side_is_there_and_says_nothing(ends: Ends) -> None:
    """Neither after a message, nor after its end."""
    assert ends.here.is_quiet()
    ends.there.send({})
    assert not ends.here.is_quiet()
    ends.here.receive()
    assert ends.here.is_quiet()
    ends.there.close()
    assert not ends.here.is_quiet()


def test_wait_for_the_other_side_ends_in_time(ends: Ends) -> None:
    """Whether it does not speak or does not listen."""
    with pytest.raises(ChannelTimeoutError):
        ends.here.receive(0.0)
    with pytest.raises(ChannelTimeoutError):
        ends.here.send({"a": "x" * 10_000_000}, 0.0)


def test_message_that_is_too_large_is_not_sent(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of it."""
    monkeypatch.setattr(channel, "MOST_MESSAGE_BYTES", 1000)
    with pytest.raises(ValueError, match="bytes"):
        ends.here.send({"a": "x" * 1000})
    with pytest.raises(ChannelTimeoutError):
        ends.there.receive(0.0)
