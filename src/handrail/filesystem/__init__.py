"""Files as resources of a call: one protocol, and stores whose changes can be rolled back.

The stores load late.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from handrail.errors import FilesystemError, PathConflictError, PathEscapeError, PathNotFoundError, SnapshotError
from handrail.filesystem.path_filters import PathFilter, PathSet, excluding
from handrail.filesystem.protocol import FileStart, Filesystem
from handrail.filesystem.walks import FileStat, Scan, WalkRequest
from handrail.lazy_exports import lazy_exports
from handrail.transaction.unit_of_work import CommitRecordStore

if TYPE_CHECKING:
    from handrail.filesystem.host.filesystem import HostFilesystem
    from handrail.filesystem.memory import InMemoryFilesystem
else:
    __getattr__ = lazy_exports(__name__, {"host.filesystem": "HostFilesystem", "memory": "InMemoryFilesystem"})

__all__ = [
    "CommitRecordStore",
    "FileStart",
    "FileStat",
    "Filesystem",
    "FilesystemError",
    "HostFilesystem",
    "InMemoryFilesystem",
    "PathConflictError",
    "PathEscapeError",
    "PathFilter",
    "PathNotFoundError",
    "PathSet",
    "Scan",
    "SnapshotError",
    "WalkRequest",
    "excluding",
]
