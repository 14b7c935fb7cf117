"""The processes that evaluate code: started when they are needed, kept for later evaluations, replaced after any doubt.

A worker leads a process group, and ends when this process closes its input, or ends. It holds nothing between two
evaluations, so evaluations of any sections may share it. Of the workers that are not in use, this process keeps a few
of each kind.
"""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

from handrail.clock import Clock
from handrail.contrib.tools.python.engines import EngineName, worker_line
from handrail.python_worker.channel import Channel, ChannelError, ChannelGarbledError, ChannelTimeoutError
from handrail.python_worker.program import Request

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

    def __init__(self, kind: WorkerKind, clock: Clock, line: WorkerLine = worker_line) -> None:
        """Start it, and wait until it is ready.

        Args:
            kind: what it is to be.
            clock: measures time.
            line: its program.

        Raises:
            WorkerStartError: it cannot be started.
        """
        self.kind = kind
        self._clock = clock
        try:
            self._process = subprocess.Popen(  # noqa: S603 - this interpreter, with a module of Handrail
                line(kind.engine, kind.memory_bytes),
                cwd="/",
                env={},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                bufsize=0,
                start_new_session=True,
            )
        except OSError as error:
            raise WorkerStartError(str(error.strerror)) from error
        reading, writing = self._process.stdout, self._process.stdin
        if reading is None or writing is None:
            raise AssertionError  # pragma: no cover - they were requested
        self._pipes = reading, writing
        self._channel = Channel(reading.fileno(), writing.fileno(), clock.monotonic)
        try:
            self.confinement: tuple[str, ...] = self._ready()
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """The process id of its program."""
        return self._process.pid

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
        # The end of its output is seen before its end.
        return self._channel.is_quiet() and self._process.poll() is None

    def kill(self) -> None:
        """Kill it and what it has started; does not wait."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Kill it and what it has started, and wait for it."""
        self.kill()
        self._process.wait()
        self.forget()

    def forget(self) -> None:
        """Leave it to the parent, in a process that was forked off."""
        for pipe in self._pipes:
            pipe.close()

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

    __slots__ = ("_idle", "_line", "_lock")

    def __init__(self, line: WorkerLine = worker_line) -> None:
        """Start none yet; `line` is the program of each."""
        self._line = line
        self._lock = threading.Lock()
        self._idle: dict[WorkerKind, list[PythonWorker]] = {}

    def take(self, kind: WorkerKind, clock: Clock) -> PythonWorker:
        """A worker for one evaluation; the caller returns or closes it.

        Raises:
            WorkerStartError: there is none, and none can be started.
        """
        while (worker := self._kept(kind)) is not None:
            if worker.waits():
                return worker
            worker.close()
        return PythonWorker(kind, clock, self._line)

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
