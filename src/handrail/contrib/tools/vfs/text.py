"""Text for the file tools: lines, the part that fits in one result, and exact replacement. Pure functions.

This module decides what is text. A line ends with LF or CRLF. The functions work on text whose lines end with LF, as
the model sees it; an edit restores each line's own end.

The piece that an edit replaces is searched for in the text with LF line ends. Every line that the edit does not change
keeps its own line end; new lines get that of most lines.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from itertools import islice
from typing import Literal, TypeAlias
from unicodedata import normalize

from handrail.contrib import about
from handrail.errors import ToolValidationError
from handrail.serde.formatting import count_noun
from handrail.session import stored_as

Newlines: TypeAlias = Literal["LF", "CRLF", "mixed"]
"""How the lines of a file end; a file without line ends counts as `"LF"`."""


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

    path: str = field(metadata=about("The file, such as 'notes/plan.md'."))
    offset: int = field(default=1, metadata=about("The number of the first line to show.", ge=1))
    limit: int | None = field(
        default=None, metadata=about("How many lines at most; leave it out for as many as fit.", ge=1)
    )
    column: int = field(
        default=1, metadata=about("The first character of that line to show, to continue in a very long line.", ge=1)
    )


@stored_as("handrail.file_excerpt")
@dataclass(frozen=True, slots=True)
class FileExcerpt:
    """A file's text, or one part of it.

    Attributes:
        text: whole lines without the last one's line end, or a part of one line; line ends are LF.
        column: where in the first line `text` starts, from 1.
        next_column: where to continue in the last line, if it is not shown to its end.
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
        notes = [f"{self.path}: {self._describe_part()}."]
        if self.next_column is not None:
            notes.append(f"Continue with offset={self.last_line}, column={self.next_column}.")
        elif self.last_line < self.total_lines:
            notes.append(f"Continue with offset={self.last_line + 1}.")
        if self.line_ends != "LF":
            notes.append(f"Its line ends are {self.line_ends}, shown as LF; edit_file keeps them.")
        if not self.ends_with_line_end:
            notes.append("CR alone ends no line." if "\r" in self.text else "Its last line has no line end.")
        return f"{' '.join(notes)}\n{self.text}"

    def _describe_part(self) -> str:
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

    path: str = field(metadata=about("The file, such as 'notes/plan.md'; its folders are made."))
    content: str = field(metadata=about("The whole text of the file, with a line end after the last line."))


@stored_as("handrail.file_written")
@dataclass(frozen=True, slots=True)
class FileWritten:
    """A file has been made or replaced.

    Attributes:
        created: whether there was none before.
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

    path: str = field(metadata=about("The file, such as 'notes/plan.md'."))
    old: str = field(metadata=about("The text to replace, exactly as read_file shows it."))
    new: str = field(metadata=about("The text to put in its place; empty to delete it."))
    replace_all: bool = field(default=False, metadata=about("Whether to replace every occurrence of old."))


@stored_as("handrail.file_edited")
@dataclass(frozen=True, slots=True)
class FileEdited:
    """A piece of a file's text has been replaced.

    Attributes:
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

    path: str = field(metadata=about("The file or folder, such as 'notes/old.md'."))
    recursive: bool = field(default=False, metadata=about("Whether to remove a folder with everything that it holds."))


