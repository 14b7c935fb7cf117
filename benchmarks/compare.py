"""`make bench-compare REF=...`: what calls and openings cost in this checkout, beside another commit of it.

Two worker processes (`benchmarks.probe`) take turns, one on each checkout, so that what slows the machine slows both.
Each row is the median of the ratios of neighbouring timings. Exits with 1 when a bound is missed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg

from tests.store.postgres_server import server_of_its_own

ROOT = Path(__file__).parents[1]
_CALL_BOUND, _OPEN_BOUND = 1.03, 1.05
_CALLS = {"memory": 500, "SQLite normal": 60, "PostgreSQL": 30}


class Worker:
    """The other end of a worker process.

    Args:
        process: the process; it has not answered yet.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.cases = self._answer().split("\t")

    def time(self, case: str, calls: int) -> float:
        """The microseconds that one call of a case takes."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{case} {calls}\n")
        self._process.stdin.flush()
        return float(self._answer())

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


def main() -> int:
    """Time both, print a row a case, and say whether the bounds hold."""
    parser = argparse.ArgumentParser(prog="make bench-compare REF=...", description=__doc__)
    parser.add_argument("ref", help="the commit to compare with")
    parser.add_argument("--rounds", type=int, default=25, help="how many pairs of timings a case gets (default: 25)")
    parser.add_argument("--only", help="only cases whose names hold this text")
    options = parser.parse_args()
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
        source = opened.enter_context(_checkout(options.ref, old))
        this = opened.enter_context(_started(ROOT / "src", folders["this"], urls["this"]))
        other = opened.enter_context(_started(source, folders["other"], urls["other"]))
        print(f"{'case':<28}{options.ref[:10] + ', us':>16}{'this, us':>12}{'ratio':>8}{'at most':>9}")
        met = [
            _row(case, this, other, options.rounds)
            for case in this.cases
            if options.only is None or options.only in case
        ]
    return 0 if all(met) else 1


def _row(case: str, this: Worker, other: Worker, rounds: int) -> bool:
    calls = 40 if case.startswith("open") else _CALLS[case.partition(", ")[2]]
    bound = _OPEN_BOUND if case.startswith("open") else _CALL_BOUND
    for worker in (this, other):
        worker.time(case, calls)
    pairs: list[tuple[float, float]] = []
    for number in range(rounds):
        if number % 2:
            new = this.time(case, calls)
            pairs.append((new, other.time(case, calls)))
        else:
            old = other.time(case, calls)
            pairs.append((this.time(case, calls), old))
    ratio = statistics.median(new / old for new, old in pairs)
    news, olds = zip(*pairs, strict=True)
    verdict = "holds" if ratio <= bound else "MISSED"
    print(
        f"{case:<28}{statistics.median(olds):>16.1f}{statistics.median(news):>12.1f}{ratio:>8.3f}{bound:>9.2f}"
        f"  {verdict}",
        flush=True,
    )
    return ratio <= bound


if __name__ == "__main__":
    sys.exit(main())
