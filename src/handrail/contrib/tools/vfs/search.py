r"""Searching files: parameters and results of the tools, and the search for lines that match a regular expression.

No pattern can make a search hang. The regular expression engine is that of pydantic: it has no look-around and no
backreferences, takes time linear in the line and the pattern, and refuses patterns that become too large. At most
`MAX_SEARCHED_CHARACTERS` characters of a line are searched, and the time limit is checked between lines.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias
from unicodedata import normalize

from pydantic_core import SchemaError, SchemaValidator, core_schema

from handrail.contrib import about
from handrail.contrib.tools.vfs.text import VfsLimits, decode_text, split_lines
from handrail.errors import FilesystemError, ToolValidationError
from handrail.filesystem import FileStat, Filesystem
from handrail.filesystem.paths import MAX_DEPTH
from handrail.filesystem.walks import Scan, StopReason
from handrail.serde.formatting import count_noun, shorten
from handrail.session import stored_as

_LONGEST_PATTERN = 100  # how many characters of a pattern a result repeats

# Characters that some programs treat as line ends or control characters.
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


@stored_as("handrail.list_files")
@dataclass(frozen=True, slots=True)
class ListFiles:
    """A request for the entries of a folder.

    Attributes:
        path: the folder.
        include_ignored: whether to list what ignore files hide, too.
    """

    path: str = field(default=".", metadata=about("The folder, such as 'notes'; '.' is the root."))
    include_ignored: bool = field(
        default=False, metadata=about("Whether to show what .gitignore and .ignore files hide, too.")
    )


@dataclass(frozen=True, slots=True)
class LeftOut:
    """The entries that a listing or search did not look at; `stopped` is the reason for an early end.

    Attributes:
        ignored: how many files and folders ignore files hide.
        unlisted: how many the rules of the run leave out.
        too_deep: how many folders lie too deep.
    """

    ignored: int = 0
    unlisted: int = 0
    too_deep: int = 0
    stopped: StopReason | None = None

    @classmethod
    def from_scan(cls, scan: Scan) -> LeftOut:
        """The entries that a walk left out."""
        return cls(scan.ignored, scan.unlisted, scan.too_deep, scan.stop_reason)

    def notes(self) -> list[str]:
        """A sentence for each reason."""
        notes: list[str] = []
        if self.stopped is not None:
            why = "its time was over" if self.stopped == "time" else "there are too many files and folders"
            notes.append(f"The walk stopped because {why}, so more may fit. Narrow it down with path and pattern.")
        if self.ignored:
            hidden = count_noun(self.ignored, "entry that ignore files hide is", "entries that ignore files hide are")
            notes.append(f"{hidden} left out; include_ignored=true shows them.")
        if self.unlisted:
            notes.append(f"{count_noun(self.unlisted, 'entry is', 'entries are')} left out by the rules of this run.")
        if self.too_deep:
            notes.append(f"Not looked into: {count_noun(self.too_deep, 'folder', 'folders')} {MAX_DEPTH} levels deep.")
        return notes


NOTHING_LEFT_OUT = LeftOut()
"""Nothing was left out."""


@stored_as("handrail.file_list")
@dataclass(frozen=True, slots=True)
class FileList:
    """The entries of a folder.

    Attributes:
        entries: the first files and folders, as many as one call shows.
        total: how many there are.
    """

    path: str
    entries: tuple[FileStat, ...]
    total: int
    left_out: LeftOut = NOTHING_LEFT_OUT

    def render(self) -> str:
        """A line with the number of entries, then one for each entry."""
        return render_entries(self.path, "the folder is empty", self.entries, self.total, self.left_out)


def render_entries(where: str, nothing: str, entries: Sequence[FileStat], total: int, left_out: LeftOut) -> str:
    """A line with the number of entries, then one for each of the first; `nothing` says that there are none."""
    head = f"{where}: {count_noun(total, 'entry', 'entries')}"
    if not total:
        head = f"{where}: {nothing if left_out == NOTHING_LEFT_OUT else 'nothing to show'}"
    if len(entries) < total:
        head += f". Listed are the first {len(entries):,}; narrow it down with path and pattern of glob_files"
    return "\n".join((" ".join((f"{head}.", *left_out.notes())), *map(format_entry, entries)))


def at_any_depth(pattern: str) -> str:
    """The pattern for the same names in all folders below; empty if this one does that, or names folders."""
    # Longer patterns are repeated in a shortened form, to which `**/` cannot be added.
    return "" if "/" in pattern or pattern == "**" or len(pattern) > _LONGEST_PATTERN else f"**/{pattern}"


def path_in_line(path: str) -> str:
    """A path in a line of a result: a JSON string if it holds control characters."""
    if not _CONTROLS.search(path):
        return path
    # JSON leaves U+007F to U+009F and the Unicode line separators as they are, so they are escaped here.
    return _CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(path, ensure_ascii=False))


def format_entry(entry: FileStat) -> str:
    """The line of `list_files` for one entry."""
    path = path_in_line(entry.path)
    if entry.kind == "folder":
        return f"{path}/"
    return f"{path} ({count_noun(entry.size, 'byte', 'bytes') if entry.kind == 'file' else entry.kind})"


MOST_CONTEXT = 20
"""The most lines around a match that can be requested."""

MAX_SEARCHED_CHARACTERS = 10_000
"""How many characters of a line are searched."""

_NAMED = 3  # how many files that were not searched are named

_LONGEST_ESCAPED = 200  # how much of an escaped pattern an error repeats

Matches: TypeAlias = Callable[[str], bool]
"""Returns whether a line matches."""


@stored_as("handrail.glob_files")
@dataclass(frozen=True, slots=True)
class GlobFiles:
    """A request for files and folders by a pattern of their path.

    Attributes:
        pattern: what their path must match, relative to `path`.
        path: the folder to look in.
        include_ignored: whether to find what ignore files hide, too.
    """

    pattern: str = field(
        metadata=about("'**/*.py' for all Python files at any depth, '*.md' for those in the folder itself.")
    )
    path: str = field(default=".", metadata=about("The folder to look in, such as 'src'; '.' is the root."))
    include_ignored: bool = field(
        default=False, metadata=about("Whether to show what .gitignore and .ignore files hide, too.")
    )


@stored_as("handrail.files_found")
@dataclass(frozen=True, slots=True)
class FilesFound:
    """Files and folders whose path matches.

    Attributes:
        entries: the first of them, as many as one search finds.
        total: how many there are.
    """

    pattern: str
    path: str
    entries: tuple[FileStat, ...]
    total: int
    left_out: LeftOut = NOTHING_LEFT_OUT

    def render(self) -> str:
        """A line with the number of entries, then one for each entry."""
        deeper = at_any_depth(self.pattern)
        nothing = f"nothing fits. To look at any depth, write {deeper}" if deeper else "nothing fits"
        where = f"{shorten(self.pattern, _LONGEST_PATTERN)} in {self.path}"
        return render_entries(where, nothing, self.entries, self.total, self.left_out)


@stored_as("handrail.grep_files")
@dataclass(frozen=True, slots=True)
class GrepFiles:
    r"""A request for lines that match a regular expression.

    Attributes:
        pattern: the regular expression; each line is searched separately.
        path: the folder to search, or one file.
        files: which files of the folder to search, relative to `path`.
        ignore_case: whether to ignore case.
        context: how many lines to show before and after each line that matches.
        include_ignored: whether files that ignore files hide are searched, too.
    """

    pattern: str = field(metadata=about(r"A regular expression, looked for in each line: 'def \w+', or 'TODO|FIXME'."))
    path: str = field(default=".", metadata=about("The folder or file to search; '.' is the root."))
    files: str = field(default="**", metadata=about("Which files to search, such as '**/*.py'. Relative to path."))
    ignore_case: bool = field(default=False, metadata=about("Whether upper and lower case are the same."))
    context: int = field(
        default=0, metadata=about("Lines to show before and after each that matches.", ge=0, le=MOST_CONTEXT)
    )
    include_ignored: bool = field(
        default=False, metadata=about("Whether to search what .gitignore and .ignore files hide, too.")
    )


@stored_as("handrail.lines_found")
@dataclass(frozen=True, slots=True)
class LinesFound:
    """Lines that match a regular expression.

    Attributes:
        left: how many files were not searched, because `stopped`.
        stopped: why the search stopped early: `"time"`, or `"room"` when it had found as much as one search may.
        cut: how many lines were too long to be searched to their end.
        unsearched: the first of the files that are not text, too large or cannot be read.
        unsearched_total: how many there are.
    """

    asked: GrepFiles
    lines: tuple[str, ...]
    matches: int
    files: int
    searched: int
    left: int = 0
    stopped: Literal["time", "room"] | None = None
    cut: int = 0
    unsearched: tuple[str, ...] = ()
    unsearched_total: int = 0
    left_out: LeftOut = NOTHING_LEFT_OUT

    def render(self) -> str:
        """A few sentences about the search, then the lines."""
        return "\n".join((" ".join(self._notes()), *self.lines))

    def _notes(self) -> list[str]:
        what = f"{shorten(self.asked.pattern, _LONGEST_PATTERN)} in {self.asked.path}"
        of = f"{count_noun(self.searched, 'file', 'files')} searched"
        lines = (
            f"{count_noun(self.matches, 'line matches', 'lines match')} in {count_noun(self.files, 'file', 'files')}"
        )
        notes = [f"{what}: {lines if self.matches else 'no line matches'} ({of})."]
        if self.stopped is not None:
            why = "the time for it was over" if self.stopped == "time" else "it had found as much as one search may"
            rest = f"{count_noun(self.left, 'file was', 'files were')} not looked at" if self.left else "more may match"
            notes.append(f"The search stopped because {why}, and {rest}. Narrow it down with pattern, path or files.")
        if self.cut:
            long_lines = count_noun(self.cut, "very long line was", "very long lines were")
            notes.append(f"{long_lines} searched up to character {MAX_SEARCHED_CHARACTERS:,} only.")
        if self.unsearched:
            more = self.unsearched_total - len(self.unsearched)
            names = f"{', '.join(self.unsearched)}{f' and {more} more' if more else ''}"
            notes.append(f"Not searched: {names} (not text, too large, or not to be read).")
        return [*notes, *self.left_out.notes(), *self._hints()]

    def _hints(self) -> list[str]:
        hints: list[str] = []
        if not self.matches and not self.searched and not self.unsearched and not self.stopped:
            deeper, files = at_any_depth(self.asked.files), shorten(self.asked.files, _LONGEST_PATTERN)
            hints += [f"No file fits {files}."] if self.left_out == NOTHING_LEFT_OUT else []
            hints += [f"To search at any depth, write {deeper}."] if deeper else []
        elif not self.matches and "\\n" in self.asked.pattern:
            hints.append(r"Each line is searched by itself and without its line end, so \n never matches.")
        return hints


def matcher(pattern: str, *, ignore_case: bool) -> Matches:
    """The test for lines that match a regular expression."""
    if not pattern:
        raise ToolValidationError("$.pattern is empty; give what to look for. To list files, use glob_files.")
    # It would match nothing, because lines are searched without their ends, and the empty result would be misleading.
    if "\n" in pattern:
        raise ToolValidationError(
            "$.pattern holds a line break, but each line is searched by itself. Look for the first of the lines, and "
            "set context to see those that follow."
        )
    try:
        # pydantic's Rust engine, because `re` backtracks, and a pattern such as `(a+)+$` takes exponential time in it.
        schema = core_schema.str_schema(pattern=f"(?i){pattern}" if ignore_case else pattern, regex_engine="rust-regex")
        matches = SchemaValidator(schema).isinstance_python
    except SchemaError as error:
        # The engine reports the reason after this word; a pattern that is too large has none.
        _, separator, why = str(error).rpartition("error: ")
        reason = why if separator else "it becomes too large; repeat less in it"
        raise ToolValidationError(
            f"$.pattern is not a regular expression that can be searched for: {reason}. To look for the text itself, "
            f"write {shorten(re.escape(pattern), _LONGEST_ESCAPED)}"
        ) from error
    if pattern.isascii():
        return matches
    # Two texts that look the same may differ in their Unicode form.
    return lambda line: matches(line) or matches(normalize("NFC", line)) or matches(normalize("NFD", line))


@dataclass(slots=True)
class Search:
    """One search of several files. One call owns it, and uses it once.

    Attributes:
        is_over: whether its time is over; called between lines.

    Raises:
        ToolValidationError: the pattern is not a regular expression.
    """

    request: GrepFiles
    limits: VfsLimits
    is_over: Callable[[], bool]
    _matches: Matches = field(init=False)
    _lines: list[str] = field(default_factory=list[str])
    _room: int = field(init=False)
    _stop_reason: Literal["time", "room"] | None = None
    _matching: int = 0
    _files: int = 0
    _searched: int = 0
    _long_lines: int = 0
    _unsearched: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        self._matches = matcher(self.request.pattern, ignore_case=self.request.ignore_case)
        self._room = self.limits.search_characters

    def run(self, filesystem: Filesystem, stats: Sequence[FileStat], left_out: LeftOut) -> LinesFound:
        """Searches files, in their order; `left_out` is what was skipped when they were listed."""
        for place, stat in enumerate(stats):
            # After the file in which the search stopped: what was found in it is still shown.
            if self._stop_reason is not None:
                return self._outcome(rest=len(stats) - place, left_out=left_out)
            if (text := self._text(filesystem, stat)) is not None:
                self._search(stat.path, text)
        return self._outcome(rest=0, left_out=left_out)

    def _text(self, filesystem: Filesystem, stat: FileStat) -> str | None:
        try:
            # Checked by size first, so that a large file is not read. Of a link, `stat.size` is not the size of the
            # file, which may also have grown since it was listed.
            if stat.size <= self.limits.file_bytes:
                start = filesystem.read_start(stat.path, self.limits.file_bytes + 1)
                text = decode_text(start.data)
                if start.size <= self.limits.file_bytes and isinstance(text, str):
                    return text
        except FilesystemError:  # one that was removed or became unreadable does not end the search
            pass
        self._unsearched.append(stat.path)
        return None

    def _search(self, path: str, text: str) -> None:
        lines = split_lines(text)
        places: list[int] = []
        self._searched += 1
        for number, line in enumerate(lines):
            if self.is_over():
                self._stop_reason = "time"
                break
            # A long line is searched in part, and counted, so that the model learns that a match may be missing.
            self._long_lines += len(line) > MAX_SEARCHED_CHARACTERS
            if self._matches(line[:MAX_SEARCHED_CHARACTERS]):
                places.append(number)
        if places:
            self._matching += len(places)
            self._files += 1
            self._take(self._with_context(path, lines, places))

    def _with_context(self, path: str, lines: Sequence[str], places: Sequence[int]) -> Iterator[str]:
        around, matching, next_number = self.request.context, frozenset(places), -1
        # A set, because the contexts of neighbouring matches overlap.
        numbers = {n for at in places for n in range(max(at - around, 0), min(at + around + 1, len(lines)))}
        for number in sorted(numbers):
            # Separates groups of lines that do not adjoin, as `grep` does.
            if around and number != next_number and self._lines:
                yield "--"
            mark = ":" if number in matching else "-"
            yield f"{path_in_line(path)}{mark}{number + 1}{mark} {self._cut_line(lines[number])}"
            next_number = number + 1

    def _take(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._room -= len(line) + 1
            # The first line always fits, so that there is something to show.
            if self._room < 0 and self._lines:
                self._stop_reason = "room"
                return
            self._lines.append(line)

    def _cut_line(self, line: str) -> str:
        most = self.limits.line_characters
        return line if len(line) <= most else f"{line[:most]} [cut: the line has {len(line):,} characters]"

    def _outcome(self, *, rest: int, left_out: LeftOut) -> LinesFound:
        return LinesFound(
            asked=self.request,
            lines=tuple(self._lines),
            matches=self._matching,
            files=self._files,
            searched=self._searched,
            left=rest,
            stopped=self._stop_reason,
            cut=self._long_lines,
            unsearched=tuple(self._unsearched[:_NAMED]),
            unsearched_total=len(self._unsearched),
            left_out=left_out,
        )
