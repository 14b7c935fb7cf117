"""The files of the databases that this process has open: nothing else in it opens, replaces or removes them.

A process that closes any descriptor of a file loses all its POSIX locks on that file
(https://www.sqlite.org/howtocorrupt.html, section 2.2). So a file is recognised by its status, before it is opened:

| entry of a folder | protected if |
|---|---|
| any, under any name | it has the device and inode of a database, its log or its index |
| one in the folder of a database | it has the name of one of its files, even if nothing is there |
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from handrail.process_state import FORKING

_LOCKED = ("", "-wal", "-shm")
_SUFFIXES = ("", "-wal", "-shm", "-journal", "-holds")


class _Database(NamedTuple):
    connections: int
    folder: tuple[int, int] | None
    files: frozenset[tuple[int, int] | None]
    names: frozenset[bytes]


_NONE = _Database(0, None, frozenset(), frozenset())
# Of the process: the system counts descriptors and POSIX locks of a file by processes, and not by what has opened it.
_open: dict[Path, _Database] = {}


def track_connections(path: Path, change: int) -> None:
    """Protects the files of a database while it has connections; called before one is opened, and after.

    Args:
        path: the database, absolute and without links; it need not exist yet.
        change: how many connections it has more, or fewer after they are closed; 0 to look at its files again.
    """
    global _open  # noqa: PLW0603 - replaced as a whole, so that it is read without the lock
    with FORKING:
        before = _open.get(path, _NONE)
        connections = before.connections + change
        # A file stays the database's until the last connection is closed, wherever it is moved.
        files = before.files.union(device_and_inode(f"{path}{suffix}") for suffix in _LOCKED)
        names = frozenset(os.fsencode(f"{path.name}{suffix}") for suffix in _SUFFIXES)
        database = _Database(connections, device_and_inode(path.parent), files, names)
        others = {place: entry for place, entry in _open.items() if place != path}
        _open = {**others, path: database} if connections else others


def has_open_databases() -> bool:
    """Tests whether anything is protected."""
    return bool(_open)


def is_protected(status: os.stat_result | None, name: bytes = b"", *, at: int = -1) -> bool:
    """Tests whether an entry is protected by its status, `None` for nothing, or its name in the folder `at`."""
    if not _open:
        return False
    identity = None if status is None else (status.st_dev, status.st_ino)
    return any(
        (identity and identity in entry.files) or (name in entry.names and device_and_inode(at) == entry.folder)
        for entry in _open.values()
    )


def protected_paths(folder: Path) -> Iterator[str]:
    """Yields the paths below a folder that are protected by their names, relative to it; some may not exist."""
    for path in _open:
        if path.is_relative_to(folder):
            yield from (f"{path.relative_to(folder).as_posix()}{suffix}" for suffix in _SUFFIXES)


def device_and_inode(place: str | Path | int) -> tuple[int, int] | None:
    """Returns device and inode of a path or an open file; `None` if there is nothing."""
    try:
        status = os.stat(place)  # noqa: PTH116 - also of a descriptor, and quicker than the path's own
    except OSError:
        return None
    return status.st_dev, status.st_ino
