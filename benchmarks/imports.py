"""How long it takes to begin: importing the executor beside pydantic, and commands beside a bare interpreter.

Each case is a process of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.timing import Bound, Limit

PYDANTIC = "from pydantic import TypeAdapter"
EXECUTOR = "from handrail.adapters.tool_executor import ToolExecutor"
BARE = "a process that imports nothing"
PYDANTIC_AI = "import pydantic_ai"
CHECK = "handrail check of one agent"
HELP, VERSION = "handrail --help", "handrail --version"

BOUNDS = (Bound(EXECUTOR, PYDANTIC, 1.5), Bound(CHECK, PYDANTIC_AI, 1.5))
LIMITS = (Limit(HELP, 350, "ms"), Limit(VERSION, 350, "ms"))


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
            HELP: partial(_run, "-m", "handrail", "--help"),
            VERSION: partial(_run, "-m", "handrail", "--version"),
        }


def _run(*words: str) -> None:
    # Without byte code every round would compile what it imports.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run([sys.executable, *words], check=True, capture_output=True, env=environment)
