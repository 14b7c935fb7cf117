"""What a process has given up: each thing is tried in a process that has confined itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.architecture.sources import ROOT
from tests.python_worker.confined import LOOKS


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file outside."""
    path = tmp_path / "secret"
    path.write_text("hunter2")
    return path


def outcomes(form: str, secret: Path) -> dict[str, Any]:
    """The outcome of each attempt, and what else the program has found out."""
    line = (sys.executable, "-m", "tests.python_worker.confined", form, str(secret), str(os.getpid()))
    done = subprocess.run(line, cwd=ROOT, capture_output=True, check=False)
    assert done.stdout, done.stderr.decode()
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_process_that_computes_can_do_nothing_else(secret: Path) -> None:
    """Each system call of another kind is refused; it may still compute and use what is open."""
    found = outcomes("computation", secret)
    assert (found.pop("memory"), found.pop("sum")) == ("MemoryError", "done: 45")
    assert {*LOOKS, "environment", "signal", "connect", "fork", "exec", "pipe"} == {*found}
    assert {*found.values()} == {"EPERM"}
    assert secret.read_text() == "hunter2"


def test_process_and_what_it_starts_reach_nothing_outside(secret: Path) -> None:
    """It reads the libraries, and starts programs that are there."""
    found = outcomes("tree", secret)
    assert found["file size"] == 0
    given_up = found["given up"]
    assert given_up[0] == "limits"
    if sys.platform == "linux":
        assert {"privileges", "reaching"} <= {*given_up}
        assert found["connect"] == "EPERM"
    if "files" in given_up:
        assert {found[name] for name in (*LOOKS, "environment")} == {"EACCES"}
        # Landlock knows signals since Linux 6.12.
        assert found["signal"] in {"EPERM", "done: None"}
        assert (found["library"], found["null"], found["program"]) == ("done: True", "done: 1", 7)
        assert secret.read_text() == "hunter2"
