"""A ledger, a world and a shop over each kind of store, and the clock by which both measure time."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path

import pytest

import handrail.store
from handrail.runtime import Session
from handrail.runtime.ledger.ledger import EffectLedger
from handrail.store import LedgerStore, MemoryStore, Store
from handrail.testing import FakeClock
from tests.runtime.kit import Shop, World
from tests.store.stores import STORES


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


@pytest.fixture(params=list(STORES))
def world(request: pytest.FixtureRequest) -> Generator[World]:
    """A world over each kind of store."""
    clock = FakeClock()
    with STORES[request.param](clock) as store:
        yield World(store, clock)


@pytest.fixture(params=list(STORES))
def shop(request: pytest.FixtureRequest) -> Generator[Shop]:
    """A shop over each kind of store."""
    clock = FakeClock()
    with STORES[request.param](clock) as store, ExitStack() as opened:
        yield Shop(store, clock, opened)


@pytest.fixture
def stall() -> Generator[Shop]:
    """A shop in memory, for what no store has a part in."""
    clock = FakeClock()
    with MemoryStore(clock=clock) as store, ExitStack() as opened:
        yield Shop(store, clock, opened)


@pytest.fixture(params=["memory", "sqlite"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Store]:
    """A store of either kind."""
    with handrail.store.open("memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/s.db") as opened:
        yield opened


@pytest.fixture
def session(kept: Store) -> Generator[Session]:
    """A session in it."""
    with Session.open(kept, "s") as opened:
        yield opened
