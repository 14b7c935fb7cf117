"""Which files and folders git ignores, found while a tree is scanned.

`FolderRules` is the state of one folder. Its files are read only when a new name has to be decided about: what was
ignored stays ignored while the `.gitignore` files and `info/exclude` are the same.

The rules are those of `handrail.filesystem.ignore_files`, without `.ignore` files. A folder counts as ignored too if a
tool marks it as made by itself: a virtual environment (`pyvenv.cfg`), a cache (`CACHEDIR.TAG`), and a folder whose own
`.gitignore` hides everything in it. Which files git tracks is not considered.
"""

from __future__ import annotations

import hashlib
import os
import stat
from contextlib import suppress
from typing import Final

from handrail.filesystem.disk import open_folder, open_to_read
from handrail.filesystem.ignore_files import MOST_RULE_BYTES, IgnoreRules
from handrail.filesystem.paths import OWN_GIT
from handrail.filesystem.root import to_text

GITIGNORE: Final = ".gitignore"
"""The name of git's ignore files."""

_EXCLUDE: Final = (OWN_GIT, "info", "exclude")
_ENVIRONMENT: Final = "pyvenv.cfg"
_CACHE: Final = "CACHEDIR.TAG"
_CACHE_SIGNATURE: Final = b"Signature: 8a477f597d28d172789f06886806bc55"  # https://bford.info/cachedir/


class FolderRules:
    """The rules for one folder, while it is scanned.

    Attributes:
        is_unchanged: whether the rules are the same as in the scan before.
    """

    __slots__ = ("_above", "_descriptor", "_name", "_rules", "is_unchanged")

    def __init__(
        self, descriptor: int, *, is_unchanged: bool, above: FolderRules | None = None, name: str = ""
    ) -> None:
        """The rules of the folder that a descriptor is open on, until it is closed."""
        self.is_unchanged: bool = is_unchanged
        self._descriptor = descriptor
        self._above = above
        self._name = name
        self._rules: IgnoreRules | None = None

    def entered(self, name: str, descriptor: int) -> FolderRules:
        """The rules for the folder `name` in this one."""
        return FolderRules(descriptor, is_unchanged=self.is_unchanged, above=self, name=name)

    def hides(self, name: str, *, is_folder: bool) -> bool:
        """Whether git ignores the entry `name` of this folder."""
        # The `.git` of a repository in the tree is never ignored, whatever the patterns say.
        if name == OWN_GIT:
            return False
        if self._read().hides(_spelled(name), is_folder=is_folder):
            return True
        return is_folder and _is_made_by_a_tool(self._descriptor, name)

    def _read(self) -> IgnoreRules:
        if self._rules is None:
            rules = IgnoreRules() if self._above is None else self._above.rules_in(self._name)
            present = {GITIGNORE}
            with suppress(OSError):
                os.stat(OWN_GIT, dir_fd=self._descriptor, follow_symlinks=False)
                present.add(OWN_GIT)
            self._rules = rules.with_files(present, self._rule_file)
        return self._rules

    def rules_in(self, name: str) -> IgnoreRules:
        """The rules of this folder, as they apply in the folder `name` in it."""
        return self._read().entered(_spelled(name))

    def _rule_file(self, path: str) -> bytes | None:
        # Only the `info/exclude` of the root: those of repositories below it are not compared between scans.
        if path == GITIGNORE or self._above is None:
            return read_inside(self._descriptor, *path.split("/"))
        return None


def exclude_digest(descriptor: int) -> str:
    """A digest of the root's `info/exclude`."""
    return hashlib.blake2b(read_inside(descriptor, *_EXCLUDE) or b"", digest_size=16).hexdigest()


def read_inside(descriptor: int, *parts: str) -> bytes | None:
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


def _spelled(name: str) -> str:
    """A name from `os.scandir`, as `IgnoreRules` takes it."""
    return name if name.isascii() else to_text(os.fsencode(name))


def _is_made_by_a_tool(descriptor: int, name: str) -> bool:
    with suppress(OSError):
        os.stat(f"{name}/{_ENVIRONMENT}", dir_fd=descriptor, follow_symlinks=False)
        return True
    if (read_inside(descriptor, name, _CACHE) or b"").startswith(_CACHE_SIGNATURE):
        return True
    lines = [line.strip() for line in (read_inside(descriptor, name, GITIGNORE) or b"").splitlines()]
    return b"*" in lines and not any(line.startswith(b"!") for line in lines)
