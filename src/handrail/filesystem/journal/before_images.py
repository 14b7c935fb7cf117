"""Before-images: what was at a path on disk, saved so that it can be restored.

Contents are stored as files in the journal's folder. A file that is about to be replaced or removed is hard-linked into
the journal's folder if possible, which takes constant time and preserves owner, times and attributes. It is copied,
piece by piece, if its content could change or it cannot be linked: when it has other names already, through which it
may be written to; when it stays in the tree, at another path; and when the journal lies on another filesystem.
"""

from __future__ import annotations

import errno
import stat
import weakref
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from os import stat_result
from typing import Literal, NamedTuple

from handrail.filesystem.disk import Disk


class FileIdentity(NamedTuple):
    """Distinguishes an entry on disk from a replacement by another process; for a folder only its kind counts."""

    kind: str
    inode: int = 0
    size: int = 0
    modified: int = 0


_NO_MARK = FileIdentity("nothing")
_PREFIX = b"image-"
_COPY = _PREFIX + b"copy"


@dataclass(frozen=True, slots=True, weakref_slot=True)
class BeforeImage:
    """What was at a path.

    Attributes:
        kind: what it was.
        mode: the permissions of a file or folder.
        owner: ids of the user and group of a file or folder.
        blob: the name in the journal's folder of the file that holds the content of a file.
        target: where a link leads.
        mark: the identity of the file.
        kept: the size and the time, in nanoseconds, of the file that holds the content; `None` if unknown.
    """

    kind: Literal["nothing", "folder", "file", "symlink"]
    mode: int = 0
    owner: tuple[int, int] = (0, 0)
    blob: str = ""
    target: bytes = b""
    mark: FileIdentity = _NO_MARK
    kept: tuple[int, int] | None = None


NO_BEFORE_IMAGE = BeforeImage("nothing")
"""There was nothing."""


def file_kind(status: stat_result | None) -> str:
    """The kind of an entry on disk: a kind of image, or `"special"` for one without content to save."""
    if status is None:
        return "nothing"
    if stat.S_ISREG(status.st_mode):
        return "file"
    if stat.S_ISDIR(status.st_mode):
        return "folder"
    return "symlink" if stat.S_ISLNK(status.st_mode) else "special"


def file_identity(status: stat_result | None) -> FileIdentity:
    """The identity of the entry with a status."""
    kind = file_kind(status)
    if status is None or kind == "folder":
        return FileIdentity(kind)
    return FileIdentity(kind, status.st_ino, status.st_size, status.st_mtime_ns)


