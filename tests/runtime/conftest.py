"""A ledger over each kind of store, and the clock by which both measure time."""

from __future__ import annotations

import pytest

from handrail.runtime.ledger import EffectLedger
from handrail.store import LedgerStore
from handrail.testing import FakeClock
from tests.store.ledger_stores import STORES


@pytest.fixture
def clock() -> FakeClock:
    """The time of the ledger and its store."""
    return FakeClock()


@pytest.fixture(params=STORES.values(), ids=list(STORES))
def store(request: pytest.FixtureRequest, clock: FakeClock) -> LedgerStore:
    """An empty store, one kind after the other."""
    made: LedgerStore = request.param(clock)
    return made


@pytest.fixture
def ledger(store: LedgerStore, clock: FakeClock) -> EffectLedger:
    """A ledger over the store."""
    return EffectLedger(store, clock=clock)
