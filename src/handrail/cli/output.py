"""The streams that a command writes to: why they cannot be written is told apart from every other error of files."""

from __future__ import annotations

from typing import IO, cast


class OutputError(OSError):
    """A standard stream cannot be written: the disk behind it is full, say."""


class ReaderGoneError(OutputError):
    """Nobody reads the output any more."""


class Output:
    """A stream whose errors say that they are of the output; all else is the stream's own."""

    __slots__ = ("_stream",)

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write text.

        Raises:
            OutputError: it cannot be written.
        """
        try:
            return self._stream.write(text)
        except OSError as error:
            raise _told(error) from error

    def flush(self) -> None:
        """Write what is buffered.

        Raises:
            OutputError: it cannot be written.
        """
        try:
            self._stream.flush()
        except OSError as error:
            raise _told(error) from error

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


def output(stream: IO[str] | None) -> IO[str] | None:
    """The stream, with errors that say that they are of the output; `None` if the process was started without it."""
    # A process whose standard stream was closed has None there, whatever the type says. What rich needs is all there.
    return None if stream is None else cast("IO[str]", Output(stream))


def _told(error: OSError) -> OutputError:
    kind = ReaderGoneError if isinstance(error, BrokenPipeError) else OutputError
    return kind(*error.args)