class BeforeImages:
    """The images of one filesystem, and the folder that holds their contents.

    A content is needed as long as its image is referenced. Unreferenced contents are removed by `sweep`, and not when
    the last reference goes, because that may be at any moment in any thread.

    Attributes:
        folder: the descriptor of the journal's folder.
        disk: the operating system.
    """

    __slots__ = ("_count", "_dropped", "disk", "folder")

    def __init__(self, folder: int, disk: Disk) -> None:
        """Store contents in the folder that a descriptor is open on."""
        self.folder: int = folder
        self.disk: Disk = disk
        self._count = 0
        self._dropped: deque[bytes] = deque()

    def take(self, name: bytes, *, at: int, synced: bool, stays: bool = False) -> BeforeImage:
        """The image of the entry with a name.

        Args:
            name: the name.
            at: descriptor of the folder.
            synced: whether a copy is fsynced.
            stays: whether the file will stay in the tree, at another path.
        """
        status = self.disk.look(name, at=at)
        if status is None:
            return NO_BEFORE_IMAGE
        mode, owner = stat.S_IMODE(status.st_mode), (status.st_uid, status.st_gid)
        if stat.S_ISDIR(status.st_mode):
            return BeforeImage("folder", mode, owner, mark=file_identity(status))
        if stat.S_ISLNK(status.st_mode):
            return BeforeImage("symlink", target=self.disk.target(name, at=at), mark=file_identity(status))
        self._count += 1
        # A hard link has the size and time of the file, so this serves unless a copy is made.
        kept = status
        blob = _PREFIX + b"%d" % self._count
        try:
            # A linked content is safe from the filesystem itself, which never writes to a file in place: it makes a new
            # one beside the path and renames it.
            if stays or status.st_nlink > 1 or not self.disk.share(name, blob, at=at, to=self.folder):
                with self._copying(name, blob, at=at, to=self.folder) as copy:
                    if synced:
                        self.disk.sync(copy)
                    kept = self.disk.look_at(copy)
        except BaseException:
            # A part of a copy may be there. The next sweep removes it: removing it here could raise in place of the
            # error.
            self._dropped.append(blob)
            raise
        size_and_time = (kept.st_size, kept.st_mtime_ns)
        image = BeforeImage("file", mode, owner, blob.decode(), mark=file_identity(status), kept=size_and_time)
        # The finalizer may run in any thread and in the middle of `sweep`; appending to a deque is atomic. At exit it
        # has no use: the next opening removes what is left.
        weakref.finalize(image, self._dropped.append, blob).atexit = False
        return image

    def put(self, image: BeforeImage, name: bytes, *, at: int, shared: bool) -> None:
        """Make a new file of the content of an image; with `shared` it may be a hard link to the journal's file.

        It is one in any case if there is no space for a copy.
        """
        blob = image.blob.encode()
        # A copy has neither the owner nor the mode of the file, so it is never linked into the tree.
        may_share = self._is_original(image)
        if shared and may_share and self.disk.share(blob, name, at=self.folder, to=at):
            return
        try:
            with self._copying(blob, name, at=self.folder, to=at) as copy:
                self.disk.dress(copy, owner=image.owner, mode=image.mode)
                self.disk.set_time(copy, image.mark.modified)
                # The content is synced here, because only folders are synced before the journal is removed.
                self.disk.sync(copy)
        except OSError:
            self.disk.discard(name, at=at)
            # A full disk must not prevent a rollback, and a link needs no space for the content.
            if not may_share or not self.disk.share(blob, name, at=self.folder, to=at):
                raise

    def is_there(self, image: BeforeImage, status: stat_result) -> bool:
        """Whether a status is that of the image's own file, unchanged."""
        if file_identity(status) == image.mark:
            return True
        # While the journal's folder holds the file, its inode number cannot be given to another one. Other size or time
        # means that it was written in place, and then there is no other copy to restore.
        return image.kind == "file" and status.st_ino == image.mark.inode and self._is_original(image)

    def is_kept(self, image: BeforeImage) -> bool:
        """Whether the content of an image is still in the journal's folder, unchanged."""
        if image.kind != "file":
            return True
        status = self.disk.look(image.blob.encode(), at=self.folder)
        if status is None or file_kind(status) != "file":
            return False
        if status.st_ino == image.mark.inode and status.st_nlink > 1:
            return True  # the file is also in the tree, where it may be written to
        return image.kept is None or image.kept == (status.st_size, status.st_mtime_ns)

    def set_aside(self, name: bytes, *, at: int) -> str:
        """Move a file or link into the journal's folder; returns its name there."""
        aside = unused(name, at=self.folder, disk=self.disk)
        try:
            self.disk.rename(name, aside, at=at, to=self.folder)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            if file_kind(self.disk.look(name, at=at)) == "symlink":
                self.disk.make_link(self.disk.target(name, at=at), aside, at=self.folder)
            else:
                with self._copying(name, aside, at=at, to=self.folder) as copy:
                    self.disk.sync(copy)
            # Only once the copy is synced: a crash before that leaves the file in the tree.
            self.disk.unlink(name, at=at)
        return aside.decode(errors="backslashreplace")

    def separate(self) -> None:
        """Copy the contents that are also files of the tree, where a program could write to them."""
        for name in self.disk.names(self.folder):
            status = self.disk.look(name, at=self.folder) if name.startswith(_PREFIX) else None
            if status is None or status.st_nlink == 1:
                continue
            try:
                self.disk.discard(_COPY, at=self.folder)
                with self._copying(name, _COPY, at=self.folder, to=self.folder) as copy:
                    # `is_kept` compares the time. The image now differs from its file by the inode, so `put` will set
                    # owner and mode.
                    self.disk.set_time(copy, status.st_mtime_ns)
                    self.disk.sync(copy)
                self.disk.rename(_COPY, name, at=self.folder, to=self.folder)
            except BaseException:
                self.disk.discard(_COPY, at=self.folder)
                raise

    def sweep(self) -> None:
        """Remove the contents that are no longer referenced."""
        while self._dropped:
            # Taken from the queue only after the file is removed: after an error the next sweep tries again.
            self.disk.discard(self._dropped[0], at=self.folder)
            self._dropped.popleft()

    def _is_original(self, image: BeforeImage) -> bool:
        """Whether the journal's folder holds the file itself and not a copy."""
        blob = self.disk.look(image.blob.encode(), at=self.folder)
        return blob is not None and blob.st_ino == image.mark.inode

    @contextmanager
    def _copying(self, name: bytes, new: bytes, *, at: int, to: int) -> Generator[int]:
        """A descriptor of a new file that is a copy of another."""
        source = self.disk.open_file(name, at=at)
        try:
            target = self.disk.make_file(new, 0o600, at=to)
            try:
                for chunk in self.disk.chunks(source):
                    self.disk.write(target, chunk)
                yield target
            finally:
                self.disk.close(target)
        finally:
            self.disk.close(source)


def unused(name: bytes, *, at: int, disk: Disk) -> bytes:
    """An unused name in a folder, for an entry that is set aside."""
    # A name on disk has at most 255 bytes, and the suffix must fit.
    found, number = name[:200] + b".found", 1
    while disk.look(found, at=at) is not None:
        number += 1
        found = name[:200] + b".%d.found" % number
    return found
