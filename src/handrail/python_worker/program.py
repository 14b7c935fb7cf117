"""The program of the process: it answers one request after the other, until the agent closes the channel.

Its first message says that it is ready, or why it never will be. Then each request is answered by a result
(`handrail.python_worker.results`), and before that by any number of calls of lent functions. The process holds nothing
between two requests that code of a model could reach.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from handrail.python_worker.channel import Channel, ChannelError, WorkerMessage


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """What an interpreter is set up with.

    Attributes:
        memory_bytes: how much memory code may use.
        program: the program of the interpreter, if it is one; empty otherwise.
    """

    memory_bytes: int
    program: str = ""


@dataclass(frozen=True, slots=True)
class Request:
    """Code to evaluate.

    Attributes:
        code: the code.
        seconds: how long it may take.
        characters: how much of what it prints is returned, and of its value.
        files: whether it may call the functions for files.
    """

    code: str
    seconds: float
    characters: int
    files: bool

    @classmethod
    def of(cls, message: Mapping[str, Any]) -> Request:
        """The request in a message of the agent's."""
        return cls(message["code"], message["seconds"], message["characters"], message["files"])

    def message(self) -> WorkerMessage:
        """The request as a message."""
        return {"code": self.code, "seconds": self.seconds, "characters": self.characters, "files": self.files}


class Engine(Protocol):
    """An interpreter in this process, or below it."""

    @property
    def confinement(self) -> tuple[str, ...]:
        """What the process, or that of the code, has given up: names of `handrail.python_worker.confinement`."""
        ...

    def prepare(self) -> None:
        """Prepare for the next request. The agent has the result of the last one, and does not wait for this."""
        ...

    def evaluate(self, request: Request, channel: Channel) -> WorkerMessage:
        """Evaluate code; what it calls in the agent is asked over the channel.

        Returns:
            A result, also for code that raises, takes too long, or uses too much memory.
        """
        ...


def serve(engine: Engine, channel: Channel) -> None:
    """FunctionAnswer requests until the agent closes the channel, or the interpreter cannot be asked again."""
    try:
        channel.send({"ready": list(engine.confinement)})
        while True:
            engine.prepare()
            result = engine.evaluate(Request.of(channel.receive()), channel)
            channel.send({"result": result})
            if result.get("ends"):
                return
    except ChannelError:
        return


def run_worker(make: Callable[[EngineSettings], Engine]) -> None:
    """Run the program over the standard input and output, with the settings in the last argument."""
    channel = _own_channel()
    settings = EngineSettings(**json.loads(sys.argv[-1]))
    try:
        engine = make(settings)
    except Exception as error:  # noqa: BLE001 - whatever it is, the agent is to know
        channel.send({"unavailable": f"{type(error).__name__}: {error}"})
        return
    serve(engine, channel)


def _own_channel() -> Channel:
    """The channel over the standard input and output, which are then replaced: nothing else writes to the agent."""
    reading, writing = os.dup(0), os.dup(1)  # not inherited by programs that are started
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    os.close(nothing)
    return Channel(reading, writing, time.monotonic)
