"""The stores that every rule of filesystems is tested over. A store joins them, and all its rules are tested."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from handrail.filesystem import Filesystem, HostFilesystem, InMemoryFilesystem

OpenStore = Callable[[Mapping[str, str | bytes]], AbstractContextManager[Filesystem]]


@contextmanager
def in_memory(files: Mapping[str, str | bytes]) -> Generator[Filesystem]:
    """A filesystem in memory."""
    yield InMemoryFilesystem(files)


@contextmanager
def on_disk(files: Mapping[str, str | bytes]) -> Generator[Filesystem]:
    """A filesystem in a folder of its own, which leaves nothing behind when it is closed."""
    with tempfile.TemporaryDirectory() as folder:
        root, journal = Path(folder, "root"), Path(folder, "journal")
        root.mkdir()
        with HostFilesystem(root, journal=journal, durability="normal") as filesystem:
            for path, content in files.items():
                filesystem.write_bytes(path, content.encode() if isinstance(content, str) else content)
            yield filesystem
        assert sorted(left.name for left in journal.iterdir()) == ["lock", "root"]


STORES: dict[str, OpenStore] = {"memory": in_memory, "disk": on_disk}
"""Opens a store that holds these files, and cleans up after it; by its name."""


def tree_of(fs: Filesystem) -> dict[str, bytes | None]:
    """Everything in a filesystem: the content of each file, and `None` for each folder."""
    return {stat.path: fs.read_bytes(stat.path) if stat.kind == "file" else None for stat in fs.glob("**")}
