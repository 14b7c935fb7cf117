"""Patterns over paths, as `Filesystem.glob` takes them.

A pattern is matched part by part while folders are walked, so only folders that can hold a match are listed, and no
pattern takes longer than the walk times its own length. The places in a pattern that a path can have reached are
numbers of parts; a path fits when it has reached the end.
"""

from __future__ import annotations

import fnmatch
import re
from typing import TYPE_CHECKING, Final

from handrail.filesystem.paths import ROOT, normalise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from handrail.filesystem.protocol import FileStat

_ANY_FOLDERS: Final = "**"


def find(pattern: str, list_folder: Callable[[str], Iterable[FileStat]]) -> tuple[FileStat, ...]:
    """Everything below the root whose path fits, sorted by path.

    Args:
        pattern: see `Filesystem.glob`.
        list_folder: says what a folder holds; called with folders that can hold a match.

    Raises:
        PathEscapeError: the pattern is none inside the root.
    """
    parts = Pattern(pattern)
    found: list[FileStat] = []
    to_visit = [(ROOT, parts.reached({0}))]
    while to_visit:
        folder, places = to_visit.pop()
        for stat in list_folder(folder):
            reached = parts.after(stat.path.rpartition("/")[2], places)
            if parts.end in reached:
                found.append(stat)
            if stat.kind == "folder" and min(reached, default=parts.end) < parts.end:
                to_visit.append((stat.path, reached))
    return tuple(sorted(found, key=lambda stat: stat.path))


class Pattern:
    """The parts of one pattern, each as what decides whether a name fits; `None` is any number of folders.

    Attributes:
        end: the place that a path has reached when it fits.
    """

    __slots__ = ("_fits", "end")

    def __init__(self, pattern: str) -> None:
        """Take a pattern apart.

        Raises:
            PathEscapeError: it is none inside the root.
        """
        parts = normalise(pattern).split("/")
        if parts[-1] == _ANY_FOLDERS:
            parts.append("*")  # at the end: everything below, but not what it is below of
        self.end = len(parts)
        self._fits = [None if part == _ANY_FOLDERS else re.compile(fnmatch.translate(part)).match for part in parts]

    def reached(self, places: set[int]) -> set[int]:
        """The places, and those that follow on a `**` that stands for no folder at all."""
        for place in sorted(places):
            skipped = place
            while skipped < self.end and self._fits[skipped] is None:
                skipped += 1
                places.add(skipped)
        return places

    def after(self, name: str, places: set[int]) -> set[int]:
        """Where in the pattern a path is when its next part is `name`."""
        following: set[int] = set()
        for place in places:
            if place == self.end:
                continue
            fits = self._fits[place]
            if fits is None:
                following.add(place)
            elif fits(name):
                following.add(place + 1)
        return self.reached(following)

    def fits(self, path: str) -> bool:
        """Whether the pattern fits a path."""
        return self.end in self._places(path)

    def leads_through(self, folder: str) -> bool:
        """Whether the pattern may fit something in a folder."""
        return min(self._places(folder), default=self.end) < self.end

    def _places(self, path: str) -> set[int]:
        places = self.reached({0})
        for name in path.split("/"):
            places = self.after(name, places)
        return places