@stored_as("handrail.file_removed")
@dataclass(frozen=True, slots=True)
class FileRemoved:
    """A file or folder has been removed.

    Attributes:
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

    path: str = field(metadata=about("The file or folder, such as 'draft.md'."))
    new_path: str = field(
        metadata=about("Its whole new path, such as 'notes/plan.md', where nothing is yet; folders are made.")
    )


@stored_as("handrail.file_moved")
@dataclass(frozen=True, slots=True)
class FileMoved:
    """A file or folder has been moved."""

    path: str
    new_path: str

    def render(self) -> str:
        """One line."""
        return f"Moved {self.path} to {self.new_path}."


def numbered_lines(lines: tuple[int, ...], *, total: int) -> str:
    """Line numbers as text; `total` includes those that are not listed."""
    listed_numbers = ", ".join(map(str, dict.fromkeys(lines)))
    return f"line{'s' if total > 1 else ''} {listed_numbers}{' and more' if total > len(lines) else ''}"


# Git and grep decide by a NUL near the start too.
_LOOKED_AT = 8_192  # how many bytes at the start of a file decide whether it is binary

MARK = "\ufeff"
"""The byte order mark, which some programs write before a text, and which the first line does not have."""

_LF = "\n"

_LISTED = 10  # how many occurrences are listed by their lines

_LINES_COMPARED = 5_000
_NEAREST = 3

_SHOWN_OF_LINE = 200  # characters of a line that are compared and shown


@dataclass(frozen=True, slots=True, kw_only=True)
class VfsLimits:
    """The limits of one call of a file tool; each at least 1.

    Attributes:
        lines: lines in one result of `read_file`.
        characters: characters of text in one result; of a list of files or a search, at least 1,000.
        line_characters: characters of a line that `grep_files` shows.
        file_bytes: the largest file that is read, searched or edited, in bytes.
        search_characters: characters that a list or search finds; `read_result` reads what `characters` leaves out.
        search_seconds: how long one call looks for files and searches them.
        walked_entries: files and folders that one call looks at.

    Raises:
        ValueError: a limit is less than 1.
    """

    lines: int = 500
    characters: int = 20_000
    line_characters: int = 500
    file_bytes: int = 10_000_000
    search_characters: int = 100_000
    search_seconds: int = 10
    walked_entries: int = 200_000

    def __post_init__(self) -> None:
        for name, limit in asdict(self).items():
            if limit < 1:
                raise ValueError(f"VfsLimits.{name} is {limit}; it must be at least 1")


@dataclass(frozen=True, slots=True)
class NotText:
    """Data that is not UTF-8 text, or too much of it; `what` follows the name of a file."""

    what: str


def decode_text(data: bytes) -> str | NotText:
    """The text of data in UTF-8, if it is text, without its byte order mark."""
    size = count_noun(len(data), "byte", "bytes")
    if b"\0" in data[:_LOOKED_AT]:
        return NotText(f"is binary ({size}), not text")
    try:
        return data.decode().removeprefix(MARK)
    except UnicodeDecodeError as error:
        fault = f"the byte 0x{data[error.start]:02x} at position {error.start}"
        return NotText(f"is not UTF-8 text ({size}): {fault} does not belong there")


def too_large(size: int, limits: VfsLimits) -> str | None:
    """The reason why a file is too large, as text that follows its name; `None` if it is not."""
    if size <= limits.file_bytes:
        return None
    return f"has {count_noun(size, 'byte', 'bytes')}, and the file tools take files of at most {limits.file_bytes:,}"


def with_lf(text: str) -> str:
    """The text with LF at the end of each line."""
    return text.replace("\r\n", "\n")


def byte_order_mark(data: bytes) -> str:
    """The byte order mark that a content begins with; empty if it has none."""
    return MARK if data.startswith(MARK.encode()) else ""


def like(text: str, before: bytes) -> str:
    """A text with the byte order mark and the line ends of the content that it replaces."""
    mark = byte_order_mark(before)
    ends = before.count(b"\n")
    if ends and b"\0" not in before:
        text = with_lf(text)
        text = text.replace("\n", "\r\n") if 2 * before.count(b"\r\n") > ends else text
    return mark + text.removeprefix(mark)


def split_lines(text: str) -> list[str]:
    """The lines of a text without their line ends."""
    # Only LF and CRLF end lines: `str.splitlines` would also split at form feeds and Unicode separators.
    lines = with_lf(text).split("\n")
    if not lines[-1]:
        lines.pop()
    return lines


def excerpt(text: str, request: ReadFile, limits: VfsLimits, *, path: str) -> FileExcerpt:
    """The requested part of a file, as far as it fits in one result: whole lines, or a part of one."""
    lines = split_lines(text)
    if not lines:
        return FileExcerpt(path, "", 0, 0, 0)
    rest = _rest_of_line(lines, request, path)
    # The first line is always shown, cut if need be; otherwise a very long line could never be read.
    last, parts = request.offset, [rest[: limits.characters]]
    room = limits.characters - len(rest)
    # Never more than the section allows, whatever the model asks for.
    most = min(request.offset - 1 + min(request.limit or limits.lines, limits.lines), len(lines))
    while last < most and room > len(lines[last]):
        room -= len(lines[last]) + 1
        parts.append(lines[last])
        last += 1
    return FileExcerpt(
        path=path,
        text="\n".join(parts),
        first_line=request.offset,
        last_line=last,
        total_lines=len(lines),
        column=request.column,
        next_column=request.column + limits.characters if len(rest) > limits.characters else None,
        line_ends=_line_ends(text),
        ends_with_line_end=text.endswith("\n"),
    )


def _rest_of_line(lines: list[str], request: ReadFile, path: str) -> str:
    if request.offset > len(lines):
        has = count_noun(len(lines), "line", "lines")
        raise ToolValidationError(f"$.offset: {path} has {has}, so there is no line {request.offset:,}.")
    line = lines[request.offset - 1]
    if request.column > max(len(line), 1):
        has = count_noun(len(line), "character", "characters")
        raise ToolValidationError(
            f"$.column: line {request.offset} of {path} has {has}, so there is none at {request.column:,}."
        )
    return line[request.column - 1 :]


def _line_ends(text: str) -> Newlines:
    with_cr = text.count("\r\n")
    if not with_cr:
        return "LF"
    return "CRLF" if with_cr == text.count("\n") else "mixed"


@dataclass(frozen=True, slots=True)
class EditOutcome:
    """A text after an edit.

    Attributes:
        text: all of it, with its own line ends.
        lines: the lines of `text` in which the first of them begin.
    """

    text: str
    replacements: int
    lines: tuple[int, ...]


def replace_exactly(text: str, edit: EditFile, *, path: str) -> EditOutcome:
    """The text with `edit.old` replaced by `edit.new`."""
    old, new = with_lf(edit.old), with_lf(edit.new)
    if not old:
        raise ToolValidationError(
            "$.old is empty; give the text to replace. To insert, give a line that is there as old, and as new that "
            "line with what you add. To fill an empty file, use write_file."
        )
    lf_text = with_lf(text)
    if old not in lf_text:
        # Two texts that look the same may differ in their Unicode form.
        pairs = [(normalize(form, old), normalize(form, new)) for form in ("NFC", "NFD")]
        old, new = next((pair for pair in pairs if pair[0] in lf_text), (old, new))
    if old == new:
        raise ToolValidationError("$.new is the same text as $.old, so nothing would change.")
    # One more than listed is enough to know that there are more; a text may have a million occurrences.
    places = list(islice(_starts(lf_text, old), _LISTED + 1))
    if not places:
        raise ToolValidationError(
            f"$.old does not occur in {path}. {_nearest(lf_text, old)}Copy old exactly from what read_file shows, with "
            "every space."
        )
    if len(places) > 1 and not edit.replace_all:
        times = f"{len(places)} times" if len(places) <= _LISTED else f"more than {_LISTED} times"
        where = numbered_lines(_lines_at(lf_text, places[:_LISTED]), total=len(places))
        raise ToolValidationError(
            f"$.old occurs {times} in {path}, at {where}. Give more of the text around the one you mean, or set "
            "replace_all to true."
        )
    # One occurrence, or `replace_all`, for which they are taken from the left and without overlaps.
    places = list(_starts(lf_text, old, len(old)))
    shift = new.count("\n") - old.count("\n")
    lines = tuple(line + number * shift for number, line in enumerate(_lines_at(lf_text, places[:_LISTED])))
    return EditOutcome(_replace(text, places, len(old), new), len(places), lines)


def _replace(text: str, places: list[int], length: int, new: str) -> str:
    # Where line ends with CR are in the text with LF line ends: a place in that is so much further on in `text`.
    crs = [match.start() - number for number, match in enumerate(re.finditer("\r\n", text))]
    new = new.replace("\n", "\r\n") if 2 * len(crs) > text.count("\n") else new
    parts: list[str] = []
    done = 0
    for place in places:
        end = place + length
        parts += [text[done : place + bisect_left(crs, place)], new]
        done = end + bisect_left(crs, end)
    return "".join((*parts, text[done:]))


def _starts(text: str, piece: str, step: int = 1) -> Iterator[int]:
    at = text.find(piece)
    while at >= 0:
        yield at
        at = text.find(piece, at + step)


def _lines_at(text: str, positions: list[int]) -> tuple[int, ...]:
    return tuple(text.count("\n", 0, position) + 1 for position in positions)


def _nearest(text: str, old: str) -> str:
    # First what is more certain; the search by similarity is slow.
    if differing := _but_for_white_space(text, old):
        return differing
    line_to_find = next((line.strip() for line in old.split("\n") if line.strip()), "")
    lines: dict[str, str] = {}
    # Bounded, because comparing lines by similarity takes long.
    for number, line in enumerate(text.split("\n", _LINES_COMPARED)[:_LINES_COMPARED], 1):
        lines.setdefault(line.strip()[:_SHOWN_OF_LINE], f"{number}: {_quote_line(line)}\n")
    near = get_close_matches(line_to_find[:_SHOWN_OF_LINE], lines, n=_NEAREST) if line_to_find else []
    if not near:
        return "Nothing in it is like it. "
    return f"The nearest lines are:\n{''.join(lines[line] for line in near)}"


def _but_for_white_space(text: str, old: str) -> str:
    lines, piece_lines = text.split(_LF), old.strip(_LF).split(_LF)
    if not old.strip():
        return ""
    at = _squeezed(lines).find(_squeezed(piece_lines))
    if at < 0:
        return ""
    first = _squeezed(lines).count(_LF, 0, at)
    for number, (line, other) in enumerate(zip(lines[first:], piece_lines, strict=False), first + 1):
        if line != other:
            return (
                f"But for white space it is at line {first + 1}: line {number} is {_quote_line(line)}, where old has "
                f"{_quote_line(other)}. "
            )
    return ""


def _squeezed(lines: list[str]) -> str:
    return _LF.join(("", *("".join(line.split()) for line in lines), ""))


def _quote_line(line: str) -> str:
    quoted_line = json.dumps(line[:_SHOWN_OF_LINE], ensure_ascii=False)
    return quoted_line if len(line) <= _SHOWN_OF_LINE else f"{quoted_line} and so on"
