"""Evaluations by an engine in this process, which is not confined; the agent is a thread."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterable

from handrail.programs.process_tree import Process, running
from handrail.python_worker.channel import Channel, ChannelError, WorkerMessage
from handrail.python_worker.program import Engine, Request


def children() -> set[Process]:
    """The children of this process."""
    return {process for process, parent in running().items() if parent == os.getpid()}


def unconfined(_memory_bytes: int, _programs: Iterable[str]) -> tuple[str, ...]:
    """Gives up nothing."""
    return ()


def evaluated(
    engine: Engine, code: str, *, seconds: float = 30.0, files: bool = True, heard: Callable[[], object] = bool
) -> WorkerMessage:
    """The result of code; of the lent functions `exists` is answered with true, and the others with an exception.

    Args:
        engine: what evaluates it.
        code: the code.
        seconds: how long it may take.
        files: whether it may call the lent functions.
        heard: called with each call of one.
    """
    ours, theirs = socket.socketpair()
    here = ours.detach()
    agent = Channel(here, here, time.monotonic)

    def answering() -> None:
        try:
            while True:
                call = agent.receive()["call"]
                heard()
                agent.send({"returns": True} if call == "exists" else {"raises": ["FileNotFoundError", f"no {call}"]})
        except ChannelError:
            return

    thread = threading.Thread(target=answering)
    thread.start()
    channel = Channel(theirs.fileno(), theirs.fileno(), time.monotonic)
    try:
        return engine.evaluate(Request(code, seconds, 1000, files), channel)
    finally:
        theirs.close()
        thread.join()
        agent.close()
