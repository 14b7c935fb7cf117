"""One run of a program, from its start to the end of all processes that it has started.

One thread reads its output and enforces its timeout; any other thread may stop it. However it ends, what it has started
is killed and waited for, and its pipes are closed. On Linux these are all its descendants, by the guardian
(`handrail.programs`); elsewhere its process group.

A program is recorded before it runs: if this process is killed, and what ends the program for it too, the next opening
of the folder finds the record.
"""

from __future__ import annotations

import codecs
import os
import selectors
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from handrail.clock import Clock
from handrail.contrib.tools.shell.live_output import LiveOutput
from handrail.posix import has_processes
from handrail.process_identity import ProcessName
from handrail.programs.group import GroupProgram
from handrail.programs.launch import NO_LIMITS, Launch, ProgramEnd, ProgramLimits, ProgramRecords, RunningProgram
from handrail.programs.supervised import SupervisedProgram

How = Literal["exited", "timeout", "stopped", "lost"]
"""How a program ended: by itself, by the timeout, because `ProgramRun.stop` was called, or because the process that
started it was killed, so that its exit code is not known."""

ProgramStart = Callable[[Launch, Clock], RunningProgram]
"""Makes what starts a program."""

_CHUNK = 1 << 16
_MOST_CHUNKS_AFTER_END = 64
"""The most that is read from the pipe after the end: more than a pipe holds, but bounded if a daemon writes on."""

_SECONDS_AFTER_END = 1.0
"""How long to wait then for the rest of the group, which has been killed, to close the pipe."""

_INSIDE_A_CHARACTER = range(0x80, 0xC0)
"""The UTF-8 continuation bytes."""

