"""Standard output that may fail: its reader may be gone, its disk full, or the process was started without it.

Errors of writing to a stream have a type of their own, so that they are not taken for errors of what a command does.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import IO

from handrail.cli.process_exit import FAILED, READER_GONE
from handrail.redaction import redacted


class OutputError(OSError):
    """A standard stream cannot be written, for example because the disk is full."""


class ReaderGoneError(OutputError):
    """The output pipe is closed."""


class GuardedStream:
    """A stream to which texts are written without secrets; it raises `OutputError` when it cannot be written.

    All else is delegated to the stream.
    """

    __slots__ = ("_stream",)

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    @property
    def rich_proxied_file(self) -> GuardedStream:
        """The stream itself. rich asks for it at each write, and looking in vain takes longer than most writes."""
        return self

    def write(self, text: str) -> int:
        """Write text.

        Raises:
            OutputError: it cannot be written.
        """
        try:
            return self._stream.write(redacted(text))
        except OSError as error:
            raise _output_error(error) from error

    def flush(self) -> None:
        """Write what is buffered.

        Raises:
            OutputError: it cannot be written.
        """
        try:
            self._stream.flush()
        except OSError as error:
            raise _output_error(error) from error

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


def run_guarded(command: Callable[[], int]) -> int:
    """Run a command that prints, and return its exit code; that of its output if it cannot be written."""
    # Before any output, also before errors of the command line are printed.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a key may have characters that the terminal cannot encode
    # A shell can start a process with `>&-`; without this check the work would be done, and its result lost.
    if _closed(sys.stdout):
        _fault("standard output is closed; nothing was done")
        return FAILED
    try:
        code = command()
        # What is still buffered may fail as well, and must not fail at the end of the interpreter, when the exit code
        # is fixed.
        GuardedStream(sys.stdout).flush()
    except ReaderGoneError:
        _discard_output()
        return READER_GONE
    except OutputError as error:  # for example, the disk of standard output is full
        _discard_output()
        _fault(f"the output cannot be written: {error}")
        return FAILED
    return code


def _closed(stream: IO[str] | None) -> bool:
    """Whether the process was started without the stream."""
    return stream is None


def _fault(text: str) -> None:
    with suppress(OSError, AttributeError):  # standard error may be closed, too
        sys.stderr.write(f"handrail: {text}\n")


def _output_error(error: OSError) -> OutputError:
    kind = ReaderGoneError if isinstance(error, BrokenPipeError) else OutputError
    return kind(*error.args)


def _discard_output() -> None:
    """Discard what is still buffered; writing it at the end of the interpreter would fail again."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
