"""`make bench-compare REF=...`: what calls and openings cost in this checkout, beside another commit of it.

Two worker processes (`benchmarks.probe`) take turns, one on each checkout, so that what slows the machine slows both.
Each row is the median of the ratios of neighbouring timings. Exits with 1 when a bound is missed. `make bench` has the
rows against `REFERENCE`.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType

import psycopg

from benchmarks.timing import count
from tests.store.postgres_server import server_of_its_own

ROOT = Path(__file__).parents[1]
REFERENCE = "3336d14"
"""A commit in which the id alone names a call: what naming it by session, reply and id may cost is bounded."""

_CALL_BOUND, _OPEN_BOUND = 1.03, 1.05
_CALLS = {"memory": 500, "SQLite normal": 60, "PostgreSQL": 30}


CASES = (
    *(f"{name}, memory" for name in ("read", "state", "external", "key")),
    *(f"{name}, {place}" for place in ("SQLite normal", "PostgreSQL") for name in ("state", "external", "open")),
)
"""What is compared."""


@dataclass(frozen=True, slots=True)
class Compared:
    """What a case takes here and in the other commit.

    Attributes:
        case: its name.
        here: microseconds in this checkout, the median.
        collector: those of the garbage collector in them.
        there: microseconds in the other commit, the median.
        ratio: the median of the ratios of neighbouring timings.
        bound: what the ratio may be at most.
    """

    case: str
    here: float
    collector: float
    there: float
    ratio: float
    bound: float

    @property
    def met(self) -> bool:
        """Whether the bound holds."""
        return self.ratio <= self.bound


class Worker:
    """The other end of a worker process.

    Args:
        process: the process; it has not answered yet.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.cases = self._answer().split("\t")

    def time(self, case: str, calls: int) -> tuple[float, float]:
        """The microseconds that one call of a case takes, and those of the garbage collector in them."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{case} {calls}\n")
        self._process.stdin.flush()
        total, collector = map(float, self._answer().split())
        return total, collector

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if not line:
            raise SystemExit("a worker has ended; its error is above")
        return line


@contextmanager
def _started(source: Path, folder: Path, url: str) -> Generator[Worker]:
    path = os.pathsep.join((str(source), str(ROOT)))
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.probe", str(folder), url],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Worker(process)
        finally:
            process.kill()


@contextmanager
def _checkout(ref: str, folder: Path) -> Generator[Path]:
    """The sources of a commit, in a folder of their own."""
    archive = subprocess.run(["git", "archive", ref, "src"], cwd=ROOT, check=True, capture_output=True)
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)
    yield folder / "src"


def compare(ref: str, *, rounds: int, only: str | None = None) -> Iterator[Compared]:
    """Time the cases here and in the commit `ref`, those whose names hold `only`; a result as soon as it is known."""
    with ExitStack() as opened:
        names = ("this", "other")
        folders = {name: Path(opened.enter_context(TemporaryDirectory(prefix="handrail-bench-"))) for name in names}
        url, _ = opened.enter_context(server_of_its_own())
        with psycopg.connect(url, autocommit=True) as connection:
            for name in names:
                connection.execute(f"CREATE DATABASE {name}_checkout".encode())
        urls = {name: url.replace("/postgres?", f"/{name}_checkout?") for name in names}
        old = folders["other"] / "checkout"
        old.mkdir()
        source = opened.enter_context(_checkout(ref, old))
        this = opened.enter_context(_started(ROOT / "src", folders["this"], urls["this"]))
        other = opened.enter_context(_started(source, folders["other"], urls["other"]))
        assert set(this.cases) == set(other.cases) == set(CASES)
        for case in CASES:
            if only is None or only in case:
                yield _compared(case, this, other, rounds)


def is_known(ref: str) -> bool:
    """Whether this clone has the commit; a shallow one may not."""
    found = subprocess.run(["git", "cat-file", "-e", f"{ref}^{{commit}}"], cwd=ROOT, check=False, capture_output=True)
    return found.returncode == 0


def _compared(case: str, this: Worker, other: Worker, rounds: int) -> Compared:
    calls = 40 if case.startswith("open") else _CALLS[case.partition(", ")[2]]
    bound = _OPEN_BOUND if case.startswith("open") else _CALL_BOUND
    for worker in (this, other):
        worker.time(case, calls)
    timings: list[tuple[float, float, float]] = []
    for number in range(rounds):
        if number % 2:
            new, collector = this.time(case, calls)
            old, _ = other.time(case, calls)
        else:
            old, _ = other.time(case, calls)
            new, collector = this.time(case, calls)
        timings.append((new, collector, old))
    ratio = statistics.median(new / old for new, _, old in timings)
    here, collecting, there = map(statistics.median, zip(*timings, strict=True))
    return Compared(case, here, collecting, there, ratio, bound)


def end_in_order(number: int, _frame: FrameType | None) -> None:
    """The handler of a signal that ends the process: servers are stopped before, and folders are removed.

    Raises:
        SystemExit: always.
    """
    sys.exit(128 + number)


def print_head(ref: str) -> None:
    """Print what the columns of `print_row` are."""
    print(f"{'case':<28}{ref[:10] + ', us':>16}{'here, us':>12}{'collector':>11}{'ratio':>8}{'at most':>9}")


def print_row(row: Compared) -> None:
    """Print one case, and whether its bound holds."""
    verdict = "" if row.met else "  MISSED"
    print(
        f"{row.case:<28}{row.there:>16.1f}{row.here:>12.1f}{row.collector:>11.1f}{row.ratio:>8.3f}{row.bound:>9.2f}{verdict}",
        flush=True,
    )


def main() -> int:
    """Time both, print a row a case, and say whether the bounds hold."""
    parser = argparse.ArgumentParser(prog="make bench-compare REF=...", description=__doc__)
    parser.add_argument("ref", help="the commit to compare with")
    parser.add_argument("--rounds", type=count, default=25, help="how many pairs of timings a case gets (default: 25)")
    parser.add_argument("--only", help="only cases whose names hold this text")
    options = parser.parse_args()
    if not is_known(options.ref):
        parser.error(f"git knows no commit {options.ref!r} here")
    if options.only is not None and not any(options.only in case for case in CASES):
        parser.error(f"{options.only!r} is in the name of no case; the cases are {'; '.join(CASES)}")
    signal.signal(signal.SIGTERM, end_in_order)
    met = True
    print_head(options.ref)
    for row in compare(options.ref, rounds=options.rounds, only=options.only):
        print_row(row)
        met = met and row.met
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
