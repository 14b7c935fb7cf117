"""One run of a program, from its start to the end of all processes that it has started.

One thread starts it, reads its output and enforces its timeout; any other thread may stop it. However it ends, what it
has started is killed and waited for, and its pipes are closed (`handrail.programs`). It is recorded before it runs: if
this process is killed, the next opening of the folder finds the record.
"""

from __future__ import annotations

import os
import selectors
import signal
from dataclasses import dataclass
from typing import Literal

from handrail.clock import Clock
from handrail.errors import FilesystemError, ToolValidationError
from handrail.filesystem import HostFilesystem
from handrail.filesystem.host.recovery import RecordedPrograms
from handrail.programs import Program, ProgramEnd, ProgramRecord, StartedProgram

How = Literal["exited", "timeout", "stopped", "lost"]
"""The end of a program: by itself, by the timeout, by `ProgramRun.stop`, or without a known exit code."""

_CHUNK = 1 << 16
# The most that is read from the pipe after the end: more than a pipe holds, but bounded if a daemon writes on.
_MOST_CHUNKS_AFTER_END = 64

_SECONDS_AFTER_END = 1.0  # how long to wait then for the rest of the group, which has been killed, to close the pipe

# Seconds between two looks at a program that writes nothing, and after which a stop is seen at the latest.
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.001, 0.05


@dataclass(frozen=True, slots=True)
class ProgramExit:
    """The end of a program.

    Attributes:
        code: its exit code; negative for the signal that killed it.
        left_out: how many bytes in the middle of the output are left out.
        left_running: how many processes that it has started cannot be killed.
    """

    how: How
    code: int
    output: str
    left_out: int
    left_running: int = 0


class ProgramOutput:
    """The beginning and the end of what a program writes."""

    __slots__ = ("_head", "_most_head", "_most_tail", "_tail", "_total")

    def __init__(self, max_bytes: int) -> None:
        self._most_head = max_bytes // 2
        self._most_tail = max_bytes - self._most_head
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0

    @property
    def left_out(self) -> int:
        """The number of bytes that are left out."""
        return max(0, self._total - self._most_head - self._most_tail)

    def add(self, chunk: bytes) -> None:
        """Adds output."""
        self._total += len(chunk)
        room = self._most_head - len(self._head)
        self._head += chunk[:room]
        self._tail += chunk[room:]
        # Trimmed only when it is twice as long as needed, so that each byte is moved once on average.
        if len(self._tail) > 2 * self._most_tail:
            del self._tail[: -self._most_tail]

    def text(self) -> str:
        """The stored output, with a line for what is left out, and signs for NUL and bytes that are not UTF-8."""
        if not self.left_out:
            return _text(bytes(self._head + self._tail))
        tail = bytes(self._tail[-self._most_tail :])
        return f"{_text(bytes(self._head))}\n[... {self.left_out:,} bytes left out ...]\n{_text(tail)}"


