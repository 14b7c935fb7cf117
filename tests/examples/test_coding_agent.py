"""The coding agent, run as people run it: by its path, with no terminal, as a process of its own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).resolve().parents[2] / "examples" / "coding_agent" / "demo.py"
READING = Path("durations", "reading.py")
CALL = re.compile(r"^  call \d+: (\w+): ([a-z ]+(?:\d+, [a-z ]+)?) \(", re.MULTILINE)
PROMISED = re.compile(r"^  - (.+)$", re.MULTILINE)
JUDGED = re.compile(r"^(PASS|FAIL): (.+) \((.*)\)$", re.MULTILINE)


def run(*arguments: str, path: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run the agent without a terminal, and without the keys of any provider; warnings are shown."""
    env = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    env |= {"PYTHONWARNINGS": "default"} | ({} if path is None else {"PATH": path})
    command = [sys.executable, str(DEMO), *arguments]
    return subprocess.run(command, capture_output=True, encoding="utf-8", env=env, check=False)


def judged(told: subprocess.CompletedProcess[str]) -> dict[str, bool]:
    """The promises that were judged, and whether they hold."""
    return {promise: mark == "PASS" for mark, promise, _ in JUDGED.findall(told.stdout)}


def test_every_promise_holds_in_a_sandbox(tmp_path: Path) -> None:
    """The script is played to its end: calls fail and are rolled back, and the change that is left solves the issue."""
    told = run("--out", str(tmp_path))
    assert (told.returncode, told.stderr) == (0, ""), told.stdout + told.stderr
    opening, _, trace = told.stdout.partition("\n=== ")
    assert judged(told) == dict.fromkeys(PROMISED.findall(opening), True)
    assert len(judged(told)) == 6
    assert "Commands run in a sandbox of bubblewrap" in trace
    calls = CALL.findall(trace)
    assert calls.count(("shell_execute", "rolled back")) == 6
    assert ("edit_file", "refused at 4, policy") in calls
    assert calls[-1] == ("shell_execute", "committed")
    before, after = DEMO.parent / "project", tmp_path / "project"
    changed = [
        path for path in before.rglob("*.py") if path.read_bytes() != (after / path.relative_to(before)).read_bytes()
    ]
    assert [path.relative_to(before) for path in changed] == [READING]
    again = run("--out", str(tmp_path))
    assert again.returncode == 2
    assert "give --out another folder" in again.stderr


@pytest.mark.short(0)
def test_a_broken_promise_ends_in_fail_where_commands_run_on_the_host(tmp_path: Path) -> None:
    """Without bubblewrap the first lines say what that means; and a test that was changed past the runtime is found."""
    git = shutil.which("git")
    assert git is not None
    (tmp_path / "git").symlink_to(git)
    told = run("--fault", path=str(tmp_path))
    assert (told.returncode, told.stderr) == (1, ""), told.stdout + told.stderr
    assert "Commands run on this machine, and can read what you can read" in told.stdout
    assert ("shell_run", "committed") in CALL.findall(told.stdout)
    assert [promise for promise, holds in judged(told).items() if not holds] == [
        "the tests pass at the end, and are those of the beginning"
    ]
    assert len(judged(told)) == 5
