"""Stores to test with: each kind in turn, those with a database, those of an older version, and their clock."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

import handrail.store
from handrail.store import Store
from handrail.testing import FakeClock
from tests.store.postgres_server import fresh_url
from tests.store.stores import STORES

VERSION_1 = Path(__file__).parent / "version_1"


@pytest.fixture
def clock() -> FakeClock:
    """The clock that the store measures by."""
    return FakeClock()


@pytest.fixture(params=list(STORES))
def store(request: pytest.FixtureRequest, clock: FakeClock) -> Store:
    """An empty store, one kind after the other."""
    return STORES[str(request.param)](clock)


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, clock: FakeClock) -> Store:
    """An empty store in a database, one kind after the other."""
    return STORES[str(request.param)](clock)


@pytest.fixture(params=["sqlite", "postgres"])
def version_1_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A copy of a store that was written while the tables had version 1, one kind after the other."""
    if request.param == "sqlite":
        shutil.copyfile(VERSION_1 / "desk.db", tmp_path / "desk.db")
        yield f"sqlite:///{tmp_path / 'desk.db'}"
        return
    with fresh_url() as url:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute((VERSION_1 / "desk.sql").read_bytes())
        yield url


@pytest.fixture
def version_1(version_1_url: str) -> Iterator[Store]:
    """The same, opened with the clock of today."""
    with handrail.store.open(version_1_url) as store:
        yield store
