"""One run of a program, from its start to the end of all processes that it has started.

A program is started as the leader of a session and process group of its own. One thread reads its output and enforces
its timeout; any other thread may stop it. However it ends, the group is killed, then the program is waited for and its
pipes are closed. It is waited for last because until then its process id, which names the group, cannot be reused.

A process that leaves the group (a daemon) is not killed.
"""

from __future__ import annotations

import codecs
import os
import selectors
import signal
import subprocess
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from handrail.clock import Clock

How = Literal["exited", "timeout", "stopped"]
"""How a program ended: by itself, by the timeout, or because `ProgramRun.stop` was called."""

_CHUNK = 1 << 16
_MOST_CHUNKS_AFTER_END = 64
"""The most that is read from the pipe after the end: more than a pipe holds, but bounded if a daemon writes on."""

_SECONDS_AFTER_END = 1.0
"""How long to wait then for the rest of the group, which has been killed, to close the pipe."""

_INSIDE_A_CHARACTER = range(0x80, 0xC0)
"""The UTF-8 continuation bytes."""

_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.001, 0.05
"""Seconds between two polls of a program that writes nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What is to be run.

    Attributes:
        line: the path of the program, and its arguments.
        folder: where it starts.
        environment: all of its environment.
        input: what it can read.
        seconds: how long it may take.
        max_output_bytes: how much of its output is returned.
    """

    line: tuple[str, ...]
    folder: Path
    environment: Mapping[str, str]
    input: bytes
    seconds: float
    max_output_bytes: int


@dataclass(frozen=True, slots=True)
class ProgramExit:
    """How a program has ended.

    Attributes:
        how: what ended it.
        code: its exit code; negative for the signal that killed it.
        output: its output and error output, in the order written.
        left_out: how many bytes in the middle of it are left out.
    """

    how: How
    code: int
    output: str
    left_out: int


class ProgramOutput:
    """The beginning and the end of what a program writes."""

    __slots__ = ("_head", "_most_head", "_most_tail", "_tail", "_total")

    def __init__(self, max_bytes: int) -> None:
        """Store at most `max_bytes` of it."""
        self._most_head = max_bytes // 2
        self._most_tail = max_bytes - self._most_head
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0

    @property
    def left_out(self) -> int:
        """How many bytes are left out."""
        return max(0, self._total - self._most_head - self._most_tail)

    def add(self, chunk: bytes) -> None:
        """Add output."""
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
        # Without an incomplete character.
        head = codecs.getincrementaldecoder("utf-8")("replace").decode(bytes(self._head))
        tail = bytes(self._tail[-self._most_tail :])
        # A tail may begin in the middle of a character, whose remaining bytes (at most three) are left out.
        start = next((at for at, byte in enumerate(tail[:4]) if byte not in _INSIDE_A_CHARACTER), 0)
        return f"{head}\n[... {self.left_out:,} bytes left out ...]\n{_text(tail[start:])}".replace("\0", "\u2400")


