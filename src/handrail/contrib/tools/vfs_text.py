"""Text as the file tools see it: what is text at all, its lines, and the part of them that fits in one result.

A line ends with LF or CRLF. Everything in here and in `vfs_edit` works on text whose lines end with LF, which is
what the model is shown; `vfs_edit` puts each line's own end back.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from handrail.contrib.tools.vfs_files import FileExcerpt, LineEnds, ReadFile, counted
from handrail.errors import ToolValidationError

_LOOKED_AT = 8_192
"""So many bytes at the start of a file decide whether it is binary."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VfsLimits:
    """How much one call of a file tool takes or shows; each at least 1.

    Attributes:
        lines: lines of a file in one result of `read_file`.
        characters: characters of a file's text, or of a list of files, in one result.
        entries: entries in one result of `list_files`.
        file_bytes: the largest file that is read or edited, in bytes.

    Raises:
        ValueError: a limit is less than 1.
    """

    lines: int = 500
    characters: int = 20_000
    entries: int = 200
    file_bytes: int = 10_000_000

    def __post_init__(self) -> None:
        for name, limit in asdict(self).items():
            if limit < 1:
                raise ValueError(f"VfsLimits.{name} is {limit}; it must be at least 1")


def decoded(data: bytes, *, path: str) -> str:
    """The text of a file.

    Raises:
        ToolValidationError: it is no UTF-8 text; the message says what it is instead.
    """
    dead_end = "The file tools work on UTF-8 text only, so leave this file alone; what you write belongs in another."
    if b"\0" in data[:_LOOKED_AT]:
        raise ToolValidationError(f"{path} is binary ({counted(len(data), 'byte', 'bytes')}), not text. {dead_end}")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        fault = f"the byte 0x{data[error.start]:02x} at position {error.start}"
        raise ToolValidationError(f"{path} is not UTF-8 text: {fault} does not belong there. {dead_end}") from error


def with_lf(text: str) -> str:
    """The text with LF at the end of each line."""
    return text.replace("\r\n", "\n")


def excerpt(text: str, asked: ReadFile, limits: VfsLimits, *, path: str) -> FileExcerpt:
    """The part of a file that was asked for, as far as it fits in one result: whole lines, or a part of one.

    Args:
        text: all of the file, with its own line ends.
        asked: where to start, and how many lines to take.
        limits: what fits.
        path: the file, as it is to be named.

    Raises:
        ToolValidationError: the file has no such line, or the line no such character.
    """
    lines = with_lf(text).split("\n")
    ends_with_line_end = not lines[-1]
    if ends_with_line_end:
        lines.pop()
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
        ends_with_line_end=ends_with_line_end,
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
