"""The figures of `docs/reference/measurements.md`: from a run of the benchmark into the page.

make bench ARGS="--format json" > report.json
.venv/bin/python -m tests.docs.figures report.json

A report of some groups (`--only`) renews these, and leaves the others as they are. One with the group `own paths` also
renews the microseconds of the README.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.timing import formatted
from tests.architecture.sources import ROOT

README = ROOT / "README.md"
PAGE = ROOT / "docs" / "reference" / "measurements.md"
BEGIN, END = "<!-- measured -->\n", "<!-- end -->\n"


def tables(report: Mapping[str, Any]) -> str:
    """The tables of a run: for each group each case beside its floor, and each bound with what was measured."""
    return "\n".join(line for name, group in report.items() for line in _lines(name, group)) + "\n"


def _lines(name: str, group: Mapping[str, Any]) -> list[str]:
    if "rows" in group:
        compared = [
            f"| {row['case']} | {row['bound']:.2f} | {row['ratio']:.3f} | {'yes' if row['met'] else 'no'} |"
            for row in group["rows"]
        ]
        columns = f"| case, here / in {group['reference']} | at most | measured | held |"
        return ["", f"### {name}", "", columns, "|---|---:|---:|---|", *compared, ""]
    floor = group["microseconds"].get(group["floor"], math.nan)  # what is not timed has no floor
    cases = [f"| {case} | {taken / floor:.1f} |" for case, taken in group["microseconds"].items()]
    timed = ["", f"| case | x {group['floor']} |", "|---|---:|", *cases] if cases else []
    return ["", f"### {name}", *timed, *_bounds(group, "at_most"), *_bounds(group, "at_least"), ""]


def _bounds(group: Mapping[str, Any], sense: str) -> list[str]:
    """The table of the bounds with a sense; nothing if the group has none."""
    rows = [_bound(found, sense) for found in (*group["ratios"], *group.get("limits", ())) if sense in found]
    head = ["", f"| bound | {sense.replace('_', ' ')} | measured | held |", "|---|---:|---:|---|"]
    return [*head, *rows] if rows else []


def _bound(found: Mapping[str, Any], sense: str) -> str:
    unit = found.get("unit", "")
    measured = formatted(found["measured"], unit)
    if found[sense] is None:
        return f"| {found['label']} | - | {measured} | - |"
    return f"| {found['label']} | {formatted(found[sense], unit)} | {measured} | {'yes' if found['met'] else 'no'} |"


def with_tables(page: str, report: Mapping[str, Any]) -> str:
    """The page with the tables of a run in place of those it has for the same groups."""
    before, _, rest = page.partition(BEGIN)
    measured, _, after = rest.partition(END)
    there = {block.partition("\n")[0]: f"\n### {block}" for block in measured.split("\n### ")[1:]}
    renewed = {name: tables({name: group}) for name, group in report.items()}
    return f"{before}{BEGIN}{''.join((there | renewed).values())}{END}{after}"


def with_costs(readme: str, report: Mapping[str, Any]) -> str:
    """The README with the microseconds of a run in place of those that it has; as it is, if none were measured."""
    if "own paths" not in report:
        return readme
    before, _, rest = readme.partition(BEGIN)
    _, _, after = rest.partition(END)
    rows = [f"| {case} | {rounded(taken)} |" for case, taken in report["own paths"]["microseconds"].items()]
    return "\n".join([f"{before}{BEGIN}", "| one call | µs |", "|---|---:|", *rows, "", f"{END}{after}"])


def rounded(microseconds: float) -> str:
    """Two digits that count: another run would give another third one."""
    digits = 1 - math.floor(math.log10(microseconds))
    return f"{round(microseconds, digits):,.0f}"


def read_rows(page: str) -> list[str]:
    """The cases and bounds that a page has figures for."""
    measured = page.partition(BEGIN)[2].partition(END)[0]
    rows = [line.removeprefix("| ").split(" | ")[0] for line in measured.splitlines() if line.startswith("| ")]
    return [row for row in rows if row not in {"case", "bound", "one call"} and not row.startswith("case, ")]


if __name__ == "__main__":
    measured = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    README.write_text(with_costs(README.read_text(encoding="utf-8"), measured), encoding="utf-8")
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8"), measured), encoding="utf-8")
