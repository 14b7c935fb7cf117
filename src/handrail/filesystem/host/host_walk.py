"""Walking through a tree on disk: each folder is opened from the one before, so a walk costs one step for each."""

from __future__ import annotations

from dataclasses import dataclass

from handrail.filesystem.disk import Disk
from handrail.filesystem.file_stat import FileStat
from handrail.filesystem.ignore_files import MOST_RULE_BYTES, RULE_NAMES
from handrail.filesystem.journal.before_images import kind_of
from handrail.filesystem.names import to_bytes, to_text
from handrail.filesystem.path_filters import PathFilter
from handrail.filesystem.paths import join, parent_of
from handrail.filesystem.root import Cursor, Found


@dataclass(frozen=True, slots=True)
class HostFolders:
    """What a walk asks of a tree on disk; see `handrail.filesystem.walks.Folders`. One walk uses it.

    Attributes:
        path_filter: what keeps paths back.
        cursor: the way to where the walk is.
        disk: how the tree is reached.
    """

    path_filter: PathFilter
    cursor: Cursor
    disk: Disk

    def found(self, folder: str) -> list[Found]:
        """All that a folder holds, in no order.

        Raises:
            OSError: the folder is not there, or may not be listed.
        """
        at = self.cursor.folder(folder)
        held = self.disk.open_folder(b".", at=at)
        try:
            looked = [(name, self.disk.look(name, at=at)) for name in self.disk.names(held)]
        finally:
            self.disk.close(held)
        return [Found(join(folder, to_text(name)), status) for name, status in looked if status is not None]

    def listed(self, folder: str) -> list[FileStat]:
        """All that a folder holds, sorted; nothing if it is no longer there."""
        try:
            found = self.found(folder)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted((stat_of(each.path, each) for each in found), key=lambda stat: stat.path)

    def rule_names(self, folder: str) -> frozenset[str]:
        """Which of `RULE_NAMES` a folder holds."""
        at = self.cursor.folder(folder)
        return frozenset(name for name in RULE_NAMES if self.disk.look(to_bytes(name), at=at) is not None)

    def rule_file(self, path: str) -> bytes | None:
        """The content of an ignore file; `None` if it is no file, or a large one."""
        try:
            at = self.cursor.folder(parent_of(path))
            descriptor = self.disk.open_file(to_bytes(path.rpartition("/")[2]), at=at)
        except OSError:
            return None  # somebody has removed it, it is a link, or it may not be read
        try:
            status = self.disk.look_at(descriptor)
            if kind_of(status) != "file" or status.st_size > MOST_RULE_BYTES:
                return None
            return b"".join(self.disk.chunks(descriptor))
        finally:
            self.disk.close(descriptor)


def stat_of(path: str, found: Found) -> FileStat:
    """What there is at a path, as a filesystem says it."""
    status = found.status
    kind = kind_of(status)
    if kind == "file" and status is not None:
        return FileStat(path, "file", status.st_size)
    if kind == "folder":
        return FileStat(path, "folder", 0)
    return FileStat(path, "symlink" if kind == "symlink" else "special", 0)
