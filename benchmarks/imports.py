"""What it takes to import the executor, beside pydantic alone; each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

from benchmarks.timing import Bound

PYDANTIC = "from pydantic import TypeAdapter"
EXECUTOR = "from handrail.adapters.tool_executor import ToolExecutor"
BARE = "a process that imports nothing"

BOUNDS = (Bound(EXECUTOR, PYDANTIC, 1.3),)


def cases() -> dict[str, Callable[[], object]]:
    """What is measured, by name; the first round writes the byte code."""
    return {BARE: _running(""), PYDANTIC: _running(PYDANTIC), EXECUTOR: _running(EXECUTOR)}


def _running(program: str) -> Callable[[], object]:
    return lambda: subprocess.run([sys.executable, "-c", program], check=True)
