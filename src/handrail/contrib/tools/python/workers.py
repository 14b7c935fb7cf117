"""The processes that evaluate code: started when they are needed, kept for later evaluations, replaced after any doubt.

A worker is a program below the guardian (`handrail.programs`): it ends with this process, whatever ends that, and so
does all that it has started. It holds nothing between two evaluations, so evaluations of any sections may share it. Of
the workers that are not in use, this process keeps a few of each kind.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

from handrail.clock import Clock
from handrail.contrib.tools.python.engines import EngineName, worker_line
from handrail.contrib.tools.shell.process import start_of
from handrail.programs.launch import Launch, RunningProgram
from handrail.python_worker.channel import Channel, ChannelError, ChannelGarbledError, ChannelTimeoutError
from handrail.python_worker.program import Request
from handrail.redaction import redacted_logger

_log = redacted_logger("handrail")

SECONDS_TO_START = 30.0
"""How long a worker may take to be ready."""

SECONDS_OVERTIME = 1.0
"""How long an interpreter may take to stop code by itself, before its process is killed."""

MOST_IDLE = 2
"""How many workers of a kind are kept while they are not in use."""

_MOST_COMPLAINT = 2_000

FunctionAnswer = Callable[[str, object], Mapping[str, Any]]
"""Carries out a call of a lent function with what are to be its arguments, and returns the message that answers it."""


class WorkerStartError(Exception):
    """A worker that cannot be started, or that cannot evaluate anything here."""


class WorkerLostError(Exception):
    """A worker that has ended, or said something that is not part of the conversation; it is to be closed."""


class WorkerOvertimeError(WorkerLostError):
    """A worker that has not ended an evaluation in time."""


@dataclass(frozen=True, slots=True)
class WorkerKind:
    """What workers are alike in.

    Attributes:
        engine: the interpreter.
        memory_bytes: how much memory code may use.
    """

    engine: EngineName
    memory_bytes: int


WorkerLine = Callable[[EngineName, int], tuple[str, ...]]
"""The program of a worker, and its arguments, as `worker_line` gives them."""


class PythonWorker:
    """A process that evaluates code, one request after the other. One thread uses it; any may kill it.

    Attributes:
        kind: what it is.
        confinement: what it has given up; see `handrail.python_worker.confinement`.
    """

    def __init__(self, kind: WorkerKind, clock: Clock, call: str, line: WorkerLine = worker_line) -> None:
        """Start it, and wait until it is ready.

        Args:
            kind: what it is to be.
            clock: measures time.
            call: a random id, by which its processes are found.
            line: its program.

        Raises:
            WorkerStartError: it cannot be started.
        """
        self.kind = kind
        self._clock = clock
        launch = Launch(
            call=call,
            line=line(kind.engine, kind.memory_bytes),
            folder=Path("/"),
            environment={},
            has_input=True,
        )
        self._running: RunningProgram = start_of(sys.platform)(launch, clock)
        try:
            self._running.start()  # no other thread knows it yet, so it was not killed before
        except OSError as error:
            raise WorkerStartError(str(error.strerror)) from error
        self._running.release()
        self._channel = Channel(self._running.output, self._running.input or 0, clock.monotonic)
        try:
            self.confinement: tuple[str, ...] = self._ready()
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """The process id of its program."""
        return self._running.identity.program.pid

    def evaluate(self, request: Request, answer: FunctionAnswer) -> Mapping[str, Any]:
        """Evaluate code, and answer its calls of lent functions meanwhile.

        Args:
            request: the code.
            answer: answers a call; what it raises ends the conversation.

        Returns:
            A result; it is not known whether it is well formed. See `handrail.python_worker.results`.

        Raises:
            WorkerLostError: there is none.
        """
        until = self._clock.monotonic() + request.seconds + SECONDS_OVERTIME
        try:
            self._channel.send(request.message(), until)
            while True:
                message = self._channel.receive(until)
                if "result" in message:
                    return _object(message["result"])
                name: object = message.get("call")
                if not isinstance(name, str):
                    raise WorkerLostError("it has sent a message that is neither a call nor a result")
                self._channel.send(answer(name, message.get("arguments")), until)
        except ChannelTimeoutError as error:
            raise WorkerOvertimeError(str(error)) from error
        except ChannelError as error:
            raise WorkerLostError(str(error)) from error

    def waits(self) -> bool:
        """Whether it is there, and waits for a request."""
        # The end of its output is seen before its supervisor has reported its end.
        return self._channel.is_quiet() and not self._running.has_ended()

    def kill(self) -> None:
        """Kill it and what it has started; does not wait."""
        self._running.kill()

    def close(self) -> None:
        """Kill it and what it has started, and wait for that."""
        with suppress(OSError):  # it is not known how it has ended, or it never was started: it has ended
            end = self._running.end()
            if end.left:
                _log.error("%d processes of a Python worker cannot be killed", end.left)
        self._running.close()

    def forget(self) -> None:
        """Leave it to the parent, in a process that was forked off."""
        self._running.close()

    def _ready(self) -> tuple[str, ...]:
        until = self._clock.monotonic() + SECONDS_TO_START
        try:
            message = self._channel.receive(until)
        except ChannelGarbledError as error:
            # Not a message, but what Python writes when it cannot start.
            text = (error.data + self._channel.rest(_MOST_COMPLAINT, until)).decode("utf-8", "replace").strip()
            raise WorkerStartError(text.rpartition("\n")[2]) from error
        except ChannelError as error:
            raise WorkerStartError(str(error)) from error
        if "ready" not in message:
            raise WorkerStartError(str(message.get("unavailable")))
        return tuple(map(str, message["ready"]))


class PythonWorkers:
    """The workers of this process that are not in use. Threads may share it."""

    __slots__ = ("_idle", "_line", "_lock", "_new_id")

    def __init__(self, line: WorkerLine = worker_line, new_id: Callable[[], str] = lambda: uuid4().hex) -> None:
        """Start none yet; `line` is the program of each, `new_id` makes random ids."""
        self._line = line
        self._lock = threading.Lock()
        self._idle: dict[WorkerKind, list[PythonWorker]] = {}
        self._new_id = new_id

    def take(self, kind: WorkerKind, clock: Clock) -> PythonWorker:
        """A worker for one evaluation; the caller returns or closes it.

        Raises:
            WorkerStartError: there is none, and none can be started.
        """
        while (worker := self._kept(kind)) is not None:
            if worker.waits():
                return worker
            worker.close()
        return PythonWorker(kind, clock, self._new_id(), self._line)

    def put(self, worker: PythonWorker) -> None:
        """Keep a worker that waits for a request; if enough of its kind are kept, it is closed."""
        with self._lock:
            idle = self._idle.setdefault(worker.kind, [])
            if len(idle) < MOST_IDLE:
                idle.append(worker)
                return
        worker.close()

    def close(self) -> None:
        """Close the workers that are not in use; later evaluations start others."""
        with self._lock:
            idle, self._idle = self._idle, {}
        for workers in idle.values():
            for worker in workers:
                worker.close()

    def forked(self) -> None:
        """Forget the workers of the parent, in a process that was forked off; no other thread runs in it."""
        # Another thread of the parent may have held the old one at the fork.
        self._lock = threading.Lock()
        idle, self._idle = self._idle, {}
        for workers in idle.values():
            for worker in workers:
                worker.forget()

    def _kept(self, kind: WorkerKind) -> PythonWorker | None:
        with self._lock:
            idle = self._idle.get(kind)
            return idle.pop() if idle else None


def _object(value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise WorkerLostError("its result is not an object")
    return cast("Mapping[str, Any]", value)  # it is JSON


WORKERS = PythonWorkers()
"""The workers of this process."""

if hasattr(os, "register_at_fork"):  # pragma: no branch - everywhere but on Windows
    os.register_at_fork(after_in_child=WORKERS.forked)
atexit.register(WORKERS.close)
