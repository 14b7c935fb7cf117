"""The worst moments to die in, and what kills the night desk in them: SIGKILL, as a power failure would."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import count

from handrail.filesystem import HostFilesystem
from handrail.testing import crash_at
from payment_service import Paid
from payments import Payments
from report import REPORT
from shop import euros

FATAL_REFUND = 3
"""The refund after which the desk dies, counted from 1."""


class Death(StrEnum):
    """A moment to die in."""

    BETWEEN_CHARGE_AND_RECORD = "between-charge-and-record"
    BETWEEN_TWO_FILES = "between-two-files"


@dataclass(frozen=True)
class NightPayments(Payments):
    """The payment service, asked in public; the desk may die of a refund.

    Attributes:
        death: how this life of the desk is to end.
        note: told of what the trace of the calls does not show.
    """

    death: Death | None
    note: Callable[[str], object]
    _refunds: Iterator[int] = field(default_factory=lambda: count(1), init=False)

    def pay(self, order_id: str, amount_cents: int, *, key: str) -> Paid:
        """Have a refund paid. After the fatal one, the process dies as soon as the handler has returned."""
        paid = super().pay(order_id, amount_cents, key=key)
        if self.death is Death.BETWEEN_CHARGE_AND_RECORD and next(self._refunds) == FATAL_REFUND:
            self.note(f"{order_id}: {euros(amount_cents)} are paid, {paid.refund_id}; here the process dies")
            crash_at("after-handler")
        return paid

    def find(self, key: str) -> Paid | None:
        """Ask what became of a refund that somebody began."""
        paid = super().find(key)
        answer = "nothing was paid" if paid is None else f"{paid.refund_id} was paid for {paid.order_id}"
        self.note(f"somebody died over {key}, so the service is asked: {answer}")
        return paid


class NightFiles(HostFilesystem):
    """The files of a desk that dies when the first of the report's two files is on disk."""

    def write_text(self, path: str, text: str) -> None:
        """Write a file, and die if it is the report."""
        if path == REPORT:
            crash_at("journal-after-change")
        super().write_text(path, text)
