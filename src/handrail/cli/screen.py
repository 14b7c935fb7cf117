"""What a command says, and where: tables and JSON on standard output, remarks and questions on standard error.

On a terminal a table fits the width: it leaves columns out if it must, and says so. In a pipe it is plain text,
aligned, without colours, and nothing of it is cut.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import IO, Any

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from handrail.cli.output import output
from handrail.cli.text import clean, clean_json, clean_lines, without_passwords

_GAP = 2
_LEAST_OF_CUT = 16


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        name: its heading.
        right: whether it is flushed right, as numbers are.
        cut: whether its cells may be cut to what the terminal has left; else a long cell goes on in the next line.
        spare: the columns with the highest number are left out first where a terminal is too narrow; 0 stays always.
        styles: how cells look on a terminal, by their text.
    """

    name: str
    right: bool = False
    cut: bool = False
    spare: int = 0
    styles: Mapping[str, str] = field(default_factory=dict[str, str])


Row = Sequence[str]
"""The cells of a row, in the order of the columns; what the terminal would obey is taken out of them here."""


@dataclass(frozen=True, slots=True)
class Screen:
    """The standard streams of the process, as a command writes to them.

    They are those of the moment when it is made: what a program prints while it runs can be sent elsewhere then.
    """

    out: Console = field(default_factory=lambda: _console(sys.stdout))
    err: Console = field(default_factory=lambda: _console(sys.stderr))

    # ------------------------------------------------------------------------------------------------------ for people

    def table(self, columns: Sequence[Column], rows: Iterable[Row]) -> None:
        """Print rows under each other, with a heading."""
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
        """Print names and values, a pair a line; `aside` on standard error, where a question follows."""
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
        """Print text on standard output as it is, for whatever reads the pipe."""
        self._write(self.out, text)

    def stream(self, text: str) -> None:
        """Print a piece of text on standard output at once, without what a terminal obeys; tabs and lines stay."""
        self.out.file.write("\n".join("\t".join(map(clean, line.split("\t"))) for line in text.split("\n")))
        self.out.file.flush()

    def block(self, heading: str, text: str) -> None:
        """Print a heading, and text under it, set in."""
        self.out.print(Text(clean(heading), style="bold"), soft_wrap=True)
        self._write(self.out, "  " + clean_lines(text).replace("\n", "\n  "))

    def remark(self, text: str) -> None:
        """Print a word beside the output: what was left out, or how to see more."""
        self.err.print(Text(clean(text), style="dim"), soft_wrap=True)

    def fault(self, text: str) -> None:
        """Print in one line why a command was not carried out; passwords in it are not shown."""
        self.err.print(Text(clean(f"handrail: {' '.join(without_passwords(text).split())}")), soft_wrap=True)

    def problem(self, text: str) -> None:
        """Print what is wrong as `fault` does, but with its lines: there may be a list in it."""
        lines = clean_lines(f"handrail: {without_passwords(text).strip()}")
        self.err.print(Text(lines.replace("\n", "\n  ")), soft_wrap=True)

    def trace(self, text: str) -> None:
        """Print a traceback as it stands, without what a terminal obeys; passwords in it are not shown."""
        self.err.print(Text(clean_lines(without_passwords(text).rstrip())), soft_wrap=True)

    # ---------------------------------------------------------------------------------------------------- for programs

    def json(self, document: Mapping[str, Any], *, lines: bool = False) -> None:
        """Print one JSON document, set in for people too, or as one of many lines."""
        # Where the stream is not UTF-8, ASCII is what JSON can always be said in.
        ascii_only = (self.out.encoding or "").lower().replace("-", "") != "utf8"
        self._write(self.out, clean_json(json.dumps(document, ensure_ascii=ascii_only, indent=None if lines else 2)))

    # ------------------------------------------------------------------------------------------------------- questions

    @property
    def can_ask(self) -> bool:
        """Whether a person sits before it: standard input and standard error are terminals."""
        return all(stream is not None and stream.isatty() for stream in _asked_on())

    def ask(self, question: str) -> str | None:
        """What the person types, without the blanks around it; `None` at the end of the input."""
        self.prompt(question)
        line = sys.stdin.readline()
        if not line:
            self.end_prompt()
            return None
        return line.strip()

    def prompt(self, question: str) -> None:
        """Print a question; what is typed comes behind it."""
        self.err.print(Text(clean(question)), end=" ", soft_wrap=True)

    def end_prompt(self) -> None:
        """End the line of a question to which nothing was typed."""
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
            if not columns[-1].right:
                padded[-1] = row[-1]
            self._write(self.out, (" " * _GAP).join(padded).rstrip())

    @staticmethod
    def _write(console: Console, text: str) -> None:
        """Print text as it is: neither wrapped nor cut, whatever the width."""
        console.file.write(text + "\n")


def _console(stream: IO[str] | None) -> Console:
    # With nothing in the place of a stream, rich writes to the process's own: to none, that is.
    return Console(file=output(stream), highlight=False, markup=False, emoji=False)


def _asked_on() -> tuple[IO[str] | None, ...]:
    """Where questions are put and answered; a process that was started without a stream has `None` there."""
    return (sys.stdin, sys.stderr)


def _kept(columns: Sequence[Column], widths: Sequence[int], available: int) -> list[int]:
    """The places of the columns that fit; those that may not be left out stay in any case."""
    kept = list(range(len(columns)))
    while True:
        needed = sum(
            (min(widths[place], _LEAST_OF_CUT) if columns[place].cut else widths[place]) + _GAP for place in kept
        )
        spare = max(kept, key=lambda place: columns[place].spare)
        if needed - _GAP <= available or not columns[spare].spare:
            return kept
        kept.remove(spare)
