"""A program below the guardian, as the agent sees it: it is started, released, followed and ended over one socket.

Its supervisor (`handrail.programs.guardian`) ends it and all that it has started. If the supervisor is killed, this
process kills what has the id of the call in its environment, and the exit code is not known.

A program that enters another PID namespace is a client, as `podman exec` is: it ends when what it has started there
ends. So that is killed first, by this process. A client that is killed itself leaves records of a command that never
ends.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
import threading
from contextlib import ExitStack, suppress

from handrail.clock import Clock
from handrail.process_identity import process_name
from handrail.programs.guardian_client import GUARDIANS, Guardians
from handrail.programs.guardian_messages import ENDED, FAILED, GONE, KILL, LENGTH, PLACED, RELEASE, REPORT
from handrail.programs.launch import Launch, ProgramEnd, ProgramIdentity
from handrail.programs.process_tree import CALL_VARIABLE, Process, send, ticks_now

_ATTEMPTS = 2
_SECONDS_TO_START = 10.0
"""How long to wait for a guardian, which may have to start, and the fork of a supervisor."""

_SECONDS_TO_END = 10.0
"""How long to wait for a supervisor: it takes a few seconds for what cannot be killed."""

_SECONDS_TO_ANSWER = 0.25
"""After this time a supervisor that does not answer is sent SIGCONT, and again after each such time."""

_TIMES_TO_LEAVE, _SECONDS_TO_LEAVE = 20, 0.05
"""How often, and how long each time, to wait for the end of a client after what it has started was killed."""

_REPORTS = 4096


class SupervisedProgram:
    """A `RunningProgram` that a supervisor of the guardian starts and ends.

    Attributes:
        identity: what identifies it.
        output: the descriptor to read what it writes.
        errors: the descriptor to read its error output, if that is apart.
        input: the descriptor to write what it reads.
        woken: the socket to its supervisor.

    All but `kill` is used by one thread, and `identity` only once `start` has returned true.
    """

    def __init__(self, launch: Launch, clock: Clock, guardians: Guardians = GUARDIANS) -> None:
        """Prepare it; nothing is opened before `start`."""
        self._launch = launch
        self._clock = clock
        self._guardians = guardians
        self._lock = threading.Lock()  # for `kill`, beside what happens before the supervisor has answered
        self._since = 0
        self._is_killed = False
        self._is_placed = False
        self._socket: socket.socket | None = None
        self._code: int | None = None
        self._left: int | None = None
        self._errno = 0
        self._is_lost = False
        self._has_left = threading.Event()  # the namespace that it has entered
        self._reports = bytearray()
        self.output: int = -1
        self.errors: int | None = None
        self.input: int | None = None
        self.woken: int = -1

    def start(self) -> bool:
        """Start it; it waits for `release` before it runs. False if it was killed before.

        Raises:
            OSError: no process can be started.
        """
        # The process that becomes the program may be older than the namespace that it enters.
        self._since = ticks_now()
        # A guardian that has ended or does not answer is replaced: nothing has run yet.
        for _ in range(_ATTEMPTS):
            asked = self._asked()
            if asked is None:
                return False
            guardian, control = asked
            if self._is_answered(control):
                return True
            if self._is_killed:
                return False
            self._guardians.give_up(guardian)
        raise OSError(errno.EAGAIN, "the process that starts programs does not answer")

    def release(self) -> None:
        """Let it run: its supervisor lets it become the program."""
        self._send(RELEASE)

    def close_input(self) -> None:
        """Let it read the end of its input."""
        if self.input is not None:
            os.close(self.input)
            self.input = None

    def has_ended(self) -> bool:
        """Whether it has ended, or its supervisor has been killed."""
        self._read_reports()
        return self._code is not None or self._is_lost

    def kill(self) -> None:
        """Have its supervisor kill it and what it has started; `start` ends at once if it is still waiting."""
        with self._lock:
            self._is_killed = True
            if self._is_placed and self._launch.namespace is not None:
                # Finding what it has started takes milliseconds, and this does not wait.
                threading.Thread(target=self._kill_inside_first, name="handrail-kill", daemon=True).start()
            elif self._is_placed:
                self._send(KILL)
            elif self._socket is not None:
                with suppress(OSError):  # the guardian has ended
                    self._socket.shutdown(socket.SHUT_RDWR)

    def end(self) -> ProgramEnd:
        """Have its supervisor kill it and what it has started, and wait for that."""
        if self._launch.namespace is not None:
            self._leave()
        if self._code is None:
            with self._lock:
                self._send(KILL)
        until = self._clock.monotonic() + _SECONDS_TO_END
        while not self._is_over() and (rest := until - self._clock.monotonic()) > 0:
            if not select.select([self.woken], [], [], min(rest, _SECONDS_TO_ANSWER))[0]:
                self._continue()
        if self._left is None:
            # The supervisor was killed, or stopped. What it has left has been adopted by the guardian, if that lives.
            self._left = len(self.identity.kill())
        # After the program: what it starts in the namespace has ended, or is there.
        self._left += len(self.identity.kill_inside(self._since))
        if self._errno:
            raise OSError(self._errno, os.strerror(self._errno))
        return ProgramEnd(self._code, self._left)

    def close(self) -> None:
        """Close the descriptors. If the supervisor still has processes, it kills them."""
        self.close_input()
        if self.output >= 0:
            os.close(self.output)
            self.output = -1
        if self.errors is not None:
            os.close(self.errors)
            self.errors = None
        with self._lock:
            if self._socket is not None:
                self._socket.close()
                self._socket = None

    def _leave(self) -> None:
        """Have it end by the end of what it has started in the namespace."""
        for _ in range(_TIMES_TO_LEAVE):
            if self.has_ended():
                break
            # Each time, because it may just be starting something there.
            self.identity.kill_inside(self._since)
            select.select([self.woken], [], [], _SECONDS_TO_LEAVE)
        self._has_left.set()

    def _kill_inside_first(self) -> None:
        for _ in range(_TIMES_TO_LEAVE):
            self.identity.kill_inside(self._since)
            if self._has_left.wait(_SECONDS_TO_LEAVE):
                return
        with self._lock:
            self._send(KILL)

    def _asked(self) -> tuple[int, socket.socket] | None:
        """Ask the guardian for a supervisor; returns its pid and the socket; `None` if it was killed before."""
        with ExitStack() as opened, ExitStack() as given:
            ours, theirs = socket.socketpair()
            opened.callback(ours.close)
            given.callback(theirs.close)
            output, writing = os.pipe()
            opened.callback(os.close, output)
            given.callback(os.close, writing)
            errors, writing_errors = None, writing
            if self._launch.errors_apart:
                errors, writing_errors = os.pipe()
                opened.callback(os.close, errors)
                given.callback(os.close, writing_errors)
            feeding = None
            if self._launch.has_input:
                reading, feeding = os.pipe()
                opened.callback(os.close, feeding)
            else:
                # Never the input of this process, from which a program would read what a person types.
                reading = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            given.callback(os.close, reading)
            with self._lock:
                if self._is_killed:
                    return None
                self._socket = ours
            guardian = self._guardians.ask((theirs.fileno(), reading, writing, writing_errors))
            self.output, self.errors, self.input = output, errors, feeding
            opened.pop_all()
        return guardian, ours

    def _is_answered(self, control: socket.socket) -> bool:
        """Send the request, and wait for the supervisor; false if it does not answer, with all descriptors closed."""
        try:
            report = self._first_report(control)
            with self._lock:
                self._is_placed = report[0] == PLACED and not self._is_killed
        finally:
            if not self._is_placed:
                self.close()
        if self._is_placed:
            program, supervisor = map(process_name, report[1:])
            launch = self._launch
            self.identity: ProgramIdentity = ProgramIdentity(launch.call, program, supervisor, launch.namespace)
        return self._is_placed

    def _first_report(self, control: socket.socket) -> tuple[bytes, int, int]:
        control.settimeout(_SECONDS_TO_START)
        data = b""
        with suppress(BrokenPipeError, ConnectionResetError, TimeoutError):
            control.sendall(_request(self._launch), socket.MSG_NOSIGNAL)
            data = control.recv(REPORT.size, socket.MSG_WAITALL)
        control.settimeout(0)
        self.woken = control.fileno()
        return REPORT.unpack(data) if len(data) == REPORT.size else (b"", 0, 0)

    def _continue(self) -> None:
        """Let the supervisor run: the program may have stopped it."""
        name = self.identity.supervisor
        if name is not None and name.started.isdecimal():
            send(Process(name.pid, int(name.started)), signal.SIGCONT)

    def _send(self, word: bytes) -> None:
        if self._socket is not None:
            with suppress(OSError):  # its supervisor has ended
                self._socket.send(word, socket.MSG_NOSIGNAL)

    def _is_over(self) -> bool:
        self._read_reports()
        return self._left is not None or self._is_lost

    def _read_reports(self) -> None:
        while not self._is_lost:
            try:
                data = os.read(self.woken, _REPORTS)
            except BlockingIOError:
                break
            except ConnectionResetError:
                data = b""
            self._is_lost = not data
            self._reports += data
        while len(self._reports) >= REPORT.size:
            kind, number, _ = REPORT.unpack(self._reports[: REPORT.size])
            del self._reports[: REPORT.size]
            if kind == FAILED:
                self._errno = number
            elif kind == ENDED:
                self._code = number
            elif kind == GONE:  # pragma: no branch - these are all
                self._left = number


def _request(launch: Launch) -> bytes:
    environment, limits = {**launch.environment, CALL_VARIABLE: launch.call}, launch.limits
    groups, most = [*map(str, limits.groups)], [f"{number}={most}" for number, most in limits.most]
    parts = [
        os.fspath(launch.folder),
        *(part for each in (groups, most, launch.line) for part in (str(len(each)), *each)),
        *(f"{name}={value}" for name, value in environment.items()),
    ]
    data = b"\0".join(map(os.fsencode, parts))
    return LENGTH.pack(len(data)) + data
