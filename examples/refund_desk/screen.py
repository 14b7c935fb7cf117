"""What is told of a day at the desk, and plain lines to tell it in; `rich_screen` tells the same on a terminal."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Protocol, TextIO

from call_trace import Outcome, TracedCall
from day_proof import Finding, Proof
from desk import DeskSummary
from handrail.prompt import Approval, ApprovalRequest
from handrail.runtime import ToolCall
from shop import euros

LONGEST_LINE = 200
"""Characters of arguments that are shown."""

COMMAND_WIDTH = 80
"""The width of commands in a file."""

ABOUT = "Handrail makes each tool call of an agent a transaction. This demo shows what that means at a refund desk."
"""The first line of the demo, unless a screen is given another."""


@dataclass(frozen=True, slots=True)
class Act:
    """A part of the demo.

    Attributes:
        title: what happens in it.
        promises: what must be true at its end.
    """

    title: str
    promises: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of the promises of an act."""

    act: Act
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """Something to try next: what for, and the words of the command."""

    purpose: str
    command: tuple[str, ...]


class Screen(Protocol):
    """Where a day at the desk is shown."""

    def promised(self, acts: Sequence[Act]) -> None:
        """The demo begins: what it will show."""
        ...

    def headed(self, text: str) -> None:
        """An act begins."""
        ...

    def noted(self, text: str) -> None:
        """Something that is not the model's doing."""
        ...

    def opened(self, model: str) -> None:
        """The desk opens."""
        ...

    def replied(self, number: int, text: str, calls: int) -> None:
        """The model has replied, and asks for that many calls."""
        ...

    def asked(self, request: ApprovalRequest, answer: Approval) -> None:
        """The supervisor was asked."""
        ...

    def called(self, call: TracedCall) -> None:
        """A call has ended."""
        ...

    def answered(self, summary: DeskSummary) -> None:
        """The agent has answered, and its work is done."""
        ...

    def closed(self, report: str, proof: Proof) -> None:
        """The day is over; the report is empty if none was filed."""
        ...

    def judged(self, verdicts: Sequence[Verdict]) -> None:
        """All acts are over: which promises hold."""
        ...

    def advised(self, steps: Sequence[Step]) -> None:
        """The demo ends: what to try next."""
        ...


@dataclass(frozen=True, slots=True)
class ToldCall:
    """A call in words.

    Attributes:
        outcome: what became of it, and for a refusal which step refused.
        times: how long handler and whole took.
        asked: its arguments.
        answer: what the model reads: all of it for a failure, which teaches, and the first line of a success.
        note: what else there is to say about it; may be empty.
    """

    outcome: str
    times: str
    asked: str
    answer: str
    note: str


def told(call: TracedCall) -> ToldCall:
    """A call in words."""
    event = call.event
    answer = event.result.render()
    return ToldCall(
        outcome=_outcome(call),
        times=f"{_milliseconds(event.handler_seconds)} / {_milliseconds(event.total_seconds)} ms",
        asked=_cut(_arguments(event.call)),
        answer=_first_line(answer) if event.success else answer,
        note=_note(call),
    )


def told_request(request: ApprovalRequest, answer: Approval) -> str:
    """What the supervisor was asked and said."""
    questions = " ".join(question.text for question in request.questions)
    return f"{questions} {'Yes.' if answer.approved else f'No: {answer.reason}.'}"


def told_summary(summary: DeskSummary) -> str:
    """The agent's own answer."""
    left = f"; for a person: {', '.join(summary.for_a_person)}" if summary.for_a_person else ""
    return (
        f"refunded {summary.refunded} ({euros(summary.total_cents)}), duplicates {summary.duplicates}, "
        f"refused {summary.refused}{left}"
    )


def told_total(verdicts: Sequence[Verdict]) -> str:
    """How many promises hold."""
    findings = [finding for verdict in verdicts for finding in verdict.findings]
    broken = sum(not finding.holds for finding in findings)
    if broken:
        return f"FAIL: {broken} of {len(findings)} promises {'is' if broken == 1 else 'are'} broken."
    return f"PASS: all {len(findings)} promises hold."


def told_command(command: Sequence[str], width: int) -> list[str]:
    """A command in lines of that width, each but the last with a backslash at its end, so that it works as typed."""
    lines = [command[0]]
    for word in command[1:]:
        if len(f"{lines[-1]} {word} \\") <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(f"  {word}")
    return [*(f"{line} \\" for line in lines[:-1]), lines[-1]]


def told_counts(counts: Mapping[str, int]) -> str:
    """Counts on one line."""
    return ", ".join(f"{name} {count}" for name, count in counts.items()) or "none"


