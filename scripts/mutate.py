"""Change the code at random, one place at a time, and run the tests: what no test notices is printed.

The changes are Cosmic Ray's (`requirements/mutate.txt`), in the packages on which every promise stands. The tests run
once to find which of them execute which line. Then each change is made in a copy of the committed tree, and the tests
that execute its line run there until one fails; a line that runs on import is tested by the first folder of its
package. The score is the part of the changes that a test notices. `make mutate` runs it; `--help` explains.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

# Cosmic Ray stands in an environment of its own, where no type checker looks.
syntax: Any = import_module("cosmic_ray.ast")
mutating: Any = import_module("cosmic_ray.mutating")
plugins: Any = import_module("cosmic_ray.plugins")
items: Any = import_module("cosmic_ray.work_item")

ROOT = Path(__file__).parent.parent

TESTS = {
    "runtime": "tests/runtime",
    "transaction": "tests/transaction",
    "turns": "tests/turns",
    "store": "tests/store",
}
"""The packages that are changed, with the folders of their tests."""

_ALSO = ("tests/session", "tests/adapters", "tests/scenarios", "tests/testing")
"""Folders whose tests run the same code."""

_MOST_TESTS = 400
"""Of more tests that execute a line, so many run, chosen at random."""

_EQUAL = ("Is_Eq", "IsNot_NotEq", "Eq_Is", "NotEq_IsNot", "BitOr", "BitAnd", "BitXor", "Shift", "Variable")
"""Changes left out: most make no difference (`is` of a singleton), or stand in annotations (`int | None`)."""


@dataclass(frozen=True)
class Change:
    """One change of one place: which operator of Cosmic Ray makes it, and where."""

    package: str
    module: str
    operator: str
    occurrence: int
    start: tuple[int, int]
    end: tuple[int, int]

    def __str__(self) -> str:
        return f"{self.module}:{self.start[0]} {self.operator.removeprefix('core/')}"


def changes(package: str) -> Iterator[Change]:
    """Every change of a package that may make a difference."""
    root = ROOT / "src/handrail" / package
    for path in sorted(root.rglob("*.py")):
        tree, lines = syntax.get_ast_from_path(path), path.read_text(encoding="utf-8").split("\n")
        for name in plugins.operator_names():
            operator = plugins.get_operator(name)
            if operator.arguments() or any(part in name for part in _EQUAL):
                continue
            places = (place for node in syntax.ast_nodes(tree) for place in operator().mutation_positions(node))
            for occurrence, (start, end) in enumerate(places):
                change = Change(package, str(path.relative_to(ROOT)), name, occurrence, start, end)
                row, column = change.start
                # To Cosmic Ray the star before parameters that are given by name is a multiplication.
                if not lines[row - 1].startswith("*,", column):
                    yield change


def chosen(number: int, seed: int) -> list[Change]:
    """A sample of the changes: at most one of a line, from each package in proportion to its size."""
    found: dict[tuple[str, int], list[Change]] = {}
    for package in TESTS:
        for change in changes(package):
            found.setdefault((change.module, change.start[0]), []).append(change)
    chance = random.Random(seed)  # noqa: S311  the same sample for the same seed
    lines = chance.sample(sorted(found), min(number, len(found)))
    return [chance.choice(found[line]) for line in lines]


@dataclass(frozen=True)
class Tested:
    """A change, whether a test failed with it, and how long that took in seconds."""

    change: Change
    noticed: bool
    difference: str
    seconds: float


_READ_TESTS = """
import json, sys
from coverage import CoverageData
data = CoverageData(sys.argv[1])
data.read()
found = {}
for module, line in json.load(sys.stdin):
    tests = data.contexts_by_lineno(sys.argv[2] + module).get(line, [])
    found.setdefault(module, {})[line] = sorted({test.partition("|")[0] for test in tests} - {""})
