"""Fits text into columns of a terminal: the one place that cuts and wraps what the command line and the examples show.

Three rules hold at every width:

1. What is cut ends with an ellipsis, or has one in its middle.
2. A figure is shown whole or not at all: a number, an amount, a date, a duration, with its sign and its unit. So
   `paid 4990 cents` is cut to `paid …`, never to `paid 49…`. Only a figure that is longer than a whole line continues
   on the next one.
3. A character stays with its combining marks, and an emoji with its modifiers. Width is counted in cells: CJK
   characters and most emoji take two.

Text is expected without control characters; see `handrail.cli.screen.clean`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator

from rich.cells import cell_len

ELLIPSIS = "…"
"""What stands for text that was cut; it takes one cell."""

# A sign or currency, digits with separators between them, a unit: `+1,200.50`, `2026-01-05`, `12:30`, `€ 5`, `0.2 s`.
# The repetition is limited, because `[1,2,3,…]` in compact JSON is a list of figures, and not one figure.
_FIGURE = re.compile(
    r"(?:(?<!\w)[+\-\u2212$€£¥]{1,2})?\d+(?:[.,:/'_-]\d+){0,8}"
    r"(?:%|[^\W\d_]{1,4}\b)?"
    r"(?: %| (?:ms|s|min|h|d|[A-Z]{3}|cents?|bytes?|euros?)\b)?"
)

# Where a word that is longer than a line may continue on the next one, if possible: after these characters.
_BREAKS_AFTER = frozenset("/\\-_:.,;=&?)]}>|")

NO_BREAK = "\u00a0"
"""A space at which no line ends; it is written as an ordinary one."""

_TAB = 8

_JOINER = "\u200d"

_MODIFIERS = ("\U0001f3fb", "\U0001f3ff")
_REGIONAL = ("\U0001f1e6", "\U0001f1ff")


def width_of(text: str) -> int:
    """How many cells a text takes."""
    # The fast path: rich looks at every character, and the labels of calls are often ASCII with an ellipsis.
    return len(text) if text.isascii() or text.replace(ELLIPSIS, ".").isascii() else cell_len(text)


def pad(text: str, width: int, *, right: bool = False) -> str:
    """The text with spaces up to `width` cells: after it, or with `right` before it."""
    missing = " " * (width - width_of(text))
    return missing + text if right else text + missing


def cut(text: str, width: int) -> str:
    """The text, cut to `width` cells; an ellipsis marks the cut. At least one cell."""
    if _is_within(text, width):
        return text
    return text[: _end_of_head(text, width - 1)].rstrip() + ELLIPSIS


def cut_middle(text: str, width: int) -> str:
    """The text, cut to `width` cells in its middle: paths and JSON differ at both ends. At least one cell."""
    if _is_within(text, width):
        return text
    head = text[: _end_of_head(text, (width - 1) - (width - 1) // 2)]
    tail = text[_start_of_tail(text, width - 1 - width_of(head)) :]
    return head.rstrip() + ELLIPSIS + tail.lstrip()


def wrap(text: str, width: int, *, first: int | None = None) -> list[str]:
    """The lines of a text, each of at most `width` cells; nothing is left out but spaces at the ends of lines.

    A line ends at a space if possible, but not at `NO_BREAK`; else after punctuation, else between two characters.

    Args:
        text: the text; its own line ends are kept.
        width: the cells of a line; at least two, so that every character fits.
        first: the cells of the first line, where it has others than the rest; it may be left empty.
    """
    lines: list[str] = []
    for line in text.split("\n"):
        lines += _wrapped(line, width, width if lines or first is None else first)
    return lines


class WordWrap:
    """Wraps a text that comes in pieces. Lines of a block between ``` are left as they are, so that they can be copied.

    What it returns is written at once; the last word is held back until it is known to be complete.
    """

    __slots__ = ("_column", "_is_raw", "_line", "_width", "_word")

    def __init__(self) -> None:
        self._column = 0
        self._is_raw = False
        self._line = ""
        self._word = ""
        self._width = 2

    def feed(self, text: str, width: int) -> str:
        """What can be written, now that `text` has come, on a terminal of `width` columns."""
        self._width = max(width, 2)
        return "".join(map(self._add, text))

    def flush(self) -> str:
        """What was held back."""
        word, self._word = self._word, ""
        return self._placed(word)

    def _add(self, character: str) -> str:
        if character not in " \t\n":
            self._word += character
            return ""
        word = self.flush()
        if character == "\n":
            if self._line.lstrip().startswith("```"):
                self._is_raw = not self._is_raw
            self._line, self._column = "", 0
            return f"{word}\n"
        # A space at the edge is not written: the next word begins a line.
        if self._column >= self._width and not self._is_raw:
            return word
        self._line += character
        self._column += 1 if character == " " else _TAB - self._column % _TAB
        return word + character

    def _placed(self, word: str) -> str:
        if not word:
            return ""
        self._line += word
        if self._is_raw or self._column + width_of(word) <= self._width:
            self._column += width_of(word)
            return word
        lines = _wrapped(word, self._width, self._width)
        self._column, begins = width_of(lines[-1]), "\n" if self._column else ""
        return begins + "\n".join(lines)


