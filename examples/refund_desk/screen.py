"""What is told of a day at the desk, and plain lines to tell it in; `rich_screen` tells the same on a terminal."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, TextIO

from call_trace import Outcome, TracedCall
from desk import DeskSummary
from handrail.prompt import Approval, ApprovalRequest
from handrail.runtime import ToolCall
from proof import Proof
from shop import euros

LONGEST_LINE = 200
"""Characters of arguments that are shown."""


class Screen(Protocol):
    """Where a day at the desk is shown."""

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


def told_counts(counts: Mapping[str, int]) -> str:
    """Counts on one line."""
    return ", ".join(f"{name} {count}" for name, count in counts.items()) or "none"


@dataclass(frozen=True, slots=True)
class PlainScreen:
    """Plain lines, as they are read in a log; with `compact`, one for each call."""

    out: TextIO
    compact: bool = False

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
        for finding in proof.findings:
            self._line(f"{'holds' if finding.holds else 'FAILS'}: {finding.text} ({finding.found})")

    def _line(self, text: str) -> None:
        print(text, file=self.out, flush=True)


def _outcome(call: TracedCall) -> str:
    step = call.event.refused_at
    if call.outcome is Outcome.REFUSED and step is not None:
        return f"refused at {step.value}, {step.name.lower().replace('_', ' ')}"
    return call.outcome.value


def _note(call: TracedCall) -> str:
    match call.outcome:
        case Outcome.ROLLED_BACK:
            if call.sound:
                return f"undone: files and slices are as before, state {call.state_after[:12]}"
            return f"NOT UNDONE: state {call.state_before[:12]} before, {call.state_after[:12]} after"
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
    return line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]}..."


def _first_line(text: str) -> str:
    lines = text.splitlines()
    return text if len(lines) <= 1 else f"{lines[0]} [+{len(lines) - 1} lines]"
