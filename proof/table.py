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


def write_count(count: Count) -> str:
    """A count as the text of a cell: what was not right, of how many."""
    if count.of == 0:
        return VOID
    named = {
        "wrong": count.wrong,
        "twice": count.twice,
        "lost": count.lost,
        "stopped": count.stopped,
        "unknown": count.unknown,
    }
    words = ", ".join(f"{number} {name}" for name, number in named.items() if number)
    return (words or RIGHT) + (f" ({count.void} void)" if count.void else "")


def make_lines(
    titles: Mapping[str, str],
    counts: Mapping[tuple[str, str], Count],
    costs: Mapping[str, Cost],
    columns: Sequence[str],
) -> list[Line]:
    """The rows, each with how many payments, parcels or tasks it has; then the costs."""
    lines: list[Line] = []
    for row, title in titles.items():
        of = max((count.of for (each, _), count in counts.items() if each == row), default=0)
        cells = [write_count(counts[row, column]) if (row, column) in counts else "" for column in columns]
        lines.append(Line(f"{title} ({of})", cells))
    if costs:
        lines += [
            Line("ms a call", [f"{costs[each].milliseconds:.1f}" if each in costs else "" for each in columns]),
            Line("kB on disk a call", [f"{costs[each].kilobytes:.1f}" if each in costs else "" for each in columns]),
            Line("lines of program", [f"{costs[each].lines}" if each in costs else "" for each in columns]),
        ]
    return lines


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


def write_json(counts: Mapping[tuple[str, str], Count], costs: Mapping[str, Cost]) -> str:
    """All counts and costs."""
    cells = [{"row": row, "column": column, **asdict(count)} for (row, column), count in counts.items()]
    return json.dumps({"cells": cells, "costs": {column: asdict(cost) for column, cost in costs.items()}}, indent=1)
