"""The operations on a tree on disk: what is shown of it, what each operation refuses, and the steps that it takes.

An operation that changes the tree checks everything first; then it announces all paths that it will change
(`HostChanges.about_to_change`), and changes them in an order in which the steps that need disk space come first.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Sequence

from handrail.crash_points import reached
from handrail.errors import PathConflictError, PathNotFoundError
from handrail.filesystem import paths
from handrail.filesystem.disk import Disk, ResolvedPath, Root, holds_special_file, special_file
from handrail.filesystem.host.changes import HostChanges
from handrail.filesystem.host.journal import FileIdentity, file_identity, file_kind
from handrail.filesystem.path_filters import PathFilter, PathPattern
from handrail.filesystem.paths import (
    MAX_DEPTH,
    ROOT,
    ancestors_of,
    depth_of,
    is_inside,
    join,
    normalise_on_disk,
    to_text,
)
from handrail.filesystem.shadow.tree import spelled
from handrail.filesystem.walks import MOST_RULE_BYTES, FileStat, Scan, Start, WalkRequest, walk
from handrail.open_databases import has_open_databases, protected_paths

_FOLDER = FileIdentity("folder")

_NOTHING = FileIdentity("nothing")

_DATABASE = "a database that this process has open"


class TreeReader:
    """Reads the tree for the operations, and for walks as a `handrail.filesystem.walks.FolderReader`.

    Its paths have passed `normalise_on_disk`.

    Attributes:
        root: the tree.
        disk: the operating system.
        path_filter: which paths exist, and which may be changed; checked for a path before it is walked, and for its
            target.
    """

    __slots__ = ("disk", "path_filter", "root")

    def __init__(self, root: Root, disk: Disk, path_filter: PathFilter) -> None:
        """Read a root."""
        self.root: Root = root
        self.disk: Disk = disk
        self.path_filter: PathFilter = path_filter

    def resolve(self, path: str, *, follow: bool) -> ResolvedPath:
        """What a path leads to; nothing for a hidden path."""
        path_filter = self.path_filter
        if not path_filter:
            return self.root.resolve(path, follow=follow)
        if path_filter.unreadable(path) is None:
            found = self._found(path, follow=follow)
            if found is not None:
                return found
        # The nearest folder that is shown: the message must not name a hidden one.
        shown = (each for each in ancestors_of(path) if path_filter.unreadable(each) is None)
        return ResolvedPath(path, None, next(each for each in shown if self.root.look(each) is not None))

    def find_to_change(self, path: str, *, follow: bool, is_folder: bool) -> ResolvedPath:
        """What a path that may be written leads to.

        Raises:
            PathConflictError: the path is hidden, or there is something special at it.
        """
        self.path_filter.refuse_change(path, is_folder=is_folder)
        found = self.root.resolve(path, follow=follow)
        # A link must not lead to a path that the filter protects.
        if found.path != path:
            self.path_filter.refuse_change(found.path, named=path, is_folder=is_folder)
        if file_kind(found.status) == "special":
            raise special_file(path)
        return found

    def present(self, path: str, *, follow: bool) -> ResolvedPath:
        """What an existing path leads to.

        Raises:
            PathNotFoundError: there is nothing.
        """
        found = self.resolve(path, follow=follow)
        if found.status is None:
            raise self._nothing(path, found)
        return found

    def missing_folders(self, found: ResolvedPath) -> list[str]:
        """The folders that a path needs and that do not exist, the highest first.

        Raises:
            PathConflictError: a file is where one of them is needed; or the path, or one of them, is protected.
        """
        if file_kind(self.root.look(found.nearest)) != "folder":
            raise paths.file_where_folder_is_needed(found.path, file=found.nearest)
        missing = [folder for folder in ancestors_of(found.path) if folder != ROOT]
        missing = [folder for folder in reversed(missing) if len(folder) > len(found.nearest) or found.nearest == ROOT]
        if has_open_databases():
            with self.root.entry((*missing, found.path)[0]) as (folder, name):
                if self.disk.is_protected(name, at=folder):
                    raise paths.hidden(found.path, by=_DATABASE)
        return missing

    def open_file(self, path: str) -> int:
        """A descriptor to read a file with."""
        found = self.present(path, follow=True)
        if file_kind(found.status) != "file":
            self._refuse_reading(path, file_kind(found.status))
        with self.root.entry(found.path) as (folder, name):
            descriptor = self.disk.open_file(name, at=folder)
        kind = file_kind(self.disk.look_at(descriptor))  # it may have been replaced before it was opened
        if kind != "file":
            self.disk.close(descriptor)
            self._refuse_reading(path, kind)
        return descriptor

    def stat(self, path: str) -> FileStat:
        """What there is at a path."""
        return stat_of(path, self.present(path, follow=False))

    def folder(self, path: str) -> Start:
        """A folder to be listed, with what it leads to."""
        found = self.present(path, follow=True)
        if file_kind(found.status) != "folder":
            raise paths.file_where_folder_is_needed(path, file=path)
        return Start(path, found.path)

    def listing(self, path: str) -> tuple[FileStat, ...]:
        """What a folder holds, sorted."""
        folder = self.folder(path)
        stats = (
            (each.path, stat_of(join(path, each.path.rpartition("/")[2]), each)) for each in self.below(folder.real)
        )
        shown = [stat for real, stat in stats if self.path_filter.shows(stat.path, real, stat.kind)]
        return tuple(sorted(shown, key=lambda each: each.path))

    def scan(self, path: str, pattern: PathPattern, look: WalkRequest) -> Scan:
        """What a folder holds that matches a pattern, and what was left out."""
        return walk(self.folder(path), pattern, self, self.path_filter, look)

    def listed(self, folder: str) -> list[FileStat]:
        """All that a folder holds, sorted; nothing if it no longer exists."""
        try:
            found = self.below(folder)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted((stat_of(each.path, each) for each in found), key=lambda stat: stat.path)

    def rule_file(self, path: str) -> bytes | None:
        """The content of an ignore file; `None` if it is not a file, or too large."""
        try:
            with self.root.entry(path) as (folder, name):
                descriptor = self.disk.open_file(name, at=folder)
        except OSError:
            return None  # removed by another process, a link, or unreadable
        try:
            status = self.disk.look_at(descriptor)
            # Looked at through the descriptor: the file cannot be replaced between the check and the reading.
            if file_kind(status) != "file" or status.st_size > MOST_RULE_BYTES:
                return None
            return b"".join(self.disk.chunks(descriptor))
        finally:
            self.disk.close(descriptor)

    def below(self, folder: str) -> list[ResolvedPath]:
        """What a folder holds, hidden or not, by a path without links."""
        with self.root.folder(folder, listed=True) as held:
            looked = [(name, self.disk.look(name, at=held)) for name in self.disk.names(held)]
        return [ResolvedPath(join(folder, to_text(name)), status) for name, status in looked if status is not None]

    def subtree(self, found: ResolvedPath) -> list[ResolvedPath]:
        """An entry and all that lies below it, hidden or not; each folder comes before what it holds.

        Raises:
            PathConflictError: some of it lies deeper than a path can name.
        """
        subtree = [found]
        for each in subtree:  # grows while it is walked
            held = self.below(each.path) if file_kind(each.status) == "folder" else []
            if held and depth_of(each.path) >= MAX_DEPTH:
                raise paths.too_deep(found.path)
            subtree += held
        return subtree

    def _found(self, path: str, *, follow: bool) -> ResolvedPath | None:
        """What a path leads to; `None` if that is hidden."""
        try:
            found = self.root.resolve(path, follow=follow)
        except PathConflictError as error:
            if self.path_filter.unreadable(error.path) is not None:
                return None  # the error would reveal what the path leads to
            raise
        is_folder = file_kind(found.status) == "folder"
        return None if self.path_filter.hides(path, found.path, is_folder=is_folder) else found

    def _nothing(self, path: str, found: ResolvedPath) -> PathNotFoundError:
        if file_kind(self.root.look(found.nearest)) == "folder":
            return paths.nothing_at(path, nearest=found.nearest)
        return paths.nothing_below_file(path, file=found.nearest)

    def _refuse_reading(self, path: str, kind: str) -> None:
        if kind == "folder":
            raise paths.folder_where_file_is_needed(path)
        raise special_file(path)


def write_file(changes: HostChanges, view: TreeReader, path: str, data: bytes) -> None:
    """Make a file, or replace the content of the one there is."""
    found = view.find_to_change(path, follow=True, is_folder=False)
    if file_kind(found.status) == "folder":
        raise paths.folder_where_file_is_needed(path)
    # Checked before the operation begins, so that an error needs no rollback.
    missing = view.missing_folders(found) if found.status is None else []
    if found.status is not None:
        with view.root.entry(found.path) as (folder, name):
            # Replacing a file needs only the permission to write to its folder, so that of the file is checked here.
            if not view.disk.may_write(name, at=folder):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    with changes.operation(f"write {path}", path):
        # Once for all paths: each announcement syncs the journal.
        changes.about_to_change([*missing, found.path])
        _make_folders(changes, view, missing)
        _put(changes, view, found, data)


def create_folder(changes: HostChanges, view: TreeReader, path: str) -> None:
    """Make a folder and those it lies in."""
    found = view.find_to_change(path, follow=True, is_folder=True)
    kind = file_kind(found.status)
    if kind == "folder":
        return
    if kind != "nothing":
        raise paths.file_where_folder_is_needed(path, file=path)
    folders = [*view.missing_folders(found), found.path]
    with changes.operation(f"make the folder {path}", path):
        changes.about_to_change(folders)
        _make_folders(changes, view, folders)


def remove_path(changes: HostChanges, view: TreeReader, path: str, *, recursive: bool) -> int:
    """Remove a file or link, or a folder and what it holds; returns how much that was."""
    if path == ROOT:
        raise paths.root_stays()
    # First: a hidden path must be reported like one that does not exist.
    view.present(path, follow=False)
    found = view.find_to_change(path, follow=False, is_folder=True)
    if file_kind(found.status) == "folder" and not recursive:
        # Hidden entries are not counted: the message would reveal them. `_all_to_change` refuses them below.
        count = sum(view.path_filter.unreadable(each.path) is None for each in view.below(found.path))
        if count:
            raise paths.not_empty(path, count=count)
    subtree = _all_to_change(view, path, found)
    with changes.operation(f"remove {path}", path):
        changes.about_to_change([each.path for each in subtree])
        changes.expect((each.path, _NOTHING) for each in subtree)
        # The deepest first: only an empty folder can be removed.
        for each in reversed(subtree):
            with view.root.entry(each.path) as (folder, name):
                if file_kind(each.status) == "folder":
                    view.disk.remove_folder(name, at=folder)
                else:
                    view.disk.unlink(name, at=folder)
            reached("journal-after-change")
    return len(subtree) - 1


def move_path(changes: HostChanges, view: TreeReader, src: str, dst: str) -> None:
    """Move an entry."""
    if src == ROOT:
        raise paths.root_stays()
    view.present(src, follow=False)
    found = view.find_to_change(src, follow=False, is_folder=True)
    if is_inside(dst, src):
        raise paths.inside_itself(src, dst)
    target = view.find_to_change(dst, follow=False, is_folder=file_kind(found.status) == "folder")
    if is_inside(target.path, found.path):
        raise paths.inside_itself(src, dst)
    if target.status is not None:
        raise paths.exists_already(dst, is_folder=file_kind(target.status) == "folder", src=src)
    missing = view.missing_folders(target)
    subtree = _all_to_change(view, src, found)
    # Raises for a path that would be too long or too deep, before anything is moved.
    targets = [normalise_on_disk(target.path + each.path[len(found.path) :]) for each in subtree]
    for each, new in zip(subtree, targets, strict=True):
        is_folder = file_kind(each.status) == "folder"
        view.path_filter.refuse_change(new, is_folder=is_folder)
        view.path_filter.refuse_with(new, target.path, named=src, is_folder=is_folder)
    with changes.operation(f"move {src} to {dst}", dst):
        sources = [each.path for each in subtree]
        # A moved file is both an old and a new path. Its image is a copy (`stay`), since the file itself remains in the
        # tree.
        changes.about_to_change([*missing, *targets, *sources], stay=frozenset(sources))
        _make_folders(changes, view, missing)
        changes.expect((new, file_identity(each.status)) for new, each in zip(targets, subtree, strict=True))
        changes.expect((each, _NOTHING) for each in sources)
        _rename(view, found, target.path)
        reached("journal-after-change")


def _all_to_change(view: TreeReader, path: str, found: ResolvedPath) -> Sequence[ResolvedPath]:
    """An entry and what it holds, all of which can be restored and may be seen.

    Raises:
        PathConflictError: some of it cannot, or may not.
    """
    if any(is_inside(each, found.path) for each in spelled(protected_paths(view.root.path))):
        raise paths.holds_hidden(path, by=_DATABASE)
    subtree = view.subtree(found)
    entries = ((each.path, file_kind(each.status) == "folder") for each in subtree)
    view.path_filter.refuse_moving(entries, found.path, named=path)
    special = next((each.path for each in subtree if file_kind(each.status) == "special"), None)
    if special is not None:
        raise holds_special_file(path, special=special)
    return subtree


def _make_folders(changes: HostChanges, view: TreeReader, folders: Iterable[str]) -> None:
    for path in folders:
        changes.expect([(path, _FOLDER)])
        with view.root.entry(path) as (folder, name):
            view.disk.make_folder(name, at=folder)
        reached("journal-after-change")


def _put(changes: HostChanges, view: TreeReader, found: ResolvedPath, data: bytes) -> None:
    """Make a file beside the path, and rename it to the path when it is complete."""
    # A reader finds the old or the new content, never a part of one; and an image that is a hard link to the old file
    # keeps its content.
    disk, beside = view.disk, changes.beside
    with view.root.entry(found.path) as (folder, name):
        disk.discard(beside, at=folder)
        try:
            descriptor = disk.make_file(beside, at=folder)
            try:
                disk.write(descriptor, data)
                if found.status is not None:
                    owner = (found.status.st_uid, found.status.st_gid)
                    disk.dress(descriptor, owner=owner, mode=stat.S_IMODE(found.status.st_mode))
                # Before the rename: otherwise a power failure could leave an empty file under the name.
                if changes.synced:
                    disk.sync(descriptor)
                # After the last write, because the mark holds size and time. The rename changes neither.
                mark = file_identity(disk.look_at(descriptor))
            finally:
                disk.close(descriptor)
            # Before the rename: a rollback would take a file without a mark for one of another process.
            changes.expect([(found.path, mark)])
            disk.rename(beside, name, at=folder, to=folder)
        except BaseException:
            disk.discard(beside, at=folder)
            raise
    reached("journal-after-change")


def _rename(view: TreeReader, found: ResolvedPath, path: str) -> None:
    with view.root.entry(found.path) as (old_folder, old), view.root.entry(path) as (new_folder, new):
        if file_kind(found.status) == "folder":
            view.disk.rename(old, new, at=old_folder, to=new_folder)
        elif view.disk.share(old, new, at=old_folder, to=new_folder):  # unlike renaming, it replaces nothing
            view.disk.unlink(old, at=old_folder)
        else:
            view.disk.rename(old, new, at=old_folder, to=new_folder)


def stat_of(path: str, found: ResolvedPath) -> FileStat:
    """The `FileStat` of what a path leads to."""
    status = found.status
    kind = file_kind(status)
    if kind == "file" and status is not None:
        return FileStat(path, "file", status.st_size)
    if kind == "folder":
        return FileStat(path, "folder", 0)
    return FileStat(path, "symlink" if kind == "symlink" else "special", 0)
