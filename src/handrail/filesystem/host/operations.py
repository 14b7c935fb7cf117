"""The operations on a tree on disk: what is shown of it, what each operation refuses, and the steps that it takes.

An operation that changes the tree checks everything first; then it announces all paths that it will change
(`HostChanges.about_to_change`), and changes them in an order in which the steps that need disk space come first.
"""

from __future__ import annotations

import errno
import os
import posixpath
import stat
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from handrail.crash_points import reached
from handrail.errors import PathNotFoundError
from handrail.filesystem import paths
from handrail.filesystem.disk import Disk, ResolvedPath, Root, holds_special_file, read_file, special_file
from handrail.filesystem.host.changes import HostChanges
from handrail.filesystem.host.journal import FileIdentity, file_identity, file_kind
from handrail.filesystem.path_filters import PathFilter, PathMatcher
from handrail.filesystem.paths import (
    MAX_DEPTH,
    ROOT,
    below_root,
    folders_above,
    is_inside,
    join,
    normalise_on_disk,
    parent_folder,
    path_depth,
    to_text,
)
from handrail.filesystem.shadow.tree import spell_paths
from handrail.filesystem.walks import MOST_RULE_BYTES, FileStat, FolderReader, Scan, WalkRequest, walk
from handrail.process import has_open_databases, protected_paths

_FOLDER = FileIdentity("folder")

_NOTHING = FileIdentity("nothing")

_DATABASE = "a database that this process has open"


@dataclass(frozen=True, slots=True, eq=False)
class TreeReader:
    """Reads the tree for the operations, and for walks.

    Its paths have passed `normalise_on_disk`. The filter is checked for a path before it is walked, and for its target.
    """

    root: Root
    disk: Disk
    path_filter: PathFilter

    def resolve(self, path: str) -> ResolvedPath:
        """What is at a path; nothing for a hidden path."""
        path_filter = self.path_filter
        if not path_filter:
            return self.root.resolve(path)
        if path_filter.unreadable(path) is None:
            target = self.root.resolve(path)
            if path_filter.unreadable(path, is_folder=file_kind(target.status) == "folder") is None:
                return target
        # The nearest folder that is shown: the message must not name a hidden one.
        visible = (folder for folder in folders_above(path) if path_filter.unreadable(folder) is None)
        return ResolvedPath(path, None, next(folder for folder in visible if self.root.look(folder) is not None))

    def find_to_change(self, path: str, *, is_folder: bool) -> ResolvedPath:
        """What is at a writable path, perhaps a link; `PathConflictError` if it is hidden, special or below a link."""
        self.path_filter.refuse_change(path, is_folder=is_folder)
        target = self.root.resolve(path)
        self.refuse_link(target, at_end=False)
        if file_kind(target.status) == "special":
            raise special_file(path)
        return target

    def present(self, path: str, *, may_be_link: bool = False) -> ResolvedPath:
        """What is at an existing path; `PathNotFoundError` if there is nothing."""
        target = self.resolve(path)
        self.refuse_link(target, at_end=not may_be_link)
        if target.status is None:
            raise self._nothing(path, target)
        return target

    def refuse_link(self, target: ResolvedPath, *, at_end: bool = True) -> None:
        """Raises `PathConflictError` for a path that goes through a link, or with `at_end` is one."""
        path, status, link = target
        if not at_end and status is not None:
            return
        if file_kind(self.root.look(link) if status is None else status) == "symlink":
            with self.root.entry(link) as (folder, name):
                text = to_text(self.disk.target(name, at=folder))
            whole = below_root(posixpath.join(parent_folder(link), text) + path[len(link) :], self.root.spellings)
            leads_to = posixpath.normpath(whole)
            is_named = leads_to.split("/")[0] not in {"", ".."} and self.path_filter.unreadable(leads_to) is None
            raise paths.link_not_followed(path, link=link, leads_to=leads_to if is_named else None)

    def missing_folders(self, target: ResolvedPath) -> list[str]:
        """The folders that a path lacks, the highest first; `PathConflictError` if it cannot be."""
        if file_kind(self.root.look(target.nearest)) != "folder":
            raise paths.file_where_folder_is_needed(target.path, file=target.nearest)
        missing = [folder for folder in folders_above(target.path) if is_inside(folder, target.nearest)][::-1]
        if has_open_databases():
            with self.root.entry((*missing, target.path)[0]) as (folder, name):
                if self.disk.is_protected(name, at=folder):
                    raise paths.hidden(target.path, by=_DATABASE)
        return missing

    def open_file(self, path: str) -> int:
        """A descriptor to read a file with."""
        target = self.present(path)
        if file_kind(target.status) != "file":
            self._refuse_reading(path, file_kind(target.status))
        with self.root.entry(target.path) as (folder, name):
            descriptor = self.disk.open_file(name, at=folder)
        kind = file_kind(self.disk.look_at(descriptor))  # it may have been replaced before it was opened
        if kind != "file":
            self.disk.close(descriptor)
            self._refuse_reading(path, kind)
        return descriptor

    def stat(self, path: str) -> FileStat:
        """The status of what is at a path."""
        return to_file_stat(path, self.present(path, may_be_link=True))

    def folder(self, path: str) -> str:
        """The path of a folder to be listed."""
        target = self.present(path)
        if file_kind(target.status) != "folder":
            raise paths.file_where_folder_is_needed(path, file=path)
        return path

    def listing(self, path: str) -> tuple[FileStat, ...]:
        """The visible entries of a folder, sorted."""
        stats = (to_file_stat(entry.path, entry) for entry in self.below(self.folder(path)))
        visible = [stat for stat in stats if self.path_filter.shows(stat.path, stat.kind)]
        return tuple(sorted(visible, key=lambda entry: entry.path))

    def scan(self, path: str, pattern: PathMatcher, look: WalkRequest) -> Scan:
        """The entries of a folder that match a pattern, and what was left out."""
        return walk(self.folder(path), pattern, FolderReader(self.list_folder, self.rule_file), self.path_filter, look)

    def list_folder(self, folder: str) -> list[FileStat]:
        """All entries of a folder, sorted; none if it no longer exists."""
        try:
            entries = self.below(folder)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted((to_file_stat(entry.path, entry) for entry in entries), key=lambda stat: stat.path)

    def rule_file(self, path: str) -> bytes | None:
        """The content of an ignore file; `None` if it is not a file, or too large."""
        with suppress(OSError), self.root.entry(path) as (folder, name):
            return read_file(name, at=folder, most_bytes=MOST_RULE_BYTES)
        return None  # its folder was removed by another process

    def below(self, folder: str) -> list[ResolvedPath]:
        """The entries of a folder, hidden or not."""
        with self.root.folder(folder, for_listing=True) as descriptor:
            looked = [(name, self.disk.look(name, at=descriptor)) for name in self.disk.names(descriptor)]
        return [ResolvedPath(join(folder, to_text(name)), status) for name, status in looked if status is not None]

    def subtree(self, target: ResolvedPath) -> list[ResolvedPath]:
        """An entry and all below it, hidden or not, a folder before its entries; refuses what lies too deep."""
        subtree = [target]
        for entry in subtree:  # grows while it is walked
            inner = self.below(entry.path) if file_kind(entry.status) == "folder" else []
            if inner and path_depth(entry.path) >= MAX_DEPTH:
                raise paths.too_deep(target.path)
            subtree += inner
        return subtree

    def _nothing(self, path: str, target: ResolvedPath) -> PathNotFoundError:
        if file_kind(self.root.look(target.nearest)) == "folder":
            return paths.nothing_at(path, nearest=target.nearest)
        return paths.nothing_below_file(path, file=target.nearest)

    def _refuse_reading(self, path: str, kind: str) -> None:
        if kind == "folder":
            raise paths.folder_where_file_is_needed(path)
        raise special_file(path)


