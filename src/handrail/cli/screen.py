"""The output of commands: tables and JSON on standard output, remarks and questions on standard error.

On a terminal a table fits the width: it leaves columns out if necessary, and reports which. In a pipe it is plain text,
aligned, without colours, and nothing is cut.

Errors of writing to a stream have a type of their own. Text for a terminal contains no control characters.

`--debug` on any command, or `HANDRAIL_DEBUG=1`, shows tracebacks. Without them a command reports an error in one line.
With them the traceback precedes that line, and the traceback of every tool, policy and subscriber that raises while the
run continues is shown, too.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import traceback
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import chain, takewhile
from typing import IO, Annotated, Any, cast

from cyclopts import Parameter
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

_GAP = 2

_LEAST_OF_CUT = 16

Row = Sequence[str]
"""The cells of a row, in the order of the columns; they may contain control characters, which are escaped here."""

_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

_SHORT = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}

_PASSWORD = re.compile(r"(?<=//)([^\s/@:]*):\S*@")

_PASSWORD_OPTION = re.compile(r"(password|passfile|sslpassword)=[^\s&'\"]*", re.IGNORECASE)

_STEPS = ((86_400, "d"), (3_600, "h"), (60, "min"))

NO_VALUE_CELL = "-"
"""A table cell without a value."""

DEBUG_VARIABLE = "HANDRAIL_DEBUG"
"""The environment variable that turns tracebacks on, unless it is empty or negative."""

DEBUG_OPTION = "--debug"
"""The option that turns them on."""

_HELP = f"Show the traceback of every error. {DEBUG_VARIABLE}=1 does so for all commands."

Debug = Annotated[bool, Parameter(name=DEBUG_OPTION, help=_HELP)]
"""The option as a parameter, for help and completion; `without_option` removes it before parsing."""

_NO = frozenset({"", "0", "no", "off", "false"})

_DEBUGGING: ContextVar[bool] = ContextVar("handrail_debugging", default=False)


class OutputError(OSError):
    """A standard stream cannot be written, for example because the disk is full."""


class ReaderGoneError(OutputError):
    """The output pipe is closed."""


class GuardedStream:
    """A stream that raises `OutputError` when it cannot be written; all else is delegated to the stream."""

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


def output(stream: IO[str] | None) -> IO[str] | None:
    """The stream as a `GuardedStream`; `None` if the process was started without it."""
    # rich needs `write`, `flush` and `isatty`; the last one is delegated.
    # A closed standard stream is None, despite the type. A GuardedStream has all that rich needs.
    return None if stream is None else cast("IO[str]", GuardedStream(stream))


def _output_error(error: OSError) -> OutputError:
    kind = ReaderGoneError if isinstance(error, BrokenPipeError) else OutputError
    return kind(*error.args)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        name: its heading.
        right: whether it is right-aligned, as for numbers.
        cut: whether its cells may be cut to the width of the terminal; else a long cell continues on the next line.
        spare: the columns with the highest number are left out first if a terminal is too narrow; 0 is never left out.
        styles: the styles of cells on a terminal, by their text.
    """

    name: str
    right: bool = False
    cut: bool = False
    spare: int = 0
    styles: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Screen:
    """The standard streams of the process, for the output of a command.

    The streams are those at construction, so that what other code prints later can be redirected.
    """

    out: Console = field(default_factory=lambda: _console(sys.stdout))
    err: Console = field(default_factory=lambda: _console(sys.stderr))

    # ------------------------------------------------------------------------------------------------------ for people

    def table(self, columns: Sequence[Column], rows: Iterable[Row]) -> None:
        """Print rows with a heading."""
        # Cleaned before measuring, because an escape is longer than the character that it replaces.
        cells = [[clean(cell) for cell in row] for row in rows]
        widths = [
            max(cell_len(column.name), *(cell_len(row[place]) for row in cells), 0)
            for place, column in enumerate(columns)
        ]
        if self.out.is_terminal:
            self._fitted(columns, cells, widths)
        else:
            self._aligned(columns, cells, widths)

    def record(self, fields: Iterable[tuple[str, str]], *, aside: bool = False) -> None:
        """Print names and values, a pair a line; with `aside` on standard error, before a question."""
        console = self.err if aside else self.out
        pairs = [(name, clean_lines(value)) for name, value in fields]
        if console.is_terminal:
            grid = Table.grid(padding=(0, _GAP, 0, 0))
            grid.add_column(style="bold", no_wrap=True)
            grid.add_column(overflow="fold")
            for name, value in pairs:
                grid.add_row(name, Text(value))
            console.print(grid)
            return
        width = max(len(name) for name, _ in pairs) + _GAP
        for name, value in pairs:
            self._write(console, f"{name:{width}}" + value.replace("\n", "\n" + " " * width))

    def say(self, text: str) -> None:
        """Print what has been done, on standard output."""
        self._write(self.out, clean(text))

    def raw(self, text: str) -> None:
        """Print text on standard output unchanged, for a program that reads the pipe."""
        self._write(self.out, text)

    def stream(self, text: str) -> None:
        """Print a piece of text on standard output at once, with control characters except tab and LF escaped."""
        # Written past rich, which would wrap the text and hold back an incomplete line.
        self.out.file.write("\n".join("\t".join(map(clean, line.split("\t"))) for line in text.split("\n")))
        self.out.file.flush()

    def block(self, heading: str, text: str) -> None:
        """Print a heading, and text under it, indented."""
        self.out.print(Text(clean(heading), style="bold"), soft_wrap=True)
        self._write(self.out, "  " + clean_lines(text).replace("\n", "\n  "))

    def remark(self, text: str) -> None:
        """Print a remark on standard error: what was left out, or how to see more."""
        self.err.print(Text(clean(text), style="dim"), soft_wrap=True)

    def fault(self, text: str) -> None:
        """Print in one line why a command failed; passwords are masked."""
        self.err.print(Text(clean(f"handrail: {' '.join(without_passwords(text).split())}")), soft_wrap=True)

    def problem(self, text: str) -> None:
        """Print an error as `fault` does, but on several lines: it may contain a list."""
        lines = clean_lines(f"handrail: {without_passwords(text).strip()}")
        self.err.print(Text(lines.replace("\n", "\n  ")), soft_wrap=True)

    def trace(self, text: str) -> None:
        """Print a traceback, with control characters escaped and passwords masked."""
        self.err.print(Text(clean_lines(without_passwords(text).rstrip())), soft_wrap=True)

    # ---------------------------------------------------------------------------------------------------- for programs

    def json(self, document: Mapping[str, Any], *, lines: bool = False) -> None:
        """Print one JSON document, indented, or on one line."""
        # If the stream is not UTF-8, ASCII can represent any JSON.
        ascii_only = (self.out.encoding or "").lower().replace("-", "") != "utf8"
        self._write(self.out, clean_json(json.dumps(document, ensure_ascii=ascii_only, indent=None if lines else 2)))

    # ------------------------------------------------------------------------------------------------------- questions

    @property
    def can_ask(self) -> bool:
        """Whether a person can answer: standard input and standard error are terminals."""
        # Checked for each question: tests and embedding programs replace the streams.
        return all(stream is not None and stream.isatty() for stream in _asked_on())

    def ask(self, question: str) -> str | None:
        """What the person types, stripped; `None` at the end of the input."""
        self.prompt(question)
        line = sys.stdin.readline()
        if not line:
            self.end_prompt()
            return None
        return line.strip()

    def prompt(self, question: str) -> None:
        """Print a question; the answer is typed after it."""
        self.err.print(Text(clean(question)), end=" ", soft_wrap=True)

    def end_prompt(self) -> None:
        """End the line of a question without an answer."""
        self.err.print()

    # --------------------------------------------------------------------------------------------------------- private

    def _fitted(self, columns: Sequence[Column], cells: Sequence[Row], widths: Sequence[int]) -> None:
        kept = _kept(columns, widths, self.out.width)
        left = self.out.width - sum(widths[place] + _GAP for place in kept if not columns[place].cut)
        table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="bold")
        for place in kept:
            column = columns[place]
            table.add_column(
                column.name,
                justify="right" if column.right else "left",
                no_wrap=column.cut,
                overflow="ellipsis" if column.cut else "fold",
                width=min(widths[place], max(left, _LEAST_OF_CUT)) if column.cut else None,
            )
        for row in cells:
            table.add_row(*(Text(row[place], style=columns[place].styles.get(row[place], "")) for place in kept))
        self.out.print(table)
        missing = [column.name for place, column in enumerate(columns) if place not in kept]
        if missing:
            self.remark(
                f"Left out at this width: {', '.join(missing)}. A wider terminal shows them, and --format json."
            )

    def _aligned(self, columns: Sequence[Column], cells: Sequence[Row], widths: Sequence[int]) -> None:
        for row in chain([[column.name for column in columns]], cells):
            padded = [
                " " * (width - cell_len(cell)) + cell if column.right else cell + " " * (width - cell_len(cell))
                for column, cell, width in zip(columns, row, widths, strict=True)
            ]
            # Spaces at the end of a line would make a difference between two otherwise equal outputs.
            if not columns[-1].right:
                padded[-1] = row[-1]
            self._write(self.out, (" " * _GAP).join(padded).rstrip())

    @staticmethod
    def _write(console: Console, text: str) -> None:
        """Print text unchanged: neither wrapped nor cut at any width."""
        console.file.write(text + "\n")


