r"""Walks through folders for listings and searches, and the ignore files that they obey.

One walk serves every filesystem; a filesystem only lists its folders (`FolderReader`). A walk lists each folder once,
and only folders that can hold a match; it obeys a filter, ignore files if requested, and bounds of time, number and
depth. It counts what it leaves out for any of these.

Ignore files (`.ignore`, `.gitignore` and `.git/info/exclude`) hide, they do not protect: a hidden file can be read by
its path. The first file with a pattern that matches decides: the `.ignore` files, from the nearest folder to the root;
the `.gitignore` files, in the same order; the `info/exclude` of the repository. Everything in a hidden folder is
hidden. In a folder with a `.git` of its own, git files above it do not count. Files above the root, the user's git
settings, and which files git tracks are not considered.

A file is read as git reads a `.gitignore`, byte for byte; tests hold it to the `git` command. Of the lines that match,
the last one decides. A line that cannot be read matches nothing: one with a bracket that is not closed, or with a
bracket that holds a `\`, a class such as `[:alpha:]` or two `-` in a row. Each part of a pattern is matched in one
pass, so a file that a model has written cannot make a walk hang. pathspec does not ensure that, and its rules are not
exactly git's, so it is not used (decision 29).
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, TypeAlias

from handrail.filesystem.path_filters import NOWHERE, PathFilter, PathMatcher, Places
from handrail.filesystem.paths import GIT_FOLDER, MAX_DEPTH, ROOT, join, path_depth, to_bytes

StopReason: TypeAlias = Literal["time", "number"]
"""Why a walk stopped early."""


@dataclass(frozen=True, slots=True)
class FileStat:
    """The status of one path.

    Attributes:
        path: the path, relative to the root, in its shortest form.
        kind: `"file"`, `"folder"`, `"symlink"` where the store has links (the link itself, not its target), or
            `"special"` for a device, socket or fifo, which is neither read nor changed.
        size: bytes of a file's content; 0 for anything else.
    """

    path: str
    kind: Literal["file", "folder", "symlink", "special"]
    size: int


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
    is_over: Callable[[], bool] = bool  # which is false without an argument


EVERYTHING: Final = WalkRequest()
"""Everything, without bounds."""


@dataclass(frozen=True, slots=True)
class Scan:
    """The result of a walk.

    Attributes:
        entries: the files and folders that match, sorted by path.
        looked_at: how many files and folders it looked at.
        ignored: how many it left out because of ignore files; what lies in a folder that was left out is not counted.
        unlisted: how many it left out because of the filter, in the same way. What does not exist is not counted.
        too_deep: how many folders it did not look into because they lie at the greatest depth.
        stop_reason: why it stopped early; `None` if it did not.
        start_ignored: whether ignore files hide the start folder itself. Then nothing was looked at.
    """

    entries: tuple[FileStat, ...] = ()
    looked_at: int = 0
    ignored: int = 0
    unlisted: int = 0
    too_deep: int = 0
    stop_reason: StopReason | None = None
    start_ignored: bool = False


class FolderReader(NamedTuple):
    """How a walk reads a filesystem.

    Attributes:
        list_folder: the entries of a folder, sorted and unfiltered; none if it no longer exists.
        rule_file: the content of an ignore file, whatever the filter; `None` if it is not a file, or too large.
    """

    list_folder: Callable[[str], Iterable[FileStat]]
    rule_file: Callable[[str], bytes | None]


class _Visit(NamedTuple):
    path: str
    places: Places
    rules: IgnoreRules | None


@dataclass(slots=True)
class _Walk:
    pattern: PathMatcher
    folders: FolderReader
    path_filter: PathFilter
    look: WalkRequest
    entries: list[FileStat] = field(default_factory=list[FileStat])
    looked_at: int = 0
    ignored: int = 0
    unlisted: int = 0
    too_deep: int = 0
    stop_reason: StopReason | None = None

    def run(self, start: _Visit) -> Scan:
        to_visit = [start]
        while to_visit and self.stop_reason is None:
            if self.look.is_over():
                self.stop_reason = "time"
                break
            to_visit.extend(reversed(self._visit(to_visit.pop())))
        entries = tuple(sorted(self.entries, key=lambda stat: stat.path))
        return Scan(entries, self.looked_at, self.ignored, self.unlisted, self.too_deep, self.stop_reason)

    def _visit(self, folder: _Visit) -> list[_Visit]:
        # A tuple, because it is read twice: the rules of the folder must be known before its first entry is judged.
        stats = tuple(self.folders.list_folder(folder.path))
        rules = folder.rules
        if rules is not None:
            rules = _with_own_files(rules, stats, self.folders, folder.path)
        inner: list[_Visit] = []
        for stat in stats:
            # Compared before the next entry, so a walk that has looked at everything is not reported as stopped.
            if self.looked_at == self.look.most:
                self.stop_reason = "number"
                break
            self.looked_at += 1
            visit = self._look_at(folder, stat, rules)
            if visit is not None:
                inner.append(visit)
        return inner

    def _look_at(self, folder: _Visit, stat: FileStat, rules: IgnoreRules | None) -> _Visit | None:
        name = stat.path.rpartition("/")[2]
        is_folder = stat.kind == "folder"
        places = self.pattern.after(name, folder.places)
        leads_on = is_folder and self.pattern.leads_on(places)
        # Before the filter and the rules: what the pattern does not match is not counted as left out, and costs least.
        if not leads_on and self.pattern.end not in places:
            return None
        # Also for a folder: what is left out is not visited, so nothing in it is shown, whatever the patterns for it.
        if self._leaves_out(stat, rules):
            return None
        if self.pattern.end in places:
            self.entries.append(stat)
        if leads_on and path_depth(stat.path) >= MAX_DEPTH:
            self.too_deep += 1
        elif leads_on:
            return _Visit(stat.path, places, None if rules is None else rules.enter(name))
        return None

    def _leaves_out(self, stat: FileStat, rules: IgnoreRules | None) -> bool:
        is_folder = stat.kind == "folder"
        # Not counted: the number would reveal that something is there.
        if self.path_filter.unreadable(stat.path, is_folder=is_folder) is not None:
            return True
        ignored = rules is not None and rules.hides(stat.path.rpartition("/")[2], is_folder=is_folder)
        unlisted = not ignored and self.path_filter.unlisted(stat.path, is_folder=is_folder)
        self.ignored += ignored
        self.unlisted += unlisted
        return ignored or unlisted


def walk(start: str, pattern: PathMatcher, folders: FolderReader, path_filter: PathFilter, look: WalkRequest) -> Scan:
    """The entries in a folder whose path from there matches."""
    # A walk may begin in a folder that the files above hide, or for which they have rules.
    rules = None if look.ignored else _rules_above(start, folders)
    if rules is None and not look.ignored:
        return Scan(start_ignored=True)
    return _Walk(pattern, folders, path_filter, look).run(_Visit(start, pattern.start, rules))


def _rules_above(folder: str, folders: FolderReader) -> IgnoreRules | None:
    rules, above = IgnoreRules(), ROOT
    # The folder's own files are read when it is visited.
    for name in [] if folder == ROOT else folder.split("/"):
        rules = _with_own_files(rules, folders.list_folder(above), folders, above)
        if rules.hides(name, is_folder=True):
            return None
        rules, above = rules.enter(name), join(above, name)
    return rules


def _with_own_files(rules: IgnoreRules, stats: Iterable[FileStat], folders: FolderReader, folder: str) -> IgnoreRules:
    names = {stat.path.rpartition("/")[2] for stat in stats}
    return rules.with_files(names & RULE_NAMES, lambda name: folders.rule_file(join(folder, name)))


_FILES: Final = ((".ignore", ".ignore"), (".gitignore", ".gitignore"), (GIT_FOLDER, ".git/info/exclude"))
"""The entries of a folder that give it rules, and the files that hold them; an earlier one decides before a later."""

RULE_NAMES: Final = frozenset(name for name, _ in _FILES)
"""The names of entries that give a folder rules of its own."""

MOST_RULE_BYTES: Final = 1 << 20
"""A larger ignore file is ignored."""

ReadRuleFile: TypeAlias = Callable[[str], bytes | None]
"""The content of an ignore file, by its path relative to the folder; `None` if there is none that counts."""

FitsName: TypeAlias = Callable[[str], object]
"""Whether a name matches one part of a pattern."""

_MOST_LINES = 10_000
"""How many patterns of one file count, from its start."""

_TOKEN = re.compile(r"(?s)\\.|\[[!^]?+\]?+(?:(?!\[:|--)[^\]\\])*+\]")
_READ = re.compile(rf"(?:{_TOKEN.pattern.removeprefix('(?s)')}|[^\\\[])++", re.DOTALL)
_SPECIAL = frozenset("*?[\\/")


@dataclass(frozen=True, slots=True)
class _Source:
    rank: int
    file: IgnoreFile
    places: dict[int, Places]

    def enter(self, name: str) -> _Source:
        after = self.file.enter(name, self.places)
        # The same object if nothing has changed, so that a walk of a large tree makes few of them.
        return self if after == self.places else _Source(self.rank, self.file, after)


@dataclass(frozen=True, slots=True)
class IgnoreRules:
    """The rules of the ignore files for one folder, the first to decide first. A walk goes from one to the next."""

    sources: tuple[_Source, ...] = ()

    def hides(self, name: str, *, is_folder: bool) -> bool:
        """Returns whether the entry `name` of this folder is hidden."""
        data = _to_bytes(name) if self.sources else ""
        for source in self.sources:
            verdict = source.file.hides(data, source.places, is_folder=is_folder)
            if verdict is not None:
                return verdict
        return False

    def enter(self, name: str) -> IgnoreRules:
        """The rules of the files above for the folder `name` in this one."""
        if not self.sources:
            return self
        data = _to_bytes(name)
        return IgnoreRules(tuple(source.enter(data) for source in self.sources))

    def with_files(self, present: Collection[str], read: ReadRuleFile) -> IgnoreRules:
        """These rules and those of the folder's own files; `present` says which `RULE_NAMES` it has."""
        if not present:
            return self
        # In a repository the `.ignore` files above still count: they belong to none.
        above = [source for source in self.sources if not source.rank or GIT_FOLDER not in present]
        own: list[_Source] = []
        for rank, (name, path) in enumerate(_FILES):
            data = read(path) if name in present else None
            if data is not None and len(data) <= MOST_RULE_BYTES:
                file = read_ignore_file(data)
                own.append(_Source(rank, file, file.start))
        # Sorting keeps the order of equal ranks: the nearest first.
        return IgnoreRules(tuple(sorted((*own, *above), key=lambda source: source.rank)))


