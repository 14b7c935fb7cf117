"""Text as the file tools see it: what is text at all, its lines, and the part of them that fits in one result.

A line ends with LF or CRLF. Everything in here and in `vfs_edit` works on text whose lines end with LF, which is
what the model is shown; `vfs_edit` puts each line's own end back.
"""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from handrail.contrib.tools.vfs.files import FileExcerpt, LineEnds, ReadFile, counted
from handrail.errors import ToolValidationError
from handrail.filesystem import FileStart

_LOOKED_AT = 8_192
"""So many bytes at the start of a file decide whether it is binary."""

_KINDS = (
    (b"\x89PNG\r\n", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"%PDF-", "a PDF document"),
    (b"PK\x03\x04", "a ZIP archive or an office document"),
    (b"\x1f\x8b", "gzip data"),
    (b"\x7fELF", "a program"),
    (b"SQLite format 3\0", "an SQLite database"),
)
"""How files of the usual kinds begin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VfsLimits:
    """How much one call of a file tool takes or shows; each at least 1.

    Attributes:
        lines: lines in one result of `read_file`, `grep_files` or `read_kept`.
        characters: characters of text, or of a list of files, in one result.
        entries: entries in one result of `list_files` or `glob_files`.
        line_characters: characters of a line that `grep_files` shows.
        file_bytes: the largest file that is read, searched or edited, in bytes.
        kept_characters: characters that are kept of a result too long to be shown; a search that finds more stops.
        search_seconds: how long `glob_files` and `list_files` look for files, and `grep_files` searches.
        walked_entries: files and folders that one call looks at while it looks for files.

    Raises:
        ValueError: a limit is less than 1.
    """

    lines: int = 500
    characters: int = 20_000
    entries: int = 200
    line_characters: int = 500
    file_bytes: int = 10_000_000
    kept_characters: int = 100_000
    search_seconds: int = 10
    walked_entries: int = 200_000

    def __post_init__(self) -> None:
        for name, limit in asdict(self).items():
            if limit < 1:
                raise ValueError(f"VfsLimits.{name} is {limit}; it must be at least 1")


@dataclass(frozen=True, slots=True)
class NoText:
    """Data that is not UTF-8 text, or too much of it.

    Attributes:
        what: what it is instead, in words that follow the name of a file.
        has_lines: whether it is text that is too large to be shown.
    """

    what: str
    has_lines: bool = False


def decoded(data: bytes) -> str | NoText:
    """The text that data is in UTF-8, if it is text."""
    if b"\0" in data[:_LOOKED_AT]:
        return _binary(data, len(data))
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        return _no_utf8(data, len(data), error)


def described(start: FileStart, limits: VfsLimits) -> NoText:
    """What a file is that is too large to be read, as far as its first bytes tell."""
    if b"\0" in start.data:
        return _binary(start.data, start.size)
    try:
        getincrementaldecoder("utf-8")().decode(start.data)  # which leaves alone a character that is cut off at the end
    except UnicodeDecodeError as error:
        return _no_utf8(start.data, start.size, error)
    return NoText(f"is text, {too_large(start.size, limits)}", has_lines=True)


def _binary(data: bytes, size: int) -> NoText:
    return NoText(f"is binary ({_kind(data)}{counted(size, 'byte', 'bytes')}), not text")


def _no_utf8(data: bytes, size: int, error: UnicodeDecodeError) -> NoText:
    fault = f"the byte 0x{data[error.start]:02x} at position {error.start}"
    return NoText(f"is not UTF-8 text ({_kind(data)}{counted(size, 'byte', 'bytes')}): {fault} does not belong there")


def _kind(data: bytes) -> str:
    return next((f"{kind}, " for start, kind in _KINDS if data.startswith(start)), "")


def too_large(size: int, limits: VfsLimits) -> str | None:
    """Why a file is too large for these tools, in words that follow its name; `None` if it is not."""
    if size <= limits.file_bytes:
        return None
    return f"has {counted(size, 'byte', 'bytes')}, and the file tools take files of at most {limits.file_bytes:,}"


def fitting(lengths: Iterable[int], *, most: int, characters: int) -> int:
    """How many lines of these lengths one result may show; one at least, if there is one."""
    shown = 0
    for length in lengths:
        characters -= length + 1
        if shown == most or (shown and characters < 0):
            break
        shown += 1
    return shown


def with_lf(text: str) -> str:
    """The text with LF at the end of each line."""
    return text.replace("\r\n", "\n")


def lines_of(text: str) -> list[str]:
    """The lines of a text without their line ends."""
    lines = with_lf(text).split("\n")
    if not lines[-1]:
        lines.pop()
    return lines


def line_count(text: str) -> int:
    """How many lines a text has, whatever its line ends."""
    return text.count("\n") + (text[-1:] not in {"", "\n"})


def excerpt(text: str, asked: ReadFile, limits: VfsLimits, *, path: str) -> FileExcerpt:
    """The part of a file that was asked for, as far as it fits in one result: whole lines, or a part of one.

    Args:
        text: all of the file, with its own line ends.
        asked: where to start, and how many lines to take.
        limits: what fits.
        path: what it is a part of, as it is to be named.

    Raises:
        ToolValidationError: the file has no such line, or the line no such character.
    """
    lines = lines_of(text)
    if not lines:
        return FileExcerpt(path, "", 0, 0, 0)
    rest = _rest_of_line(lines, asked, path)
    last, shown = asked.offset, [rest[: limits.characters]]
    room = limits.characters - len(rest)
    most = min(asked.offset - 1 + min(asked.limit or limits.lines, limits.lines), len(lines))
    while last < most and room > len(lines[last]):
        room -= len(lines[last]) + 1
        shown.append(lines[last])
        last += 1
    return FileExcerpt(
        path=path,
        text="\n".join(shown),
        first_line=asked.offset,
        last_line=last,
        total_lines=len(lines),
        column=asked.column,
        next_column=asked.column + limits.characters if len(rest) > limits.characters else None,
        line_ends=_line_ends(text),
        ends_with_line_end=text.endswith("\n"),
    )


def _rest_of_line(lines: list[str], asked: ReadFile, path: str) -> str:
    if asked.offset > len(lines):
        has = counted(len(lines), "line", "lines")
        raise ToolValidationError(f"$.offset: {path} has {has}, so there is no line {asked.offset:,}.")
    line = lines[asked.offset - 1]
    if asked.column > max(len(line), 1):
        has = counted(len(line), "character", "characters")
        raise ToolValidationError(
            f"$.column: line {asked.offset} of {path} has {has}, so there is none at {asked.column:,}."
        )
    return line[asked.column - 1 :]


def _line_ends(text: str) -> LineEnds:
    with_cr = text.count("\r\n")
    if not with_cr:
        return "LF"
    return "CRLF" if with_cr == text.count("\n") else "mixed"
