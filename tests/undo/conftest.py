"""Desks over each kind of store."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from handrail.store import MemoryStore, Store
from handrail.testing import FakeClock
from tests.store.stores import STORES


@pytest.fixture(params=list(STORES))
def store(request: pytest.FixtureRequest) -> Generator[Store]:
    """An empty store of each kind."""
    with STORES[request.param](FakeClock()) as store:
        yield store


@pytest.fixture
def memory() -> Generator[Store]:
    """A store in memory, for what no kind of store has a part in."""
    with MemoryStore() as store:
        yield store
