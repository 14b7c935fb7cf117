"""The operations that change a tree on disk: what each refuses, and the steps that it takes.

Each looks at everything first and refuses what cannot be; then it announces all paths that it is going to change
(`Changes.about_to_change`), and changes them in an order in which the steps that need room come first.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Sequence

from handrail.crash_points import reached
from handrail.filesystem import refusals
from handrail.filesystem.disk_refusals import holds_special_file
from handrail.filesystem.host.changes import Changes
from handrail.filesystem.host.operations import View
from handrail.filesystem.journal.before_images import Mark, kind_of, mark_of
from handrail.filesystem.names import normalise_on_disk
from handrail.filesystem.paths import ROOT, is_inside
from handrail.filesystem.root import Found

_FOLDER = Mark("folder")
_NOTHING = Mark("nothing")


def write(changes: Changes, view: View, path: str, data: bytes) -> None:
    """Make a file, or replace the content of the one there is."""
    found = view.find_to_change(path, follow=True, is_folder=False)
    if kind_of(found.status) == "folder":
        raise refusals.folder_where_file_is_needed(path)
    missing = view.missing_folders(found) if found.status is None else []
    if found.status is not None:
        with view.root.entry(found.path) as (folder, name):
            if not view.disk.may_write(name, at=folder):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    with changes.operation(f"write {path}", path):
        changes.about_to_change([*missing, found.path])
        _make_folders(changes, view, missing)
        _put(changes, view, found, data)


def make_folder(changes: Changes, view: View, path: str) -> None:
    """Make a folder and those it lies in."""
    found = view.find_to_change(path, follow=True, is_folder=True)
    kind = kind_of(found.status)
    if kind == "folder":
        return
    if kind != "nothing":
        raise refusals.file_where_folder_is_needed(path, file=path)
    folders = [*view.missing_folders(found), found.path]
    with changes.operation(f"make the folder {path}", path):
        changes.about_to_change(folders)
        _make_folders(changes, view, folders)


def remove(changes: Changes, view: View, path: str, *, recursive: bool) -> int:
    """Remove a file or link, or a folder and what it holds; returns how much that was."""
    if path == ROOT:
        raise refusals.root_stays()
    view.present(path, follow=False)
    found = view.find_to_change(path, follow=False, is_folder=True)
    if kind_of(found.status) == "folder" and not recursive:
        count = sum(view.path_filter.unreadable(each.path) is None for each in view.below(found.path))
        if count:
            raise refusals.not_empty(path, count=count)
    subtree = _all_to_change(view, path, found)
    with changes.operation(f"remove {path}", path):
        changes.about_to_change([each.path for each in subtree])
        changes.expect((each.path, _NOTHING) for each in subtree)
        for each in reversed(subtree):
            with view.root.entry(each.path) as (folder, name):
                if kind_of(each.status) == "folder":
                    view.disk.remove_folder(name, at=folder)
                else:
                    view.disk.unlink(name, at=folder)
            reached("journal-after-change")
    return len(subtree) - 1


def move(changes: Changes, view: View, src: str, dst: str) -> None:
    """Give something another path."""
    if src == ROOT:
        raise refusals.root_stays()
    view.present(src, follow=False)
    found = view.find_to_change(src, follow=False, is_folder=True)
    if is_inside(dst, src):
        raise refusals.inside_itself(src, dst)
    target = view.find_to_change(dst, follow=False, is_folder=kind_of(found.status) == "folder")
    if is_inside(target.path, found.path):
        raise refusals.inside_itself(src, dst)
    if target.status is not None:
        raise refusals.exists_already(dst, is_folder=kind_of(target.status) == "folder", src=src)
    missing = view.missing_folders(target)
    subtree = _all_to_change(view, src, found)
    targets = [normalise_on_disk(target.path + each.path[len(found.path) :]) for each in subtree]
    for each, new in zip(subtree, targets, strict=True):
        is_folder = kind_of(each.status) == "folder"
        view.refuse_hidden(new, is_folder=is_folder)
        view.refuse_with(new, target.path, named=src, is_folder=is_folder)
    with changes.operation(f"move {src} to {dst}", dst):
        sources = [each.path for each in subtree]
        changes.about_to_change([*missing, *targets, *sources], stay=frozenset(sources))
        _make_folders(changes, view, missing)
        changes.expect((new, mark_of(each.status)) for new, each in zip(targets, subtree, strict=True))
        changes.expect((each, _NOTHING) for each in sources)
        _rename(view, found, target.path)
        reached("journal-after-change")


def _all_to_change(view: View, path: str, found: Found) -> Sequence[Found]:
    """Something and what it holds, all of which can be put back and may be seen.

    Raises:
        PathConflictError: some of it can not, or may not.
    """
    subtree = view.subtree(found)
    for each in subtree:
        is_folder = kind_of(each.status) == "folder"
        by = view.path_filter.unmovable(each.path, is_folder=is_folder)
        if by is not None:
            raise refusals.hidden(path, by=by) if each is subtree[0] else refusals.holds_hidden(path, by=by)
        view.refuse_with(each.path, found.path, named=path, is_folder=is_folder)
        if kind_of(each.status) == "special":
            raise holds_special_file(path, special=each.path)
    return subtree


def _make_folders(changes: Changes, view: View, folders: Iterable[str]) -> None:
    for path in folders:
        changes.expect([(path, _FOLDER)])
        with view.root.entry(path) as (folder, name):
            view.disk.make_folder(name, at=folder)
        reached("journal-after-change")


def _put(changes: Changes, view: View, found: Found, data: bytes) -> None:
    """Make a file beside the path, and give it the path when it is whole."""
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
                if changes.terms.synced:
                    disk.sync(descriptor)
                mark = mark_of(disk.look_at(descriptor))
            finally:
                disk.close(descriptor)
            changes.expect([(found.path, mark)])
            disk.rename(beside, name, at=folder, to=folder)
        except BaseException:
            disk.discard(beside, at=folder)
            raise
    reached("journal-after-change")


def _rename(view: View, found: Found, path: str) -> None:
    with view.root.entry(found.path) as (old_folder, old), view.root.entry(path) as (new_folder, new):
        if kind_of(found.status) == "folder":
            view.disk.rename(old, new, at=old_folder, to=new_folder)
        elif view.disk.share(old, new, at=old_folder, to=new_folder):  # unlike renaming, it replaces nothing
            view.disk.unlink(old, at=old_folder)
        else:
            view.disk.rename(old, new, at=old_folder, to=new_folder)
