"""The tables of `docs/crash-points.md`, which the tests take for their expectations."""

from __future__ import annotations

import re
from functools import cache

from tests.architecture.sources import ROOT

PAGE = ROOT / "docs" / "crash-points.md"

EXTERNAL = "What is left of an external effect"
STATE = "What is left of a row and of files"


@cache
def table(heading: str) -> dict[str, tuple[str, ...]]:
    """The rows of the first table below a heading, by their first cells."""
    text = PAGE.read_text(encoding="utf-8")
    below = f"\n{text}".partition(f"# {heading}\n")[2]
    lines = re.search(r"(?:^\|.*\n)+", below, re.MULTILINE)
    assert lines is not None, f"{PAGE.name} has no table below {heading!r}"
    rows = [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines[0].splitlines()]
    return {row[0]: tuple(row[1:]) for row in rows[2:]}
