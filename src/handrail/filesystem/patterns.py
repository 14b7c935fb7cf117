"""Patterns over paths, as `Filesystem.glob` accepts them, matched part by part.

A pattern is matched while folders are walked, so only folders that can hold a match are listed, and no pattern takes
longer than the walk times its own length. The places in a pattern that a path can have reached are numbers of parts; a
path matches when it has reached the end.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Generic, TypeAlias, TypeVar

from handrail.errors import PathEscapeError
from handrail.filesystem.paths import composed, normalise

_ANY_FOLDERS: Final = "**"

_BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")

_MOST_ALTERNATIVES = 100
"""How many texts the braces in one part of a pattern may stand for."""

Name = TypeVar("Name", str, bytes)
"""One part of a path."""

Places: TypeAlias = frozenset[int]
"""The places in a pattern that a path has reached."""

NOWHERE: Final[Places] = frozenset()
"""The path does not match, and nothing below it does."""


class PathMatcher(Generic[Name]):
    """Decides, part by part, whether a path matches.

    Attributes:
        end: the place that a path has reached when it matches.
        start: the places before the first part.
    """

    __slots__ = ("_fits", "end", "start")

    def __init__(self, fits: Sequence[Callable[[Name], object] | None]) -> None:
        """Take the test of a name for each part; `None` stands for any number of folders."""
        self._fits: tuple[Callable[[Name], object] | None, ...] = tuple(fits)
        self.end: int = len(self._fits)
        self.start: Places = self._reached({0})

    def after(self, name: Name, places: Places) -> Places:
        """The places that a path has reached when its next part is `name`."""
        # All places at once: a path may have reached several. Trying one after the other would take longer with each
        # `**` by a factor of the depth.
        following: set[int] = set()
        for place in places:
            if place == self.end:
                continue
            fits = self._fits[place]
            if fits is None:
                # A `None` takes this part, and may take the next one too.
                following.add(place)
            elif fits(name):
                following.add(place + 1)
        return self._reached(following) if following else NOWHERE

    def leads_on(self, places: Places) -> bool:
        """Whether something below may match."""
        return min(places, default=self.end) < self.end

    def _reached(self, places: set[int]) -> Places:
        """The places, and those after a `None` that stands for no folder."""
        # `sorted` copies, because places are added meanwhile.
        for place in sorted(places):
            skipped = place
            while skipped < self.end and self._fits[skipped] is None:
                skipped += 1
                places.add(skipped)
        return frozenset(places)


PathPattern: TypeAlias = PathMatcher[str]
"""The matcher for paths of a filesystem: a `Pattern`, or the rest of one."""


class Pattern(PathMatcher[str]):
    """One pattern of `Filesystem.glob`."""

    __slots__ = ()

    def __init__(self, pattern: str) -> None:
        """Parse a pattern.

        Raises:
            PathEscapeError: it is not a pattern inside the root.
        """
        parts = normalise(pattern, noun="pattern").split("/")
        if parts[-1] == _ANY_FOLDERS:
            parts.append("*")  # at the end: everything below, but not the folder itself
        if "," in pattern and any(part.count("{") != part.count("}") for part in parts):
            msg = "braces in a pattern close before a slash; write '{src,tests}/*.{ts,tsx}', or each path by itself"
            raise PathEscapeError(msg, path=pattern)
        super().__init__([None if part == _ANY_FOLDERS else fits_name(part) for part in parts])

    def fits_at_or_above(self, parts: Iterable[str]) -> bool:
        """Whether the pattern matches a path, given as its parts, or a folder that it lies in."""
        places = self.start
        for name in parts:
            places = self.after(name, places)
            if self.end in places:
                return True
            if not places:
                return False
        return False

    def leads_through(self, folder: str) -> bool:
        """Whether the pattern may match something in a folder."""
        return self.leads_on(self._places(folder))

    def _places(self, path: str) -> Places:
        places = self.start
        for name in path.split("/"):
            places = self.after(name, places)
        return places


def _alternatives(part: str) -> list[str]:
    """A part of a pattern with braces, which names may have, too, and all that it stands for."""
    texts = [part]
    for text in texts:  # grows while it is walked
        braces = _BRACES.search(text)
        if braces is not None:
            texts += [f"{text[: braces.start()]}{each}{text[braces.end() :]}" for each in braces[1].split(",")]
        if len(texts) > _MOST_ALTERNATIVES:
            msg = f"the braces of the pattern stand for more than {_MOST_ALTERNATIVES} texts; give fewer of them"
            raise PathEscapeError(msg, path=part)
    return texts


def name_expression(part: str) -> str:
    """The regular expression of the names that match one part of a pattern, with `*`, `?`, brackets and braces.

    `[^a]` is `[!a]`, as in rules. A bracket stands for itself, too: `[id].ts` matches the file of that name.
    """
    parts = _alternatives(composed(part))
    texts = [each for text in parts for each in dict.fromkeys((text.replace("[^", "[!"), text.replace("[", "[[]")))]
    # The expressions of `translate` do not backtrack over stars, so a pattern that a model has written cannot make a
    # walk hang.
    return "|".join(map(fnmatch.translate, texts))


def fits_name(part: str) -> Callable[[str], object]:
    """The test of whether a name matches one part of a pattern."""
    # Not `fnmatch.fnmatch`, which ignores case on Windows.
    match = re.compile(name_expression(part)).match
    return lambda name: match(composed(name))
