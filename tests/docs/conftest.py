"""What the tests of several pages share."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from tests.docs import killed_programs, typed_pages


@pytest.fixture(scope="module")
def killer() -> Generator[killed_programs.Killer]:
    """One process that makes those that are killed."""
    with killed_programs.running() as running:
        yield running


@pytest.fixture(scope="module")
def at() -> Generator[typed_pages.Terminal]:
    """A terminal to type in."""
    with typed_pages.terminal() as opened:
        yield opened