def write_file(changes: HostChanges, view: TreeReader, path: str, data: bytes) -> None:
    """Makes a file, or replaces the content of the one there is."""
    target = view.find_to_change(path, is_folder=False)
    view.refuse_link(target)
    if file_kind(target.status) == "folder":
        raise paths.folder_where_file_is_needed(path)
    # Checked before the operation begins, so that an error needs no rollback.
    missing = view.missing_folders(target) if target.status is None else []
    if target.status is not None:
        with view.root.entry(target.path) as (folder, name):
            # Replacing a file needs only the permission to write to its folder, so that of the file is checked here.
            if not view.disk.may_write(name, at=folder):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    with changes.operation(f"write {path}", path):
        # Once for all paths: each announcement syncs the journal.
        changes.about_to_change([*missing, target.path])
        _make_folders(changes, view, missing)
        _replace_file(changes, view, target, data)


def create_folder(changes: HostChanges, view: TreeReader, path: str) -> None:
    """Makes a folder and those it lies in."""
    target = view.find_to_change(path, is_folder=True)
    view.refuse_link(target)
    kind = file_kind(target.status)
    if kind == "folder":
        return
    if kind != "nothing":
        raise paths.file_where_folder_is_needed(path, file=path)
    folders = [*view.missing_folders(target), target.path]
    with changes.operation(f"make the folder {path}", path):
        changes.about_to_change(folders)
        _make_folders(changes, view, folders)


def remove_path(changes: HostChanges, view: TreeReader, path: str, *, recursive: bool) -> int:
    """Removes a file or link, or a folder and what it holds; returns how much that was."""
    if path == ROOT:
        raise paths.root_stays()
    # First: a hidden path must be reported like one that does not exist.
    view.present(path, may_be_link=True)
    target = view.find_to_change(path, is_folder=True)
    if file_kind(target.status) == "folder" and not recursive:
        # Hidden entries are not counted: the message would reveal them. `_all_to_change` refuses them below.
        count = sum(view.path_filter.unreadable(entry.path) is None for entry in view.below(target.path))
        if count:
            raise paths.not_empty(path, count=count)
    subtree = _all_to_change(view, target)
    with changes.operation(f"remove {path}", path):
        changes.about_to_change([entry.path for entry in subtree])
        changes.expect((entry.path, _NOTHING) for entry in subtree)
        # The deepest first: only an empty folder can be removed.
        for entry in reversed(subtree):
            with view.root.entry(entry.path) as (folder, name):
                if file_kind(entry.status) == "folder":
                    view.disk.remove_folder(name, at=folder)
                else:
                    view.disk.unlink(name, at=folder)
            reached("journal-after-change")
    return len(subtree) - 1


