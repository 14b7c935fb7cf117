"""The table: as text for a terminal, as Markdown for the page, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import NamedTuple

from proof.cells import Cost
from proof.judge import Count

RIGHT = "✓"
VOID = "void"
_MANY = 10
BEGIN, END = "<!-- proof -->", "<!-- end -->"
"""The marks of the page."""


class Line(NamedTuple):
    """A row of the table with its cells.

    Attributes:
        title: the failure.
        cells: the text of each column.
    """

    title: str
    cells: Sequence[str]


_NAMES = {
    "twice": "twice",
    "lost": "lost",
    "wrong": "wrong",
    "stopped": "stopped",
    "unknown": "unknown",
    "unmade": "not made",
    "refused": "wanted, not made",
}


def write_counts(counts: Sequence[Count]) -> str:
    """The counts of a cell's plays as its text: what was not right, from the least of a play to the most."""
    if not any(count.of for count in counts):
        return VOID
    ranges = {name: _write_range([getattr(each, field) for each in counts]) for field, name in _NAMES.items()}
    words = ", ".join(f"{text} {name}" for name, text in ranges.items() if text)
    void = _write_range([count.void for count in counts])
    return (words or RIGHT) + (f" ({void} void)" if void else "")


def _write_range(numbers: Sequence[int]) -> str:
    least, most = min(numbers), max(numbers)
    if not most:
        return ""
    return f"{least}" if least == most else f"{least}-{most}"


def make_lines(
    titles: Mapping[str, str],
    counts: Mapping[tuple[str, str], Sequence[Count]],
    costs: Mapping[str, Cost],
    columns: Sequence[str],
) -> list[Line]:
    """The rows, each with how many payments, parcels or tasks it has; then the costs."""
    lines: list[Line] = []
    for row, title in titles.items():
        of = max((count.of for (each, _), plays in counts.items() if each == row for count in plays), default=0)
        cells = [write_counts(counts[row, column]) if (row, column) in counts else "" for column in columns]
        lines.append(Line(f"{title} ({of})", cells))
    if costs:
        lines += [
            Line(
                "time a call, in plain calls", [_write_time(costs[each]) if each in costs else "" for each in columns]
            ),
            Line("kB on disk a call", [f"{costs[each].kilobytes:.1f}" if each in costs else "" for each in columns]),
            Line("lines of program", [f"{costs[each].lines}" if each in costs else "" for each in columns]),
        ]
    return lines


def _write_time(cost: Cost) -> str:
    return "; ".join(f"{time:.1f}" if time < _MANY else f"{time:.0f}" for time in (cost.time, cost.cheaper) if time)


def write_text(heads: Sequence[str], lines: Sequence[Line]) -> str:
    """The table with a column below the other, for a terminal: one block for each row."""
    width = max(map(len, heads), default=0)
    blocks = [
        "\n".join([line.title, *(f"  {head:<{width}}  {cell}" for head, cell in zip(heads, line.cells, strict=True))])
        for line in lines
    ]
    return "\n".join(blocks)


def write_markdown(heads: Sequence[str], lines: Sequence[Line]) -> str:
    """The table as the page has it."""
    head = f"| | {' | '.join(heads)} |\n|---|{'---|' * len(heads)}"
    return "\n".join([head, *(f"| {line.title} | {' | '.join(line.cells)} |" for line in lines)])


def write_page(page: str, table: str) -> str:
    """A page with a table between its marks."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    return f"{before}{begin}\n\n{table}\n\n{end}{after}"


def write_json(counts: Mapping[tuple[str, str], Sequence[Count]], costs: Mapping[str, Cost]) -> str:
    """The counts of each play, and the costs."""
    cells = [
        {"row": row, "column": column, **asdict(count)} for (row, column), plays in counts.items() for count in plays
    ]
    return json.dumps({"cells": cells, "costs": {column: asdict(cost) for column, cost in costs.items()}}, indent=1)