@dataclass(frozen=True, slots=True)
class PlainScreen:
    """Plain lines, as they are read in a log.

    Attributes:
        out: where they are written.
        compact: whether there is one line for each call.
        width: the width of a terminal that they are read on; `None` for a file, where no line is wrapped.
        about: the first line of the demo.
    """

    out: TextIO
    compact: bool = False
    width: int | None = None
    about: str = ABOUT

    def promised(self, acts: Sequence[Act]) -> None:
        """The demo begins."""
        self._line(self.about)
        for act in acts:
            self._line(f"\n{act.title}. At the end:")
            for promise in act.promises:
                self._line(f"  - {promise}")

    def headed(self, text: str) -> None:
        """An act begins."""
        self._line(f"\n=== {text}")

    def noted(self, text: str) -> None:
        """Something that is not the model's doing."""
        self._line(f"* {text}")

    def opened(self, model: str) -> None:
        """The desk opens."""
        self._line(f"refund desk, model: {model}")

    def replied(self, number: int, text: str, calls: int) -> None:
        """The model has replied."""
        self._line(f"reply {number} ({calls} {'call' if calls == 1 else 'calls'}){f': {text}' if text else ''}")

    def asked(self, request: ApprovalRequest, answer: Approval) -> None:
        """The supervisor was asked."""
        self._line(f"  supervisor: {told_request(request, answer)}")

    def called(self, call: TracedCall) -> None:
        """A call has ended."""
        words = told(call)
        if self.compact:
            self._line(f"  call {call.number}: {call.event.name}: {words.outcome}: {_first_line(words.answer)}")
            return
        self._line(f"  call {call.number}: {call.event.name}: {words.outcome} ({words.times})")
        self._line(f"    asked: {words.asked}")
        self._line(f"    answer: {words.answer}".replace("\n", "\n      "))
        if words.note:
            self._line(f"    {words.note}")

    def answered(self, summary: DeskSummary) -> None:
        """The agent has answered."""
        self._line(f"the agent says: {told_summary(summary)}")

    def closed(self, report: str, proof: Proof) -> None:
        """The day is over."""
        for line in report.splitlines():
            self._line(f"  | {line}")
        self._line(f"charges per order: {told_counts(proof.charges)}")
        self._line(f"report sha256: {proof.report_sha256 or 'no report'}")
        self._line(f"slices: {told_counts(proof.slices)}")
        self._line(f"calls: {told_counts(proof.outcomes)}")

    def judged(self, verdicts: Sequence[Verdict]) -> None:
        """All acts are over."""
        for verdict in verdicts:
            self._line(f"\n{verdict.act.title}")
            for finding in verdict.findings:
                self._line(f"{'PASS' if finding.holds else 'FAIL'}: {finding.text} ({finding.found})")
        self._line(f"\n{told_total(verdicts)}")

    def advised(self, steps: Sequence[Step]) -> None:
        """The demo ends."""
        self._line("\nTry next:")
        for step in steps:
            self._line(f"  # {step.purpose}")
            for line in told_command(step.command, (self.width or COMMAND_WIDTH) - 2):
                self._line(f"  {line}")

    def _line(self, text: str) -> None:
        lines = [text] if self.width is None else _wrapped(text, self.width)
        print("\n".join(lines), file=self.out, flush=True)


def _outcome(call: TracedCall) -> str:
    step = call.event.refused_at
    if call.outcome is Outcome.REFUSED and step is not None:
        return f"refused at {step.number}, {step.replace('_', ' ')}"
    return call.outcome.value


def _note(call: TracedCall) -> str:
    match call.outcome:
        case Outcome.ROLLED_BACK:
            if call.sound:
                what = "files and slices" if call.with_files else "slices"
                return f"undone: {what} are as before, state {call.state_after[:12]}"
            return f"NOT UNDONE: state {call.state_before[:12]} before, {call.state_after[:12]} after"
        case Outcome.REPLAYED if call.event.handler_seconds is not None:
            return f"its answer was lost, and the reconciler has found it; key {call.event.effect_key}"
        case Outcome.REPLAYED:
            return f"from the ledger, the handler was not run; key {call.event.effect_key}"
        case _:
            return ""


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1_000:.2f}"


def _arguments(call: ToolCall) -> str:
    arguments = call.arguments
    if isinstance(arguments, Mapping):
        return json.dumps(dict(arguments), ensure_ascii=False)
    return arguments.decode(errors="replace") if isinstance(arguments, bytes) else arguments


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_LINE else f"{line[: LONGEST_LINE - 1]}…"


def _wrapped(text: str, width: int) -> list[str]:
    """Lines for a terminal; those that go on are indented further than the first one."""
    lines: list[str] = []
    for line in text.split("\n"):
        indent = " " * (len(line) - len(line.lstrip()) + 2)
        lines += wrap(line, width, subsequent_indent=indent, break_on_hyphens=False) or [""]
    return lines


def _first_line(text: str) -> str:
    lines = text.splitlines()
    return text if len(lines) <= 1 else f"{lines[0]} [+{len(lines) - 1} lines]"
