"""The tables of `docs/contributing/crash-points.md`, which the tests take for their expectations."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import product

from tests.architecture.sources import ROOT

PAGE = ROOT / "docs" / "contributing" / "crash-points.md"

EXTERNAL = "What is left of an external effect"
APPLY = "What is left of what an effect applies"
GROUP = "What is left of a group"
LATE = "What is left of a late result"
REPEAT = "What is left of a repeat"
OTHER = "What is left of another database"
STATE = "What is left of a row and of files"

NOWHERE = "nowhere"
"""The row of a process that lives."""


def table(heading: str) -> dict[str, tuple[str, ...]]:
    """The rows of the first table below a heading, by their first cells."""
    return {row[0]: row[1:] for row in rows(heading)}


@cache
def rows(heading: str) -> tuple[tuple[str, ...], ...]:
    """The rows of the first table below a heading."""
    text = PAGE.read_text(encoding="utf-8")
    below = f"\n{text}".partition(f"# {heading}\n")[2]
    lines = re.search(r"(?:^\|.*\n)+", below, re.MULTILINE)
    assert lines is not None, f"{PAGE.name} has no table below {heading!r}"
    return tuple(row for line in lines[0].splitlines()[2:] for row in _rows_in(line))


def _rows_in(line: str) -> Iterator[tuple[str, ...]]:
    """A row for each point of a line that names several."""
    cells = [[each.strip("`") for each in cell.strip().split("`, `")] for cell in line.strip("|").split("|")]
    yield from product(*cells)