def clusters(text: str) -> Iterator[str]:
    """The characters of a text as a person counts them: each with its combining marks, modifiers and joined emoji."""
    start = 0
    for place in range(1, len(text)):
        if not _continues(text, start, place):
            yield text[start:place]
            start = place
    if text:
        yield text[start:]


def figures(text: str) -> Iterator[tuple[int, int]]:
    """Where the figures of a text begin and end."""
    for found in _FIGURE.finditer(text):
        start, stop = found.span()
        # A letter of the unit stays with its combining marks.
        while stop < len(text) and not text[stop].isascii() and _continues(text, start, stop):
            stop += 1
        yield start, stop


def widest_figure(texts: Iterable[str]) -> int:
    """How many cells the widest figure of some texts takes; 0 if they have none."""
    return max((width_of(text[start:stop]) for text in texts for start, stop in figures(text)), default=0)


def _continues(text: str, start: int, place: int) -> bool:
    """Whether the character at `place` belongs to the cluster that begins at `start`."""
    character = text[place]
    if text[place - 1] == _JOINER or character == _JOINER:
        return True
    if _MODIFIERS[0] <= character <= _MODIFIERS[1]:
        return True
    if _REGIONAL[0] <= character <= _REGIONAL[1]:  # two of them are a flag
        return place - start == 1 and _REGIONAL[0] <= text[start] <= _REGIONAL[1]
    # Marks, variation selectors, and characters without a width of their own.
    return not character.isascii() and unicodedata.category(character) in {"Mn", "Me", "Mc", "Cf"}


def _is_within(text: str, width: int) -> bool:
    """Whether a text fits; a very long one is not measured to its end."""
    if len(text) <= width and text.isascii():
        return True
    # A cluster may take no cell, so the length proves nothing; but that of the beginning does.
    return width_of(text[: 8 * width + 64]) <= width and width_of(text) <= width


def _end_of_head(text: str, room: int) -> int:
    """Where the beginning of a text ends that has `room` cells, and does not end within a figure."""
    if text[: room + 1].isascii():  # the fast path: a cell for each character; no combining mark follows
        end = max(min(room, len(text)), 0)
    else:
        end = 0
        for cluster in clusters(text):
            room -= width_of(cluster)
            if room < 0:
                break
            end += len(cluster)
    for start, stop in figures(text):
        if start >= end:
            break
        if stop > end:
            return start
    return end


def _start_of_tail(text: str, room: int) -> int:
    """Where the end of a text begins that has `room` cells, and does not begin within a figure."""
    # Only the end is looked at: a text may be long, and a cluster has few characters.
    skipped = max(len(text) - 8 * room - 64, 0)
    end = text[skipped:]
    start = len(end)
    if end.isascii():  # the fast path, as above
        start = max(start - max(room, 0), 0)
    else:
        for cluster in reversed(list(clusters(end))):
            room -= width_of(cluster)
            if room < 0:
                break
            start -= len(cluster)
    return skipped + next((stop for begin, stop in figures(end) if begin < start < stop), start)


def _wrapped(line: str, width: int, first: int) -> list[str]:
    """One line as several: the first of `first` cells, the others of `width`."""
    lines: list[str] = []
    rest, room = line, first
    while not _is_within(rest, room):
        end = _end_of_line(rest, room, fresh=room == width)
        lines.append(rest[:end].rstrip(" "))
        rest, room = rest[end:].lstrip(" "), width
    return [line.replace(NO_BREAK, " ") for line in (*lines, rest)]


def _end_of_line(text: str, room: int, *, fresh: bool) -> int:
    """Where the first line of a text ends; 0 if nothing should stand on it, as on a line that is not `fresh`."""
    fitting = _end_of_head(text, room)
    # Also if the space is the one after what fits.
    space = text.rfind(" ", 0, fitting + 1)
    inside = next(((start, stop) for start, stop in figures(text) if start < space < stop), None)
    if inside is not None:  # the space between a figure and its unit
        space = text.rfind(" ", 0, inside[0] + 1)
    if space > 0 and text[:space].strip(" "):
        return space
    if not fresh:
        return 0
    pieces = (place + 1 for place in range(fitting - 1, 0, -1) if text[place] in _BREAKS_AFTER)
    spans = list(_spans_before(text, fitting))
    found = next((place for place in pieces if not any(start < place < stop for start, stop in spans)), 0)
    # A break near the beginning of the line would leave most of it empty.
    if 2 * found >= fitting and found:
        return found
    return fitting or _at_least_one(text, room)


def _spans_before(text: str, end: int) -> Iterator[tuple[int, int]]:
    for start, stop in figures(text):
        if start >= end:
            return
        yield start, stop


def _at_least_one(text: str, room: int) -> int:
    """How much of a figure that is longer than a line stands on this one; its digits stay together if they can."""
    end = 0
    for cluster in clusters(text):
        room -= width_of(cluster)
        if room < 0 and end:
            break
        end += len(cluster)
    space = text.rfind(" ", 1, end + 1)
    if space > 0:
        return space
    together = end
    while 0 < together < len(text) and text[together - 1].isdecimal() and text[together].isdecimal():
        together -= 1
    return together or end
