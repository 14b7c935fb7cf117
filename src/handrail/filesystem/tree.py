"""Files and folders in memory, by path.

A tree keeps two tables that always agree: what is at each path, and the names in each folder. It knows no rules: that a
file's folder exists is for whoever puts the file there.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, Literal, TypeAlias

from handrail.filesystem.paths import ROOT, join


class Place(Enum):
    """What can be at a path other than a file."""

    FOLDER = "folder"
    NOTHING = "nothing"


FOLDER: Final = Place.FOLDER
"""There is a folder at the path."""

NOTHING: Final = Place.NOTHING
"""There is nothing at the path."""

Entry: TypeAlias = bytes | Place
"""What is at a path: the content of a file, a folder, or nothing."""

Present: TypeAlias = bytes | Literal[Place.FOLDER]
"""What is at a path where there is something."""


class Tree:
    """What is at each path; at first the root alone."""

    __slots__ = ("_entries", "_names")

    def __init__(self) -> None:
        """Make a tree that holds the root alone."""
        self._entries: dict[str, Entry] = {ROOT: FOLDER}
        self._names: dict[str, set[str]] = {}

    def at(self, path: str) -> Entry:
        """What is at a path."""
        return self._entries.get(path, NOTHING)

    def put(self, path: str, entry: Entry) -> None:
        """Let `entry` be at a path; in which order several paths are put makes no difference."""
        folder, _, name = path.rpartition("/")
        folder = folder or ROOT
        if entry is not NOTHING:
            self._entries[path] = entry
            self._names.setdefault(folder, set()).add(name)
            return
        self._entries.pop(path, None)
        names = self._names.get(folder)
        if names is not None:
            names.discard(name)
            if not names:
                del self._names[folder]

    def names(self, folder: str) -> list[str]:
        """The names in a folder, sorted."""
        return sorted(self._names.get(folder, ()))

    def count(self, folder: str) -> int:
        """How many files and folders a folder holds."""
        return len(self._names.get(folder, ()))

    def subtree(self, path: str) -> list[str]:
        """A path and everything below it; each folder comes before what it holds."""
        paths = [path]
        for folder in paths:  # grows while it is walked
            paths.extend(join(folder, name) for name in self._names.get(folder, ()))
        return paths
