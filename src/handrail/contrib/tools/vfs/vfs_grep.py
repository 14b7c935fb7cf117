r"""Searching files for lines that match a regular expression, within bounds.

No pattern can make a search hang. The expressions are those of the engine that pydantic brings: it knows neither
look-around nor backreferences, takes time that grows with the line and the pattern and no faster, and refuses patterns
that become too large. What a line may cost is bounded by searching `SEARCHED_OF_LINE` characters of it at most, and
what a search may cost by asking between lines whether the time is over.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, TypeAlias

from pydantic_core import SchemaError, SchemaValidator, core_schema

from handrail.contrib.tools.vfs.files import LeftOut, path_in_line
from handrail.contrib.tools.vfs.overflow import keep
from handrail.contrib.tools.vfs.search import SEARCHED_OF_LINE, GrepFiles, LinesFound, Unsearched
from handrail.contrib.tools.vfs.vfs_text import NoText, VfsLimits, decoded, fitting, lines_of, too_large
from handrail.errors import FilesystemError, ToolValidationError
from handrail.filesystem import FileStat, Filesystem

_NAMED = 3
"""So many files that were not searched are named for each reason."""

_LONGEST_ESCAPED = 100
"""The longest pattern that an error repeats."""

Matches: TypeAlias = Callable[[str], bool]
"""Whether a line matches."""


def matcher(pattern: str, *, ignore_case: bool) -> Matches:
    """What decides whether a line matches a regular expression.

    Raises:
        ToolValidationError: it is no regular expression; the message says why.
    """
    if not pattern:
        raise ToolValidationError("$.pattern is empty; give what to look for. To list files, use glob_files.")
    if "\n" in pattern:
        raise ToolValidationError(
            "$.pattern holds a line break, but each line is searched by itself. Look for the first of the lines, and "
            "set context to see those that follow."
        )
    try:
        schema = core_schema.str_schema(pattern=f"(?i){pattern}" if ignore_case else pattern, regex_engine="rust-regex")
        return SchemaValidator(schema).isinstance_python
    except SchemaError as error:
        _, found, why = str(error).rpartition("error: ")
        reason = why if found else "it becomes too large; repeat less in it"
        raise ToolValidationError(
            f"$.pattern is not a regular expression that can be searched for: {reason}. To look for the text itself, "
            f"{_escaping(pattern)}"
        ) from error


def _escaping(pattern: str) -> str:
    """What to do so that a pattern stands for its own text."""
    if len(pattern) <= _LONGEST_ESCAPED:
        return f"write {re.escape(pattern)}"
    return r"put a backslash before each of the characters \ . ^ $ * + ? ( ) [ ] { } | in it"


class Search:
    """One search of several files, and what it has found so far. One call owns it, and uses it once."""

    __slots__ = (
        "_asked",
        "_cut",
        "_files",
        "_found_in",
        "_is_over",
        "_limits",
        "_lines",
        "_matches",
        "_matching",
        "_room",
        "_searched",
        "_stopped",
        "_tool",
        "_unsearched",
    )

    def __init__(
        self, asked: GrepFiles, limits: VfsLimits, is_over: Callable[[], bool], *, tool: str = "grep_files"
    ) -> None:
        """Make a search that has found nothing.

        Args:
            asked: what to look for.
            limits: what bounds the search.
            is_over: whether the time for it is over; asked between lines.
            tool: what the model calls the tool that searches.

        Raises:
            ToolValidationError: the pattern is no regular expression.
        """
        self._asked = asked
        self._limits = limits
        self._tool = tool
        self._is_over = is_over
        self._matches = matcher(asked.pattern, ignore_case=asked.ignore_case)
        self._lines: list[str] = []
        self._room = limits.kept_characters
        self._stopped: Literal["time", "room"] | None = None
        self._matching = 0
        self._files = 0
        self._found_in: list[str] = []
        self._searched = 0
        self._cut = 0
        self._unsearched: dict[str, list[str]] = {}

    def of(self, filesystem: Filesystem, stats: Sequence[FileStat], left_out: LeftOut) -> LinesFound:
        """Search files, in their order; `left_out` is what was not looked at when they were looked for."""
        for place, stat in enumerate(stats):
            if self._stopped is not None:
                return self._found(left=len(stats) - place, left_out=left_out)
            text = self._text(filesystem, stat)
            if text is not None:
                self._search(stat.path, text)
        return self._found(left=0, left_out=left_out)

    def _text(self, filesystem: Filesystem, stat: FileStat) -> str | None:
        """The text of a file; `None` for one that cannot be searched, which is noted."""
        text = self._read(filesystem, stat)
        if isinstance(text, NoText):
            self._unsearched.setdefault(text.what, []).append(stat.path)
            return None
        return text

    def _read(self, filesystem: Filesystem, stat: FileStat) -> str | NoText:
        if too_large(stat.size, self._limits):
            return NoText(f"larger than {self._limits.file_bytes:,} bytes")
        try:
            text = decoded(filesystem.read_bytes(stat.path))
        except FilesystemError:
            return NoText("cannot be read")
        return NoText("not text") if isinstance(text, NoText) else text

    def _search(self, path: str, text: str) -> None:
        lines = lines_of(text)
        found: list[int] = []
        self._searched += 1
        for number, line in enumerate(lines):
            if self._is_over():
                self._stopped = "time"
                break
            self._cut += len(line) > SEARCHED_OF_LINE
            if self._matches(line[:SEARCHED_OF_LINE]):
                found.append(number)
        if found:
            self._matching += len(found)
            self._files += 1
            self._found_in.append(path)
            self._take(self._with_context(path, lines, found))

    def _with_context(self, path: str, lines: Sequence[str], found: Sequence[int]) -> Iterator[str]:
        """The lines that match and those around them, as they are shown: `path:12: text` and `path-13- text`."""
        around, matching, next_number = self._asked.context, frozenset(found), -1
        numbers = {n for at in found for n in range(max(at - around, 0), min(at + around + 1, len(lines)))}
        for number in sorted(numbers):
            if around and number != next_number and self._lines:
                yield "--"
            mark = ":" if number in matching else "-"
            yield f"{path_in_line(path)}{mark}{number + 1}{mark} {self._shown(lines[number])}"
            next_number = number + 1

    def _take(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._room -= len(line) + 1
            if self._room < 0 and self._lines:
                self._stopped = "room"
                return
            self._lines.append(line)

    def _shown(self, line: str) -> str:
        most = self._limits.line_characters
        return line if len(line) <= most else f"{line[:most]} [cut: the line has {len(line):,} characters]"

    def _found(self, *, left: int, left_out: LeftOut) -> LinesFound:
        shown = fitting(map(len, self._lines), most=self._limits.lines, characters=self._limits.characters)
        return LinesFound(
            asked=self._asked,
            shown=tuple(self._lines[:shown]),
            matches=self._matching,
            files=self._files,
            searched=self._searched,
            left=left,
            stopped=self._stopped,
            cut=self._cut,
            unsearched=tuple(
                Unsearched(why, tuple(paths[:_NAMED]), len(paths)) for why, paths in self._unsearched.items()
            ),
            kept=keep(self._tool, self._lines, self._found_in, self._limits) if shown < len(self._lines) else None,
            left_out=left_out,
        )
