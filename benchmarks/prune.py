"""What it costs to remove 100,000 expired effects from a store, and how long another process waits to write meanwhile.

A store has the effects of one day beside those that have expired. The other process is one on SQLite, where one writes
at a time: it adds an effect, again and again.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.timing import Limit, Stopwatch, Timing
from handrail import store
from handrail.clock import SYSTEM_CLOCK
from handrail.store import Store
from handrail.store.protocol import EffectInsert, EffectRow
from handrail.transaction import UnitOfWork
from tests.architecture.sources import ROOT
from tests.store.kit import running_row
from tests.store.postgres_server import server_of_its_own

EXPIRED, VALID, PAGE = 100_000, 1_000, 5_000

NOTHING = "prune a store without expired effects, SQLite"
SQLITE = f"prune {EXPIRED:,} expired effects, SQLite"
POSTGRES = f"prune {EXPIRED:,} expired effects, PostgreSQL"
WAIT = f"another process writes while {EXPIRED:,} effects are pruned, SQLite"
LIMITS = (
    Limit(SQLITE, 2_000.0, "ms at the longest"),
    Limit(POSTGRES, 1_000.0, "ms at the longest"),
    Limit(WAIT, 500.0, "ms at the longest"),
)

_WRITER = """
import select, sys, time
from handrail import store
from benchmarks.prune import added
longest, number = 0.0, 0
with store.open(sys.argv[1]) as kept:
    print(flush=True)
    while not select.select([sys.stdin], [], [], 0)[0]:
        began = time.perf_counter()
        added(kept, [f"new {number}"], expired=False)
        longest, number = max(longest, time.perf_counter() - began), number + 1
print(longest)
"""


def added(kept: Store, keys: list[str], *, expired: bool) -> None:
    """Add effects that are done, and have expired or will in a day."""
    now = SYSTEM_CLOCK.now()
    until = now + timedelta(days=-1 if expired else 1)

    def row(key: str) -> EffectRow:
        return running_row(SYSTEM_CLOCK, key)._replace(
            status="done", lease_until=None, completed_at=now, expires_at=until, message="x" * 200
        )

    kept.apply(UnitOfWork(tuple(EffectInsert(row(key)) for key in keys)))


def _filled(kept: Store) -> Store:
    for start in range(0, EXPIRED, PAGE):
        added(kept, [f"old {number:06}" for number in range(start, start + PAGE)], expired=True)
    added(kept, [f"valid {number:06}" for number in range(VALID)], expired=False)
    return kept


def _prune(kept: Store) -> Timing:
    _filled(kept)
    with Stopwatch() as stopwatch:
        removed = kept.remove_expired(kept.now())
    assert removed == EXPIRED, removed
    return stopwatch.timing()


def _wait(kept: Store) -> float:
    _filled(kept)
    command = [sys.executable, "-c", _WRITER, kept.url]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        assert kept.remove_expired(kept.now()) == EXPIRED
        said, _ = writer.communicate("\n")
    return float(said) * 1000


@contextmanager
def cases() -> Generator[dict[str, Callable[[], object]]]:
    """What is measured, by name; the databases are there for the time of the block."""
    with ExitStack() as opened:
        folder = Path(opened.enter_context(TemporaryDirectory(prefix="handrail-bench-")))
        url, _ = opened.enter_context(server_of_its_own())

        def kept(name: str) -> Store:
            return opened.enter_context(store.open(f"sqlite:///{folder}/{name}.db"))

        none = kept("none")
        yield {
            NOTHING: lambda: none.remove_expired(none.now()),
            SQLITE: partial(_prune, kept("prune")),
            POSTGRES: partial(_prune, opened.enter_context(store.open(url))),
            WAIT: partial(_wait, kept("wait")),
        }
