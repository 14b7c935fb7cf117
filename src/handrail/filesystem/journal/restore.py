"""Putting images back: how a tree on disk comes to be what it was, whatever it is now.

The images say what is to be at some paths, so putting back is the same whether all of the changes had been made, or
some, or some have been put back already: it may be interrupted and done again. Three passes over the paths:

1. from the deepest up, what is in the way goes: what is not to be there, and what is of another kind;
2. from the top down, folders, files and links are made, each file beside its path first and then renamed;
3. from the deepest up, folders get their permissions, which might have kept the others from being done.

What somebody else made is not lost. It is recognised by not being marked as what the transaction left there; a file or
link is then moved into the journal's folder as `NAME.found`, a folder that holds something is left where it is, or,
where something else belongs, beside it as `NAME.found`. A warning is logged.
"""

from __future__ import annotations

import errno
import logging
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

_LOGGER = logging.getLogger("handrail.filesystem")


class RestoreTarget(NamedTuple):
    """What is to be put back.

    Attributes:
        images: for each path what is to be there, in the order in which they were taken.
        marks: for each path what the transaction left there; `None` if all that is there may go.
        beside: the name under which a file is made before it gets its own.
        shared: whether the files that the journal holds may come into the tree themselves: they are not needed again.
    """

    images: Mapping[str, BeforeImage]
    marks: Mapping[str, Collection[FileIdentity]] | None
    beside: bytes
    shared: bool


class TreeRestorer:
    """Puts images back into a tree."""

    __slots__ = ("_disk", "_images", "_mark", "_root", "_wanted")

    def __init__(
        self, root: Root, images: BeforeImages, wanted: RestoreTarget, mark: Callable[[str, FileIdentity], object]
    ) -> None:
        """Put back what is wanted; `mark` is told what is going to be at a path before it is there."""
        self._root = root
        self._images = images
        self._disk = images.disk
        self._wanted = wanted
        self._mark = mark

    def run(self) -> None:
        """Put everything back.

        Raises:
            OSError: something could not be put back. Doing it again goes on where it stopped.
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
        if status is None or self._images.is_there(image, status):
            return
        with self._root.entry(path) as (folder, name):
            if file_kind(status) == "folder":
                self._clear_folder(path, name, at=folder, needed=image.kind != "nothing")
            elif not self._is_ours(path, file_identity(status)):
                aside = self._images.set_aside(name, at=folder)
                _LOGGER.warning(
                    "%r was changed by somebody else before it was put back; what was there is %r in the journal's "
                    "folder now",
                    path,
                    aside,
                )
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
            if not needed:
                _LOGGER.warning("the folder %r holds what somebody else put there, so it stays", path)
                return
            aside = unused(name, at=at, disk=self._disk)
            self._disk.rename(name, aside, at=at, to=at)
            _LOGGER.warning("the folder %r holds what somebody else put there; it is called %r now", path, aside)

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
        self._disk.discard(beside, at=at)
        if image.kind == "symlink":
            self._disk.make_link(image.target, beside, at=at)
        else:
            self._images.put(image, beside, at=at, shared=self._wanted.shared)
        self._mark(path, file_identity(self._disk.look(beside, at=at)))
        self._disk.rename(beside, name, at=at, to=at)

    def _make_missing_above(self, path: str) -> None:
        missing = [folder for folder in ancestors_of(path) if self._root.look(folder) is None]
        for folder in reversed(missing):
            with self._root.entry(folder) as (parent, name):
                self._disk.make_folder(name, at=parent)
            _LOGGER.warning("the folder %r was removed by somebody else, and is needed: it is there again", folder)

    def _dress(self, path: str, image: BeforeImage) -> None:
        status = self._root.look(path)
        if status is None or (stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid) == (image.mode, *image.owner):
            return
        with self._root.folder(path, listed=True) as folder:
            self._disk.dress(folder, owner=image.owner, mode=image.mode)


def _depth(item: tuple[str, BeforeImage]) -> int:
    return item[0].count("/")
