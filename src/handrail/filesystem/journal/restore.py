"""Restores a tree on disk from before-images, whatever its present state.

The images define what is to be at some paths, so restoring is the same whether all changes were made, or some, or some
have been restored already: it can be interrupted and repeated. Three passes over the paths:

1. from the deepest up, remove what is not to be there or is of another kind;
2. from the top down, make folders, files and links, each file under a temporary name first and then renamed;
3. from the deepest up, set the permissions of folders, which might have prevented the other passes.

What another process made is not lost. It is recognised by not being marked as made by the transaction; a file or link
is then moved into the journal's folder as `NAME.found`. A folder that is not empty, a device, a socket or a fifo stays
where it is, or, if something else belongs there, is renamed to `NAME.found`: it cannot be moved to another disk, where
the journal's folder may be. A warning is logged.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from handrail.filesystem.journal.before_images import (
    BeforeImage,
    BeforeImages,
    FileIdentity,
    file_identity,
    file_kind,
    unused,
)
from handrail.filesystem.paths import ancestors_of
from handrail.filesystem.root import Root
from handrail.redaction import redacted_logger

_LOGGER = redacted_logger("handrail.filesystem")


class RestoreTarget(NamedTuple):
    """What is to be restored.

    Attributes:
        images: for each path what is to be there, in the order in which they were taken.
        marks: for each path what the transaction put there; `None` if anything there may be removed.
        beside: the temporary name under which a file is made.
        shared: whether the journal's files may be linked into the tree, since they are not needed again.
    """

    images: Mapping[str, BeforeImage]
    marks: Mapping[str, Collection[FileIdentity]] | None
    beside: bytes
    shared: bool


class TreeRestorer:
    """Restores images in a tree."""

    __slots__ = ("_disk", "_images", "_mark", "_root", "_wanted")

    def __init__(
        self, root: Root, images: BeforeImages, wanted: RestoreTarget, mark: Callable[[str, FileIdentity], object]
    ) -> None:
        """Restore what is wanted; `mark` is called with what will be at a path before it is made."""
        self._root = root
        self._images = images
        self._disk = images.disk
        self._wanted = wanted
        self._mark = mark

    def run(self) -> None:
        """Restore everything.

        Raises:
            OSError: something could not be restored. A repetition continues where it stopped.
        """
        newest_first = tuple(reversed(tuple(self._wanted.images.items())))  # one file may have had two spellings
        deepest_first = sorted(newest_first, key=_depth, reverse=True)
        for path, image in deepest_first:
            self._clear(path, image)
        for path, image in sorted(newest_first, key=_depth):
            if image.kind != "nothing":
                self._make(path, image)
        for path, image in deepest_first:
            if image.kind == "folder":
                self._dress(path, image)

    def _clear(self, path: str, image: BeforeImage) -> None:
        status = self._root.look(path)
        # What an earlier attempt has restored is left as it is.
        if status is None or self._images.is_there(image, status):
            return
        with self._root.entry(path) as (folder, name):
            # A folder is not compared with the marks: it is removed only if it is empty, so nothing can be lost with
            # it.
            kind, needed = file_kind(status), image.kind != "nothing"
            is_ours = self._is_ours(path, file_identity(status))
            if kind == "folder":
                self._clear_folder(path, name, at=folder, needed=needed)
            elif kind == "special" and not is_ours:
                what = f"{path!r} is a device, socket or fifo of another process"
                self._leave_in_tree(what, name, at=folder, needed=needed)
            elif not is_ours:
                aside = self._images.set_aside(name, at=folder)
                _LOGGER.warning(
                    "%r was changed by another process before it was restored; what was there is now %r in the "
                    "journal's folder",
                    path,
                    aside,
                )
            # A file or link stays until `_make_anew` renames the old one over it, so that readers find one of the two.
            elif image.kind in {"nothing", "folder"}:
                self._disk.unlink(name, at=folder)

    def _is_ours(self, path: str, mark: FileIdentity) -> bool:
        return self._wanted.marks is None or mark in self._wanted.marks.get(path, ())

    def _clear_folder(self, path: str, name: bytes, *, at: int, needed: bool) -> None:
        try:
            self._disk.remove_folder(name, at=at)
        except OSError as error:
            if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
                raise
            self._leave_in_tree(f"the folder {path!r} holds files of another process", name, at=at, needed=needed)

    def _leave_in_tree(self, what: str, name: bytes, *, at: int, needed: bool) -> None:
        """Leave what another process made, under another name if its own is needed."""
        if not needed:
            _LOGGER.warning("%s, so it stays", what)
            return
        # If another process takes this name meanwhile, the rename fails, or replaces an empty folder.
        aside = unused(name, at=at, disk=self._disk)
        self._disk.rename(name, aside, at=at, to=at)
        _LOGGER.warning("%s; it is now called %r", what, os.fsdecode(aside))

    def _make(self, path: str, image: BeforeImage) -> None:
        self._make_missing_above(path)
        with self._root.entry(path) as (folder, name):
            status = self._disk.look(name, at=folder)
            if status is None or not self._images.is_there(image, status):
                self._make_anew(path, image, name, at=folder)

    def _make_anew(self, path: str, image: BeforeImage, name: bytes, *, at: int) -> None:
        if image.kind == "folder":
            self._mark(path, image.mark)
            self._disk.make_folder(name, at=at)
            return
        beside = self._wanted.beside
        # An attempt that failed or crashed may have left one.
        self._disk.discard(beside, at=at)
        if image.kind == "symlink":
            self._disk.make_link(image.target, beside, at=at)
        else:
            self._images.put(image, beside, at=at, shared=self._wanted.shared)
        # Before the rename: in the other order, a crash between the two would leave a file without a mark, and the next
        # attempt would set it aside as one of another process.
        self._mark(path, file_identity(self._disk.look(beside, at=at)))
        self._disk.rename(beside, name, at=at, to=at)

    def _make_missing_above(self, path: str) -> None:
        for folder in reversed(tuple(ancestors_of(path))):
            status = self._root.look(folder)
            if status is not None and stat.S_ISDIR(status.st_mode):
                continue
            # Without a mark: the folder has no image, and `read_journal` takes a mark without an image for damage.
            with self._root.entry(folder) as (parent, name):
                if status is not None:
                    self._move_away(folder, name, at=parent, kind=file_kind(status))
                self._disk.make_folder(name, at=parent)
            _LOGGER.warning(
                "the folder %r was removed or replaced by another process, and is needed: it was made again", folder
            )

    def _move_away(self, path: str, name: bytes, *, at: int, kind: str) -> None:
        """Move what another process put in the place of a folder; a link is moved, and what it leads to stays."""
        if kind == "special":
            self._leave_in_tree(f"{path!r} is a device, socket or fifo of another process", name, at=at, needed=True)
            return
        aside = self._images.set_aside(name, at=at)
        _LOGGER.warning("%r, which another process put there, is now %r in the journal's folder", path, aside)

    def _dress(self, path: str, image: BeforeImage) -> None:
        status = self._root.look(path)
        if status is None or (stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid) == (image.mode, *image.owner):
            return
        # `listed`, because a descriptor of O_PATH does not permit `fchmod`.
        with self._root.folder(path, listed=True) as folder:
            self._disk.dress(folder, owner=image.owner, mode=image.mode)


def _depth(item: tuple[str, BeforeImage]) -> int:
    return item[0].count("/")
