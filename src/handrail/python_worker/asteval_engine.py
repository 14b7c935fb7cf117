"""asteval: an interpreter of Python's syntax trees in Python, which refuses what is known to lead out of it.

What it does not know of leads out. So each evaluation runs in a process that is forked for it, and that has given up
all system calls but those that compute and talk to its parent. The parent is between that process and the agent: it
passes on whole messages alone, and the result only when the process has ended. So nothing of one evaluation is there in
the next one.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn, Protocol, cast

from asteval import Interpreter as _UntypedInterpreter  # type: ignore[import-untyped]  # it has no types

from handrail.python_worker.channel import (
    Channel,
    ChannelClosedError,
    ChannelError,
    ChannelGarbledError,
    ChannelTimeoutError,
    WorkerMessage,
)
from handrail.python_worker.confinement import MOST_FILES, Confine, confine_computation, confine_tree, own_size
from handrail.python_worker.lent import LentFunctions, lent_functions
from handrail.python_worker.program import EngineSettings, Request
from handrail.python_worker.results import Printed, failure, success, timed_out
from handrail.python_worker.system_calls import filtering_machine

_FIRST_FILE = 3

_REMOVED = ("open", "dir", "id")
"""Names of asteval that code does not get: `open` reads files of the host."""


@dataclass(frozen=True, slots=True)
class _Child:
    """A process for one evaluation, which waits for its request."""

    pid: int
    socket: socket.socket


class AstevalEngine:
    """asteval, as an `Engine`.

    Attributes:
        confinement: what the processes of evaluations give up.
    """

    def __init__(self, settings: EngineSettings, confine: Confine = confine_tree) -> None:
        """Check that evaluations can be confined, and confine this process.

        Raises:
            OSError: they cannot.
        """
        filtering_machine()
        self._address_bytes = own_size() + settings.memory_bytes
        self.confinement: tuple[str, ...] = (*confine(settings.memory_bytes, ()), "computation")
        self._next: _Child | None = None

    def prepare(self) -> None:
        """Fork the process of the next evaluation, so that this takes no time of it."""
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if not pid:  # pragma: no cover - the process of an evaluation ends without a report of what it has executed
            ours.close()
            _evaluate_and_end(theirs, self._address_bytes)
        theirs.close()
        self._next = _Child(pid, ours)

    def evaluate(self, request: Request, channel: Channel) -> WorkerMessage:
        """Evaluate code in a process of its own; see `Engine.evaluate`."""
        if self._next is None:
            self.prepare()
        child, self._next = cast("_Child", self._next), None
        with child.socket:
            inner = Channel(child.socket.fileno(), child.socket.fileno(), time.monotonic)
            until = time.monotonic() + request.seconds
            try:
                inner.send(request.message(), until)
                result = _relayed(inner, channel, until)
            except ChannelTimeoutError:
                result = timed_out(request.seconds)
            except ChannelGarbledError as error:
                result = failure("SystemError", f"the interpreter has sent something else than a result: {error}", None)
            except ChannelClosedError:
                result = None
            finally:
                # Before the result is passed on: a process that lives on could answer for the next evaluation.
                os.kill(child.pid, signal.SIGKILL)
                _, status = os.waitpid(child.pid, 0)
        return _crash(status) if result is None else result


def _relayed(inner: Channel, agent: Channel, until: float) -> WorkerMessage:
    """Pass calls on to the agent, and its answers back, until there is a result."""
    while True:
        message = inner.receive(until)
        if "call" not in message:
            return message
        try:
            agent.send(message)
            answer = agent.receive()
        except ChannelError as error:
            raise SystemExit from error  # the agent has ended, or wants no more of this
        inner.send(answer, until)


def _crash(status: int) -> WorkerMessage:
    code = os.waitstatus_to_exitcode(status)
    how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
    return failure("SystemError", f"the interpreter has ended {how}", None)


def _evaluate_and_end(own: socket.socket, address_bytes: int) -> NoReturn:  # pragma: no cover - as above
    """Evaluate code in the process that was forked for it, and end the process."""
    code = 1
    try:
        # No descriptor to the agent is left: its parent alone talks to it.
        os.closerange(_FIRST_FILE, own.fileno())
        os.closerange(own.fileno() + 1, MOST_FILES)
        channel = Channel(own.fileno(), own.fileno(), time.monotonic)
        request = Request.of(channel.receive())
        confine_computation(address_bytes, request.seconds)
        channel.send(evaluated(request, channel))
        code = 0
    finally:
        os._exit(code)


class _Raised(Protocol):
    """An exception, as asteval notes it."""

    exc: type[BaseException]
    msg: object
    lineno: int | None
    exc_info: tuple[type[BaseException] | None, BaseException | None, object]


class _Interpreter(Protocol):
    """asteval's interpreter, as far as it is used here."""

    symtable: dict[str, object]
    error: list[_Raised]

    def eval(self, expr: str, *, show_errors: bool) -> object: ...


_new_interpreter = cast("Callable[..., _Interpreter]", _UntypedInterpreter)


def evaluated(request: Request, channel: Channel) -> WorkerMessage:
    """The result of code, evaluated in this process."""
    printed = Printed(request.characters)
    lent: LentFunctions = lent_functions(channel) if request.files else {}
    interpreter = _new_interpreter(
        user_symbols=dict(lent), writer=printed, err_writer=printed, use_numpy=False, max_statement_length=10**8
    )
    for name in _REMOVED:
        interpreter.symtable.pop(name, None)
    try:
        value = interpreter.eval(request.code, show_errors=False)
        if not interpreter.error:
            return success(value, printed, request.characters)
        # The first is where it was raised; others are where it passed.
        first = interpreter.error[0]
        return _failure_of(first.exc, first.msg, first.exc_info[1], first.lineno, printed)
    except BaseException as error:  # noqa: BLE001 - MemoryError, RecursionError, and whatever asteval does not catch
        return _failure_of(type(error), "", error, None, printed)


def _failure_of(
    kind: type[BaseException], message: object, error: BaseException | None, line: int | None, printed: Printed
) -> WorkerMessage:
    if isinstance(error, SyntaxError):
        return failure("SyntaxError", error.msg, error.lineno, printed)
    if kind is NotImplementedError and isinstance(error, KeyError):
        return failure("SyntaxError", f"asteval does not support {error.args[0]}", line, printed)
    # asteval's own text of a failed call repeats all arguments.
    text = str(message) if error is None or not str(error) else str(error)
    return failure(kind.__name__, text, line, printed)
