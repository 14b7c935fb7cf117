"""A day at the desk on a terminal, in colours; made for 80 columns, and fitted to any other width.

Text is fitted by `handrail.cli.cells`, as that of the command line is: what is cut has an ellipsis, and no figure is.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import TextIO

from rich.console import Console
from rich.text import Text

from call_trace import Outcome, TracedCall
from desk import DeskSummary
from handrail.cli.cells import NO_BREAK, cut, pad, width_of, wrap
from handrail.cli.table import GAP, Column, lay_out, row_lines
from handrail.prompt import Approval, ApprovalRequest
from proof import Proof
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
_LEAST_OF_ANSWER = 20
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
            self._print()
            self._lines(f"{act.title}. At the end:", "bold")
            for promise in act.promises:
                self._lines(promise, begin="  - ")

    def headed(self, text: str) -> None:
        """An act begins."""
        self._print()
        self._rule(text, "bold reverse", "=")

    def noted(self, text: str) -> None:
        """Something that is not the model's doing."""
        self._lines(text, "bold", begin="  ")

    def opened(self, model: str) -> None:
        """The desk opens."""
        self._rule(f"refund desk, model {model}", "bold", "\u2500")
        if not self._compact:
            self._row("", "tool", ("outcome", "dim"), "handler / whole", "dim")

    def replied(self, number: int, text: str, calls: int) -> None:
        """The model has replied."""
        self._print()
        head = f"Reply {number}" if calls == 1 else f"Reply {number}, {calls} calls"
        self._lines(text, "italic", begin=f"{head}  ", begin_style="bold")

    def asked(self, request: ApprovalRequest, answer: Approval) -> None:
        """The supervisor was asked."""
        self._below(f"supervisor: {told_request(request, answer)}", "blue")

    def called(self, call: TracedCall) -> None:
        """A call has ended."""
        words = told(call)
        style = STYLES[call.outcome]
        if self._compact:
            self._short_row(str(call.number), call.event.name, (words.outcome, style), words.answer)
            return
        self._row(str(call.number), call.event.name, (words.outcome, style), words.times, "bold")
        room = self._width - _BELOW
        self._below(cut(words.asked, room), "dim")
        self._below(*((cut(words.answer, room), "") if call.event.success else (words.answer, style)))
        if words.note:
            self._below(words.note, f"dim {style}")

    def answered(self, summary: DeskSummary) -> None:
        """The agent has answered."""
        self._below(told_summary(summary), "green")

    def closed(self, report: str, proof: Proof) -> None:
        """The day is over."""
        self._print()
        self._rule("what is left", "bold", "\u2500")
        if report:
            self._report(report)
            self._print()
        for name, text in (
            ("charges per order", told_counts(proof.charges, NO_BREAK)),
            ("calls", told_counts(proof.outcomes, NO_BREAK)),
            ("in the session", told_counts(proof.slices, NO_BREAK)),
            ("report sha256", proof.report_sha256 or "no report"),
        ):
            self._lines(text, begin=f"{name}: ", begin_style="bold")

    def judged(self, verdicts: Sequence[Verdict]) -> None:
        """All acts are over."""
        for verdict in verdicts:
            self._print()
            self._lines(verdict.act.title, "bold")
            for finding in verdict.findings:
                mark, style = ("PASS  ", "green") if finding.holds else ("FAIL  ", "bold red")
                text = f"{finding.text} ({finding.found})"
                self._lines(text, "" if finding.holds else "bold", begin=mark, begin_style=style)
        self._print()
        total = told_total(verdicts)
        self._lines(total, "bold green" if total.startswith("PASS") else "bold red")

    def advised(self, steps: Sequence[Step]) -> None:
        """The demo ends."""
        self._print()
        self._lines("Try next:", "bold")
        for step in steps:
            self._lines(step.purpose, "dim", begin="  # ", begin_style="dim")
            for line in told_command(step.command, self._width - 2):
                self._console.print(Text(f"  {line}"), soft_wrap=True)

    @property
    def _width(self) -> int:
        return self._console.width

    def _print(self, line: Text | None = None) -> None:
        self._console.print(line or Text(), soft_wrap=True)

    def _lines(self, text: str, style: str = "", *, begin: str = "", begin_style: str = "") -> None:
        """A text in as many lines as it takes; `begin` stands before it, and its following lines are indented."""
        indent = " " * min(len(begin) if not begin.strip() or len(begin) <= len("PASS  ") else 2, self._width // 2)
        for number, line in enumerate(
            wrap(text, max(self._width - len(indent), 2), first=max(self._width - width_of(begin), 0))
        ):
            head = (begin, begin_style) if number == 0 else (indent, "")
            shown = Text.assemble(head, (line, style))
            shown.rstrip()
            self._print(shown)

    def _below(self, text: str, style: str = "") -> None:
        self._lines(text, style, begin=" " * _BELOW)

    def _rule(self, text: str, style: str, character: str) -> None:
        """A text in the middle of a line."""
        title = cut(text, max(self._width - 4, 1))
        left = max(self._width - width_of(title) - 2, 0) // 2
        right = max(self._width - width_of(title) - 2 - left, 0)
        self._print(Text.assemble(f"{character * left} ", (title, style), f" {character * right}"))

    def _row(self, number: str, name: str, outcome: tuple[str, str], times: str, style: str) -> None:
        text, colour = outcome
        left = f"{pad(number, _NUMBER, right=True)} "
        middle = pad(text, _OUTCOME)
        room = min(self._width, _WIDEST) - width_of(left) - _NAME - width_of(middle) - GAP
        if room < width_of(times) or width_of(name) > _NAME:
            self._lines(f"{name}: {text} ({times})", colour, begin=left)
            return
        shown = pad(times, room, right=True)
        self._print(Text.assemble(left, (pad(name, _NAME), style), " ", (middle, colour), " ", (shown, "dim")))

    def _short_row(self, number: str, name: str, outcome: tuple[str, str], answer: str) -> None:
        text, colour = outcome
        left = f"{pad(number, _NUMBER, right=True)} "
        middle = [pad(name, _SHORT_NAME), " ", pad(text, _SHORT_OUTCOME), " "]
        room = self._width - width_of(left) - width_of("".join(middle))
        if room < _LEAST_OF_ANSWER or width_of(text) > _SHORT_OUTCOME:
            self._lines(f"{name}: {text}: {answer}", colour, begin=left)
            return
        shown = cut(answer.partition("\n")[0], room)
        self._print(Text.assemble(left, (middle[0], "bold"), " ", (middle[2], colour), " ", (shown, "dim")))

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
        columns = [Column(name, right=name == "amount") for name in headings]
        layout = lay_out(columns, rows, self._width)
        for number, row in enumerate([headings, *rows]):
            style = "" if number else "bold"
            if layout.widths is None:
                self._lines(", ".join(cell for cell in row if cell), style)
                continue
            for line in row_lines(columns, row, layout.widths):
                self._print(Text((" " * GAP).join(line).rstrip(), style))


def screen_on(out: TextIO, *, plain: bool, compact: bool = False, about: str = ABOUT) -> Screen:
    """The screen for a file: in colours for a terminal, unless plain lines are wanted."""
    if not out.isatty():
        return PlainScreen(out, compact, about=about)
    if plain:
        return PlainScreen(out, compact, shutil.get_terminal_size().columns, about)
    return RichScreen(Console(file=out, highlight=False), compact=compact, about=about)
