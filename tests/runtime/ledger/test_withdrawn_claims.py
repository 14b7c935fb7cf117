"""A claim whose caller was interrupted while it was written: its handler does not start, so it is withdrawn."""

from __future__ import annotations

import pytest

from handrail.errors import StoreUnavailableError
from handrail.runtime.ledger.effects import NotKnown
from handrail.runtime.ledger.ledger import EffectLedger
from handrail.store import MemoryStore
from handrail.store.protocol import RefusedWrite
from handrail.testing import FakeClock
from handrail.transaction import UnitOfWork
from tests.runtime.ledger_calls import KEY, MINUTE, REQUEST, claimed, prove_nothing


class Interrupted(MemoryStore):
    """A store that has written a unit when Ctrl-C comes, and may be down afterwards."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock=clock)
        self.interrupts = False
        self.is_down = False
        self.ends_down = False

    def apply(self, unit: UnitOfWork) -> RefusedWrite | None:
        """Write, and be interrupted once."""
        if self.is_down:
            raise StoreUnavailableError("no line", store="memory:")
        refused = super().apply(unit)
        if self.interrupts and refused is None:
            self.interrupts, self.is_down = False, self.ends_down
            raise KeyboardInterrupt
        return refused


@pytest.fixture
def store(clock: FakeClock) -> Interrupted:
    """A store that is not interrupted yet."""
    return Interrupted(clock)


@pytest.fixture
def ledger(store: Interrupted, clock: FakeClock) -> EffectLedger:
    """A ledger over it."""
    return EffectLedger(store, clock=clock)


def status(ledger: EffectLedger) -> str:
    """The status of the effect."""
    row = ledger.row(KEY)
    assert row is not None
    return row.status


def test_first_claim_is_recorded_as_failed(store: Interrupted, ledger: EffectLedger) -> None:
    """The effect has not happened, and the same call may run."""
    store.interrupts = True
    with pytest.raises(KeyboardInterrupt):
        ledger.claim(REQUEST)
    assert status(ledger) == "failed"
    claimed(ledger)


def test_claim_of_an_effect_that_may_have_happened_leaves_it_unknown(store: Interrupted, ledger: EffectLedger) -> None:
    """What an earlier attempt did is not known, though this one did nothing."""
    assert ledger.end(claimed(ledger), NotKnown("no answer"))
    store.interrupts = True
    with pytest.raises(KeyboardInterrupt):
        ledger.claim(REQUEST._replace(on_orphan="retry"))
    assert status(ledger) == "unknown"


def test_finding_that_an_owner_is_gone_is_not_withdrawn(
    store: Interrupted, ledger: EffectLedger, clock: FakeClock
) -> None:
    """It is no claim: the effect is unknown, whoever has found that."""
    claimed(ledger)
    prove_nothing(store)
    clock.advance(2 * MINUTE)
    store.interrupts = True
    with pytest.raises(KeyboardInterrupt):
        ledger.claim(REQUEST)
    assert status(ledger) == "unknown"


def test_claim_that_cannot_be_withdrawn_is_left_to_its_lease(
    store: Interrupted, ledger: EffectLedger, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The interrupt is raised, and the store is said to have failed."""
    store.interrupts = store.ends_down = True
    with pytest.raises(KeyboardInterrupt):
        ledger.claim(REQUEST)
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [StoreUnavailableError]
    store.is_down = False
    assert status(ledger) == "running"
