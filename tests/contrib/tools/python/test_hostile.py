"""Hostile code: it is refused or stopped, the host is as it was, and the next call works."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest

from handrail.contrib.tools import AstevalSection
from handrail.programs import descendants, running
from tests.contrib.suites import SuiteRun
from tests.contrib.tools.python.hostile import HOSTILE
from tests.extent import some

MEMORY = 64 * 1024 * 1024
SECRET = "hunter2"  # noqa: S105 - of this test

HARMLESS = frozenset({
    "__spec__", "(" * 1000 + ")" * 1000, "x: (yield) = 5", "10**10**6 * 10**10**6 % 7",
    *(f"import re\nre.match({pattern})" for pattern in ("'(a|a)*$', 'a' * 60 + 'b'", "'(a+)+$', 'a' * 60 + 'b'")),
    "import re\nre.match('(x+x+)+y', 'x' * 10**5)",
    "class A:\n    def __repr__(self):\n        while True:\n            pass\nA()",
})  # fmt: skip
"""What Monty may evaluate within the timeout, on a fast machine: it does what it says, and harms nothing."""


@pytest.mark.timeout(300)  # the full form stops some eighty endless programs
def test_hostile_code_is_refused_or_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the secret is shown, no file changes, and no process is left."""
    monkeypatch.setenv("HANDRAIL_CANARY", SECRET)
    canary = tmp_path / "canary.txt"
    canary.write_text(SECRET)
    limits = timedelta(milliseconds=150)
    run = SuiteRun(AstevalSection(timeout=limits, memory_bytes=MEMORY))
    calm = SuiteRun(AstevalSection(memory_bytes=MEMORY))
    succeeded = set[str]()
    tried = some(HOSTILE, 70)
    for code in tried:
        message = run.call("evaluate_python", code=code.replace("CANARY", str(canary)).replace("FOLDER", str(tmp_path)))
        assert SECRET not in message.content, code
        assert calm.told("evaluate_python", code="1 + 1") == "Value: 2", code
        if message.success:
            succeeded.add(code)
    assert succeeded <= HARMLESS
    assert [path.name for path in tmp_path.iterdir()] == [canary.name]
    assert canary.read_text() == SECRET
    lines = [Path(f"/proc/{process.pid}/cmdline") for process in descendants([os.getpid()], running())]
    assert not [line for line in lines if line.exists() and b"monty" in line.read_bytes()]
