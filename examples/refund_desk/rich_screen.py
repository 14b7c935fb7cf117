"""A day at the desk on a terminal of 80 columns or more, in colours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TextIO

from rich.columns import Columns
from rich.console import Console
from rich.markdown import Markdown
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from call_trace import Outcome, TracedCall
from desk import DeskSummary
from handrail.prompt import Approval, ApprovalRequest
from proof import Proof
from screen import PlainScreen, Screen, told, told_request, told_summary

STYLES = {
    Outcome.COMMITTED: "green",
    Outcome.REPLAYED: "cyan",
    Outcome.REFUSED: "yellow",
    Outcome.ROLLED_BACK: "magenta",
}
"""The colour of each outcome."""


class RichScreen:
    """Shows each call as a line of columns, with what was asked and answered below it."""

    def __init__(self, console: Console, *, compact: bool = False) -> None:
        """Show on that console; with `compact`, one line for each call."""
        self._console = console
        self._compact = compact

    def headed(self, text: str) -> None:
        """An act begins."""
        self._console.print()
        self._console.rule(Text(text, "bold reverse"), characters="=")

    def noted(self, text: str) -> None:
        """Something that is not the model's doing."""
        self._console.print(Padding(Text(text, "bold"), (0, 0, 0, 2)))

    def opened(self, model: str) -> None:
        """The desk opens."""
        self._console.rule(Text(f"refund desk · model {model}", "bold"))
        if not self._compact:
            self._console.print(self._row("", Text("tool"), Text("outcome"), Text("handler / whole")), style="dim")

    def replied(self, number: int, text: str, calls: int) -> None:
        """The model has replied."""
        self._console.print()
        head = f"Reply {number}" if calls == 1 else f"Reply {number}, {calls} calls"
        self._console.print(Text.assemble((head, "bold"), (f"  {text}", "italic")))

    def asked(self, request: ApprovalRequest, answer: Approval) -> None:
        """The supervisor was asked."""
        self._below(Text(f"supervisor: {told_request(request, answer)}", "blue"))

    def called(self, call: TracedCall) -> None:
        """A call has ended."""
        words = told(call)
        style = STYLES[call.outcome]
        name, outcome = Text(call.event.name, "bold"), Text(words.outcome, style)
        if self._compact:
            self._console.print(self._short_row(str(call.number), name, outcome, _one_line(words.answer, "dim")))
            return
        self._console.print(self._row(str(call.number), name, outcome, Text(words.times, "dim")))
        self._below(_one_line(words.asked, "dim"))
        self._below(_one_line(words.answer) if call.event.success else Text(words.answer, style))
        if words.note:
            self._below(Text(words.note, f"dim {style}"))

    def answered(self, summary: DeskSummary) -> None:
        """The agent has answered."""
        self._below(Text(told_summary(summary), "green"))

    def closed(self, report: str, proof: Proof) -> None:
        """The day is over."""
        self._console.print()
        self._console.rule(Text("what is left", "bold"))
        if report:
            self._console.print(Markdown(report))
        tables = (
            _counts("charges per order", proof.charges),
            _counts("calls", proof.outcomes),
            _counts("values in the session", proof.slices),
        )
        self._console.print(Columns(tables, padding=(1, 4)))
        self._console.print(Text.assemble(("report sha256 ", "dim"), proof.report_sha256 or "no report"))
        for finding in proof.findings:
            mark = Text("holds ", "green") if finding.holds else Text("FAILS ", "bold red")
            self._console.print(Text.assemble(mark, finding.text, (f" ({finding.found})", "dim")))

    def _row(self, number: str, name: Text, outcome: Text, times: Text) -> Table:
        row = Table.grid(padding=(0, 1))
        row.add_column(width=3, justify="right")
        row.add_column(width=21)
        row.add_column(width=24)
        row.add_column(width=22, justify="right")
        row.add_row(number, name, outcome, times)
        return row

    def _short_row(self, number: str, name: Text, outcome: Text, answer: Text) -> Table:
        row = Table.grid(padding=(0, 1))
        row.add_column(min_width=3, justify="right")
        row.add_column(min_width=13)
        row.add_column(min_width=9)
        row.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
        row.add_row(number, name, outcome, answer)
        return row

    def _below(self, text: Text) -> None:
        self._console.print(Padding(text, (0, 0, 0, 4)))


def _one_line(text: str, style: str = "") -> Text:
    """A text that is cut at the edge of the terminal."""
    return Text(text, style, no_wrap=True, overflow="ellipsis")


def _counts(title: str, counts: Mapping[str, int]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, show_header=False, pad_edge=False)
    table.add_column(min_width=len(title))
    table.add_column(justify="right")
    for name, count in counts.items():
        table.add_row(name, str(count))
    return table


def screen_on(out: TextIO, *, plain: bool, compact: bool = False) -> Screen:
    """The screen for a file: in colours for a terminal, unless plain lines are wanted."""
    if plain or not out.isatty():
        return PlainScreen(out, compact)
    return RichScreen(Console(file=out), compact=compact)
