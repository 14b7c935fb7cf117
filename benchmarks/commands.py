"""How long the commands of the repository take: its checks, its tests and its site."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.timing import Limit

BARE = "a process of Python that does nothing"
LIMITS = (
    Limit("make docs", 30, "s"),
    Limit("make check", 60, "s"),
    Limit("make test-fast", 90, "s"),
    Limit("make test", 480, "s"),
)

_ROOT = Path(__file__).parents[1]


def cases() -> dict[str, Callable[[], object]]:
    """What is measured, by name; each command is run once."""
    commands = [limit.case for limit in LIMITS]
    return {BARE: _do_nothing, **{command: partial(_seconds, command) for command in commands}}


def _do_nothing() -> None:
    subprocess.run([sys.executable, "-c", ""], check=True)


def _seconds(command: str) -> float:
    begun = time.perf_counter()
    # Its output is shown as it comes: it takes minutes, and says what is wrong where it fails.
    subprocess.run(command.split(), cwd=_ROOT, stdout=sys.stderr, check=True)
    return time.perf_counter() - begun
