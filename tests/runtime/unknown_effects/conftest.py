"""A store of either kind, and a session in it."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from handrail import store
from handrail.runtime import Session
from handrail.store import Store


@pytest.fixture(params=["memory", "sqlite"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Store]:
    """A store of either kind."""
    with store.open("memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/s.db") as opened:
        yield opened


@pytest.fixture
def session(kept: Store) -> Generator[Session]:
    """A session in it."""
    with Session.open(kept, "s") as opened:
        yield opened
