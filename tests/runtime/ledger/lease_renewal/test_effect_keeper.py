"""Claims that stay alive by themselves."""

from __future__ import annotations

from concurrent.futures import Future
from datetime import datetime, timedelta

import pytest

from handrail.adapters.loop import session_ledger
from handrail.errors import LeaseLostError
from handrail.runtime import Session
from handrail.runtime.ledger.effects import Claimed, Unknown
from handrail.runtime.ledger.ledger import EffectLedger
from handrail.store import LedgerStore, MemoryStore
from handrail.testing import FakeClock
from handrail.transaction import UnitOfWork
from handrail.transaction.unit_of_work import Refusal
from tests.runtime.ledger_calls import MINUTE, REQUEST, RESULT, busy, claimed, prove_nothing, stop_renewing

THIRD = MINUTE / 3


def _lease_until(ledger: EffectLedger) -> object:
    row = ledger.row(REQUEST.key)
    return row and row.lease_until


def test_handler_that_hangs_holds_its_key_only_until_the_deadline(ledger: EffectLedger, clock: FakeClock) -> None:
    """Past `beat_until` no sign is given, so the effect becomes an orphan when the last lease has passed."""
    hung = claimed(ledger, REQUEST._replace(beat_until=clock.now() + timedelta(seconds=50)))
    for _ in range(3):
        clock.advance(THIRD)
        ledger.tick()
    clock.advance(MINUTE - THIRD)
    assert ledger.tick() == 0
    assert isinstance(ledger.claim(REQUEST), Unknown)
    assert not ledger.end(hung, RESULT)


def test_claim_that_was_given_up_is_left_to_its_lease(ledger: EffectLedger, clock: FakeClock) -> None:
    """It is not renewed; from its next beat on its row names no process, which would prove that the owner lives."""
    claim = claimed(ledger)
    stop_renewing(ledger, claim)
    clock.advance(THIRD)
    ledger.tick()
    assert ledger.tick() == 0
    assert ledger.row(REQUEST.key) == claim.row._replace(owner=claim.row.owner._replace(process=""))
    clock.advance(MINUTE)
    assert isinstance(ledger.claim(REQUEST), Unknown)


class _SetForward(FakeClock):
    """A clock that is set forward, and whose monotonic time knows nothing of it."""

    ahead = timedelta(0)

    def now(self) -> datetime:
        return super().now() + self.ahead


def test_clock_that_is_set_forward_ends_no_claim() -> None:
    """Neither by the lease, nor by `beat_until`, which is reached when that much time has passed."""
    clock = _SetForward()
    ledger = EffectLedger(MemoryStore(clock=clock), clock=clock)
    claim = claimed(ledger, REQUEST._replace(beat_until=clock.now() + MINUTE))
    clock.ahead = timedelta(hours=2)
    busy(ledger)
    clock.advance(THIRD)
    assert ledger.tick() == 1
    assert _lease_until(ledger) == clock.now() + MINUTE
    assert ledger.end(claim, RESULT)


def test_lost_claim_is_told_at_the_next_sign(ledger: EffectLedger, store: LedgerStore, clock: FakeClock) -> None:
    """An owner that slept past its lease finds out when it gives a sign, and gives no more by itself."""
    claim = claimed(ledger)
    clock.advance(MINUTE)
    prove_nothing(store)
    EffectLedger(store, clock=clock).claim(REQUEST)
    assert ledger.tick() == 1
    assert ledger.tick() == 0
    with pytest.raises(LeaseLostError) as lost:
        ledger.renew(claim)
    assert (lost.value.key, lost.value.fence) == (REQUEST.key, 1)


class _Noting(MemoryStore):
    """A store that notes when a unit is submitted, and when its answer is read."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock=clock)
        self.noted: list[str] = []

    def submit(self, unit: UnitOfWork) -> Future[Refusal | None]:
        self.noted.append("submitted")
        return _Answer(super().submit(unit), self.noted)


class _Answer(Future[Refusal | None]):
    def __init__(self, answer: Future[Refusal | None], noted: list[str]) -> None:
        super().__init__()
        self._answer = answer
        self._noted = noted

    def result(self, timeout: float | None = None) -> Refusal | None:
        self._noted.append("read")
        return self._answer.result(timeout)


def test_leases_that_are_due_together_are_renewed_together(clock: FakeClock) -> None:
    """All are submitted before one is waited for, so that a store can write them in one transaction."""
    store = _Noting(clock)
    ledger = EffectLedger(store, clock=clock)
    for number in range(3):
        assert isinstance(ledger.claim(REQUEST._replace(key=f"key {number}")), Claimed)
    clock.advance(THIRD)
    assert ledger.tick() == 3
    assert store.noted == ["submitted"] * 3 + ["read"] * 3
    assert {row.lease_until for row in store.rows()} == {clock.now() + MINUTE}


def test_sessions_of_one_store_share_a_ledger(clock: FakeClock) -> None:
    """Its thread renews the claims of all; a session in memory, and another clock, have a ledger of their own."""
    store = MemoryStore(clock=clock)
    with Session.open(store, "a") as first, Session.open(store, "b") as second:
        ledger = session_ledger(first, clock=clock)
        assert ledger.store is store
        assert session_ledger(second, clock=clock) is ledger
        assert session_ledger(second, clock=FakeClock()) is not ledger
    assert session_ledger(Session(), clock=clock) is not session_ledger(Session(), clock=clock)
