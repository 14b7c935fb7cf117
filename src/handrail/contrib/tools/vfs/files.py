"""Parameters and results of the file tools, and how results are rendered."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from handrail.filesystem import FileStat
from handrail.filesystem.paths import MAX_DEPTH
from handrail.filesystem.walks import Scan, StopReason
from handrail.serde.formatting import count_noun, shorten
from handrail.session import stored_as

Newlines: TypeAlias = Literal["LF", "CRLF", "mixed"]
"""How the lines of a file end; a file without line ends counts as `"LF"`."""

_LONGEST_PATTERN = 100
"""How many characters of a pattern a result repeats."""

_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
"""Characters that some programs treat as line ends or control characters."""


@stored_as("handrail.list_files")
@dataclass(frozen=True, slots=True)
class ListFiles:
    """A request for the entries of a folder.

    Attributes:
        path: the folder.
        include_ignored: whether to list what ignore files hide, too.
    """

    path: str = field(default=".", metadata={"description": "The folder, such as 'notes'; '.' is the root."})
    include_ignored: bool = field(
        default=False,
        metadata={"description": "Whether to show what .gitignore and .ignore files hide, too."},
    )


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What a listing or search did not look at, and why.

    Attributes:
        ignored: how many files and folders it left out because ignore files hide them.
        unlisted: how many it left out because of the rules of the run.
        too_deep: how many folders it did not look into because they lie too deep.
        stopped: why it stopped early, if it did.
    """

    ignored: int = 0
    unlisted: int = 0
    too_deep: int = 0
    stopped: StopReason | None = None

    @classmethod
    def of(cls, scan: Scan) -> LeftOut:
        """What a walk left out."""
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
    """What a folder holds.

    Attributes:
        path: the folder.
        entries: its files and folders, the first of them as many as one call shows.
        total: how many there are.
        left_out: what was not looked at.
    """

    path: str
    entries: tuple[FileStat, ...]
    total: int
    left_out: LeftOut = NOTHING_LEFT_OUT

    def render(self) -> str:
        """A line with the number of entries, then one for each entry."""
        return render_entries(self.path, "the folder is empty", self.entries, self.total, self.left_out)


@stored_as("handrail.read_file")
@dataclass(frozen=True, slots=True)
class ReadFile:
    """A request for a file's text.

    Attributes:
        path: the file.
        offset: the number of the first line to show, from 1.
        limit: how many lines to show at most; `None` for as many as the section allows.
        column: the first character of that line to show, from 1.
    """

    path: str = field(metadata={"description": "The file, such as 'notes/plan.md'."})
    offset: int = field(default=1, metadata={"ge": 1, "description": "The number of the first line to show."})
    limit: int | None = field(
        default=None, metadata={"ge": 1, "description": "How many lines at most; leave it out for as many as fit."}
    )
    column: int = field(
        default=1,
        metadata={"ge": 1, "description": "The first character of that line to show, to continue in a very long line."},
    )


@stored_as("handrail.file_excerpt")
@dataclass(frozen=True, slots=True)
class FileExcerpt:
    """A file's text, or one part of it.

    Attributes:
        path: the file.
        text: whole lines without the last one's line end, or a part of one line; line ends are LF.
        first_line: the number of the first line in `text`; 0 for an empty file.
        last_line: the number of the last line in `text`; 0 for an empty file.
        total_lines: how many lines the file has.
        column: where in the first line `text` starts, from 1.
        next_column: where to continue in the last line, if it is not shown to its end.
        line_ends: how the lines of the file end.
        ends_with_line_end: whether the last line of the file has a line end.
        not_shown: why nothing of the file is shown, as text that follows its name; `None` for text.
    """

    path: str
    text: str
    first_line: int
    last_line: int
    total_lines: int
    column: int = 1
    next_column: int | None = None
    line_ends: Newlines = "LF"
    ends_with_line_end: bool = True
    not_shown: str | None = None

    def render(self) -> str:
        """A line that describes what is shown and how to continue; below it the text, exactly."""
        if self.not_shown is not None:
            return f"{self.path} {self.not_shown}. Nothing of it is shown."
        if not self.total_lines:
            return f"{self.path}: the file is empty."
        notes = [f"{self.path}: {self._shown()}."]
        if self.next_column is not None:
            notes.append(f"Continue with offset={self.last_line}, column={self.next_column}.")
        elif self.last_line < self.total_lines:
            notes.append(f"Continue with offset={self.last_line + 1}.")
        if self.line_ends != "LF":
            notes.append(f"Its line ends are {self.line_ends}, shown as LF; edit_file keeps them.")
        if not self.ends_with_line_end:
            notes.append("CR alone ends no line." if "\r" in self.text else "Its last line has no line end.")
        return f"{' '.join(notes)}\n{self.text}"

    def _shown(self) -> str:
        # A part of one line is described in characters. From a column in the middle of the first of several lines,
        # `start` below says so.
        if self.next_column is not None or (self.column > 1 and self.first_line == self.last_line):
            last = self.column + len(self.text) - 1
            return f"characters {self.column} to {last} of line {self.first_line} (of {self.total_lines})"
        if self.first_line == 1 and self.column == 1 and self.last_line == self.total_lines:
            return f"all of it, {count_noun(self.total_lines, 'line', 'lines')}"
        if self.first_line == self.last_line:
            return f"line {self.first_line} of {self.total_lines}"
        start = f"{self.first_line} (from character {self.column})" if self.column > 1 else f"{self.first_line}"
        return f"lines {start} to {self.last_line} of {self.total_lines}"


@stored_as("handrail.write_file")
@dataclass(frozen=True, slots=True)
class WriteFile:
    """A request to make or replace a file.

    Attributes:
        path: the file.
        content: all of its text.
    """

    path: str = field(metadata={"description": "The file, such as 'notes/plan.md'; its folders are made."})
    content: str = field(metadata={"description": "The whole text of the file, with a line end after the last line."})


