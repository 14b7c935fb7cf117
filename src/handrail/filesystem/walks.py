"""Walking through folders for listings and searches: what is asked for, what is found, and how far a walk goes.

One walk serves every filesystem; a filesystem says only what each folder holds (`FolderReader`). A walk lists each
folder once, and only folders that can hold a match; it keeps to a filter, to ignore files if it is asked to, and to
bounds of time, number and depth. What it left out for any of these it counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias

from handrail.filesystem.ignore_files import RULE_NAMES, IgnoreRules, ReadRuleFile
from handrail.filesystem.path_filters import PathFilter
from handrail.filesystem.paths import MAX_DEPTH, ROOT, depth_of, join
from handrail.filesystem.patterns import NOWHERE, PathPattern, Pattern, Places

Stopped: TypeAlias = Literal["time", "number"]
"""What ended a walk before its end."""


@dataclass(frozen=True, slots=True)
class FileStat:
    """What there is at a path.

    Attributes:
        path: the path, relative to the root, in its shortest form.
        kind: `"file"`, `"folder"`, `"symlink"` where the store has links (it tells of the link, not of its target), or
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
    """How a walk looks.

    Attributes:
        ignored: whether it finds what ignore files hide, too.
        most: how many files and folders it looks at; `None` for any number.
        is_over: whether the time for it is over; asked before each folder is listed.
    """

    ignored: bool = True
    most: int | None = None
    is_over: Callable[[], bool] = _never


EVERYTHING: Final = WalkRequest()
"""All of it, however long it takes."""


@dataclass(frozen=True, slots=True)
class Scan:
    """What a walk has found.

    Attributes:
        entries: the files and folders that fit, sorted by path.
        looked_at: how many files and folders it looked at.
        ignored: how many it left out because of ignore files; what lies in a folder that was left out is not counted.
        unlisted: how many it left out because of the filter, in the same way. What does not exist is not counted.
        too_deep: how many folders it did not look into because they lie at the greatest depth.
        stopped: what ended it before its end; `None` for nothing.
        start_ignored: whether ignore files hide the folder itself that it was to begin in. Then nothing was looked at.
    """

    entries: tuple[FileStat, ...] = ()
    looked_at: int = 0
    ignored: int = 0
    unlisted: int = 0
    too_deep: int = 0
    stopped: Stopped | None = None
    start_ignored: bool = False


class FolderReader(Protocol):
    """What a walk asks of a filesystem; paths are without links."""

    @property
    def path_filter(self) -> PathFilter:
        """What keeps paths back."""
        ...

    def listed(self, folder: str) -> Iterable[FileStat]:
        """All that a folder holds, whatever the filter says, sorted; nothing if it is no longer there."""
        ...

    def rule_names(self, folder: str) -> frozenset[str]:
        """Which of `RULE_NAMES` a folder holds."""
        ...

    def rule_file(self, path: str) -> bytes | None:
        """The content of an ignore file, whatever the filter says; `None` if it is no file, or a large one."""
        ...


class Start(NamedTuple):
    """Where a walk begins.

    Attributes:
        path: the folder as it was given; what is found is named so.
        real: the folder without links.
    """

    path: str
    real: str


class _Visit(NamedTuple):
    """A folder that is still to be listed: its paths, and what is known on entering it."""

    path: str
    real: str
    places: Places
    rules: IgnoreRules | None


@dataclass(slots=True)
class _Walk:
    """One walk under way. One call owns it, and uses it once."""

    pattern: PathPattern
    folders: FolderReader
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
        listed = tuple(self.folders.listed(folder.real))
        rules = folder.rules
        if rules is not None:
            rules = rules.with_files(_rule_names(listed), _reading(self.folders, folder.real))
        inner: list[_Visit] = []
        for stat in listed:
            if self.looked_at == self.look.most:
                self.stopped = "number"
                break
            self.looked_at += 1
            visit = self._looked(folder, stat, rules)
            if visit is not None:
                inner.append(visit)
        return inner

    def _looked(self, folder: _Visit, stat: FileStat, rules: IgnoreRules | None) -> _Visit | None:
        """Note one thing in a folder if it fits; a folder that can hold a match is to be visited."""
        name = stat.path.rpartition("/")[2]
        is_folder = stat.kind == "folder"
        places = self.pattern.after(name, folder.places)
        leads_on = is_folder and self.pattern.leads_on(places)
        if not leads_on and self.pattern.end not in places:
            return None
        path = stat.path if folder.path == folder.real else join(folder.path, name)
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
        """Whether something is left out, which is counted if it exists."""
        is_folder = stat.kind == "folder"
        if self.folders.path_filter.hides(path, stat.path, is_folder=is_folder):
            return True
        ignored = rules is not None and rules.hides(stat.path.rpartition("/")[2], is_folder=is_folder)
        unlisted = not ignored and self.folders.path_filter.unlisted(stat.path, is_folder=is_folder)
        self.ignored += ignored
        self.unlisted += unlisted
        return ignored or unlisted


def walk(start: Start, pattern: str | PathPattern, folders: FolderReader, look: WalkRequest = EVERYTHING) -> Scan:
    """Everything in a folder whose path from there fits.

    Args:
        start: the folder.
        pattern: see `Filesystem.glob`; relative to the folder. One that has been read already serves as well.
        folders: says what a folder holds.
        look: how to look.

    Raises:
        PathEscapeError: the pattern is none inside the root.
    """
    read = Pattern(pattern) if isinstance(pattern, str) else pattern
    rules = None if look.ignored else _rules_above(start.real, folders)
    if rules is None and not look.ignored:
        return Scan(start_ignored=True)
    if read.start == NOWHERE:
        return Scan()
    return _Walk(read, folders, look).run(_Visit(start.path, start.real, read.start, rules))


def _rules_above(folder: str, folders: FolderReader) -> IgnoreRules | None:
    """What the ignore files above a folder say in it; `None` if they hide it."""
    rules, above = IgnoreRules(), ROOT
    for name in [] if folder == ROOT else folder.split("/"):
        rules = rules.with_files(folders.rule_names(above), _reading(folders, above))
        if rules.hides(name, is_folder=True):
            return None
        rules, above = rules.entered(name), join(above, name)
    return rules


def _reading(folders: FolderReader, folder: str) -> ReadRuleFile:
    return lambda name: folders.rule_file(join(folder, name))


def _rule_names(listed: Iterable[FileStat]) -> frozenset[str]:
    return frozenset(name for stat in listed if (name := stat.path.rpartition("/")[2]) in RULE_NAMES)
