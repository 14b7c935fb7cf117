"""Lays out a table for a terminal of any width.

What is done, in this order, until the rows fit:

1. Columns are left out, those with the highest `spare` first.
2. Columns that may be cut are cut, down to 16 cells.
3. Cells of other columns continue on the next line, down to 12 cells, but never within a figure.
4. Each row is written as a list of names and values.

Columns of figures (`right`) are never narrower than their widest cell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from handrail.cli.cells import cut, pad, widest_figure, width_of, wrap

GAP = 2
"""The cells between two columns."""

_LEAST_OF_CUT = 16
_LEAST_OF_WRAPPED = 12

Row = Sequence[str]
"""The cells of a row, in the order of the columns."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        name: its heading.
        right: whether it is right-aligned, as for numbers; its cells are never cut.
        cut: whether its cells may be cut to the width of the terminal; else a long cell continues on the next line.
        spare: the columns with the highest number are left out first if a terminal is too narrow; 0 is never left out.
        styles: the styles of cells on a terminal, by their text.
    """

    name: str
    right: bool = False
    cut: bool = False
    spare: int = 0
    styles: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Layout:
    """How a table is laid out.

    Attributes:
        kept: the indexes of the columns that are shown.
        widths: their widths; `None` if they do not fit beside each other.
    """

    kept: tuple[int, ...]
    widths: tuple[int, ...] | None


def natural_widths(columns: Sequence[Column], rows: Sequence[Row]) -> list[int]:
    """The width of the widest cell of each column, its heading included."""
    return [
        max(width_of(column.name), *(width_of(row[place]) for row in rows), 0) for place, column in enumerate(columns)
    ]


def lay_out(columns: Sequence[Column], rows: Sequence[Row], available: int) -> Layout:
    """How the rows fit on a terminal of `available` columns."""
    natural = natural_widths(columns, rows)
    kept = _kept(columns, natural, available)
    room = available - GAP * (len(kept) - 1)
    least = {place: _least(columns[place], natural[place]) for place in kept}
    if sum(least.values()) > room:
        least = _narrowed(columns, rows, least, room)
    if sum(least.values()) > room:
        return Layout(tuple(kept), None)
    left = room - sum(least.values())
    for place in kept:
        if columns[place].cut:
            more = min(left, natural[place] - least[place])
            least[place] += more
            left -= more
    return Layout(tuple(kept), tuple(least[place] for place in kept))


def row_lines(columns: Sequence[Column], cells: Row, widths: Sequence[int]) -> list[list[str]]:
    """The lines of a row: for each of them the cells, padded to their widths."""
    # A heading may be longer than the cells below it.
    parts = [
        [cut(cell, width)] if column.cut else wrap(cell, width)
        for column, cell, width in zip(columns, cells, widths, strict=True)
    ]
    return [
        [
            pad(part[line] if line < len(part) else "", width, right=column.right)
            for column, part, width in zip(columns, parts, widths, strict=True)
        ]
        for line in range(max(map(len, parts)))
    ]


def _kept(columns: Sequence[Column], natural: Sequence[int], available: int) -> list[int]:
    """The indexes of the columns that fit; those that must not be left out are always included."""
    kept = list(range(len(columns)))
    while True:
        needed = sum(_least(columns[place], natural[place]) + GAP for place in kept) - GAP
        spare = max(kept, key=lambda place: columns[place].spare)
        if needed <= available or not columns[spare].spare:
            return kept
        kept.remove(spare)


def _least(column: Column, natural: int) -> int:
    return min(natural, _LEAST_OF_CUT) if column.cut else natural


def _narrowed(columns: Sequence[Column], rows: Sequence[Row], least: Mapping[int, int], room: int) -> dict[int, int]:
    """The widths, with the widest columns narrowed whose cells may continue on the next line."""
    floors = {
        place: max(_LEAST_OF_WRAPPED, widest_figure(row[place] for row in rows))
        for place in least
        if not columns[place].right and not columns[place].cut
    }
    # None is wider than the terminal, so the loop is short whatever the cells hold.
    widths = {place: min(width, room) if place in floors else width for place, width in least.items()}
    while sum(widths.values()) > room:
        wide = [place for place in floors if widths[place] > floors[place]]
        if not wide:
            break
        widths[max(wide, key=lambda place: widths[place])] -= 1
    return widths