@stored_as("handrail.file_written")
@dataclass(frozen=True, slots=True)
class FileWritten:
    """A file has been made or replaced.

    Attributes:
        path: the file.
        created: whether there was none before.
        size: its size in bytes.
    """

    path: str
    created: bool
    size: int

    def render(self) -> str:
        """One line."""
        return f"{'Created' if self.created else 'Replaced'} {self.path}, {count_noun(self.size, 'byte', 'bytes')}."


@stored_as("handrail.edit_file")
@dataclass(frozen=True, slots=True)
class EditFile:
    """A request to replace a piece of a file's text.

    Attributes:
        path: the file.
        old: the piece, exactly.
        new: the replacement.
        replace_all: whether it may occur more than once, and is replaced everywhere.
    """

    path: str = field(metadata={"description": "The file, such as 'notes/plan.md'."})
    old: str = field(metadata={"description": "The text to replace, exactly as read_file shows it."})
    new: str = field(metadata={"description": "The text to put in its place; empty to delete it."})
    replace_all: bool = field(default=False, metadata={"description": "Whether to replace every occurrence of old."})


@stored_as("handrail.file_edited")
@dataclass(frozen=True, slots=True)
class FileEdited:
    """A piece of a file's text has been replaced.

    Attributes:
        path: the file.
        replacements: how many occurrences were replaced.
        lines: the lines, as they are now, in which the first of them begin.
    """

    path: str
    replacements: int
    lines: tuple[int, ...]

    def render(self) -> str:
        """One line."""
        replaced = count_noun(self.replacements, "replacement", "replacements")
        return f"Edited {self.path}: {replaced}, at {numbered_lines(self.lines, total=self.replacements)}."


@stored_as("handrail.remove_file")
@dataclass(frozen=True, slots=True)
class RemoveFile:
    """A request to remove a file or folder.

    Attributes:
        path: the file or folder.
        recursive: whether a folder may hold something, which is removed with it.
    """

    path: str = field(metadata={"description": "The file or folder, such as 'notes/old.md'."})
    recursive: bool = field(
        default=False, metadata={"description": "Whether to remove a folder with everything that it holds."}
    )


@stored_as("handrail.file_removed")
@dataclass(frozen=True, slots=True)
class FileRemoved:
    """A file or folder has been removed.

    Attributes:
        path: the file or folder.
        kind: what it was.
        held: how many files and folders a folder held, at any depth.
    """

    path: str
    kind: Literal["file", "folder", "symlink", "special"]
    held: int = 0

    def render(self) -> str:
        """One line."""
        if self.kind != "folder":
            return f"Removed {self.path}{' (the link, not what it leads to)' if self.kind == 'symlink' else ''}."
        return f"Removed the folder {self.path} with {count_noun(self.held, 'entry', 'entries')} in it."


@stored_as("handrail.move_file")
@dataclass(frozen=True, slots=True)
class MoveFile:
    """A request to move a file or folder.

    Attributes:
        path: its path.
        new_path: its new path.
    """

    path: str = field(metadata={"description": "The file or folder, such as 'draft.md'."})
    new_path: str = field(
        metadata={"description": "Its whole new path, such as 'notes/plan.md', where nothing is yet; folders are made."}
    )


@stored_as("handrail.file_moved")
@dataclass(frozen=True, slots=True)
class FileMoved:
    """A file or folder has been moved.

    Attributes:
        path: its old path.
        new_path: its new path.
    """

    path: str
    new_path: str

    def render(self) -> str:
        """One line."""
        return f"Moved {self.path} to {self.new_path}."


def render_entries(where: str, nothing: str, entries: Sequence[FileStat], total: int, left_out: LeftOut) -> str:
    """A line with the number of entries, then one for each of the first; `nothing` says that there are none."""
    head = f"{where}: {count_noun(total, 'entry', 'entries')}"
    if not total:
        head = f"{where}: {nothing if left_out == NOTHING_LEFT_OUT else 'nothing to show'}"
    if len(entries) < total:
        head += f". Listed are the first {len(entries):,}; narrow it down with path and pattern of glob_files"
    return "\n".join((" ".join((f"{head}.", *left_out.notes())), *map(format_entry, entries)))


def shown_pattern(pattern: str) -> str:
    """A pattern as a result repeats it, cut if long."""
    return shorten(pattern, _LONGEST_PATTERN)


def at_any_depth(pattern: str) -> str:
    """The pattern that finds the same names in all folders below; empty if this one does, or looks in certain ones."""
    # Longer patterns are repeated in a shortened form, to which `**/` cannot be added.
    return "" if "/" in pattern or pattern == "**" or len(pattern) > _LONGEST_PATTERN else f"**/{pattern}"


def numbered_lines(lines: tuple[int, ...], *, total: int) -> str:
    """Line numbers as text; `total` includes those that are not listed."""
    shown = ", ".join(map(str, dict.fromkeys(lines)))
    return f"line{'s' if total > 1 else ''} {shown}{' and more' if total > len(lines) else ''}"


def path_in_line(path: str) -> str:
    """A path as it appears in a line of a result: a JSON string if it holds control characters."""
    if not _CONTROLS.search(path):
        return path
    # JSON leaves U+007F to U+009F and the Unicode line separators as they are, so they are escaped here.
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(path, ensure_ascii=False))


def format_entry(entry: FileStat) -> str:
    """What `list_files` shows of one entry."""
    path = path_in_line(entry.path)
    if entry.kind == "folder":
        return f"{path}/"
    return f"{path} ({count_noun(entry.size, 'byte', 'bytes') if entry.kind == 'file' else entry.kind})"