_NOTHING_BESIDE = nullcontext()
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
        max_output_bytes: how much of its output is returned, and of its error output if that is apart.
        errors_apart: whether its error output is returned apart; else it joins the output in the order written.
        namespace: the first process of a PID namespace that it enters; see `Launch`.
        limits: what the kernel lets it use.
    """

    line: tuple[str, ...]
    folder: Path
    environment: Mapping[str, str]
    input: bytes
    seconds: float
    max_output_bytes: int
    errors_apart: bool = False
    namespace: ProcessName | None = None
    limits: ProgramLimits = NO_LIMITS


@dataclass(frozen=True, slots=True)
class ProgramExit:
    """How a program has ended.

    Attributes:
        how: what ended it.
        code: its exit code; negative for the signal that killed it.
        output: its output, and error output in the order written unless that is apart.
        left_out: how many bytes in the middle of it are left out.
        left_running: how many processes that it has started cannot be killed.
        errors: its error output, if that is apart.
        errors_left_out: how many bytes in the middle of that are left out.
    """

    how: How
    code: int
    output: str
    left_out: int
    left_running: int = 0
    errors: str = ""
    errors_left_out: int = 0


class ProgramOutput:
    """The beginning and the end of what a program writes."""

    __slots__ = ("_head", "_live", "_most_head", "_most_tail", "_tail", "_total")

    def __init__(self, max_bytes: int, live: LiveOutput | None = None) -> None:
        """Store at most `max_bytes` of it, and give all of it to `live`."""
        self._live = live
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
        if self._live is not None:
            self._live.add(chunk)
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


class ProgramStreams:
    """What a program writes: its output, and its error output if that is apart.

    Attributes:
        output: its output.
        errors: its error output; nothing is added unless it is apart.
    """

    __slots__ = ("errors", "output")

    def __init__(self, program: Program, live: LiveOutput | None) -> None:
        """Store as much of each as the program says, and give both to `live` as they come."""
        self.output: ProgramOutput = ProgramOutput(program.max_output_bytes, live)
        self.errors: ProgramOutput = ProgramOutput(program.max_output_bytes, live)


class ProgramRun:
    """Runs one program, once."""

    __slots__ = ("_call", "_clock", "_live", "_lock", "_program", "_start", "_stopped")

    def __init__(
        self,
        clock: Clock,
        call: str,
        *,
        live: Callable[[str, float], object] | None = None,
        start: ProgramStart | None = None,
    ) -> None:
        """Prepare a run.

        Args:
            clock: measures the time that the program takes.
            call: a random id, by which the processes of the program are found.
            live: called, in the thread that carries it out, with what the program writes and how long it has been
                quiet; see `LiveOutput`.
            start: starts it; by default below the guardian on Linux, and as a process group elsewhere.
        """
        self._clock = clock
        self._call = call
        self._live = None if live is None else LiveOutput(live)
        self._start = start_of(sys.platform) if start is None else start
        self._lock = threading.Lock()
        self._program: RunningProgram | None = None
        self._stopped = False

    def stop(self) -> None:
        """Kill the program and what it has started, or prevent its start; waits for neither start nor end."""
        with self._lock:
            self._stopped = True
            if self._program is not None:
                self._program.kill()

    def carry_out(
        self,
        program: Program,
        records: ProgramRecords | None = None,
        beside: AbstractContextManager[object] = _NOTHING_BESIDE,
    ) -> ProgramExit:
        """Run a program to its end; if it was stopped before, it is not started.

        Args:
            program: what to run.
            records: where it is recorded before it runs, so that another process can end it after this one has died.
            beside: entered when it runs, and left when it, and what it has started, has ended.

        Raises:
            OSError: it cannot be started or recorded; or it is not known how it has ended.
        """
        streams = ProgramStreams(program, self._live)
        launch = Launch(
            call=self._call,
            line=program.line,
            folder=program.folder,
            environment=program.environment,
            has_input=bool(program.input),
            errors_apart=program.errors_apart,
            namespace=program.namespace,
            limits=program.limits,
        )
        running = self._start(launch, self._clock)
        # From here on `stop` finds it. The start itself is not under the lock: a guardian may take seconds to answer.
        with self._lock:
            self._program = running
            is_stopped = self._stopped
        if is_stopped or not running.start():
            return ProgramExit("stopped", -signal.SIGKILL, "", 0)
        timed_out = False
        with ExitStack() as entered:
            try:
                if records is not None:
                    records.record(running.identity)
                running.release()
                entered.enter_context(beside)
                timed_out = not self._followed(running, program, streams)
            finally:
                # Also on an exception of the reading: nothing must continue to run.
                end = self._end(running, streams)
                # What cannot be killed is found by the record at the next opening.
                if records is not None and not end.left:
                    records.discard(running.identity)
        # The timeout takes precedence, because `stop` may have been called while what is left was being killed.
        how: How = "timeout" if timed_out else "stopped" if self._stopped else "exited"
        if end.code is None:
            how = "lost" if how == "exited" else how
        code = -signal.SIGKILL if end.code is None else end.code
        output, errors = streams.output, streams.errors
        return ProgramExit(
            how, code, output.text(), output.left_out, end.left, errors=errors.text(), errors_left_out=errors.left_out
        )

    def _followed(self, running: RunningProgram, program: Program, streams: ProgramStreams) -> bool:
        """Read and write until the program has ended; false on a timeout."""
        end = self._clock.monotonic() + program.seconds
        feed, pause = memoryview(program.input), _SHORTEST_PAUSE
        with selectors.DefaultSelector() as selector:
            _register(running, selector)
            # The end of the program is waited for, and not the end of its output: a daemon may hold the pipe open.
            while not running.has_ended():
                now = self._clock.monotonic()
                if now >= end:
                    return False
                rest = end - now if self._live is None else min(end - now, self._live.pass_on(now))
                # Where nothing wakes this thread when the program ends, it looks now and then.
                ready = selector.select(pause if running.woken is None else rest)
                pause = _SHORTEST_PAUSE if ready else min(2 * pause, _LONGEST_PAUSE)
                for key, _ in ready:
                    feed = _serve(key.fd, running, selector, feed, streams)
        return True

    def _end(self, running: RunningProgram, streams: ProgramStreams) -> ProgramEnd:
        try:
            end = running.end()
        finally:
            running.close_input()
            self._read_rest(running.output, streams.output)
            if running.errors is not None:
                self._read_rest(running.errors, streams.errors)
            if self._live is not None:
                self._live.finish()
            # Under the lock: `stop` must not kill through descriptors that have been closed.
            with self._lock:
                self._program = None
                running.close()
        return end

    def _read_rest(self, descriptor: int, output: ProgramOutput) -> None:
        """Read until no process that is left holds the pipe; the wait for one that cannot be killed is bounded."""
        end = self._clock.monotonic() + _SECONDS_AFTER_END
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            for _ in range(_MOST_CHUNKS_AFTER_END):
                ready = selector.select(max(0.0, end - self._clock.monotonic()))
                if not ready or not _read(descriptor, output):
                    break


def start_of(platform: str) -> ProgramStart:
    """How a program is started on a platform, as `sys.platform` names it."""
    if platform == "linux" and has_processes():  # a supervisor finds what a program has started by these
        return SupervisedProgram
    return lambda launch, _: GroupProgram(launch)


def _register(running: RunningProgram, selector: selectors.BaseSelector) -> None:
    # Without blocking, a program that neither reads nor writes cannot stop this thread beyond its timeout.
    reading, writing = selectors.EVENT_READ, selectors.EVENT_WRITE
    for pipe, event in ((running.output, reading), (running.errors, reading), (running.input, writing)):
        if pipe is not None:
            os.set_blocking(pipe, False)
            selector.register(pipe, event)
    if running.woken is not None:
        selector.register(running.woken, selectors.EVENT_READ)


def _serve(
    descriptor: int,
    running: RunningProgram,
    selector: selectors.BaseSelector,
    feed: memoryview,
    streams: ProgramStreams,
) -> memoryview:
    """Read or write what a descriptor is ready for; returns what is still to be written."""
    if descriptor == running.woken:
        return feed
    if descriptor in {running.output, running.errors}:
        is_over = not _read(descriptor, streams.output if descriptor == running.output else streams.errors)
    else:
        feed = _fed(descriptor, feed)
        is_over = not feed
    if is_over:
        # A closed pipe is always ready, so the loop would spin if it stayed registered.
        selector.unregister(descriptor)
        if descriptor == running.input:
            # The program sees the end of its input only when the pipe is closed.
            running.close_input()
    return feed


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
