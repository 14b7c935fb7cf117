"""Filesystems to test with."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from handrail.filesystem import Filesystem, HostFilesystem
from tests.filesystem.kit import STORES, PlantedTree


@pytest.fixture(params=list(STORES))
def make(request: pytest.FixtureRequest) -> Iterator[Callable[..., Filesystem]]:
    """Make a filesystem of each store in turn, holding the files that are given."""
    open_store = STORES[str(request.param)]
    with ExitStack() as opened:

        def make_one(files: Mapping[str, str | bytes] | None = None) -> Filesystem:
            return opened.enter_context(open_store(files or {}))

        yield make_one


@pytest.fixture
def tree(tmp_path: Path) -> PlantedTree:
    """A tree to work on."""
    return PlantedTree(tmp_path)


@pytest.fixture
def root(tree: PlantedTree) -> Path:
    """Where it is."""
    return tree.root


@pytest.fixture
def fs(tree: PlantedTree) -> Generator[HostFilesystem]:
    """The tree, opened."""
    with tree.open() as filesystem:
        yield filesystem
