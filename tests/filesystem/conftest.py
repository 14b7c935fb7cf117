"""Filesystems to test with."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from handrail.filesystem import Filesystem, HostFilesystem
from tests.filesystem.disks import plant
from tests.filesystem.stores import STORES


@pytest.fixture(params=list(STORES))
def make(request: pytest.FixtureRequest) -> Iterator[Callable[..., Filesystem]]:
    """Make a filesystem of each store in turn, holding the files that are given."""
    open_store = STORES[str(request.param)]
    with ExitStack() as opened:

        def make_one(files: Mapping[str, str | bytes] | None = None) -> Filesystem:
            return opened.enter_context(open_store(files or {}))

        yield make_one


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A tree to work on."""
    root = tmp_path / "root"
    root.mkdir()
    plant(root)
    return root


@pytest.fixture
def fs(root: Path, tmp_path: Path) -> Generator[HostFilesystem]:
    """The tree, opened."""
    with HostFilesystem(root, journal=tmp_path / "journal") as filesystem:
        yield filesystem
