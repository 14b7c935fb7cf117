"""The programs of `examples/`, run as people run them, and what they say of their promises."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PROMISED = re.compile(r"^  - (.+)$", re.MULTILINE)
CALL = re.compile(r"^  call \d+: (\w+): ([a-z ]+(?:\d+, [a-z ]+)?) \(", re.MULTILINE)
_JUDGED = re.compile(r"^(PASS|FAIL): (.+) \((.*)\)$", re.MULTILINE)

Told = subprocess.CompletedProcess[str]


def run(program: Path, *arguments: str, folder: Path | None = None, **environment: str) -> Told:
    """Run a program without a terminal, and without the keys of any provider; warnings are shown."""
    env = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    env |= {"PYTHONWARNINGS": "default"} | environment
    command = [sys.executable, str(program), *arguments]
    return subprocess.run(command, capture_output=True, encoding="utf-8", env=env, cwd=folder, check=False)


def judged(told: Told) -> dict[str, bool]:
    """The promises that were judged, and whether they hold."""
    return {promise: mark == "PASS" for mark, promise, _ in _JUDGED.findall(told.stdout)}
