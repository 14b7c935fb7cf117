"""Prints the table by failure: `python -m proof`, or a cell of it: `python -m proof --row killed --column plain`."""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
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

PLAYS = 3
"""How often a cell is played that a race decides."""

_INTERRUPTED = 130
_PACKAGES = ("dbos", "langgraph", "langgraph-checkpoint-sqlite", "openai-agents", "pydantic-ai-slim")


@dataclass
class Results:
    """What was counted and measured so far."""

    counts: dict[tuple[str, str], list[Count]] = field(default_factory=dict[tuple[str, str], list[Count]])
    costs: dict[str, Cost] = field(default_factory=dict[str, Cost])

    @property
    def faults(self) -> list[str]:
        """The cells in which Handrail has broken what it promises."""
        return [
            f"{row}, {column}"
            for (row, column), plays in self.counts.items()
            if "handrail" in column and not all(count.is_right for count in plays)
        ]


def main(arguments: Sequence[str]) -> int:
    """Prints the table; 1 if Handrail has broken a promise in it, and 130 if it was interrupted."""
    options = _parse(arguments)
    columns = _choose_columns(options.column)
    rows = [*dict.fromkeys(options.row)]
    results = Results()
    code = 0
    try:
        _play_all(results, columns, rows, options)
    except KeyboardInterrupt:
        code = _INTERRUPTED
    titles = {row: title for row, title in TITLES.items() if any(row == played for played, _ in results.counts)}
    lines = make_lines(titles, results.counts, results.costs, [column.name for column in columns])
    titles_of_columns = [column.title for column in columns]
    machine = describe_machine(columns, options.every)
    print(write_text(titles_of_columns, lines), machine, sep="\n")
    if options.page and not code:
        table = f"{write_markdown(titles_of_columns, lines)}\n\n{machine}"
        PAGE.write_text(write_page(PAGE.read_text(encoding="utf-8"), table), encoding="utf-8")
    if options.json:
        options.json.write_text(write_json(results.counts, results.costs), encoding="utf-8")
    for fault in results.faults:
        print(f"broken: {fault}", file=sys.stderr)
    return code or int(bool(results.faults))


def _play_all(results: Results, columns: Sequence[Column], rows: Sequence[str], options: argparse.Namespace) -> None:
    for column in columns:
        python = Path(sys.executable) if options.here else environments.find_python(column.packages)
        with Lives(python, column.program, column.variables) as lives:
            for row in rows:
                begun = time.perf_counter()
                if row == COST:
                    results.costs[column.name] = _measure(column, lives, python)
                    outcome: object = results.costs[column.name]
                else:
                    results.counts[row, column.name] = _play(row, column, lives, options.every)
                    outcome = results.counts[row, column.name]
                seconds = time.perf_counter() - begun
                print(f"{seconds:6.1f} s  {column.name}, {row}: {outcome}", file=sys.stderr, flush=True)


def describe_machine(columns: Sequence[Column], every: int) -> str:
    """The date, the versions of the contenders, the machine, and which tasks of the sets were played."""
    versions: dict[str, str] = {}
    for packages in dict.fromkeys(column.packages for column in columns):
        versions |= environments.read_versions(packages, _PACKAGES)
    named = ", ".join(f"{name} {version}" for name, version in sorted({"handrail": __version__, **versions}.items()))
    machine = f"Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    tasks = f"every {every}th task of the sets" if every > 1 else "all tasks of the sets"
    return f"{time.strftime('%Y-%m-%d')}; {named}; {machine}, {os.cpu_count()} cores; {tasks}."


def _play(row: str, column: Column, lives: Lives, every: int) -> list[Count]:
    """The counts of the plays of a cell."""
    if row in GOLD:
        name, mode = GOLD[row]
        races = column.races and mode == "killed"
        play_once = partial(play_gold, _trials(name, mode, every), lives, in_process=mode == "in-process")
    else:
        chosen = next(each for each in ROWS if each.name == row)
        races = chosen.races or (column.races and chosen.kills)
        play_once = partial(play, chosen, lives)
    return [play_once() for _ in range(PLAYS if races else 1)]


def _measure(column: Column, lives: Lives, python: Path) -> Cost:
    """The cost of a column, with that of its cheaper form."""
    with Lives(python, "plain", {}) as plain:
        cost = measure(lives, plain, column.program)
        if not column.cheaper:
            return cost
        with Lives(python, column.program, {**column.variables, **column.cheaper}) as cheaper:
            return replace(cost, cheaper=measure(cheaper, plain, column.program).time)


@cache
def _trials(name: str, mode: gold.Mode, every: int) -> list[gold.Trial]:
    return list(gold.trials(name, mode, every))


def _choose_columns(names: Sequence[str]) -> list[Column]:
    return [*{column.name: column for name in names for column in choose_columns(name)}.values()]


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m proof", description="The table by failure.")
    rows, columns = [*TITLES, COST], [each.name for each in COLUMNS]
    parser.add_argument("--row", action="append", choices=rows, help="a row; all by default")
    parser.add_argument(
        "--column", action="append", choices=[*columns, "langgraph", "handrail"], help="a column; all by default"
    )
    parser.add_argument(
        "--every", type=_read_every, default=8, metavar="N", help="play each N-th task of the sets, 8 by default"
    )
    parser.add_argument("--here", action="store_true", help="use this interpreter for all columns")
    parser.add_argument("--page", action="store_true", help=f"write the whole table into {PAGE.relative_to(ROOT)}")
    parser.add_argument("--json", type=_find_writable, metavar="FILE", help="write all counts into a file")
    options = parser.parse_args(arguments)
    options.row, options.column = options.row or rows, options.column or columns
    chosen = {column.name for column in _choose_columns(options.column)}
    if options.page and (chosen != {*columns} or {*options.row} != {*rows}):
        parser.error("--page needs all rows and columns: leave out --row and --column")
    return options


def _read_every(text: str) -> int:
    if (every := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"it is {every}, and at least 1 is needed")
    return every


def _find_writable(name: str) -> Path:
    try:
        Path(name).open("a").close()
    except OSError as error:
        raise argparse.ArgumentTypeError(f"it cannot be written: {error}") from error
    return Path(name)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