class ProgramRun:
    """Runs one program, once; `call` is the random id by which its processes are found."""

    __slots__ = ("_call", "_clock", "_is_stopped")

    def __init__(self, clock: Clock, call: str) -> None:
        self._clock = clock
        self._call = call
        self._is_stopped = False

    def stop(self) -> None:
        """Kills the program with what it has started, or prevents its start; does not wait."""
        self._is_stopped = True

    def carry_out(self, program: Program, records: RecordedPrograms | None = None) -> ProgramExit:
        """Runs a program to its end; if it was stopped before, it is not started.

        Raises:
            OSError: it cannot be started or recorded.
        """
        if self._is_stopped:
            return ProgramExit("stopped", -signal.SIGKILL, "", 0)
        output = ProgramOutput(program.max_output_bytes)
        record, timed_out, is_over = ProgramRecord(self._call, program.namespace), False, True
        if records is not None:
            records.record(record)
        try:
            running, is_over = StartedProgram(program, self._call), False
            try:
                timed_out = not self._follow(running, program, output)
            finally:
                # Also on an exception of the reading: nothing must continue to run.
                end = self._end(running, output)
                is_over = not end.survivors
        finally:
            # What cannot be killed is found by the record at the next opening.
            if records is not None and is_over:
                records.discard(record)
        # The timeout takes precedence, because `stop` may have been called while what is left was being killed.
        own: How = "lost" if end.code is None else "exited"
        how: How = "timeout" if timed_out else "stopped" if self._is_stopped else own
        code = -signal.SIGKILL if end.code is None else end.code
        return ProgramExit(how, code, output.text(), output.left_out, end.survivors)

    def _follow(self, running: StartedProgram, program: Program, output: ProgramOutput) -> bool:
        end = self._clock.monotonic() + program.seconds
        feed, pause = memoryview(program.input), _SHORTEST_PAUSE
        with selectors.DefaultSelector() as selector:
            _register(selector, running, output)
            # The end of the program is waited for, and not the end of its output: a daemon may hold the pipe open.
            while not self._is_stopped and not running.has_ended():
                now = self._clock.monotonic()
                if now >= end:
                    return False
                # A stop wakes nothing, nor does the end of the program on some systems.
                ready = selector.select(min(end - now, pause))
                pause = _SHORTEST_PAUSE if ready else min(2 * pause, _LONGEST_PAUSE)
                for key, _ in ready:
                    feed = _serve(key, running, selector, feed)
        return True

    def _end(self, running: StartedProgram, output: ProgramOutput) -> ProgramEnd:
        try:
            return running.end()
        finally:
            running.close_input()
            self._read_rest(running.output, output)
            running.close()

    def _read_rest(self, descriptor: int, output: ProgramOutput) -> None:
        end = self._clock.monotonic() + _SECONDS_AFTER_END
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            for _ in range(_MOST_CHUNKS_AFTER_END):
                ready = selector.select(max(0.0, end - self._clock.monotonic()))
                if not ready or not _read(descriptor, output):
                    break


def _register(selector: selectors.BaseSelector, program: StartedProgram, output: ProgramOutput) -> None:
    # Without blocking, a program that neither reads nor writes cannot stop this thread beyond its timeout.
    for pipe, sink in ((program.output, output), (program.input, None)):
        if pipe is not None:
            os.set_blocking(pipe, False)
            selector.register(pipe, selectors.EVENT_WRITE if sink is None else selectors.EVENT_READ, sink)
    if program.pidfd is not None:
        selector.register(program.pidfd, selectors.EVENT_READ)


def _serve(
    key: selectors.SelectorKey, program: StartedProgram, selector: selectors.BaseSelector, feed: memoryview
) -> memoryview:
    # A closed pipe is always ready, so the loop would spin if it stayed registered.
    if isinstance(key.data, ProgramOutput):
        if not _read(key.fd, key.data):
            selector.unregister(key.fd)
    elif key.fd == program.input:
        feed = _fed(key.fd, feed)
        if not feed:
            selector.unregister(key.fd)
            # The program sees the end of its input only when the pipe is closed.
            program.close_input()
    return feed


def _read(descriptor: int, output: ProgramOutput) -> bool:
    chunk = os.read(descriptor, _CHUNK)
    output.add(chunk)
    return bool(chunk)


def _fed(descriptor: int, feed: memoryview) -> memoryview:
    try:
        # A write of one chunk at most: the pipe accepts a part of it, and reading comes first again.
        return feed[os.write(descriptor, feed[:_CHUNK]) :]
    except BrokenPipeError:
        return feed[len(feed) :]


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace").replace("\0", "\u2400")


def run_over(
    filesystem: HostFilesystem | None, run: ProgramRun, program: Program, *, name: str, reads: bool = False
) -> ProgramExit:
    """Runs a program over a filesystem, which can then roll its changes back."""
    try:
        # Before the program starts: afterwards it is not known which files it has changed.
        if filesystem is not None and not reads:
            filesystem.keep_tree()
    except FilesystemError as error:
        raise ToolValidationError(f"{name} was not started: {error}") from error
    try:
        return run.carry_out(program, None if filesystem is None else filesystem.programs)
    except OSError as error:
        raise ToolValidationError(f"{name} cannot be run: {error.strerror}.") from error