def _console(stream: IO[str] | None) -> Console:
    # Without a stream, rich writes to the process's own, which is None.
    return Console(file=output(stream), highlight=False, markup=False, emoji=False)


def _asked_on() -> tuple[IO[str] | None, ...]:
    """The streams for questions and answers; `None` for one that the process was started without."""
    return (sys.stdin, sys.stderr)


def _kept(columns: Sequence[Column], widths: Sequence[int], available: int) -> list[int]:
    """The indexes of the columns that fit; those that must not be left out are always included."""
    kept = list(range(len(columns)))
    while True:
        needed = sum(
            (min(widths[place], _LEAST_OF_CUT) if columns[place].cut else widths[place]) + _GAP for place in kept
        )
        spare = max(kept, key=lambda place: columns[place].spare)
        # Columns with `spare` 0 are kept even if they do not fit; then rich folds them.
        if needed - _GAP <= available or not columns[spare].spare:
            return kept
        kept.remove(spare)


def clean(text: str) -> str:
    r"""The text in one line, with an escape such as `\x1b` for each control character.

    Models write keys, messages and tags; none of them may move the cursor, or reverse the text direction.
    """
    return _CONTROLS.sub(_escaped, text)


def clean_lines(text: str) -> str:
    """The text with its lines, each of them `clean`."""
    return "\n".join(clean(line) for line in text.split("\n"))


