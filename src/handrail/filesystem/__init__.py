"""Files as resources of a call: one protocol, and stores that can be undone.

`Filesystem` is the protocol and says what every store does; `InMemoryFilesystem` keeps its files in memory.
"""

from __future__ import annotations

from handrail.errors import FilesystemError, PathConflictError, PathEscapeError, PathNotFoundError, SnapshotError
from handrail.filesystem.memory import InMemoryFilesystem
from handrail.filesystem.protocol import FileStat, Filesystem

__all__ = [
    "FileStat",
    "Filesystem",
    "FilesystemError",
    "InMemoryFilesystem",
    "PathConflictError",
    "PathEscapeError",
    "PathNotFoundError",
    "SnapshotError",
]
