"""How long it takes to begin: importing the executor beside pydantic, and commands beside a bare interpreter.

Each case is a process of its own.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.timing import Bound, Limit, time_calls

PYDANTIC = "from pydantic import TypeAdapter"
EXECUTOR = "from handrail.adapters.tool_executor import ToolExecutor"
BARE = "a process that imports nothing"
PYDANTIC_AI = "import pydantic_ai"
CHECK = "handrail check of one agent"
HELP, VERSION = "handrail --help", "handrail --version"

BOUNDS = (Bound(EXECUTOR, PYDANTIC, 1.3), Bound(CHECK, PYDANTIC_AI, 1.5))
LIMITS = (Limit(HELP, 60, "ms over twice a bare interpreter"), Limit(VERSION, 60, "ms over twice a bare interpreter"))

_ROUNDS = 15


@contextmanager
def cases() -> Generator[dict[str, Callable[[], object]]]:
    """What is measured, by name; the first round writes the byte code. The agent is there for the time of the block."""
    with TemporaryDirectory(prefix="handrail-bench-") as folder:
        _run("-m", "handrail", "new", "desk", "--folder", folder)
        agent = str(Path(folder) / "desk" / "desk.agent")
        yield {
            BARE: partial(_run, "-c", ""),
            PYDANTIC: partial(_run, "-c", PYDANTIC),
            EXECUTOR: partial(_run, "-c", EXECUTOR),
            PYDANTIC_AI: partial(_run, "-c", PYDANTIC_AI),
            CHECK: partial(_run, "-m", "handrail", "check", agent),
            HELP: partial(_over_twice_bare, "-m", "handrail", "--help"),
            VERSION: partial(_over_twice_bare, "-m", "handrail", "--version"),
        }


def _over_twice_bare(*words: str) -> float:
    """The milliseconds that a command takes over twice those of an interpreter that does nothing."""
    command, bare = partial(_run, *words), partial(_run, "-c", "")
    pairs = [(time_calls(command, 1), time_calls(bare, 1)) for _ in range(_ROUNDS + 1)][1:]
    taken, floor = zip(*pairs, strict=True)
    over: float = statistics.median(taken) - 2 * statistics.median(floor)
    return over / 1000


def _run(*words: str) -> None:
    # Without byte code every round would compile what it imports.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run([sys.executable, *words], check=True, capture_output=True, env=environment)
