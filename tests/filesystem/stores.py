"""The stores that every rule of filesystems is tested over. A store joins them, and all its rules are tested."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager

from handrail.filesystem import Filesystem, InMemoryFilesystem

OpenStore = Callable[[Mapping[str, str | bytes]], AbstractContextManager[Filesystem]]


@contextmanager
def in_memory(files: Mapping[str, str | bytes]) -> Generator[Filesystem]:
    """A filesystem in memory."""
    yield InMemoryFilesystem(files)


STORES: dict[str, OpenStore] = {"memory": in_memory}
"""Opens a store that holds these files, and cleans up after it; by its name."""


def tree_of(fs: Filesystem) -> dict[str, bytes | None]:
    """Everything in a filesystem: the content of each file, and `None` for each folder."""
    return {stat.path: fs.read_bytes(stat.path) if stat.kind == "file" else None for stat in fs.glob("**")}
