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
_ENDINGS = {"", ", in calls/s", ", processor time"}
BEGIN, END = "<!-- measured -->\n", "<!-- end -->\n"


def tables(report: Mapping[str, Any]) -> str:
    """The tables of a run: for each group each case beside its floor, and each bound with what was measured."""
    return "\n".join(line for name, group in report.items() for line in _lines(name, group)) + "\n"


def _lines(name: str, group: Mapping[str, Any]) -> list[str]:
    if "rows" in group:
        compared = [
            f"| {row['case']} | ≤ {row['bound']:.2f} | {row['ratio']:.3f} |{_verdict(row)} |" for row in group["rows"]
        ]
        columns = f"| case, here / in {group['reference']} | limit | measured | |"
        return ["", f"### {name}", "", columns, "|---|---:|---:|---|", *compared, ""]
    return ["", f"### {name}", *_cases(group), *_bounds(group), ""]


def _cases(group: Mapping[str, Any]) -> list[str]:
    """The table of the cases as multiples of their floor, without those that a limit shows in figures of their own."""
    compared = {ratio[side] for ratio in group["ratios"] for side in ("case", "floor")}
    in_figures = {limit["case"] for limit in group.get("limits", ())} - compared
    taken = {case: time for case, time in group["microseconds"].items() if case not in in_figures}
    floor = group["microseconds"].get(group["floor"], math.nan)  # what is not timed has no floor
    rows = [
        f"| {case} | {'floor' if case == group['floor'] else f'{time / floor:.1f}'} |" for case, time in taken.items()
    ]
    return ["", "| case | x floor |", "|---|---:|", *rows] if len(rows) > 1 else []


def _bounds(group: Mapping[str, Any]) -> list[str]:
    """The table of the bounds; nothing if the group has none."""
    rows = [_bound(found, group["floor"]) for found in (*group["ratios"], *group.get("limits", ()))]
    return ["", "| bound | limit | measured | |", "|---|---:|---:|---|", *rows] if rows else []


def _bound(found: Mapping[str, Any], floor: str) -> str:
    label, unit = shorten(found["label"], floor), found.get("unit", "")
    measured = formatted(found["measured"], unit)
    (sign, sense), *_ = [each for each in (("≤", "at_most"), ("≥", "at_least")) if each[1] in found]
    if found[sense] is None:
        return f"| {label} | | {measured} | |"
    return f"| {label} | {sign} {formatted(found[sense], unit)} | {measured} |{_verdict(found)} |"


def shorten(label: str, floor: str) -> str:
    """What a bound compares, with a word for the floor of its group."""
    case, _, other = label.partition(" / ")
    ending = other.removeprefix(floor)
    return f"{case} / floor{ending}" if floor and ending != other and ending in _ENDINGS else label


def _verdict(found: Mapping[str, Any]) -> str:
    return "" if found["met"] else " missed"


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
