"""Files as resources of a call: one protocol, and stores whose changes can be rolled back.

`Filesystem` is the protocol that every store implements; `InMemoryFilesystem` stores its files in memory, and
`HostFilesystem` works on a folder on disk. `CommitRecordStore` records whether a call's changes on disk are committed.
`ShadowRepository` takes snapshots of a whole tree on disk. `PathFilter` says which paths exist for a call.
"""

from __future__ import annotations

from handrail.errors import FilesystemError, PathConflictError, PathEscapeError, PathNotFoundError, SnapshotError
from handrail.filesystem.host.filesystem import HostFilesystem
from handrail.filesystem.memory import InMemoryFilesystem
from handrail.filesystem.path_filters import PathFilter, PathSet, excluding
from handrail.filesystem.protocol import FileStart, Filesystem
from handrail.filesystem.shadow.repository import ShadowRepository
from handrail.filesystem.walks import FileStat, Scan, WalkRequest
from handrail.transaction.participants import CommitRecordStore

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
    "ShadowRepository",
    "SnapshotError",
    "WalkRequest",
    "excluding",
]
