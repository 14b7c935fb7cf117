"""Stores to test with: each kind in turn, those with a database, and their clock."""

from __future__ import annotations

import pytest

from handrail.store import Store
from handrail.testing import FakeClock
from tests.store.stores import ALL_STORES, STORES


@pytest.fixture
def clock() -> FakeClock:
    """The clock that the store measures by."""
    return FakeClock()


@pytest.fixture(params=list(ALL_STORES))
def store(request: pytest.FixtureRequest, clock: FakeClock) -> Store:
    """An empty store, one kind after the other."""
    return ALL_STORES[str(request.param)](clock)


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, clock: FakeClock) -> Store:
    """An empty store in a database, one kind after the other."""
    return STORES[str(request.param)](clock)