class ProgramRun:
    """Runs one program, once."""

    __slots__ = ("_clock", "_done", "_lock", "_process", "_stopped")

    def __init__(self, clock: Clock) -> None:
        """Take the time from a clock."""
        self._clock = clock
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False
        self._done = False

    def stop(self) -> None:
        """Kill the program and its group, or prevent its start; does not wait for the end."""
        # The lock makes stopping and starting exclude each other: a program is either started before, and killed here,
        # or not started at all.
        with self._lock:
            self._stopped = True
            self._kill()

    def carry_out(self, program: Program) -> ProgramExit:
        """Run a program to its end; if it was stopped before, it is not started.

        Raises:
            OSError: it cannot be started; or other code has waited for it, so that its exit code is unknown.
        """
        output = ProgramOutput(program.max_output_bytes)
        with self._lock:
            # Under the lock of `stop`: a stop that comes now waits, and finds the process.
            if self._stopped:
                return ProgramExit("stopped", -signal.SIGKILL, "", 0)
            self._process = process = _started(program)
        timed_out = False
        try:
            timed_out = not self._followed(process, program, output)
        finally:
            # Also on an exception of the reading: the group must not continue to run.
            code = self._end(process, output)
        # The timeout takes precedence, because `stop` may have been called while the group was being killed.
        how: How = "timeout" if timed_out else "stopped" if self._stopped else "exited"
        return ProgramExit(how, code, output.text(), output.left_out)

    def _followed(self, process: subprocess.Popen[bytes], program: Program, output: ProgramOutput) -> bool:
        """Read and write until the program has ended; false on a timeout."""
        end = self._clock.monotonic() + program.seconds
        feed, pause = memoryview(program.input), _SHORTEST_PAUSE
        stdout, stdin = process.stdout, process.stdin
        with selectors.DefaultSelector() as selector:
            for pipe, event in ((stdout, selectors.EVENT_READ), (stdin, selectors.EVENT_WRITE)):
                if pipe is not None:
                    # Without blocking, a program that neither reads nor writes cannot stop this thread beyond the
                    # pause.
                    os.set_blocking(pipe.fileno(), False)
                    selector.register(pipe, event)
            # The end of the program is polled, and not the end of its output: a daemon may hold the pipe open for
            # longer.
            while not _has_ended(process):
                if self._clock.monotonic() >= end:
                    return False
                ready = selector.select(pause)
                pause = _SHORTEST_PAUSE if ready else min(2 * pause, _LONGEST_PAUSE)
                for key, _ in ready:
                    if stdin is None or key.fileobj is not stdin:
                        is_over = not _read(key.fd, output)
                    else:
                        feed = _fed(key.fd, feed)
                        is_over = not feed
                    if is_over:
                        # A closed pipe is always ready, so the loop would spin if it stayed registered.
                        selector.unregister(key.fileobj)
                        if stdin is not None and key.fileobj is stdin:
                            # The program sees the end of its input only when the pipe is closed.
                            stdin.close()
        return True

    def _end(self, process: subprocess.Popen[bytes], output: ProgramOutput) -> int:
        with self._lock:
            self._kill()
        try:
            # The program becomes a zombie, and its process id stays reserved, so `stop` cannot kill another process by
            # mistake.
            _wait_for_end(process)
        finally:
            if process.stdin is not None:
                process.stdin.close()
            if process.stdout is not None:  # pragma: no branch - it was requested
                self._read_rest(process.stdout.fileno(), output)
                process.stdout.close()
            # Marked and reaped under the lock: after `wait` the id may be reused, and `_kill` must not use it any more.
            with self._lock:
                self._done = True
                code = process.wait()
        return code

    def _read_rest(self, descriptor: int, output: ProgramOutput) -> None:
        """Read until no process of the group holds the pipe; the wait for a daemon is bounded."""
        end = self._clock.monotonic() + _SECONDS_AFTER_END
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            for _ in range(_MOST_CHUNKS_AFTER_END):
                ready = selector.select(max(0.0, end - self._clock.monotonic()))
                if not ready or not _read(descriptor, output):
                    break

    def _kill(self) -> None:
        # Only while the program has not been reaped; see `_end`.
        if self._process is not None and not self._done:
            with suppress(ProcessLookupError, PermissionError):  # it has ended; only ended processes are left (macOS)
                os.killpg(self._process.pid, signal.SIGKILL)


def _started(program: Program) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603 - no shell; rules decide what may be run
        program.line,
        cwd=program.folder,
        env=dict(program.environment),
        # Never the input of this process, from which a program would read what a person types.
        stdin=subprocess.PIPE if program.input else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        # Standard error joins the output, so that the order in which a program has written is preserved.
        stderr=subprocess.STDOUT,
        bufsize=0,
        # A group of its own, so that `killpg` reaches its children and not this process.
        start_new_session=True,
    )


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether a program has ended; it is not waited for, where possible, so that its id is not reused."""
    if not hasattr(os, "waitid"):  # pragma: no cover - macOS before Python 3.13
        return process.poll() is not None
    # `WNOWAIT` leaves the program waitable, so that its id is not reused. A process that was reaped by other code
    # raises `ChildProcessError`, which is an `OSError`.
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _wait_for_end(process: subprocess.Popen[bytes]) -> None:
    if hasattr(os, "waitid"):  # pragma: no branch - as above
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)


def _read(descriptor: int, output: ProgramOutput) -> bool:
    """Read the available output; false at the end."""
    chunk = os.read(descriptor, _CHUNK)
    output.add(chunk)
    return bool(chunk)


def _fed(descriptor: int, feed: memoryview) -> memoryview:
    """Write what the pipe accepts, and return the rest; empty if the program has closed the pipe."""
    try:
        # A write of one chunk at most: the pipe accepts a part of it, and reading comes first again.
        return feed[os.write(descriptor, feed[:_CHUNK]) :]
    except BrokenPipeError:
        return feed[len(feed) :]


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace").replace("\0", "\u2400")
