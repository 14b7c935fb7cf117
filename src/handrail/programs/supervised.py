"""A program below the guardian, as the agent sees it: it is started, released, followed and ended over one socket.

Its supervisor (`handrail.programs.guardian`) ends it and all that it has started. If the supervisor is killed, this
process kills what has the id of the call in its environment, and the exit code is not known.
"""

from __future__ import annotations

import errno
import os
import select
import socket
from contextlib import ExitStack, suppress

from handrail.clock import Clock
from handrail.process_identity import process_name
from handrail.programs.guardian import ENDED, FAILED, GONE, KILL, LENGTH, PLACED, RELEASE, REPORT
from handrail.programs.guardian_client import GUARDIANS, Guardians
from handrail.programs.launch import Launch, ProgramEnd, ProgramIdentity
from handrail.programs.process_tree import CALL_VARIABLE

_ATTEMPTS = 2
_SECONDS_TO_START = 30.0
_SECONDS_TO_END = 10.0
"""How long to wait for a supervisor: it takes a few seconds for what cannot be killed."""

_REPORTS = 4096


class SupervisedProgram:
    """A `RunningProgram` that a supervisor of the guardian starts and ends.

    Attributes:
        identity: what identifies it.
        output: the descriptor to read what it writes.
        input: the descriptor to write what it reads.
        woken: the socket to its supervisor.
    """

    def __init__(self, launch: Launch, clock: Clock, guardians: Guardians = GUARDIANS) -> None:
        """Start it; it waits for `release` before it runs.

        Raises:
            OSError: no process can be started.
        """
        self._clock = clock
        self._code: int | None = None
        self._left: int | None = None
        self._errno = 0
        self._is_lost = False
        self._reports = bytearray()
        self.output: int = -1
        self.input: int | None = None
        # A guardian that was killed before it has forked is replaced: nothing has run yet.
        for _ in range(_ATTEMPTS):
            if self._is_placed(launch, guardians):
                return
            guardians.close()
        raise OSError(errno.EAGAIN, "the process that starts programs has ended")

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
        """Have its supervisor kill it and what it has started."""
        self._send(KILL)

    def end(self) -> ProgramEnd:
        """Have its supervisor kill it and what it has started, and wait for that."""
        if self._code is None:
            self.kill()
        until = self._clock.monotonic() + _SECONDS_TO_END
        while not self._is_over() and (rest := until - self._clock.monotonic()) > 0:
            select.select([self._socket], [], [], rest)
        if self._left is None:
            # The supervisor was killed, or stopped. What it has left has been adopted by the guardian, if that lives.
            self._left = len(self.identity.kill())
        if self._errno:
            raise OSError(self._errno, os.strerror(self._errno))
        return ProgramEnd(self._code, self._left)

    def close(self) -> None:
        """Close the descriptors. If the supervisor still has processes, it kills them."""
        self.close_input()
        if self.output >= 0:
            os.close(self.output)
            self.output = -1
        self._socket.close()

    def _is_placed(self, launch: Launch, guardians: Guardians) -> bool:
        """Start it; false if the guardian has ended first."""
        with ExitStack() as opened:
            self._socket, theirs = socket.socketpair()
            opened.callback(self._socket.close)
            with ExitStack() as given:
                given.callback(theirs.close)
                self.output, writing = os.pipe()
                opened.callback(os.close, self.output)
                given.callback(os.close, writing)
                if launch.has_input:
                    reading, feeding = os.pipe()
                    self.input = feeding
                    opened.callback(os.close, feeding)
                else:
                    # Never the input of this process, from which a program would read what a person types.
                    reading = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
                given.callback(os.close, reading)
                guardians.ask((theirs.fileno(), reading, writing))
            self._socket.settimeout(_SECONDS_TO_START)
            with suppress(BrokenPipeError, ConnectionResetError):
                self._socket.sendall(_request(launch))
                self._reports += self._socket.recv(REPORT.size, socket.MSG_WAITALL)
            if len(self._reports) < REPORT.size:
                return False
            kind, program, supervisor = REPORT.unpack(self._reports)
            if kind != PLACED:  # pragma: no cover - the supervisor could not fork
                return False
            self._reports.clear()
            self._socket.settimeout(0)
            self.woken: int = self._socket.fileno()
            self.identity: ProgramIdentity = ProgramIdentity(
                launch.call, process_name(program), process_name(supervisor)
            )
            opened.pop_all()
        return True

    def _send(self, word: bytes) -> None:
        with suppress(OSError):  # its supervisor has ended
            self._socket.send(word, socket.MSG_NOSIGNAL)

    def _is_over(self) -> bool:
        self._read_reports()
        return self._left is not None or self._is_lost

    def _read_reports(self) -> None:
        while not self._is_lost:
            try:
                data = self._socket.recv(_REPORTS)
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
    environment = {**launch.environment, CALL_VARIABLE: launch.call}
    parts = [
        os.fspath(launch.folder),
        str(len(launch.line)),
        *launch.line,
        *(f"{name}={value}" for name, value in environment.items()),
    ]
    data = b"\0".join(map(os.fsencode, parts))
    return LENGTH.pack(len(data)) + data
