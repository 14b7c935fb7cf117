"""The output of commands: tables, notes and JSON on standard output, remarks and questions on standard error.

On a terminal, tables, notes, remarks and questions fit its width: `handrail.cli.cells` cuts and wraps, never within a
figure. A table leaves columns out if necessary, and reports which. In a pipe it is plain text, aligned, without
colours, and nothing is cut. An error is one line also on a terminal, which wraps it itself, so that a command in it can
be copied.

Text for a terminal contains no control characters.

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
from functools import cache
from itertools import chain, repeat, takewhile
from typing import IO, Annotated, Any, cast

from cyclopts import Parameter
from rich.color import ColorSystem
from rich.console import Console
from rich.style import Style
from rich.text import Text

from handrail.cli.cells import WordWrap, cut, pad, widest_figure, width_of, wrap
from handrail.cli.output_streams import GuardedStream
from handrail.cli.table import GAP, Column, Layout, Row, lay_out, natural_widths, row_lines
from handrail.redaction import redacted

_LEAST_OF_VALUE = 12
_INDENT = "  "

_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

_SHORT = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}

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


@dataclass(frozen=True, slots=True)
class Screen:
    """The standard streams of the process, for the output of a command.

    The streams are those at construction, so that what other code prints later can be redirected.
    """

    out: Console = field(default_factory=lambda: _console(sys.stdout))
    err: Console = field(default_factory=lambda: _console(sys.stderr))

    # ------------------------------------------------------------------------------------------------------ for people

    def table(self, columns: Sequence[Column], rows: Iterable[Row]) -> None:
        """Print rows with a heading; their cells may contain control characters, which are escaped."""
        # Cleaned before measuring, because an escape is longer than the character that it replaces.
        cells = [[clean(cell) for cell in row] for row in rows]
        if self.out.is_terminal:
            self._fitted(columns, cells)
        else:
            self._aligned(columns, cells)

    def record(self, fields: Iterable[tuple[str, str]], *, aside: bool = False) -> None:
        """Print names and values, a pair a line; with `aside` on standard error, before a question."""
        console = self.err if aside else self.out
        pairs = [(name, clean_lines(value)) for name, value in fields]
        if console.is_terminal:
            self._pairs(console, pairs)
            return
        width = max(len(name) for name, _ in pairs) + GAP
        for name, value in pairs:
            self._write(console, f"{name:{width}}" + value.replace("\n", "\n" + " " * width))

    def say(self, text: str) -> None:
        """Print what has been done, on standard output."""
        for line in self._lines(self.out, clean(text)):
            self._write(self.out, line)

    def command(self, words: Sequence[str], *, aside: bool = False) -> None:
        """Print a command to type, indented; with `aside` on standard error.

        On a terminal that is too narrow it is continued with a backslash, so that it works as it is typed or copied.

        Args:
            words: its words, quoted for a shell.
            aside: whether to print it on standard error.
        """
        console = self.err if aside else self.out
        quoted = [clean(word) for word in words]
        lines = [_INDENT + " ".join(quoted)]
        if console.is_terminal and width_of(lines[0]) > console.width:
            lines = _continued(quoted, console.width)
        for line in lines:
            console.print(Text(line, style="dim" if aside else ""), soft_wrap=True)

    def raw(self, text: str, *, end: str = "\n") -> None:
        """Print text on standard output unchanged, for a program that reads the pipe."""
        self._write(self.out, text, end=end)

    def lines(self, lines: Iterable[str], *, indent: int = 0, style: str = "") -> None:
        """Print lines on standard output as they are, indented and on a terminal in a style; the caller wraps them.

        For outputs of many thousand lines: it takes a tenth of the time of rich, which lays each one out.

        Args:
            lines: the lines, without control characters.
            indent: by how many cells.
            style: a style of rich, such as `"bold"`.
        """
        margin, shown = " " * indent, bool(style) and self.out.color_system is not None
        text = "".join([f"{margin}{_styled(line, style) if shown else line}".rstrip() + "\n" for line in lines])
        self._write(self.out, text, end="")

    def streamed(self) -> StreamedText:
        """A text that is printed on standard output piece by piece."""
        return StreamedText(self.out)

    def block(self, heading: str, text: str) -> None:
        """Print a heading, and text under it, indented."""
        self.out.print(Text(clean(heading), style="bold"), soft_wrap=True)
        cleaned = clean_lines(text)
        lines = wrap(cleaned, self.out.width - len(_INDENT)) if self.out.is_terminal else cleaned.split("\n")
        for line in lines:
            self._write(self.out, (_INDENT + line).rstrip())

    def note(self, text: str) -> None:
        """Print a note for people on standard output: how many there are, what was left out, or how to see more."""
        for line in self._lines(self.out, clean(text)):
            self.out.print(Text(line, style="dim"), soft_wrap=True)

    def remark(self, text: str) -> None:
        """Print a remark on standard error, beside an output or a question that is not part of it."""
        for line in self._lines(self.err, clean(text)):
            self.err.print(Text(line, style="dim"), soft_wrap=True)

    def fault(self, text: str) -> None:
        """Print in one line why a command failed; passwords are masked."""
        self.err.print(Text(clean(f"handrail: {' '.join(redacted(text).split())}")), soft_wrap=True)

    def problem(self, text: str) -> None:
        """Print an error as `fault` does, but on several lines: it may contain a list."""
        lines = clean_lines(f"handrail: {redacted(text).strip()}")
        self.err.print(Text(lines.replace("\n", "\n  ")), soft_wrap=True)

    def trace(self, text: str) -> None:
        """Print a traceback, with control characters escaped and passwords masked."""
        self.err.print(Text(clean_lines(redacted(text).rstrip())), soft_wrap=True)

    # ---------------------------------------------------------------------------------------------------- for programs

    def json(self, document: Mapping[str, Any], *, lines: bool = False) -> None:
        """Print one JSON document, indented, or on one line."""
        self._write(self.out, self.json_text(document, lines=lines))

    def json_text(self, document: Mapping[str, Any], *, lines: bool = False) -> str:
        """A JSON document as `json` prints it."""
        # If the stream is not UTF-8, ASCII can represent any JSON.
        ascii_only = (self.out.encoding or "").lower().replace("-", "") != "utf8"
        return clean_json(json.dumps(document, ensure_ascii=ascii_only, indent=None if lines else 2))

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
        *lines, last = self._lines(self.err, clean(question))
        for line in lines:
            self.err.print(Text(line), soft_wrap=True)
        self.err.print(Text(last), end=" ", soft_wrap=True)

    def end_prompt(self) -> None:
        """End the line of a question without an answer."""
        self.err.print()

    # --------------------------------------------------------------------------------------------------------- private

    @staticmethod
    def _lines(console: Console, text: str) -> list[str]:
        """A text as lines that fit the terminal, those after the first indented; in a pipe it is one line."""
        if not console.is_terminal:
            return [text]
        if width_of(text) <= console.width:
            return wrap(text, console.width)
        room = max(console.width - len(_INDENT), _LEAST_OF_VALUE)
        first, *others = wrap(text, room, first=console.width)
        return [first, *(_INDENT + line for line in others)]

    def _fitted(self, columns: Sequence[Column], cells: Sequence[Row]) -> None:
        layout = lay_out(columns, cells, self.out.width)
        if layout.widths is None:
            self._listed(columns, cells, layout)
        else:
            shown = [columns[place] for place in layout.kept]
            headings = row_lines(shown, [column.name for column in shown], layout.widths)
            self._print_row(headings, ["bold"] * len(shown))
            for row in cells:
                styles = [columns[place].styles.get(row[place], "") for place in layout.kept]
                self._print_row(row_lines(shown, [row[place] for place in layout.kept], layout.widths), styles)
        missing = [column.name for place, column in enumerate(columns) if place not in layout.kept]
        if missing:
            self.note(f"Left out at this width: {', '.join(missing)}. A wider terminal shows them, and --format json.")

    def _print_row(self, lines: Sequence[Sequence[str]], styles: Sequence[str]) -> None:
        for cells in lines:
            line = Text()
            for place, (cell, style) in enumerate(zip(cells, styles, strict=True)):
                line.append(" " * GAP if place else "")
                line.append(cell, style=style)
            self.out.print(_stripped(line), soft_wrap=True)

    def _listed(self, columns: Sequence[Column], cells: Sequence[Row], layout: Layout) -> None:
        """Rows that do not fit beside each other: each as names and values, with an empty line between two rows."""
        for number, row in enumerate(cells):
            if number:
                self.out.print()
            pairs = [(columns[place].name, row[place]) for place in layout.kept]
            self._pairs(self.out, pairs, [columns[place].styles.get(row[place], "") for place in layout.kept])

    @staticmethod
    def _pairs(console: Console, pairs: Sequence[tuple[str, str]], styles: Sequence[str] = ()) -> None:
        names = max(width_of(name) for name, _ in pairs) + GAP
        beside = console.width - names >= max(_LEAST_OF_VALUE, widest_figure(value for _, value in pairs))
        # Where a terminal is too narrow for names and values, each value stands below its name.
        indent = names if beside else len(_INDENT)
        for (name, value), style in zip(pairs, chain(styles, repeat("")), strict=False):
            lines = wrap(value, max(console.width - indent, 2))
            head = Text(pad(name, names) if beside else cut(name, console.width), style="bold")
            if not beside:
                console.print(head, soft_wrap=True)
                head = Text(" " * indent)
            for line in lines:
                console.print(_stripped(Text.assemble(head, (line, style))), soft_wrap=True)
                head = Text(" " * indent)

    def _aligned(self, columns: Sequence[Column], cells: Sequence[Row]) -> None:
        widths = natural_widths(columns, cells)
        for row in chain([[column.name for column in columns]], cells):
            padded = [
                pad(cell, width, right=column.right) for column, cell, width in zip(columns, row, widths, strict=True)
            ]
            # Spaces at the end of a line would make a difference between two otherwise equal outputs.
            if not columns[-1].right:
                padded[-1] = row[-1]
            self._write(self.out, (" " * GAP).join(padded).rstrip())

    @staticmethod
    def _write(console: Console, text: str, *, end: str = "\n") -> None:
        """Print text unchanged: neither wrapped nor cut at any width."""
        console.file.write(text + end)


class StreamedText:
    """A text that is printed on standard output piece by piece; on a terminal its lines end between two words.

    Control characters except tab and LF are escaped.
    """

    __slots__ = ("_out", "_words")

    def __init__(self, out: Console) -> None:
        self._out = out
        self._words = WordWrap()

    def write(self, text: str) -> None:
        """Print a piece at once. On a terminal the last word of it is held back until it is complete."""
        cleaned = clean_lines(text)
        # Written past rich, which would wrap each piece by itself.
        self._out.file.write(self._words.feed(cleaned, self._out.width) if self._out.is_terminal else cleaned)
        self._out.file.flush()


class _StreamWithoutSecrets(GuardedStream):
    """A stream to which texts are written without secrets."""

    __slots__ = ()

    def write(self, text: str) -> int:
        """Write text.

        Raises:
            OutputError: it cannot be written.
        """
        return super().write(redacted(text))


def _console(stream: IO[str] | None) -> Console:
    # Without a stream, rich writes to the process's own, which is None. Else it needs `write`, `flush` and `isatty`, of
    # which the last one is delegated. A closed standard stream is None, despite the type.
    file = None if stream is None else cast("IO[str]", _StreamWithoutSecrets(stream))
    return Console(file=file, highlight=False, markup=False, emoji=False)


def _asked_on() -> tuple[IO[str] | None, ...]:
    """The streams for questions and answers; `None` for one that the process was started without."""
    return (sys.stdin, sys.stderr)


@cache
def _style(style: str) -> Style:
    return Style.parse(style)


def _styled(text: str, style: str) -> str:
    """A line with the codes of a style, which every terminal with colours knows."""
    return _style(style).render(text, color_system=ColorSystem.STANDARD) if text else text


def _stripped(line: Text) -> Text:
    """A line without the spaces at its end."""
    line.rstrip()
    return line


def _continued(words: Sequence[str], width: int) -> list[str]:
    """A command on several lines, each but the last with a backslash at its end."""
    lines = [_INDENT + words[0]]
    for word in words[1:]:
        if width_of(f"{lines[-1]} {word} \\") <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(_INDENT * 2 + word)
    return [*(f"{line} \\" for line in lines[:-1]), lines[-1]]


def clean(text: str) -> str:
    r"""The text in one line, with an escape such as `\x1b` for each control character.

    Models write keys, messages and tags; none of them may move the cursor, or reverse the text direction.
    """
    # The fast path: none of them is printable, and Python finds that out in a fraction of the time.
    return text if text.isprintable() else _CONTROLS.sub(_escaped, text)


def clean_lines(text: str) -> str:
    """The text with its lines and tabs, and an escape for every other control character."""
    if text.isprintable():
        return text
    return "\n".join("\t".join(map(clean, line.split("\t"))) for line in text.split("\n"))


def clean_json(document: str) -> str:
    r"""A JSON document with `\u` escapes for control characters in its strings."""
    return _CONTROLS.sub(
        lambda found: found.group() if found.group() == "\n" else f"\\u{ord(found.group()):04x}", document
    )


def format_time(time: datetime) -> str:
    """A time in UTC, to the second."""
    return time.astimezone(UTC).replace(tzinfo=None).isoformat(" ", "seconds")


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
        elif record.exc_text:
            Screen().trace(record.exc_text)
