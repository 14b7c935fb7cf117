"""Filesystems to test with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack

import pytest

from handrail.filesystem import Filesystem
from tests.filesystem.stores import STORES


@pytest.fixture(params=list(STORES))
def make(request: pytest.FixtureRequest) -> Iterator[Callable[..., Filesystem]]:
    """Make a filesystem of each store in turn, holding the files that are given."""
    open_store = STORES[str(request.param)]
    with ExitStack() as opened:

        def make_one(files: Mapping[str, str | bytes] | None = None) -> Filesystem:
            return opened.enter_context(open_store(files or {}))

        yield make_one
