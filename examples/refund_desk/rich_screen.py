"""A day at the desk on a terminal, in colours; made for 80 columns, and fitted to any other width."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import TextIO

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from call_trace import Outcome, TracedCall
from day_proof import Proof
from desk import DeskSummary
from handrail.prompt import Approval, ApprovalRequest
from screen import (
    ABOUT,
    Act,
    PlainScreen,
    Screen,
    Step,
    Verdict,
    told,
    told_command,
    told_counts,
    told_request,
    told_summary,
    told_total,
)

STYLES = {
    Outcome.COMMITTED: "green",
    Outcome.REPLAYED: "cyan",
    Outcome.REFUSED: "yellow",
    Outcome.ROLLED_BACK: "magenta",
}
"""The colour of each outcome."""

_NUMBER, _NAME, _OUTCOME = 3, 21, 24
_SHORT_NAME, _SHORT_OUTCOME = 13, 11
_WIDEST = 80
_BELOW = 4


class RichScreen:
    """Shows each call as a line of columns, with what was asked and answered below it."""

    def __init__(self, console: Console, *, compact: bool = False, about: str = ABOUT) -> None:
        """Show on that console, with `about` as the first line; with `compact`, one line for each call."""
        self._about = about
        self._console = console
        self._compact = compact

    def promised(self, acts: Sequence[Act]) -> None:
        """The demo begins."""
        self._lines(self._about, "bold")
        for act in acts:
            self._console.print()
            self._lines(f"{act.title}. At the end:", "bold")
            for promise in act.promises:
                self._lines(promise, begin="  - ")

    def headed(self, text: str) -> None:
        """An act begins."""
        self._console.print()
        self._console.rule(Text(text, "bold reverse"), characters="=")

    def noted(self, text: str) -> None:
        """Something that is not the model's doing."""
        self._lines(text, "bold", begin="  ")

    def opened(self, model: str) -> None:
        """The desk opens."""
        self._console.rule(Text(f"refund desk, model {model}", "bold"), style="default")
        if not self._compact:
            self._row("", ("tool", "dim"), ("outcome", "dim"), "handler / whole")

    def replied(self, number: int, text: str, calls: int) -> None:
        """The model has replied."""
        head = f"Reply {number}" if calls == 1 else f"Reply {number}, {calls} calls"
        self._console.print()
        self._lines(text, "italic", begin=f"{head}  ", begin_style="bold")

    def asked(self, request: ApprovalRequest, answer: Approval) -> None:
        """The supervisor was asked."""
        self._below(f"supervisor: {told_request(request, answer)}", "blue")

    def called(self, call: TracedCall) -> None:
        """A call has ended."""
        words = told(call)
        style = STYLES[call.outcome]
        number, name = str(call.number), call.event.name
        if self._compact:
            self._short_row(number, name, (words.outcome, style), words.answer.partition("\n")[0])
            return
        self._row(number, (name, "bold"), (words.outcome, style), words.times)
        self._below(words.asked, "dim", is_line=True)
        self._below(words.answer, "" if call.event.success else style, is_line=call.event.success)
        if words.note:
            self._below(words.note, f"dim {style}")

    def answered(self, summary: DeskSummary) -> None:
        """The agent has answered."""
        self._below(told_summary(summary), "green")

    def closed(self, report: str, proof: Proof) -> None:
        """The day is over."""
        self._console.print()
        self._console.rule(Text("what is left", "bold"), style="default")
        if report:
            self._report(report)
            self._console.print()
        for name, text in (
            ("charges per order", told_counts(proof.charges)),
            ("calls", told_counts(proof.outcomes)),
            ("in the session", told_counts(proof.slices)),
            ("report sha256", proof.report_sha256 or "no report"),
        ):
            self._lines(text, begin=f"{name}: ", begin_style="bold")

    def judged(self, verdicts: Sequence[Verdict]) -> None:
        """All acts are over."""
        for verdict in verdicts:
            self._console.print()
            self._lines(verdict.act.title, "bold")
            for finding in verdict.findings:
                mark, style = ("PASS  ", "green") if finding.holds else ("FAIL  ", "bold red")
                text = f"{finding.text} ({finding.found})"
                self._lines(text, "" if finding.holds else "bold", begin=mark, begin_style=style)
        self._console.print()
        total = told_total(verdicts)
        self._lines(total, "bold green" if total.startswith("PASS") else "bold red")

    def advised(self, steps: Sequence[Step]) -> None:
        """The demo ends."""
        self._console.print()
        self._lines("Try next:", "bold")
        for step in steps:
            self._lines(step.purpose, "dim", begin="  # ", begin_style="dim")
            for line in told_command(step.command, self._width - 2):
                self._console.print(Text(f"  {line}"), soft_wrap=True)

    @property
    def _width(self) -> int:
        return self._console.width

    def _lines(self, text: str, style: str = "", *, begin: str = "", begin_style: str = "") -> None:
        """A text in as many lines as it takes; `begin` stands before it."""
        self._console.print(Text.assemble((begin, begin_style), (text, style)))

    def _below(self, text: str, style: str = "", *, is_line: bool = False) -> None:
        """A text below a call; one line of it is cut to the width."""
        shown = Text(text, style, no_wrap=is_line, overflow="ellipsis" if is_line else "fold")
        self._console.print(Padding(shown, (0, 0, 0, _BELOW), expand=False))

    def _row(self, number: str, name: tuple[str, str], outcome: tuple[str, str], times: str) -> None:
        row = _grid(min(self._width, _WIDEST))
        row.add_column(width=_NUMBER, justify="right")
        row.add_column(min_width=min(_NAME, self._width // 3))
        row.add_column(min_width=min(_OUTCOME, self._width // 3))
        row.add_column(justify="right", ratio=1)
        row.add_row(number, Text(*name), Text(*outcome), Text(times, "dim"))
        self._console.print(row)

    def _short_row(self, number: str, name: str, outcome: tuple[str, str], answer: str) -> None:
        row = _grid(self._width)
        row.add_column(width=_NUMBER, justify="right")
        row.add_column(min_width=min(_SHORT_NAME, self._width // 3))
        row.add_column(min_width=min(_SHORT_OUTCOME, self._width // 3))
        row.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
        row.add_row(number, Text(name, "bold"), Text(*outcome), Text(answer, "dim"))
        self._console.print(row)

    def _report(self, report: str) -> None:
        """The report, its table in columns."""
        rows = [
            [cell.strip() for cell in line.strip("|").split("|")] for line in report.splitlines() if line[:1] == "|"
        ]
        for line in report.splitlines():
            if line[:1] != "|":
                self._lines(line.lstrip("# "), "bold" if line[:1] == "#" else "")
            elif rows:
                self._table(rows[0], rows[2:])
                rows = []

    def _table(self, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        table = Table(box=None, pad_edge=False, show_edge=False)
        for name in headings:
            table.add_column(name, justify="right" if name == "amount" else "left", overflow="fold")
        for row in rows:
            table.add_row(*row)
        self._console.print(table)


def _grid(width: int) -> Table:
    grid = Table.grid(padding=(0, 1, 0, 0), pad_edge=False)
    grid.width = width
    return grid


def screen_on(out: TextIO, *, plain: bool, compact: bool = False, about: str = ABOUT) -> Screen:
    """The screen for a file: in colours for a terminal, unless plain lines are wanted."""
    if not out.isatty():
        return PlainScreen(out, compact, about=about)
    if plain:
        return PlainScreen(out, compact, shutil.get_terminal_size().columns, about)
    return RichScreen(Console(file=out, highlight=False), compact=compact, about=about)
