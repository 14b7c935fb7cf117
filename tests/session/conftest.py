"""A store of each kind that fails when it is told to, and the time by which it measures."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from handrail.store import MemoryStore
from handrail.testing import FakeClock
from tests.session.faulty_stores import FaultyStore, faulty
from tests.store.stores import STORES


@pytest.fixture
def clock() -> FakeClock:
    """The time of the store."""
    return FakeClock()


@pytest.fixture(params=list(STORES))
def store(request: pytest.FixtureRequest, clock: FakeClock) -> Generator[FaultyStore]:
    """An empty store, one kind after the other."""
    with faulty(str(request.param), clock) as made:
        yield made


@pytest.fixture
def memory() -> FaultyStore:
    """A store in memory, for what no store has a part in."""
    return FaultyStore(MemoryStore(clock=FakeClock()))
