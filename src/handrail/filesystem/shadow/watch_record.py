"""What a rollback does not restore, as it was before a program started, kept on disk for the opening after a kill.

Two files in the journal's folder, each replaced when its content differs from what this process has written last:

===================  ===================================================================================================
`watched-entries`    the status of everything that is left out of the tree
`watched-git`        the state of the root's own git dir
===================  ===================================================================================================

The journal of the call has their digests, so the files of another call are not taken for its own. They are not synced:
after a power failure they may be missing, and then it is not known what has changed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from handrail.filesystem.disk import Disk
from handrail.filesystem.own_git.state import GitDirState
from handrail.filesystem.shadow.columns import decode_folder, encode_folder
from handrail.filesystem.shadow.tree import Folder, TreeFile
from handrail.filesystem.shadow.watch import UnrestoredWatch

_ENTRIES: Final = b"watched-entries"
_GIT: Final = b"watched-git"
_BESIDE: Final = b"watched-new"


class WatchDigests(NamedTuple):
    """Which contents of the two files belong to a call; empty for what there was not.

    Attributes:
        entries: the digest of what is left out.
        git: the digest of the state of the git dir.
    """

    entries: str = ""
    git: str = ""


class WatchRecord:
    """The two files of one journal's folder. The caller holds its locks."""

    __slots__ = ("_disk", "_folder", "_written")

    def __init__(self, folder: int, disk: Disk) -> None:
        """Keep them in the folder that a descriptor is open on."""
        self._folder = folder
        self._disk = disk
        self._written: dict[bytes, tuple[object, str]] = {}

    def write(self, watch: UnrestoredWatch) -> WatchDigests:
        """Record what a watch has found.

        Raises:
            OSError: the disk fails; what was recorded before is lost.
        """
        entries, git = watch.entries, watch.git
        return WatchDigests(
            self._replace(_ENTRIES, entries, lambda: encode_folder(_folder_of(entries))) if entries else "",
            "" if git is None else self._replace(_GIT, git, git.to_json),
        )

    def read(self, root: Path, digests: WatchDigests) -> UnrestoredWatch | None:
        """The watch that was recorded; `None` if a file is missing, or is of another call."""
        contents = [self._content(name, digest) for name, digest in zip((_ENTRIES, _GIT), digests, strict=True)]
        entries, git = contents
        if entries is None or git is None:
            return None
        folder = decode_folder(memoryview(entries)) if entries else Folder(0)
        return UnrestoredWatch(root, {**folder.leaves, **folder.folders}, GitDirState.from_json(git) if git else None)

    def _replace(self, name: bytes, value: object, encode: Callable[[], bytes]) -> str:
        before, digest = self._written.get(name, (None, ""))
        # An unchanged folder is the same object, and is not encoded again.
        if value == before:
            return digest
        self._written.pop(name, None)
        content = encode()
        self._disk.discard(_BESIDE, at=self._folder)
        descriptor = self._disk.append_file(_BESIDE, at=self._folder)
        try:
            self._disk.write(descriptor, content)
        finally:
            self._disk.close(descriptor)
        self._disk.rename(_BESIDE, name, at=self._folder, to=self._folder)
        digest = _digest(content)
        self._written[name] = value, digest
        return digest

    def _content(self, name: bytes, digest: str) -> bytes | None:
        if not digest:
            return b""
        if self._disk.look(name, at=self._folder) is None:
            return None
        descriptor = self._disk.open_file(name, at=self._folder)
        try:
            content = b"".join(self._disk.chunks(descriptor))
        finally:
            self._disk.close(descriptor)
        return content if _digest(content) == digest else None


def _folder_of(entries: dict[str, TreeFile | Folder]) -> Folder:
    """What is left out, as a folder whose names are paths."""
    folder = Folder(0)
    for path, entry in entries.items():
        if isinstance(entry, Folder):
            folder.folders[path] = entry
        else:
            folder.leaves[path] = entry
    return folder


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()