json.dump(found, sys.stdout)
"""


def covering_tests(copy: Path, sample: Sequence[Change]) -> dict[Change, list[str]]:
    """The tests that execute the line of each change, found by running all of them once in a copy of the tree."""
    data = copy / ".coverage"
    environment = os.environ | {"COVERAGE_FILE": str(data), "PYTHONPATH": str(copy / "src")}
    folders = [*TESTS.values(), *_ALSO]
    pytest = ["-m", "pytest", "-q", "--cov", "--cov-context=test", "--cov-report=", "--cov-fail-under=0"]
    python = str(ROOT / ".venv/bin/python")
    command = [python, *pytest, *folders, "-n", "2", "--dist", "loadfile"]
    subprocess.run(command, cwd=copy, env=environment, check=True)
    lines = json.dumps([(change.module, change.start[0]) for change in sample])
    read = [python, "-c", _READ_TESTS, str(data), f"{copy}/"]
    answer = subprocess.run(read, input=lines, env=environment, check=True, capture_output=True, text=True).stdout
    found: dict[str, dict[str, list[str]]] = json.loads(answer)
    return {change: found[change.module][str(change.start[0])] for change in sample}


def tested(change: Change, tests: Sequence[str], copies: queue.SimpleQueue[Path]) -> Tested:
    """Make a change in a copy of the tree that is free, and run tests there."""
    copy = copies.get()
    begun = time.monotonic()
    spec = items.MutationSpec(copy / change.module, change.operator, change.occurrence, change.start, change.end)
    names = copy / "tests.txt"
    names.write_text("\n".join(tests))
    command = (
        f"env -C {copy} PYTHONPATH={copy / 'src'} {ROOT / '.venv/bin/python'} -m pytest"
        f" -q -x -p no:randomly -p no:cacheprovider @{names}"
    )
    result = mutating.mutate_and_test([spec], command, timeout=400)
    copies.put(copy)
    assert result.worker_outcome is items.WorkerOutcome.NORMAL, result.output
    noticed = result.test_outcome is not items.TestOutcome.SURVIVED
    return Tested(change, noticed, result.diff or "", time.monotonic() - begun)


def _end_in_order(number: int, _frame: FrameType | None) -> None:
    # The folder is removed, too.
    sys.exit(128 + number)


def main() -> int:
    """Print each change as it is tested, then those that no test noticed, and the score."""
    parser = argparse.ArgumentParser(
        "make mutate ARGS=...", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mutants", type=int, default=200, help="how many changes (200)")
    parser.add_argument("--seed", type=int, default=1, help="which sample of them (1)")
    parser.add_argument("--workers", type=int, default=2, help="how many run at once (2)")
    options = parser.parse_args()
    if options.mutants < 1 or options.workers < 1:
        parser.error("--mutants and --workers are at least 1")
    signal.signal(signal.SIGTERM, _end_in_order)
    sample = chosen(options.mutants, options.seed)
    copies: queue.SimpleQueue[Path] = queue.SimpleQueue()
    with tempfile.TemporaryDirectory(prefix="handrail-mutate-") as folder, ThreadPoolExecutor(options.workers) as pool:
        for index in range(options.workers):
            copy = Path(folder) / str(index)
            subprocess.run(["git", "clone", "--quiet", "--shared", str(ROOT), str(copy)], check=True)
            copies.put(copy)
        covering = covering_tests(Path(folder) / "0", sample)
        chance = random.Random(options.seed)  # noqa: S311  as above
        futures: list[Future[Tested]] = []
        for change in sample:
            tests = covering[change] or [TESTS[change.package]]
            futures.append(pool.submit(tested, change, chance.sample(tests, min(len(tests), _MOST_TESTS)), copies))
        unnoticed: list[Tested] = []
        for number, future in enumerate(as_completed(futures), 1):
            one = future.result()
            word = "noticed" if one.noticed else "NOT NOTICED"
            print(f"{number}/{len(sample)} {word} {one.seconds:4.0f} s  {one.change}", flush=True)
            if not one.noticed:
                unnoticed.append(one)
    for one in unnoticed:
        print(f"\n{one.change}\n{one.difference}")
    score = 1 - len(unnoticed) / len(sample)
    print(f"\n{len(sample) - len(unnoticed)} of {len(sample)} changes noticed: {score:.1%} (seed {options.seed})")
    return 0


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main())
