"""What a snapshot leaves out: files and folders that git ignores, found while a tree is scanned.

They are neither saved nor changed nor removed by a restore. The rules are those of `handrail.filesystem.ignore_files`,
without `.ignore` files. A file that the index of the root's own repository has is not ignored, whatever the rules say;
nor is the `.git` of a repository below the root.

The snapshot itself says which paths it leaves out, so a program that changes the rules changes nothing about that.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from contextlib import suppress

from handrail.filesystem.disk import open_folder, open_to_read
from handrail.filesystem.ignore_files import MOST_RULE_BYTES, IgnoreRules
from handrail.filesystem.paths import OWN_GIT, ROOT, join, parent_of
from handrail.filesystem.root import to_text

_GITIGNORE = ".gitignore"


class FolderRules:
    """Which entries of one folder git ignores, while it is scanned."""

    __slots__ = ("_is_ignored", "_path", "_rules", "_tracked")

    def __init__(
        self,
        descriptor: int,
        tracked: frozenset[str],
        path: str = ROOT,
        above: IgnoreRules | None = None,
        *,
        is_ignored: bool = False,
    ) -> None:
        """Read the rules of the folder that a descriptor is open on.

        Args:
            descriptor: the folder.
            tracked: the paths below the root that git tracks, and the folders that hold them.
            path: the folder's path from the root.
            above: the rules of the folders above.
            is_ignored: whether the folder is ignored itself, and holds tracked files.
        """
        present = {_GITIGNORE}
        with suppress(OSError):
            os.stat(OWN_GIT, dir_fd=descriptor, follow_symlinks=False)
            present.add(OWN_GIT)
        # Of a link or a pipe in place of a rule file nothing is read.
        self._rules = (above or IgnoreRules()).with_files(
            present, lambda name: _read_inside(descriptor, *name.split("/"))
        )
        self._tracked = tracked
        self._path = path
        self._is_ignored = is_ignored

    def entered(self, name: str, descriptor: int) -> FolderRules:
        """The rules for the folder `name` in this one."""
        is_ignored = self._matches(name, is_folder=True)
        return FolderRules(
            descriptor,
            self._tracked,
            join(self._path, name),
            self._rules.entered(_spelled_name(name)),
            is_ignored=is_ignored,
        )

    def hides(self, name: str, *, is_folder: bool) -> bool:
        """Whether git ignores the entry `name` of this folder."""
        return self._matches(name, is_folder=is_folder) and join(self._path, name) not in self._tracked

    def _matches(self, name: str, *, is_folder: bool) -> bool:
        if name == OWN_GIT:
            return False
        return self._is_ignored or self._rules.hides(_spelled_name(name), is_folder=is_folder)


def _read_inside(descriptor: int, *parts: str) -> bytes | None:
    """The content of a regular file below a folder, without following links; `None` if it is missing or too large."""
    try:
        with open_folder(descriptor, parts[:-1]) as folder:
            file = open_to_read(parts[-1], at=folder)
    except OSError:
        return None
    with open(file, "rb") as source:  # noqa: PTH123 - a descriptor
        # A pipe that a model has made would never end.
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return None
        content = source.read(MOST_RULE_BYTES + 1)
    return content if len(content) <= MOST_RULE_BYTES else None


def _spelled_name(name: str) -> str:
    """A name from `os.scandir`, as `IgnoreRules` takes it."""
    return name if name.isascii() else to_text(os.fsencode(name))


def names_by_folder(paths: Iterable[str]) -> dict[str, frozenset[str]]:
    """Paths as the names in each folder."""
    names: dict[str, set[str]] = {}
    for path in paths:
        names.setdefault(parent_of(path), set()).add(path.rpartition("/")[2])
    return {folder: frozenset(inner) for folder, inner in names.items()}


def dump_left_out(paths: Iterable[str]) -> bytes:
    """Paths as the content of a blob."""
    return b"".join(os.fsencode(path) + b"\0" for path in sorted(paths))


def load_left_out(content: bytes) -> frozenset[str]:
    """The inverse of `dump_left_out`."""
    return frozenset(os.fsdecode(path) for path in content.split(b"\0") if path)


def spelled(paths: Iterable[str]) -> frozenset[str]:
    """Paths of a scan as the filesystem spells them."""
    return frozenset("/".join(to_text(os.fsencode(part)) for part in path.split("/")) for path in paths)
