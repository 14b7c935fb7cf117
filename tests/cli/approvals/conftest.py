"""Agents and loops whose calls wait, over a store of each kind, and the command over it."""

from __future__ import annotations

from pathlib import Path

import pytest

from handrail import store as stores
from tests.agents.stored_desks import Desk, desk_in
from tests.cli.approvals.loops import Loop


@pytest.fixture
def url(database_url: str) -> str:
    """The URL of an empty store of each kind that several processes can open."""
    stores.open(database_url).close()
    return database_url


@pytest.fixture
def desk(tmp_path: Path, url: str) -> Desk:
    """A desk of agents."""
    return desk_in(tmp_path / "desk", url)


@pytest.fixture
def loop(url: str) -> Loop:
    """A program with a loop of its own."""
    return Loop(url)
