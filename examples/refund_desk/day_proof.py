"""What is left at the end of the day, and whether it proves that the runtime kept its word."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from call_trace import CallTrace, TracedCall
from desk import Desk
from handrail.runtime import ToolInvoked
from payments import Payments
from refunds import Refund
from report import REPORT

ANSWERED = "the agent comes to its answer"
CHARGED_ONCE = "no order is refunded twice"
RECORDED = "the session knows each refund that was paid, and no other"
UNDONE = "a call that failed has left files and session as they were"
TRACED = "each call is recorded by one event"
FILED = "the report is filed"

DAY_PROMISES = (ANSWERED, CHARGED_ONCE, RECORDED, UNDONE, TRACED, FILED)
"""What must be true at the end of the day, whatever the model does wrong."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A promise, whether it holds at the end, and what was found."""

    text: str
    holds: bool
    found: str


@dataclass(frozen=True, slots=True)
class Proof:
    """The counts at the end.

    Attributes:
        charges: how often each order was refunded, as the payment service counted.
        report_sha256: the hash of the report; empty if there is none.
        slices: how many values the session holds of each type.
        outcomes: how many calls came to what.
        findings: what must be true.
    """

    charges: Mapping[str, int]
    report_sha256: str
    slices: Mapping[str, int]
    outcomes: Mapping[str, int]
    findings: tuple[Finding, ...]

    @property
    def holds(self) -> bool:
        """Whether every finding does."""
        return all(finding.holds for finding in self.findings)


def prove(desk: Desk, trace: CallTrace, *, failure: str) -> Proof:
    """Count, and hold the counts against each other: the service's own, the session's, and the trace's.

    Args:
        desk: the desk at the end of the day.
        trace: what happened.
        failure: why the agent did not come to its end; empty if it did.
    """
    charges = desk.payments.counts()
    report = desk.files.read_bytes(REPORT) if desk.files.exists(REPORT) else b""
    return Proof(
        charges=charges,
        report_sha256=hashlib.sha256(report).hexdigest() if report else "",
        slices={kind.__name__: len(desk.session[kind]) for kind in desk.session.kinds},
        outcomes=trace.count(),
        findings=(
            Finding(ANSWERED, not failure, failure or "it has answered"),
            charged_once(charges),
            recorded(charges, desk.session[Refund].all()),
            undone(trace.calls),
            traced(trace.calls, len(desk.session[ToolInvoked])),
            Finding(FILED, bool(report), f"{len(report)} bytes"),
        ),
    )


def pay_past_the_runtime(payments: Payments) -> None:
    """Break a promise on purpose: an order is refunded that the desk refunds too."""
    payments.pay("A-1001", 1, key="past the runtime")


def charged_once(charges: Mapping[str, int]) -> Finding:
    """Whether the service was asked for each refund once."""
    twice = [f"{order} {times} times" for order, times in sorted(charges.items()) if times > 1]
    return Finding(CHARGED_ONCE, not twice, ", ".join(twice) or f"{len(charges)} orders, once each")


def recorded(charges: Mapping[str, int], refunds: Sequence[Refund]) -> Finding:
    """Whether the session holds what the service was asked for, each refund once."""
    known = {refund.order_id for refund in refunds}
    return Finding(
        RECORDED,
        known == set(charges) and len(refunds) == len(known),
        f"{len(refunds)} in the session, {sum(charges.values())} paid",
    )


def undone(calls: Sequence[TracedCall]) -> Finding:
    """Whether calls that failed have left nothing behind."""
    failed = [call for call in calls if not call.event.success]
    left = [f"call {call.number}" for call in failed if not call.sound]
    return Finding(UNDONE, not left, ", ".join(left) or f"{len(failed)} failed calls, state as before each")


def traced(calls: Sequence[TracedCall], invoked: int) -> Finding:
    """Whether each call of the session is in the trace."""
    return Finding(TRACED, len(calls) == invoked, f"{len(calls)} of {invoked}")