@dataclass(frozen=True, slots=True)
class IgnorePattern:
    """One line of an ignore file: it matches one `literal` name, any `name`, or a `path` from its folder."""

    hides: bool
    folders_only: bool
    name: FitsName | None = None
    path: PathMatcher | None = None
    literal: str | None = None

    def fits(self, name: str, places: Places, *, is_folder: bool) -> bool:
        """Returns whether it matches an entry of a folder in which it has reached these places."""
        if self.folders_only and not is_folder:
            return False
        if self.path is not None:
            return bool(places) and self.path.end in self.path.after(name, places)
        return name == self.literal or (self.name is not None and bool(self.name(name)))


class IgnoreFile:
    """The compiled patterns of one file."""

    __slots__ = ("_literal", "_others", "start")

    def __init__(self, patterns: Sequence[IgnorePattern]) -> None:
        # Most patterns are one name. They are found by a look-up, however many there are; only the others are tried.
        self._literal: dict[str, list[tuple[int, IgnorePattern]]] = {}
        self._others = [item for item in enumerate(patterns) if item[1].literal is None]
        for number, pattern in enumerate(patterns):
            if pattern.literal is not None:
                self._literal.setdefault(pattern.literal, []).append((number, pattern))
        self.start: dict[int, Places] = {
            number: pattern.path.start for number, pattern in self._others if pattern.path is not None
        }
        """The start of each pattern that is tied to the folder of the file, by its number."""

    def hides(self, name: str, places: dict[int, Places], *, is_folder: bool) -> bool | None:
        """The decision of the last pattern that matches a name, at its places there; `None` if none does."""
        candidates = (*self._others, *self._literal[name]) if name in self._literal else self._others
        matching = (
            (number, pattern.hides)
            for number, pattern in candidates
            if pattern.fits(name, places.get(number, NOWHERE), is_folder=is_folder)
        )
        return max(matching, default=(0, None))[1]

    def enter(self, name: str, places: dict[int, Places]) -> dict[int, Places]:
        """The places of the patterns in the subfolder `name`, without patterns that can match nothing there."""
        after: dict[int, Places] = {}
        for number, pattern in self._others if places else ():
            if number in places and pattern.path is not None:
                reached = pattern.path.after(name, places[number])
                if reached:
                    after[number] = reached
        return after


