"""A process that claims an effect, says `claimed` on a line, and ends when its input does, or when it is killed."""

from __future__ import annotations

import sys

import handrail.store
from handrail.clock import SYSTEM_CLOCK
from handrail.runtime.ledger.ledger import EffectLedger
from handrail.testing import FakeClock
from tests.runtime.ledger_calls import claimed


def main(url: str) -> None:
    """Claim, and wait."""
    clock = FakeClock(SYSTEM_CLOCK.now())
    with handrail.store.open(url, clock=clock) as store:
        ledger = EffectLedger(store, clock=clock)  # one that nobody refers to gives its claims up
        claimed(ledger)
        sys.stdout.write("claimed\n")
        sys.stdout.flush()
        sys.stdin.read()
