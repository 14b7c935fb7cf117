"""What the searching file tools take and return, and how their results read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from handrail.contrib.tools.vfs.files import NOTHING_LEFT_OUT, LeftOut, at_any_depth, counted, entry_line, shown_pattern
from handrail.contrib.tools.vfs.overflow import KeptText
from handrail.filesystem import FileStat
from handrail.session import stored_as

MOST_CONTEXT = 20
"""The most lines around a match that can be asked for."""


SEARCHED_OF_LINE = 10_000
"""So many characters of a line are searched."""


@stored_as("handrail.glob_files")
@dataclass(frozen=True, slots=True)
class GlobFiles:
    """Files and folders are asked for by what their path looks like.

    Attributes:
        pattern: what they are to fit, relative to `path`.
        path: the folder to look in.
        include_ignored: whether what ignore files hide is found, too.
    """

    pattern: str = field(
        metadata={"description": "'**/*.py' for all Python files at any depth, '*.md' for those in the folder itself."}
    )
    path: str = field(default=".", metadata={"description": "The folder to look in, such as 'src'; '.' is the root."})
    include_ignored: bool = field(
        default=False,
        metadata={"description": "Whether to show what .gitignore and .ignore files hide, too."},
    )


@stored_as("handrail.files_found")
@dataclass(frozen=True, slots=True)
class FilesFound:
    """Files and folders whose path fits.

    Attributes:
        pattern: what they fit.
        path: the folder that was looked in.
        entries: those that are shown.
        total: how many there are.
        kept: the whole list, if not all are shown.
        left_out: what was not looked at.
    """

    pattern: str
    path: str
    entries: tuple[FileStat, ...]
    total: int
    kept: KeptText | None = None
    left_out: LeftOut = NOTHING_LEFT_OUT

    def render(self) -> str:
        """A line that says how many there are and how to go on, then one for each entry."""
        where = f"{shown_pattern(self.pattern)} in {self.path}"
        head = f"{where}: {counted(self.total, 'entry', 'entries')}"
        if not self.total:
            deeper = at_any_depth(self.pattern)
            head = f"{where}: {'nothing fits' if self.left_out == NOTHING_LEFT_OUT else 'nothing to show'}"
            head += f". To look at any depth, write {deeper}" if deeper else ""
        if self.kept is not None:
            shown, kept = len(self.entries), self.kept.text.count("\n")
            head += f", the first {shown:,} of them shown" + (f", the first {kept:,} kept" if kept < self.total else "")
            head += f". {self.kept.reading_on(shown)}, or narrow" if kept > shown else ". Narrow"
            head += " it down with pattern"
        notes = " ".join((f"{head}.", *self.left_out.notes()))
        return "\n".join((notes, *map(entry_line, self.entries)))


@stored_as("handrail.grep_files")
@dataclass(frozen=True, slots=True)
class GrepFiles:
    r"""The lines that match a regular expression are asked for.

    Attributes:
        pattern: the regular expression; it is looked for in each line by itself.
        path: the folder to search, or one file.
        files: which files of the folder to search, relative to `path`.
        ignore_case: whether upper and lower case are the same.
        context: how many lines to show before and after each line that matches.
        include_ignored: whether files that ignore files hide are searched, too.
    """

    pattern: str = field(
        metadata={"description": r"A regular expression, looked for in each line: 'def \w+', or 'TODO|FIXME'."}
    )
    path: str = field(default=".", metadata={"description": "The folder or file to search; '.' is the root."})
    files: str = field(
        default="**", metadata={"description": "Which files to search, such as '**/*.py'. Relative to path."}
    )
    ignore_case: bool = field(default=False, metadata={"description": "Whether upper and lower case are the same."})
    context: int = field(
        default=0,
        metadata={"ge": 0, "le": MOST_CONTEXT, "description": "Lines to show before and after each that matches."},
    )
    include_ignored: bool = field(
        default=False,
        metadata={"description": "Whether to search what .gitignore and .ignore files hide, too."},
    )


@dataclass(frozen=True, slots=True)
class Unsearched:
    """Files that were not searched for one reason.

    Attributes:
        why: the reason, in words that follow their names.
        paths: the first of them.
        total: how many there are.
    """

    why: str
    paths: tuple[str, ...]
    total: int

    def render(self) -> str:
        """One clause."""
        more = self.total - len(self.paths)
        return f"{', '.join(self.paths)}{f' and {more} more' if more else ''} ({self.why})"


@stored_as("handrail.lines_found")
@dataclass(frozen=True, slots=True)
class LinesFound:
    """Lines that match a regular expression.

    Attributes:
        asked: what was asked for.
        shown: those that are shown, with their files and numbers, a line each.
        matches: how many lines match.
        files: how many files hold them.
        searched: how many files were searched, to their end or in part.
        left: how many files were not looked at any more, because `stopped`.
        stopped: what ended the search before all was searched: `"time"`, or `"room"` when no more could be kept.
        cut: how many lines were too long to be searched to their end.
        unsearched: files that cannot be searched.
        kept: all that was found, if not all of it is shown.
        left_out: what was not looked at when the files were looked for.
    """

    asked: GrepFiles
    shown: tuple[str, ...]
    matches: int
    files: int
    searched: int
    left: int = 0
    stopped: Literal["time", "room"] | None = None
    cut: int = 0
    unsearched: tuple[Unsearched, ...] = ()
    kept: KeptText | None = None
    left_out: LeftOut = NOTHING_LEFT_OUT

    def render(self) -> str:
        """A few lines that say what was found and how to go on, then the lines."""
        return "\n".join((" ".join(self._notes()), *self.shown))

    def _notes(self) -> list[str]:
        what = f"{shown_pattern(self.asked.pattern)} in {self.asked.path}"
        of = f"{counted(self.searched, 'file', 'files')} searched"
        lines = f"{counted(self.matches, 'line matches', 'lines match')} in {counted(self.files, 'file', 'files')}"
        notes = [f"{what}: {lines if self.matches else 'no line matches'} ({of})."]
        if self.kept is not None:
            notes.append(f"Shown are the first {len(self.shown):,}. {self.kept.reading_on(len(self.shown))}.")
        if self.stopped is not None:
            why = "the time for it was over" if self.stopped == "time" else "as much was found as can be kept"
            left = f"{counted(self.left, 'file was', 'files were')} not looked at" if self.left else "more may match"
            notes.append(f"The search stopped because {why}, and {left}. Narrow it down with pattern, path or files.")
        if self.cut:
            cut = counted(self.cut, "very long line was", "very long lines were")
            notes.append(f"{cut} searched up to character {SEARCHED_OF_LINE:,} only.")
        if self.unsearched:
            notes.append(f"Not searched: {', '.join(each.render() for each in self.unsearched)}.")
        return [*notes, *self.left_out.notes(), *self._hints()]

    def _hints(self) -> list[str]:
        """What may be the reason that nothing was found."""
        hints: list[str] = []
        if not self.matches and not self.searched and not self.unsearched and not self.stopped:
            deeper, files = at_any_depth(self.asked.files), shown_pattern(self.asked.files)
            hints += [f"No file fits {files}."] if self.left_out == NOTHING_LEFT_OUT else []
            hints += [f"To search at any depth, write {deeper}."] if deeper else []
        elif not self.matches and "\\n" in self.asked.pattern:
            hints.append(r"Each line is searched by itself and without its line end, so \n never matches.")
        return hints
