"""The report on the day's requests: a tool that writes two files, and fails between them if the figures are wrong."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from handrail.filesystem import Filesystem
from handrail.prompt import Tool, ToolContext, ToolExample, ToolResult
from handrail.runtime import ToolValidationError
from refunds import Refund, Rules
from shop import euros

REQUESTS = "requests.csv"
"""The requests that came in."""
REPORT = "report.md"
"""What became of them, for people."""
REFUNDS = "refunds.csv"
"""What was paid, for the book-keeping."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What became of one request."""

    request: str = field(metadata={"description": "Number of the request, e.g. R-01"})
    verdict: Literal["refunded", "duplicate", "refused"]
    amount_cents: int = field(metadata={"description": "What was paid for this request; 0 unless refunded"})
    note: str = field(metadata={"description": "One sentence for the customer's file"})


@dataclass(frozen=True, slots=True)
class FileReport:
    """Parameters of `file_report`."""

    decisions: tuple[Decision, ...] = field(metadata={"description": "One for each request, in the order of the file"})


@dataclass(frozen=True, slots=True)
class ReportFiled:
    """The report was written; an event of the session."""

    files: tuple[str, ...]
    requests: int
    total_cents: int

    def render(self) -> str:
        """What the model reads."""
        return f"{' and '.join(self.files)} written: {self.requests} requests, {euros(self.total_cents)} paid"


def file_report(params: FileReport, *, context: ToolContext) -> ToolResult[ReportFiled]:
    """Handler of `file_report`.

    It writes first and checks after, as code does that was written for the good case. Nothing here puts the first file
    back: the call is a transaction, so an exception takes with it whatever the call has written.
    """
    files = context.resources.get(Filesystem)
    refunds = context.session[Refund].all()
    files.write_text(REPORT, _page(params.decisions, context.resources.get(Rules)))
    faults = _faults(params.decisions, _requests(files.read_text(REQUESTS)), refunds)
    if faults:
        raise ToolValidationError(f"{REPORT} was written, but it is wrong, so it was undone: {'; '.join(faults)}.")
    files.write_text(REFUNDS, _table(refunds))
    total = sum(refund.amount_cents for refund in refunds)
    return ToolResult.ok(ReportFiled((REPORT, REFUNDS), len(params.decisions), total))


def report_tool() -> Tool[FileReport, ReportFiled]:
    """`file_report`: it changes files and session, and nothing else, so all of it can be undone."""
    paid = Decision("R-01", "refunded", 4_990, "Two of six glasses were broken.")
    refused = Decision("R-02", "refused", 0, "The shop has no such order.")
    return Tool[FileReport, ReportFiled](
        name="file_report",
        description="Write the report on all requests and the list of refunds; call it once, at the end.",
        handler=file_report,
        examples=(
            ToolExample(
                description="A day with two requests",
                input=FileReport((paid, refused)),
                output=ReportFiled((REPORT, REFUNDS), 2, 4_990),
            ),
        ),
    )


def _requests(text: str) -> list[str]:
    return [row["request"] for row in csv.DictReader(io.StringIO(text))]


def _faults(decisions: Sequence[Decision], requests: Sequence[str], refunds: Sequence[Refund]) -> list[str]:
    """Everything in which the decisions disagree with the requests and with what was really paid."""
    faults: list[str] = []
    decided = Counter(decision.request for decision in decisions)
    faults += [f"{request} is missing" for request in requests if request not in decided]
    faults += [f"there is no request {request}" for request in decided if request not in requests]
    faults += [f"{request} is decided {times} times" for request, times in decided.items() if times > 1]
    said = sum(decision.amount_cents for decision in decisions)
    paid = sum(refund.amount_cents for refund in refunds)
    if said != paid:
        faults.append(f"the amounts add up to {said} cents, but {paid} cents were paid")
    return faults


def _page(decisions: Sequence[Decision], rules: Rules) -> str:
    lines = [
        f"# Refund desk, {rules.day.isoformat()}",
        "",
        "| request | verdict | amount | note |",
        "|---|---|---|---|",
    ]
    for decision in decisions:
        amount = euros(decision.amount_cents) if decision.amount_cents else ""
        note = " ".join(decision.note.replace("|", "\\|").split())
        lines.append(f"| {decision.request} | {decision.verdict} | {amount} | {note} |")
    total = sum(decision.amount_cents for decision in decisions)
    return "\n".join([*lines, "", f"Paid in all: {euros(total)}", ""])


def _table(refunds: Sequence[Refund]) -> str:
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(("refund", "order", "amount_cents"))
    writer.writerows((refund.refund_id, refund.order_id, refund.amount_cents) for refund in refunds)
    return table.getvalue()
