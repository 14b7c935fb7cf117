"""Workers that a run forks run each test once, and what becomes of it is reported."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree as ET

from tests.architecture.sources import ROOT

_FILES = {
    "test_one.py": "def test_passes(): pass\ndef test_fails(): assert 0\n",
    "test_two.py": "import pytest\n@pytest.fixture(scope='module')\ndef broken():\n    yield\n    assert 0\n"
    "def test_with_a_broken_end(broken): print('printed')\n",
    "test_three.py": "import os\ndef test_before(): pass\ndef test_kills(): os.kill(os.getpid(), 9)\n"
    "def test_after(): pass\n",
    "test_four.py": "import os\ndef test_surrogate(): assert '\\udc80' == os.getpid()\n",
}


def run_of(files: Mapping[str, str], folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """A run of some files in two workers."""
    for name, source in files.items():
        (folder / name).write_text(source, encoding="utf-8")
    options = ("-p", "tests.forked_workers", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(folder))
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, "--forked-workers", "2", *more, "."],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        check=False,
        text=True,
    )


def test_a_worker_that_does_not_end_is_killed(tmp_path: Path) -> None:
    """The run fails, and shows where the thread is that it waits for."""
    hangs = "import threading\ndef test_hangs(): threading.Thread(target=threading.Event().wait).start()\n"
    run = run_of({"test_hangs.py": hangs}, tmp_path, "--worker-end=1")
    assert run.returncode == 1, run.stdout + run.stderr
    assert "a worker ended with exit code -9" in run.stdout
    assert "in _shutdown" in run.stderr


def test_each_test_is_reported_once_and_the_one_that_ends_its_worker_fails(tmp_path: Path) -> None:
    """The files after it are run by the other worker."""
    run = run_of(_FILES, tmp_path, "--junitxml=found.xml")
    assert run.returncode == 1, run.stdout + run.stderr
    cases = ET.parse(tmp_path / "found.xml").iter("testcase")  # noqa: S314 - written by the run
    found = sorted(
        (case.attrib["name"], *(part.tag for part in case if part.tag in {"failure", "error"})) for case in cases
    )
    assert found == [
        ("test_before",),
        ("test_fails", "failure"),
        ("test_kills", "failure"),
        ("test_passes",),
        ("test_surrogate", "failure"),
        ("test_with_a_broken_end", "error"),
    ]
    assert "4 failed" not in run.stdout
    assert "3 failed, 3 passed, 1 error" in run.stdout
