"""Agents and loops whose calls wait, over a store of each kind, and the command over it."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from handrail import store as stores
from tests.agents.stored_desks import Desk, desk_in
from tests.cli.approvals.loops import Loop
from tests.store.postgres_server import fresh_url


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[str]:
    """The URL of an empty store of each kind that several processes can open."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'desk.db'}"
        with stores.open(url):
            yield url
        return
    with fresh_url() as url:
        with stores.open(url):
            pass
        yield url


@pytest.fixture
def desk(tmp_path: Path, url: str) -> Desk:
    """A desk of agents."""
    return desk_in(tmp_path / "desk", url)


@pytest.fixture
def loop(url: str) -> Loop:
    """A program with a loop of its own."""
    return Loop(url)
