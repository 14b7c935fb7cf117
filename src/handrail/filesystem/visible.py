"""Which part of a folder on disk a filesystem shows: patterns of what to include and what to exclude."""

from __future__ import annotations

from collections.abc import Iterable

from handrail.filesystem.paths import ROOT, ancestors_of
from handrail.filesystem.patterns import Pattern


class Visible:
    """Patterns of what is shown and of what is not.

    A pattern is one of `Filesystem.glob`; one without a slash fits a name in any folder, as in a `.gitignore`. A path
    is shown if a pattern of `include` fits it or a folder that it lies in, and none of `exclude` does. A folder that
    may hold something to be shown is shown, so that it can be reached. `folder/**` in `exclude` hides the folder too.
    """

    __slots__ = ("_everything", "_exclude", "_include")

    def __init__(self, include: Iterable[str], exclude: Iterable[str]) -> None:
        """Take the patterns.

        Raises:
            PathEscapeError: one is none inside the root.
        """
        include, exclude = tuple(include), tuple(exclude)
        self._include = tuple((given, Pattern(_anywhere(given))) for given in include)
        self._exclude = tuple((given, Pattern(_anywhere(given).removesuffix("/**") or given)) for given in exclude)
        self._everything = not exclude and "**" in include

    def shows(self, path: str, *, is_folder: bool) -> bool:
        """Whether what is at a path is shown."""
        return self.why_not(path, is_folder=is_folder) is None

    def why_not(self, path: str, *, is_folder: bool) -> str | None:
        """What hides a path, to complete "it is hidden by ..."; `None` if it is shown."""
        if self._everything or path == ROOT:
            return None
        chain = [path, *ancestors_of(path)][:-1]
        for given, pattern in self._exclude:
            if any(pattern.fits(each) for each in chain):
                return f"the exclude pattern {given!r}"
        for _, pattern in self._include:
            if any(pattern.fits(each) for each in chain) or (is_folder and pattern.leads_through(path)):
                return None
        return f"the include patterns {', '.join(repr(given) for given, _ in self._include)}, which do not fit it"


def _anywhere(pattern: str) -> str:
    return pattern if "/" in pattern.rstrip("/") or pattern == "**" else f"**/{pattern}"
