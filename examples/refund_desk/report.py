"""The report on the day's requests: a tool that writes two files, and fails between them if the figures are wrong."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

from handrail import tool
from handrail.errors import ToolValidationError
from handrail.filesystem import Filesystem
from handrail.prompt import ToolContext, ToolExample
from handrail.resources import Resource
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
class ReportFiled:
    """The report was written; an event of the session."""

    files: tuple[str, ...]
    requests: int
    total_cents: int

    def render(self) -> str:
        """What the model reads."""
        return f"{' and '.join(self.files)} written: {self.requests} requests, {euros(self.total_cents)} paid"


PAID = {"request": "R-01", "verdict": "refunded", "amount_cents": 4_990, "note": "Two of six glasses were broken."}
REFUSED = {"request": "R-02", "verdict": "refused", "amount_cents": 0, "note": "The shop has no such order."}


# It changes files and session, and nothing else, so all of it can be undone.
@tool(
    examples=[
        ToolExample(
            description="A day with two requests",
            input={"decisions": [PAID, REFUSED]},
            output=ReportFiled((REPORT, REFUNDS), 2, 4_990),
        )
    ]
)
def file_report(
    decisions: tuple[Decision, ...], *, files: Filesystem, rules: Annotated[Rules, Resource], context: ToolContext
) -> ReportFiled:
    """Write the report on all requests and the list of refunds; call it once, at the end.

    Args:
        decisions: One for each request, in the order of the file
    """
    # It writes first and checks after, as code does that was written for the good case. Nothing here puts the first
    # file back: the call is a transaction, so an exception takes with it whatever the call has written.
    refunds = context.session[Refund].all()
    files.write_text(REPORT, _page(decisions, rules))
    faults = _faults(decisions, _requests(files.read_text(REQUESTS)), refunds)
    if faults:
        raise ToolValidationError(f"{REPORT} was written, but it is wrong, so it was undone: {'; '.join(faults)}.")
    files.write_text(REFUNDS, _table(refunds))
    return ReportFiled((REPORT, REFUNDS), len(decisions), sum(refund.amount_cents for refund in refunds))


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
