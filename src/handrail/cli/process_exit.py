"""The end of a command: exit codes, signals, and streams that fail.

The first Ctrl-C, SIGTERM or SIGHUP stops a run in order. A second Ctrl-C is ignored, so that an impatient key press
does not interrupt the orderly stop, and the third one ends the process, also while it waits for a function that cannot
be stopped; the second one ends a worker. After SIGTERM and SIGHUP, which no person may follow by others, the process
ends after some seconds. Other commands are ended by each of them at once.

A process that ends at once leaves nothing inconsistent: changes of unfinished calls are not committed, and the ledger
records effects that may have happened as unknown. Errors of writing to a standard stream have a type of their own.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from types import FrameType
from typing import IO, TYPE_CHECKING, TypeVar, cast

from handrail.redaction import redacted

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

T = TypeVar("T")

DONE, FAILED, USAGE, WAITING = 0, 1, 2, 3
"""Success; refused, failed, or not found; the command line, or a file or name in it, is invalid, and nothing has run; a
run waits for approvals, or has left an effect unknown."""

TRY_AGAIN, INTERRUPTED, READER_GONE = 75, 130, 141
"""The session of a run was lost, or its store does not answer (`EX_TEMPFAIL` of `sysexits.h`); Ctrl-C, and the output
pipe is closed: 128 and the number of the signal, as in shells."""

_ENDS = "ends the process at once."
_NEXT_ONES = {2: f". A second Ctrl-C {_ENDS}", 3: f". A second Ctrl-C changes nothing; a third one {_ENDS}"}
# How long a run may take to stop after SIGTERM. Service managers wait 10 seconds and more before they kill.
_GRACE = timedelta(seconds=5)

_TERMINATING = (signal.SIGTERM, signal.SIGHUP)


class Terminated(KeyboardInterrupt):
    """The process was asked to end by another signal than that of Ctrl-C."""

    def __init__(self, number: int) -> None:
        super().__init__(f"ended by {signal.Signals(number).name}")
        self.number = number


def interrupt_exit_code(interrupt: KeyboardInterrupt) -> int:
    """128 and the number of the signal that has interrupted a command."""
    return 128 + interrupt.number if isinstance(interrupt, Terminated) else INTERRUPTED


@contextmanager
def interruptible(
    stop: Callable[[], object], stopping: Callable[[str], object], *, grace: timedelta = _GRACE, enough: int = 3
) -> Generator[Sequence[int]]:
    """A block that the first Ctrl-C, SIGTERM or SIGHUP stops by calling `stop` in the signal handler.

    `stopping` is called on a thread then, with how long the process waits. A Ctrl-C ends the process at once if it is
    the signal number `enough`, or a later one; any signal if it is the third one. Yields the signals that have come.
    """
    signals: list[int] = []
    timers: list[threading.Timer] = []
    reporting: list[threading.Thread] = []

    def obey(number: int, frame: FrameType | None) -> None:
        signals.append(number)
        if len(signals) == 1:
            if number != signal.SIGINT:
                # A thread, because the event loop may be blocked by the very call that is waited for; a daemon, for
                # which the interpreter does not wait.
                timers.append(threading.Timer(grace.total_seconds(), _give_up, (number, grace)))
                timers[0].daemon = True
                timers[0].start()
            stop()
            at_most = f", for at most {grace.total_seconds():g} seconds."
            how_long = _NEXT_ONES[enough] if number == signal.SIGINT else at_most
            # A thread, because the signal may have come while this one writes to the same stream.
            reporting.append(threading.Thread(target=stopping, args=(how_long,), daemon=True))
            reporting[0].start()
        # Of two terminations one may be that of a supervisor.
        elif len(signals) >= (enough if number == signal.SIGINT else 3):
            _leave(number, frame)

    with _handled(obey):
        try:
            yield signals
        except KeyboardInterrupt as error:
            if not timers:
                raise
            timers.clear()  # the interpreter waits for threads at its end, and a function may run on one of them
            raise Terminated(signals[0]) from error
        finally:
            for timer in timers:
                timer.cancel()
            for thread in reporting:
                thread.join()


@contextmanager
def _handled(obey: Callable[[int, FrameType | None], object]) -> Generator[None]:
    before: dict[int, object] = {}
    # Python handles no signals in other threads.
    if threading.current_thread() is threading.main_thread():
        before = {signal.SIGINT: signal.getsignal(signal.SIGINT)}
        # A process that was started to ignore a signal still ignores it, as under nohup.
        if before[signal.SIGINT] is signal.SIG_IGN:
            before = {}
        before |= {number: signal.SIG_DFL for number in _TERMINATING if signal.getsignal(number) is signal.SIG_DFL}
    for number in before:
        signal.signal(number, obey)
    caught_signals: set[int] = set()
    try:
        yield
    except KeyboardInterrupt:
        caught_signals = {signal.SIGINT}
        raise
    finally:
        for number, handler in before.items():
            if number not in caught_signals:
                signal.signal(number, cast("signal.Handlers", handler))


def wake_on_signals(loop: AbstractEventLoop) -> None:
    """Lets signals wake an event loop, which would notice one that arrives just before it waits much later."""
    with suppress(RuntimeError, ValueError):  # a thread that handles none
        loop.add_signal_handler(signal.SIGWINCH, lambda: None)


def _give_up(number: int, grace: timedelta) -> None:
    text = f"not stopped in {grace.total_seconds():g} seconds, so the process ends at once"
    saying = threading.Thread(target=_complain, args=(text,), daemon=True)  # the stream may be blocked, too
    saying.start()
    saying.join(1)
    _leave(number, None)


def _leave(number: int, _frame: FrameType | None) -> None:
    # `os._exit` runs no `finally` blocks and does not wait for threads; see the docstring of the module for why this is
    # safe.
    os._exit(128 + number)


# ------------------------------------------------------------------------------------------------------------- streams


class OutputError(OSError):
    """A standard stream cannot be written, for example because the disk is full."""


class ReaderGoneError(OutputError):
    """The output pipe is closed."""


class GuardedStream:
    """A stream without secrets in its texts, which raises `OutputError` when it cannot be written."""

    __slots__ = ("_stream",)

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Writes text."""
        return self._guarded(self._stream.write, redacted(text))

    def flush(self) -> None:
        """Writes what is buffered."""
        self._guarded(self._stream.flush)

    @staticmethod
    def _guarded(write: Callable[..., T], *text: str) -> T:
        try:
            return write(*text)
        except OSError as error:
            kind = ReaderGoneError if isinstance(error, BrokenPipeError) else OutputError
            raise kind(*error.args) from error

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


def run_guarded(command: Callable[[], int]) -> int:
    """Runs a command that prints, and returns its exit code; that of its output if it cannot be written."""
    # Before any output, also before errors of the command line are printed.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a key may have characters that the terminal cannot encode
    # A shell can start a process with `>&-`; without this check the work would be done, and its result lost.
    if cast("IO[str] | None", sys.stdout) is None:
        _complain("standard output is closed; nothing was done")
        return FAILED
    try:
        code = command()
        # What is still buffered may fail as well, and must not fail at the end of the interpreter, when the exit code
        # is fixed.
        GuardedStream(sys.stdout).flush()
    except OutputError as error:
        # What is still buffered is discarded: writing it at the end of the interpreter would fail again.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
        if isinstance(error, ReaderGoneError):
            return READER_GONE
        _complain(f"the output cannot be written: {error}")
        return FAILED
    return code


def _complain(text: str) -> None:
    with suppress(OSError, AttributeError):  # standard error may be closed, too
        sys.stderr.write(f"handrail: {text}\n")