def move_path(changes: HostChanges, view: TreeReader, src: str, dst: str) -> None:
    """Moves an entry."""
    if src == ROOT:
        raise paths.root_stays()
    view.present(src, may_be_link=True)
    source = view.find_to_change(src, is_folder=True)
    if is_inside(dst, src):
        raise paths.inside_itself(src, dst)
    target = view.find_to_change(dst, is_folder=file_kind(source.status) == "folder")
    if target.status is not None:
        raise paths.exists_already(dst, is_folder=file_kind(target.status) == "folder", src=src)
    missing = view.missing_folders(target)
    subtree = _all_to_change(view, source)
    # Raises for a path that would be too long or too deep, before anything is moved.
    targets = [normalise_on_disk(target.path + entry.path[len(source.path) :]) for entry in subtree]
    for entry, new in zip(subtree, targets, strict=True):
        is_folder = file_kind(entry.status) == "folder"
        view.path_filter.refuse_change(new, is_folder=is_folder)
        view.path_filter.refuse_with(new, dst, spelling=src, is_folder=is_folder)
    with changes.operation(f"move {src} to {dst}", dst):
        sources = [entry.path for entry in subtree]
        # A moved file is both an old and a new path. Its image is a copy (`stay`), since the file itself remains in the
        # tree.
        changes.about_to_change([*missing, *targets, *sources], stay=frozenset(sources))
        _make_folders(changes, view, missing)
        changes.expect((new, file_identity(entry.status)) for new, entry in zip(targets, subtree, strict=True))
        changes.expect((entry, _NOTHING) for entry in sources)
        _rename(view, source, target.path)
        reached("journal-after-change")


def _all_to_change(view: TreeReader, target: ResolvedPath) -> Sequence[ResolvedPath]:
    if any(is_inside(entry, target.path) for entry in spell_paths(protected_paths(view.root.path))):
        raise paths.holds_hidden(target.path, by=_DATABASE)
    subtree = view.subtree(target)
    entries = ((entry.path, file_kind(entry.status) == "folder") for entry in subtree)
    view.path_filter.refuse_moving(entries, target.path)
    special = next((entry.path for entry in subtree if file_kind(entry.status) == "special"), None)
    if special is not None:
        raise holds_special_file(target.path, special=special)
    return subtree


def _make_folders(changes: HostChanges, view: TreeReader, folders: Iterable[str]) -> None:
    for path in folders:
        changes.expect([(path, _FOLDER)])
        with view.root.entry(path) as (folder, name):
            view.disk.make_folder(name, at=folder)
        reached("journal-after-change")


def _replace_file(changes: HostChanges, view: TreeReader, target: ResolvedPath, data: bytes) -> None:
    # A reader finds the old or the new content, never a part of one; and an image that is a hard link to the old file
    # keeps its content.
    disk, temporary_name = view.disk, changes.temporary_name
    with view.root.entry(target.path) as (folder, name):
        disk.discard(temporary_name, at=folder)
        try:
            descriptor = disk.make_file(temporary_name, at=folder)
            try:
                disk.write(descriptor, data)
                if target.status is not None:
                    owner = (target.status.st_uid, target.status.st_gid)
                    disk.dress(descriptor, owner=owner, mode=stat.S_IMODE(target.status.st_mode))
                # Before the rename: otherwise a power failure could leave an empty file under the name.
                if changes.synced:
                    disk.sync(descriptor)
                # After the last write, because the mark holds size and time. The rename changes neither.
                mark = file_identity(disk.look_at(descriptor))
            finally:
                disk.close(descriptor)
            # Before the rename: a rollback would take a file without a mark for one of another process.
            changes.expect([(target.path, mark)])
            disk.rename(temporary_name, name, at=folder, to=folder)
        except BaseException:
            disk.discard(temporary_name, at=folder)
            raise
    reached("journal-after-change")


def _rename(view: TreeReader, target: ResolvedPath, path: str) -> None:
    with view.root.entry(target.path) as (old_folder, old), view.root.entry(path) as (new_folder, new):
        is_folder = file_kind(target.status) == "folder"
        # A hard link replaces nothing, unlike renaming.
        if not is_folder and view.disk.share(old, new, at=old_folder, to=new_folder):
            view.disk.unlink(old, at=old_folder)
        else:
            view.disk.rename(old, new, at=old_folder, to=new_folder)


def to_file_stat(path: str, target: ResolvedPath) -> FileStat:
    """The `FileStat` of what a path leads to."""
    status = target.status
    kind = file_kind(status)
    if kind == "file" and status is not None:
        return FileStat(path, "file", status.st_size)
    if kind == "folder":
        return FileStat(path, "folder", 0)
    return FileStat(path, "symlink" if kind == "symlink" else "special", 0)
