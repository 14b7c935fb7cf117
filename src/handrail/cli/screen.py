r"""The output of commands: tables, notes and JSON on standard output, remarks and questions on standard error.

Control characters of models and tools are shown as escapes. With `--debug`, or `HANDRAIL_DEBUG`, the traceback of an
error precedes its line, and those of tools, policies and subscribers that raise are shown, too.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import takewhile
from textwrap import indent as indented
from typing import IO, Any, Generic, Literal, TypeVar, cast

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from handrail.cli.process_exit import GuardedStream
from handrail.readable import CONTROLS, clean, clean_lines, fit_text, format_json, format_when

T = TypeVar("T")

_NO = frozenset({"", "0", "no", "off", "false"})
# The width of a pipe: no line is wrapped or cut there.
_UNBOUNDED = 1_000_000

_GAP, _MOST_OF_CELL = 2, 120

_LOG = logging.getLogger("handrail")


# ---------------------------------------------------------------------------------------------------------- the screen


@dataclass(frozen=True)
class Field(Generic[T]):
    """A field of an entity: a column of a table, a line where one is shown, and a member of its JSON.

    Attributes:
        name: its heading; empty if only JSON has it.
        value: its value, of JSON, a time or a duration.
        text: what people read instead: a text, a number, or a value that is shown as JSON.
        key: its name in JSON; `None` for the heading, and empty if JSON does not have it.
        styles: the styles of cells on a terminal, by their text.
    """

    name: str
    value: Callable[[T], Any]
    text: Callable[[T], Any] | None = None
    key: str | None = None
    styles: Mapping[str, str] = field(default_factory=dict[str, str])

    def text_for_people(self, row: T, *, indent: int | None = None) -> str | int:
        """The text of its value; empty for nothing."""
        value = (self.text or self.value)(row)
        if value is None or isinstance(value, str | int):
            return "" if value is None else value
        return format_when(value) if isinstance(value, datetime) else format_json(value, indent=indent)


def fields_json(fields: Iterable[Field[T]], row: T) -> dict[str, Any]:
    """The fields of an entity, for programs."""
    return {
        column.name if column.key is None else column.key: column.value(row) for column in fields if column.key != ""
    }


@dataclass(frozen=True, slots=True)
class Screen:
    """The standard streams of the process at construction, for the output of a command."""

    out: Console = field(default_factory=lambda: _console(sys.stdout))
    err: Console = field(default_factory=lambda: _console(sys.stderr))

    # ------------------------------------------------------------------------------------------------------ for people

    def table(self, fields: Sequence[Field[T]], rows: Sequence[T]) -> None:
        """Prints rows with a heading, if there are any."""
        longest = _MOST_OF_CELL if self.out.is_terminal else _UNBOUNDED
        table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False)
        lines: list[list[Text]] = []
        for place, column in enumerate(entry for entry in fields if entry.name):
            cells = [column.text_for_people(row) for row in rows]
            texts = [f"{cell:,}" if isinstance(cell, int) else fit_text(clean(cell or "-"), longest) for cell in cells]
            # The first one names the row, so that it is only folded at half of the width.
            width = min(max(map(cell_len, (column.name, *texts))), self.out.width // 2) if place == 0 else None
            justify: Literal["left", "right"] = "right" if any(isinstance(cell, int) for cell in cells) else "left"
            table.add_column(Text(column.name), justify=justify, overflow="fold", width=width)
            lines.append([Text(text, column.styles.get(text, "")) for text in texts])
        for line in zip(*lines, strict=True):
            table.add_row(*line)
        if rows:
            _print(self.out, table)

    def record(self, fields: Iterable[tuple[str, str]], *, aside: bool = False) -> None:
        """Prints names and values, a pair a line; with `aside` on standard error, before a question."""
        grid = Table.grid(padding=(0, _GAP, 0, 0), pad_edge=False)
        grid.add_column(style="bold", no_wrap=True)
        grid.add_column(overflow="fold")
        for name, value in fields:
            grid.add_row(name, Text(clean_lines(value)))
        _print(self.err if aside else self.out, grid)

    def text(self, text: str, *, indent: int = 0, style: str = "") -> None:
        """Prints text with its lines and tabs on standard output, indented; on a terminal it is wrapped, in a style."""
        clean_text = clean_lines(text)
        if self.out.is_terminal:
            self.out.print(Padding(Text(clean_text, style, overflow="fold"), (0, 0, 0, indent), expand=False))
        else:  # past rich: a transcript has many thousand lines
            self.raw(indented(clean_text, " " * indent))

    def say(self, text: str) -> None:
        """Prints what has been done, on standard output."""
        self.out.print(Text(clean(text)))

    def note(self, text: str) -> None:
        """Prints a note for people on standard output: how many there are, what was left out, or how to see more."""
        self.out.print(Text(clean(text), "dim"))

    def remark(self, text: str) -> None:
        """Prints a remark on standard error, beside an output or a question that is not part of it."""
        self.err.print(Text(clean(text), "dim"))

    def command(self, words: Sequence[str], *, aside: bool = False) -> None:
        """Prints the words of a command, quoted for a shell, on one line; with `aside` on standard error."""
        console = self.err if aside else self.out
        console.print(Text(f"  {clean(' '.join(words))}", "dim" if aside else ""), soft_wrap=True)

    def fault(self, text: str) -> None:
        """Prints in one line why a command failed."""
        self.problem(" ".join(text.split()))

    def problem(self, text: str) -> None:
        """Prints an error as `fault` does, but on several lines: it may contain a list."""
        self.err.print(Text(clean_lines(f"handrail: {text.strip()}").replace("\n", "\n  ")), soft_wrap=True)

    def trace(self, text: str) -> None:
        """Prints a traceback."""
        self.err.print(Text(clean_lines(text.rstrip())), soft_wrap=True)

    def stream(self, text: str) -> None:
        """Prints a piece of a text on standard output at once."""
        self.raw(clean_lines(text), end="")
        self.out.file.flush()

    # ---------------------------------------------------------------------------------------------------- for programs

    def raw(self, text: str, *, end: str = "\n") -> None:
        """Prints text on standard output unchanged, neither wrapped nor cut."""
        self.out.file.write(text + end)

    def json(self, document: Mapping[str, Any], *, lines: bool = False) -> None:
        """Prints one JSON document, indented, or on one line; times in ISO 8601, and durations in seconds."""
        # If the stream is not UTF-8, ASCII can represent any JSON.
        ascii_only = (self.out.encoding or "").lower().replace("-", "") != "utf8"
        text = json.dumps(document, ensure_ascii=ascii_only, indent=None if lines else 2, default=_time_json)
        # What is left of control characters stands in strings, but for the ends of lines.
        self.raw(CONTROLS.sub(lambda match: match[0] if match[0] == "\n" else f"\\u{ord(match[0]):04x}", text))

    # ------------------------------------------------------------------------------------------------------- questions

    @property
    def can_ask(self) -> bool:
        """True if a person can answer: standard input and standard error are terminals."""
        # Checked for each question: tests and embedding programs replace the streams.
        streams = cast("tuple[IO[str] | None, ...]", (sys.stdin, sys.stderr))  # None if the process has none
        return all(stream is not None and stream.isatty() for stream in streams)

    def confirm(self, question: str) -> bool:
        """Returns whether the person says yes."""
        self.prompt(f"{question} [y = yes, Enter = no]")
        typed = sys.stdin.readline()
        if not typed:
            self.end_prompt()
        return typed.strip().lower() in {"y", "yes"}

    def prompt(self, question: str) -> None:
        """Prints a question; the answer is typed after it."""
        self.err.print(Text(clean(question)), end=" ", soft_wrap=True)

    def end_prompt(self) -> None:
        """Ends the line of a question without an answer."""
        self.err.print()


def _time_json(value: datetime | timedelta) -> str | float:
    return value.isoformat() if isinstance(value, datetime) else value.total_seconds()


def _console(stream: IO[str] | None) -> Console:
    # Without a stream, rich writes to the process's own, which is None. Else it needs `write`, `flush` and `isatty`, of
    # which the last one is delegated. A closed standard stream is None, despite the type.
    file = None if stream is None else cast("IO[str]", GuardedStream(stream))
    console = Console(file=file, highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = _UNBOUNDED
    return console


def _print(console: Console, renderable: RenderableType) -> None:
    with console.capture() as captured:
        console.print(renderable)
    console.file.write("\n".join(line.rstrip(" ") for line in captured.get().split("\n")))


def without_option(argv: Sequence[str]) -> list[str]:
    """A command line without `--debug`, at any place before `--`: removed before parsing, which may fail."""
    # After `--` the word is an argument, as in `handrail new -- --debug`.
    options = list(takewhile(lambda word: word != "--", argv))
    return [*(word for word in options if word != "--debug"), *argv[len(options) :]]


def is_set(environment: Mapping[str, str]) -> bool:
    """Returns whether the environment turns tracebacks on: `HANDRAIL_DEBUG` is neither empty nor negative."""
    return environment.get("HANDRAIL_DEBUG", "").strip().lower() not in _NO


@contextmanager
def debugging() -> Generator[None]:
    """A block in which errors, and logged exceptions, are shown with their tracebacks."""
    handler = _Tracebacks()
    _LOG.addHandler(handler)
    try:
        yield
    finally:
        _LOG.removeHandler(handler)


def show_traceback(screen: Screen, error: BaseException) -> None:
    """Prints the traceback of an error that is about to be reported, if tracebacks are on."""
    if any(isinstance(handler, _Tracebacks) for handler in _LOG.handlers):
        screen.trace("".join(traceback.format_exception(error)))


class _Tracebacks(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        # Records without an exception are remarks of the library, which has reported them in its results.
        if record.exc_info and record.exc_info[1] is not None:
            Screen().trace("".join(traceback.format_exception(record.exc_info[1])))
        elif record.exc_text:
            Screen().trace(record.exc_text)
