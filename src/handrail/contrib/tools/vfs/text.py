"""Replacing a piece of a text exactly, and saying what is wrong when that cannot be done. Pure functions.

The piece is looked for in the text with LF line ends, as the model has seen it. Every line that the edit does not touch
keeps its own line end; new lines get that of the line in which the piece begins.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice

from handrail.contrib.tools.vfs.files import EditFile, numbered_lines
from handrail.contrib.tools.vfs.vfs_text import line_count, with_lf
from handrail.errors import ToolValidationError
from handrail.prompt.files_known import Position, TextReplaced

_LINE_END = re.compile(r"\r?\n")
_LF = "\n"
_START: Position = (1, 1)
_LISTED = 10
"""So many occurrences are listed by their lines."""
_LINES_COMPARED = 5_000
_NEAREST = 3
_SHOWN_OF_LINE = 200
"""Characters of a line that are compared and shown."""


@dataclass(frozen=True, slots=True)
class Replacements:
    """Where an edit has replaced text, in order. There may be a million; each is made when it is asked for.

    Attributes:
        pieces: what the edit has left alone: the text before, between and after what it has replaced.
        old: what was between the pieces.
        new: what is between them now.
    """

    pieces: Sequence[str]
    old: str
    new: str

    def __iter__(self) -> Iterator[TextReplaced]:
        """Each place, as positions in the text before and after the edit."""
        last = len(self.pieces) - 1
        at, new_at = _START, _START
        for number, piece in enumerate(self.pieces[:-1], 1):
            start = _past(at, piece)
            at, new_at = _past(start, self.old), _past(_past(new_at, piece), self.new)
            ends_differ = (at[1] == 1) != (new_at[1] == 1)
            if number == last and not self.pieces[-1] and ends_differ:  # one of the texts ends without a line end
                at, new_at = _past_line_end(at), _past_line_end(new_at)
            yield TextReplaced(start, at, new_at)


def _past(position: Position, text: str) -> Position:
    """Where a text ends that begins at a position."""
    lines = text.count(_LF)
    return (position[0] + lines, len(text) - text.rfind(_LF)) if lines else (position[0], position[1] + len(text))


def _past_line_end(position: Position) -> Position:
    """The same, or the start of the next line if it is the end of a line."""
    return position if position[1] == 1 else (position[0] + 1, 1)


@dataclass(frozen=True, slots=True)
class Edited:
    """A text after an edit.

    Attributes:
        text: all of it, with its own line ends.
        replacements: how many occurrences were replaced.
        lines: the lines of `text` in which the first of them begin.
        total_lines: how many lines `text` has.
        replaced: where they are.
    """

    text: str
    replacements: int
    lines: tuple[int, ...]
    total_lines: int
    replaced: Replacements


def edited(text: str, edit: EditFile, *, path: str) -> Edited:
    """The text with `edit.old` replaced by `edit.new`.

    Args:
        text: all of the file, with its own line ends.
        edit: what to replace by what.
        path: the file, as it is to be named.

    Raises:
        ToolValidationError: `old` is empty, equal to `new`, not in the text, or there more than once without
            `replace_all`. The message says where the text comes nearest, or where `old` is.
    """
    old, new = with_lf(edit.old), with_lf(edit.new)
    if not old:
        raise ToolValidationError(
            "$.old is empty; give the text to replace. To insert, give a line that is there as old, and as new that "
            "line with what you add. To fill an empty file, use write_file."
        )
    if old == new:
        raise ToolValidationError("$.new is the same text as $.old, so nothing would change.")
    seen = with_lf(text)
    found = list(islice(_starts(seen, old), _LISTED + 1))
    if not found:
        raise ToolValidationError(
            f"$.old does not occur in {path}. {_nearest(seen, old)}Copy old exactly from what read_file shows, with "
            "every space."
        )
    if len(found) > 1 and not edit.replace_all:
        times = f"{len(found)} times" if len(found) <= _LISTED else f"more than {_LISTED} times"
        where = numbered_lines(_lines_at(seen, found[:_LISTED]), total=len(found))
        raise ToolValidationError(
            f"$.old occurs {times} in {path}, at {where}. Give more of the text around the one you mean, or set "
            "replace_all to true."
        )
    pieces = seen.split(old)
    after = new.join(pieces) if seen == text else _with_own_line_ends(text, pieces, old=old, new=new)
    lines = _lines_of_joints(pieces, new)
    return Edited(after, len(pieces) - 1, lines, line_count(after), Replacements(pieces, old, new))


def _starts(text: str, piece: str) -> Iterator[int]:
    """Where a piece occurs in a text, overlaps included: two places are two, even if only one could be replaced."""
    at = text.find(piece)
    while at >= 0:
        yield at
        at = text.find(piece, at + 1)


def _lines_at(text: str, positions: list[int]) -> tuple[int, ...]:
    return tuple(text.count("\n", 0, position) + 1 for position in positions)


def _lines_of_joints(pieces: list[str], between: str) -> tuple[int, ...]:
    """The lines in which the first joints of the pieces begin, when `between` is put there."""
    lines: list[int] = []
    line = 1
    for piece in pieces[:-1][:_LISTED]:
        line += piece.count("\n")
        lines.append(line)
        line += between.count("\n")
    return tuple(lines)


def _with_own_line_ends(text: str, pieces: list[str], *, old: str, new: str) -> str:
    ends: list[str] = _LINE_END.findall(text)
    kept: list[str] = []
    at = 0
    for piece in pieces[:-1]:
        to = at + piece.count("\n")
        kept += ends[at:to]
        kept += [ends[min(to, len(ends) - 1)]] * new.count("\n")
        at = to + old.count("\n")
    kept += ends[at:]
    lines = new.join(pieces).split("\n")
    return "".join(line + end for line, end in zip(lines, [*kept, ""], strict=True))


def _nearest(text: str, old: str) -> str:
    """Where a text comes nearest to a piece that it does not hold, in a few lines."""
    differing = _started(text, old) or _but_for_white_space(text, old)
    if differing:
        return differing
    wanted = next((line.strip() for line in old.split("\n") if line.strip()), "")
    lines: dict[str, str] = {}
    for number, line in enumerate(text.split("\n", _LINES_COMPARED)[:_LINES_COMPARED], 1):
        lines.setdefault(line.strip()[:_SHOWN_OF_LINE], f"{number}: {_shown(line)}\n")
    near = get_close_matches(wanted[:_SHOWN_OF_LINE], lines, n=_NEAREST) if wanted else []
    if not near:
        return "Nothing in it is like it. "
    return f"The nearest lines are:\n{''.join(lines[found] for found in near)}"


def _started(text: str, old: str) -> str:
    """Where a text agrees with the first lines of a piece, and how it goes on; empty if it does so nowhere."""
    ends = [0, *(found.end() for found in re.finditer("\n", old))]
    agreeing = bisect_right(ends, 0, key=lambda end: old[:end] not in text) - 1
    start = old[: ends[agreeing]]
    if not start.strip():
        return ""
    position = text.index(start)
    first = text.count("\n", 0, position) + 1
    rest = text[position + len(start) :]
    instead = f"line {first + agreeing} is {_shown(rest.split(_LF, 1)[0])}" if rest else "the file ends there"
    its = "Its first line is" if agreeing == 1 else f"Its first {agreeing} lines are"
    return f"{its} at line {first}, but then {instead}, where old has {_shown(old.split(_LF)[agreeing])}. "


def _but_for_white_space(text: str, old: str) -> str:
    """Where whole lines of a text agree with a piece but for white space, and the first that does not agree with it."""
    lines, wanted = text.split(_LF), old.strip(_LF).split(_LF)
    if not old.strip():
        return ""
    at = _squeezed(lines).find(_squeezed(wanted))
    if at < 0:
        return ""
    first = _squeezed(lines).count(_LF, 0, at)
    for number, (line, other) in enumerate(zip(lines[first:], wanted, strict=False), first + 1):
        if line != other:
            return (
                f"But for white space it is at line {first + 1}: line {number} is {_shown(line)}, where old has "
                f"{_shown(other)}. "
            )
    return ""


def _squeezed(lines: list[str]) -> str:
    """Lines without their white space, with a line end before each and after the last."""
    return _LF.join(("", *("".join(line.split()) for line in lines), ""))


def _shown(line: str) -> str:
    """A line as a JSON string, in which white space can be told apart."""
    shown = json.dumps(line[:_SHOWN_OF_LINE], ensure_ascii=False)
    return shown if len(line) <= _SHOWN_OF_LINE else f"{shown} and so on"
