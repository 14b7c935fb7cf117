"""The parsed sources, which the tests of a module share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.architecture.sources import python_sources


@pytest.fixture(scope="module", autouse=True)
def release_sources() -> Iterator[None]:
    """Release them after each module: they are a million objects, which every later garbage collection would visit."""
    yield
    python_sources.cache_clear()
