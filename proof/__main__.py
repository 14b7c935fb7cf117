"""Prints the table by failure: `python -m proof`, or a cell of it: `python -m proof --row killed --column plain`."""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from handrail import __version__
from proof import environments, gold
from proof.cells import Cost, measure, play, play_gold
from proof.columns import COLUMNS, Column, choose_columns
from proof.judge import Count
from proof.lives import ROOT, Lives
from proof.rows import ROWS
from proof.sets import SETS
from proof.table import make_lines, write_json, write_markdown, write_page, write_text

COST = "cost"
PAGE = ROOT / "docs" / "explanation" / "comparison.md"
"""Shows the table."""

GOLD: dict[str, tuple[str, gold.Mode]] = {f"{name}-{mode}": (name, mode) for name in SETS for mode in gold.MODES}
"""The rows of sets."""

_SET_TITLES = {"bfcl": "BFCL multi-turn", "agentdojo": "AgentDojo"}
_MODE_TITLES: dict[gold.Mode, str] = {"in-process": "stopped at a line", "killed": "killed at a call"}

TITLES = {
    **{row.name: row.title for row in ROWS},
    **{name: f"{_SET_TITLES[of]}: {_MODE_TITLES[mode]}" for name, (of, mode) in GOLD.items()},
}
"""All rows, in the order of the table."""

_PACKAGES = ("dbos", "langgraph", "langgraph-checkpoint-sqlite", "openai-agents", "pydantic-ai-slim")


@dataclass
class Results:
    """What was counted and measured so far."""

    counts: dict[tuple[str, str], Count] = field(default_factory=dict[tuple[str, str], Count])
    costs: dict[str, Cost] = field(default_factory=dict[str, Cost])

    @property
    def faults(self) -> list[str]:
        """The cells in which Handrail has broken what it promises."""
        cells = self.counts.items()
        return [f"{row}, {column}" for (row, column), count in cells if "handrail" in column and not count.is_right]


def main(arguments: Sequence[str]) -> int:
    """Prints the table; 1 if Handrail has broken a promise in it."""
    options = _parse(arguments)
    names: list[str] = options.column or []
    columns = [column for name in names for column in choose_columns(name)] or [*COLUMNS]
    rows = options.row or [*TITLES, COST]
    results = Results()
    for column in columns:
        python = Path(sys.executable) if options.here else environments.find_python(column.packages)
        with Lives(python, column.program, column.variables) as lives:
            for row in rows:
                _play(results, row, column, lives, options.every)
    titles = {row: title for row, title in TITLES.items() if row in rows}
    lines = make_lines(titles, results.counts, results.costs, [column.name for column in columns])
    titles_of_columns = [column.title for column in columns]
    machine = describe_machine(columns, options.every)
    print(write_text(titles_of_columns, lines), machine, sep="\n")
    if options.page:
        table = f"{write_markdown(titles_of_columns, lines)}\n\n{machine}"
        PAGE.write_text(write_page(PAGE.read_text(encoding="utf-8"), table), encoding="utf-8")
    if options.json:
        options.json.write_text(write_json(results.counts, results.costs), encoding="utf-8")
    for fault in results.faults:
        print(f"broken: {fault}", file=sys.stderr)
    return int(bool(results.faults))


def describe_machine(columns: Sequence[Column], every: int) -> str:
    """The date, the versions of the contenders, the machine, and which tasks of the sets were played."""
    versions: dict[str, str] = {}
    for packages in dict.fromkeys(column.packages for column in columns):
        versions |= environments.read_versions(packages, _PACKAGES)
    named = ", ".join(f"{name} {version}" for name, version in sorted({"handrail": __version__, **versions}.items()))
    machine = f"Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    tasks = f"every {every}th task of the sets" if every > 1 else "all tasks of the sets"
    return f"{time.strftime('%Y-%m-%d')}; {named}; {machine}, {os.cpu_count()} cores; {tasks}."


def _play(results: Results, row: str, column: Column, lives: Lives, every: int) -> None:
    begun = time.perf_counter()
    if row == COST:
        results.costs[column.name] = measure(lives, column.program)
        outcome: object = results.costs[column.name]
    else:
        if row in GOLD:
            name, mode = GOLD[row]
            count = play_gold(_trials(name, mode, every), lives, in_process=mode == "in-process")
        else:
            count = play(next(each for each in ROWS if each.name == row), lives)
        results.counts[row, column.name] = outcome = count
    print(f"{time.perf_counter() - begun:6.1f} s  {column.name}, {row}: {outcome}", file=sys.stderr, flush=True)


@cache
def _trials(name: str, mode: gold.Mode, every: int) -> list[gold.Trial]:
    return list(gold.trials(name, mode, every))


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m proof", description="The table by failure.")
    names = [*(each.name for each in COLUMNS), "langgraph"]
    parser.add_argument("--row", action="append", choices=[*TITLES, COST], help="a row; all by default")
    parser.add_argument("--column", action="append", choices=names, help="a column; all by default")
    parser.add_argument(
        "--every", type=int, default=8, metavar="N", help="play each N-th task of the sets, 8 by default"
    )
    parser.add_argument("--here", action="store_true", help="use this interpreter for all columns")
    parser.add_argument("--page", action="store_true", help=f"write the table into {PAGE.relative_to(ROOT)}")
    parser.add_argument("--json", type=Path, help="write all counts into a file")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
