"""A process that claims an effect in a store, for tests of what others find then.

It says `claimed` on a line, and gives the claim up for a line `give up`; then it says `given up`, once its next beat
was due. It ends when its input does, or when it is killed.
"""

from __future__ import annotations

import sys

import handrail.store
from handrail.clock import SYSTEM_CLOCK
from handrail.runtime.ledger.ledger import EffectLedger
from handrail.testing import FakeClock
from tests.runtime.ledger_calls import MINUTE, claimed, stop_renewing


def main(url: str) -> None:
    """Claim, and wait."""
    clock = FakeClock(SYSTEM_CLOCK.now())
    with handrail.store.open(url, clock=clock) as store:
        ledger = EffectLedger(store, clock=clock)
        claim = claimed(ledger)
        _say("claimed")
        for _ in sys.stdin:
            stop_renewing(ledger, claim)
            clock.advance(MINUTE / 3)
            ledger.tick()
            _say("given up")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