def read_ignore_file(data: bytes) -> IgnoreFile:
    """The patterns in the content of an ignore file; a line that cannot be read matches nothing."""
    # Git splits at line feeds only, where `splitlines` also splits at a single carriage return.
    lines = data.removeprefix(b"\xef\xbb\xbf").decode("latin-1").split("\n")
    patterns = (parse_ignore_pattern(line.removesuffix("\r")) for line in lines[:_MOST_LINES])
    return IgnoreFile([pattern for pattern in patterns if pattern is not None])


def parse_ignore_pattern(line: str) -> IgnorePattern | None:
    """The pattern in one line; `None` for a comment, a blank line, or one that matches nothing."""
    # The order is git's: spaces first, so that `/` at the end is found before spaces that do not count.
    line = "" if line.startswith("#") else _without_spaces_at_end(line)
    pattern = line.removeprefix("!")
    hides, folders_only = pattern == line, pattern.endswith("/")
    pattern = pattern.removesuffix("/")
    if not _READ.fullmatch(pattern):
        return None
    if _SPECIAL.isdisjoint(pattern):
        return IgnorePattern(hides, folders_only, literal=pattern)
    texts = _TOKEN.sub(_to_fnmatch, pattern).removeprefix("/").split("/")
    if not all(texts):  # no name is empty
        return None
    parts = [_test_name(text) for text in texts]
    if "/" not in pattern:
        return IgnorePattern(hides, folders_only, name=parts[0] or bool)
    if parts[-1] is None:
        parts.append(bool)  # `**` at the end: everything below, but not the folder itself
    return IgnorePattern(hides, folders_only, path=PathMatcher(parts))


def _without_spaces_at_end(line: str) -> str:
    text = line.rstrip(" ")
    # An even number of backslashes escape each other; an odd one escapes the first space, which stays.
    escapes = len(text) - len(text.rstrip("\\"))
    return line[: len(text) + escapes % 2]


def _test_name(text: str) -> FitsName | None:
    if len(text) > 1 and not text.strip("*"):
        return None
    # The expressions of `translate` do not backtrack over stars, so no line makes a walk hang.
    return re.compile(fnmatch.translate(text)).match


def _to_fnmatch(token: re.Match[str]) -> str:
    text = token[0]
    if text.startswith("\\"):
        return f"[{text[1]}]" if text[1] in "*?[" else text[1]
    # No name has a slash, so that of a bracket matches nothing.
    return (f"[!{text[2:]}" if text.startswith("[^") else text).replace("/", "")


def _to_bytes(name: str) -> str:
    """A name with a character for each of its bytes, as git compares them."""
    return to_bytes(name).decode("latin-1")