def clean_json(document: str) -> str:
    r"""A JSON document with `\u` escapes for control characters in its strings."""
    return _CONTROLS.sub(
        lambda found: found.group() if found.group() == "\n" else f"\\u{ord(found.group()):04x}", document
    )


def without_passwords(text: str) -> str:
    """The text with passwords in URLs masked."""
    return _PASSWORD_OPTION.sub(r"\1=***", _PASSWORD.sub(r"\1:***@", text))


def format_time(time: datetime) -> str:
    """A time in UTC, to the second."""
    return time.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def format_duration(duration: timedelta) -> str:
    """A duration in its largest unit: `40 s`, `3 min`, `23 h`, `5 d`."""
    seconds = int(abs(duration).total_seconds())
    for size, unit in _STEPS:
        # Twice the unit, so that 90 s are not rounded to 1 min or 2 min.
        if seconds >= 2 * size:
            return f"{round(seconds / size)} {unit}"
    return f"{seconds} s"


def _escaped(found: re.Match[str]) -> str:
    character = found.group()
    code = ord(character)
    return _SHORT.get(character) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")  # noqa: PLR2004 - a byte


def format_when(time: datetime | None) -> str:
    """A moment as a cell of a table; empty if there is none."""
    return "" if time is None else f"{format_time(time)} UTC"


def without_option(argv: Sequence[str]) -> list[str]:
    """A command line without the option, at any place before `--`, also before the command.

    It is removed before the command line is parsed, because parsing may fail.
    """
    # After `--` the word is an argument, as in `handrail new -- --debug`.
    options = list(takewhile(lambda word: word != "--", argv))
    return [*(word for word in options if word != DEBUG_OPTION), *argv[len(options) :]]


def is_set(environment: Mapping[str, str]) -> bool:
    """Whether the environment turns tracebacks on."""
    return environment.get(DEBUG_VARIABLE, "").strip().lower() not in _NO


@contextmanager
def debugging() -> Generator[None]:
    """A block in which errors, and logged exceptions, are shown with their tracebacks."""
    handler = _Tracebacks()
    log = logging.getLogger("handrail")
    log.addHandler(handler)
    token = _DEBUGGING.set(True)
    try:
        yield
    finally:
        _DEBUGGING.reset(token)
        log.removeHandler(handler)


def show_traceback(screen: Screen, error: BaseException) -> None:
    """Print the traceback of an error that is about to be reported, if tracebacks are on."""
    if _DEBUGGING.get():
        screen.trace("".join(traceback.format_exception(error)))


class _Tracebacks(logging.Handler):
    """Prints the tracebacks of logged exceptions: those that do not end a run are not shown elsewhere."""

    def emit(self, record: logging.LogRecord) -> None:
        # Records without an exception are remarks of the library, which has reported them in its results.
        if record.exc_info and record.exc_info[1] is not None:
            Screen().trace("".join(traceback.format_exception(record.exc_info[1])))
