"""The program of the process that evaluates code: its conversation with the agent."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from handrail.python_worker.channel import Channel, ChannelClosedError, WorkerMessage
from handrail.python_worker.program import EngineSettings, Request, run_worker, serve
from tests.python_worker.forks import in_fork


@dataclass
class Echo:
    """Returns the code; ends after `end`."""

    confinement: tuple[str, ...] = ("nothing",)
    prepared: int = 0
    seen: list[Request] = field(default_factory=list[Request])

    def prepare(self) -> None:
        self.prepared += 1

    def evaluate(self, request: Request, channel: Channel) -> WorkerMessage:
        self.seen.append(request)
        os.write(1, b"this is not for the agent")
        os.write(2, b"nor is this")
        return {"value": request.code, "prepared": self.prepared} | ({"ends": True} if request.code == "end" else {})


def test_requests_are_answered_until_the_agent_closes_the_channel() -> None:
    """The engine prepares for each of them before it is received."""
    ours, theirs = socket.socketpair()
    agent = Channel(ours.detach(), os.dup(theirs.fileno()), lambda: 0.0)
    _, writing = os.pipe()
    first, last = Request("1", 0.5, 10, files=True), Request("end", 0.5, 10, files=False)
    feed, fed = socket.socketpair()
    sender = Channel(feed.fileno(), feed.detach(), lambda: 0.0)
    for request in (first, last):
        sender.send(request.message())
    engine = Echo()
    there = theirs.detach()
    serve(engine, Channel(fed.detach(), there, lambda: 0.0))
    received = [agent.receive() for _ in range(3)]
    assert received == [
        {"ready": ["nothing"]},
        {"result": {"value": "1", "prepared": 1}},
        {"result": {"value": "end", "prepared": 2, "ends": True}},
    ]
    assert engine.seen == [first, last]
    os.close(writing)
    sender.close()
    serve(engine, Channel(os.open(os.devnull, os.O_RDONLY), there, lambda: 0.0))


def conversation(make: Callable[[EngineSettings], Echo], *requests: str) -> list[WorkerMessage]:
    """What the program says over its standard output."""

    def body() -> list[WorkerMessage]:
        into, out = os.pipe(), os.pipe()
        pid = os.fork()
        if not pid:
            for descriptor, end in ((0, into[0]), (1, out[1])):
                os.dup2(end, descriptor)
            for end in (*into, *out):
                os.close(end)
            sys.argv = ["-c", "path", json.dumps({"memory_bytes": 5, "program": "x"})]
            try:
                run_worker(make)
            finally:
                os._exit(0)
        os.close(into[0])
        os.close(out[1])
        agent = Channel(out[0], into[1], time.monotonic)
        said: list[WorkerMessage] = [agent.receive()]
        for code in requests:
            agent.send(Request(code, 1, 10, files=False).message())
            said.append(agent.receive())
        os.close(into[1])
        with pytest.raises(ChannelClosedError):
            agent.receive()
        os.waitpid(pid, 0)
        return said

    found: list[WorkerMessage] = in_fork(body)
    return found


def test_program_talks_over_its_standard_input_and_output_alone() -> None:
    """What it prints otherwise goes nowhere; the settings are its last argument."""
    settings: list[EngineSettings] = []

    def make(given: EngineSettings) -> Echo:
        settings.append(given)
        return Echo(confinement=(str(given.memory_bytes), given.program))

    assert conversation(make, "1") == [{"ready": ["5", "x"]}, {"result": {"value": "1", "prepared": 1}}]


def test_engine_that_cannot_be_made_is_reported() -> None:
    """Whatever it raises."""

    def make(_settings: EngineSettings) -> Echo:
        raise OSError(1, "not here")

    assert conversation(make) == [{"unavailable": "PermissionError: [Errno 1] not here"}]
