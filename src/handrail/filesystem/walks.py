"""Walks through folders for listings and searches: the request, the result and the bounds.

One walk serves every filesystem; a filesystem only lists its folders (`FolderReader`). A walk lists each folder once,
and only folders that can hold a match; it obeys a filter, ignore files if requested, and bounds of time, number and
depth. It counts what it leaves out for any of these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias

from handrail.filesystem.ignore_files import RULE_NAMES, IgnoreRules, ReadRuleFile
from handrail.filesystem.path_filters import PathFilter, PathPattern, Places
from handrail.filesystem.paths import MAX_DEPTH, ROOT, depth_of, join

Stopped: TypeAlias = Literal["time", "number"]
"""Why a walk stopped early."""


@dataclass(frozen=True, slots=True)
class FileStat:
    """What there is at a path.

    Attributes:
        path: the path, relative to the root, in its shortest form.
        kind: `"file"`, `"folder"`, `"symlink"` where the store has links (the link itself, not its target), or
            `"special"` for a device, socket or fifo, which is neither read nor changed.
        size: bytes of a file's content; 0 for anything else.
    """

    path: str
    kind: Literal["file", "folder", "symlink", "special"]
    size: int


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class WalkRequest:
    """The options of a walk.

    Attributes:
        ignored: whether it also finds what ignore files hide.
        most: how many files and folders it looks at; `None` for any number.
        is_over: whether its time is over; called before each folder is listed.
    """

    ignored: bool = True
    most: int | None = None
    is_over: Callable[[], bool] = _never


EVERYTHING: Final = WalkRequest()
"""Everything, without bounds."""


@dataclass(frozen=True, slots=True)
class Scan:
    """What a walk has found.

    Attributes:
        entries: the files and folders that match, sorted by path.
        looked_at: how many files and folders it looked at.
        ignored: how many it left out because of ignore files; what lies in a folder that was left out is not counted.
        unlisted: how many it left out because of the filter, in the same way. What does not exist is not counted.
        too_deep: how many folders it did not look into because they lie at the greatest depth.
        stopped: why it stopped early; `None` if it did not.
        start_ignored: whether ignore files hide the start folder itself. Then nothing was looked at.
    """

    entries: tuple[FileStat, ...] = ()
    looked_at: int = 0
    ignored: int = 0
    unlisted: int = 0
    too_deep: int = 0
    stopped: Stopped | None = None
    start_ignored: bool = False


class FolderReader(Protocol):
    """What a walk needs of a filesystem; paths are without links."""

    def listed(self, folder: str) -> Iterable[FileStat]:
        """All that a folder holds, sorted and unfiltered; nothing if it no longer exists."""
        ...

    def rule_file(self, path: str) -> bytes | None:
        """The content of an ignore file, whatever the filter; `None` if it is not a file, or too large."""
        ...


class Start(NamedTuple):
    """Where a walk begins.

    Attributes:
        path: the folder as it was given; results are named by it.
        real: the folder without links.
    """

    path: str
    real: str


class _Visit(NamedTuple):
    """A folder that is still to be listed: its paths, and the state on entering it."""

    path: str
    real: str
    places: Places
    rules: IgnoreRules | None


@dataclass(slots=True)
class _Walk:
    """One walk in progress. One call owns it, and uses it once."""

    pattern: PathPattern
    folders: FolderReader
    path_filter: PathFilter
    look: WalkRequest
    entries: list[FileStat] = field(default_factory=list[FileStat])
    looked_at: int = 0
    ignored: int = 0
    unlisted: int = 0
    too_deep: int = 0
    stopped: Stopped | None = None

    def run(self, start: _Visit) -> Scan:
        to_visit = [start]
        while to_visit and self.stopped is None:
            if self.look.is_over():
                self.stopped = "time"
                break
            to_visit.extend(reversed(self._visited(to_visit.pop())))
        entries = tuple(sorted(self.entries, key=lambda stat: stat.path))
        return Scan(entries, self.looked_at, self.ignored, self.unlisted, self.too_deep, self.stopped)

    def _visited(self, folder: _Visit) -> list[_Visit]:
        """Look at what a folder holds; returns the folders in it that are to be visited."""
        # A tuple, because it is read twice: the rules of the folder must be known before its first entry is judged.
        listed = tuple(self.folders.listed(folder.real))
        rules = folder.rules
        if rules is not None:
            rules = rules.with_files(_rule_names(listed), _reading(self.folders, folder.real))
        inner: list[_Visit] = []
        for stat in listed:
            # Compared before the next entry, so a walk that has looked at everything is not reported as stopped.
            if self.looked_at == self.look.most:
                self.stopped = "number"
                break
            self.looked_at += 1
            visit = self._looked(folder, stat, rules)
            if visit is not None:
                inner.append(visit)
        return inner

    def _looked(self, folder: _Visit, stat: FileStat, rules: IgnoreRules | None) -> _Visit | None:
        """Add one entry of a folder if it matches; returns a folder that can hold a match, to be visited."""
        name = stat.path.rpartition("/")[2]
        is_folder = stat.kind == "folder"
        places = self.pattern.after(name, folder.places)
        leads_on = is_folder and self.pattern.leads_on(places)
        # Before the filter and the rules: what the pattern does not match is not counted as left out, and costs least.
        if not leads_on and self.pattern.end not in places:
            return None
        path = stat.path if folder.path == folder.real else join(folder.path, name)
        # Also for a folder: what is left out is not visited, so nothing in it is shown, whatever the patterns for it.
        if self._left_out(path, stat, rules):
            return None
        if self.pattern.end in places:
            self.entries.append(stat if path == stat.path else FileStat(path, stat.kind, stat.size))
        if leads_on and depth_of(path) >= MAX_DEPTH:
            self.too_deep += 1
        elif leads_on:
            return _Visit(path, stat.path, places, None if rules is None else rules.entered(name))
        return None

    def _left_out(self, path: str, stat: FileStat, rules: IgnoreRules | None) -> bool:
        """Whether an entry is left out; it is counted if it exists."""
        is_folder = stat.kind == "folder"
        # Not counted: the number would reveal that something is there.
        if self.path_filter.hides(path, stat.path, is_folder=is_folder):
            return True
        ignored = rules is not None and rules.hides(stat.path.rpartition("/")[2], is_folder=is_folder)
        unlisted = not ignored and self.path_filter.unlisted(stat.path, is_folder=is_folder)
        self.ignored += ignored
        self.unlisted += unlisted
        return ignored or unlisted


def walk(start: Start, pattern: PathPattern, folders: FolderReader, path_filter: PathFilter, look: WalkRequest) -> Scan:
    """Everything in a folder whose path from there matches.

    Args:
        start: the folder.
        pattern: see `Filesystem.glob`; relative to the folder.
        folders: lists the folders.
        path_filter: the filter that it obeys.
        look: the options.
    """
    # A walk may begin in a folder that the files above hide, or for which they have rules.
    rules = None if look.ignored else _rules_above(start.real, folders)
    if rules is None and not look.ignored:
        return Scan(start_ignored=True)
    return _Walk(pattern, folders, path_filter, look).run(_Visit(start.path, start.real, pattern.start, rules))


def _rules_above(folder: str, folders: FolderReader) -> IgnoreRules | None:
    """The rules of the ignore files above a folder for it; `None` if they hide it."""
    rules, above = IgnoreRules(), ROOT
    # The folder's own files are read when it is visited.
    for name in [] if folder == ROOT else folder.split("/"):
        rules = rules.with_files(_rule_names(folders.listed(above)), _reading(folders, above))
        if rules.hides(name, is_folder=True):
            return None
        rules, above = rules.entered(name), join(above, name)
    return rules


def _reading(folders: FolderReader, folder: str) -> ReadRuleFile:
    return lambda name: folders.rule_file(join(folder, name))


def _rule_names(listed: Iterable[FileStat]) -> frozenset[str]:
    return frozenset(name for stat in listed if (name := stat.path.rpartition("/")[2]) in RULE_NAMES)
