"""Which tests are collected, and in which order; forked workers run each once, and what becomes of it is reported."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.architecture.sources import ROOT
from tests.tracing import TESTS, UNTRACED

_FILES = {
    "test_one.py": "def test_passes(): pass\ndef test_fails(): assert 0\n",
    "test_two.py": "import pytest\n@pytest.fixture(scope='module')\ndef broken():\n    yield\n    assert 0\n"
    "def test_with_a_broken_end(broken): print('printed')\n",
    "test_three.py": "import os\ndef test_before(): pass\ndef test_kills(): os.kill(os.getpid(), 9)\n"
    "def test_after(): pass\n",
    "test_four.py": "import os\ndef test_surrogate(): assert '\\udc80' == os.getpid()\n",
}


def pytest_in(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """A run of pytest in a folder, without the plugins and settings of this repository."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", os.devnull, *options, "."]
    variables = {"HANDRAIL_TESTS": "short", "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    environment = {**os.environ, **variables}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False, text=True)


def run_of(files: Mapping[str, str], folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """A run of some files in two workers, which fails."""
    for name, source in files.items():
        (folder / name).write_text(source, encoding="utf-8")
    run = pytest_in(folder, "-p", "tests.forked_workers", f"--rootdir={folder}", "--forked-workers=2", *more)
    assert run.returncode == 1, run.stdout + run.stderr
    return run


def found_in(report: Path) -> list[tuple[str, ...]]:
    """Each test of a report with what became of it where it did not pass, in the order of the names."""
    cases = ET.parse(report).iter("testcase")  # noqa: S314 - written by the run
    return sorted(
        (case.attrib["name"], *(part.tag for part in case if part.tag in {"failure", "error"})) for case in cases
    )


_UNENDING = "import threading\ndef test_hangs(): threading.Thread(target=threading.Event().wait).start()\n"


def test_a_worker_that_does_not_end_is_killed(tmp_path: Path) -> None:
    """The run fails, and shows where the thread is that it waits for."""
    run = run_of({"test_hangs.py": _UNENDING}, tmp_path, "--worker-end=1")
    assert "a worker ended with exit code -9" in run.stdout
    assert "in _shutdown" in run.stderr


_LEAVES = """
import pytest, threading
@pytest.fixture(scope="module")
def of_the_module():
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    yield
    done.set()
    thread.join()
def test_ends_soon(of_the_module): threading.Timer(0.01, bool).start()
def test_leaves(of_the_module): threading.Thread(target=threading.Event().wait, name="never ends").start()
"""


def test_a_test_fails_that_leaves_a_thread_for_which_its_process_waits(tmp_path: Path) -> None:
    """The thread of a fixture may outlive a test, and so may one that ends soon."""
    options = ("-p", "tests.left_threads", "--thread-end=3", "--worker-end=0.5", "--junitxml=found.xml")
    run = run_of({"test_one.py": _LEAVES}, tmp_path, *options)
    # The worker fails too, which waits for the thread when its tests have ended.
    found = [("test_ends_soon",), ("test_leaves", "error"), ("tests.forked_workers", "failure")]
    assert found_in(tmp_path / "found.xml") == found
    assert "never ends" in run.stdout


_CATCHES = """
import pytest, threading
@pytest.mark.timeout(0.5)
def test_endless():
    while True:
        try: threading.Event().wait()
        except BaseException: pass
"""
_WAITS = """
import pytest, threading
@pytest.fixture
def endless():
    yield
    threading.Event().wait()
def test_endless(endless): assert 0
"""


@pytest.mark.parametrize("source, faults, shown", [(_CATCHES, 1, "in test_endless"), (_WAITS, 2, "in endless")])
def test_a_test_that_does_not_end_ends_its_process_and_fails(
    source: str, faults: int, shown: str, tmp_path: Path
) -> None:
    """One catches what its timeout raises, and one has failed and waits in a fixture; where they wait is shown."""
    options = ("-p", "pytest_timeout", "-p", "tests.endless_tests", "--test-end=0.5", "--junitxml=found.xml")
    run = run_of({"test_one.py": source}, tmp_path, *options)
    assert found_in(tmp_path / "found.xml") == [("test_endless", *["failure"] * faults)]
    assert shown in run.stderr


def test_each_test_is_reported_once_and_the_one_that_ends_its_worker_fails(tmp_path: Path) -> None:
    """What it has left of its file fails as one, and the files after it are run by the other worker."""
    run = run_of(_FILES, tmp_path, "--junitxml=found.xml")
    failed = [(f"test_{name}", "failure") for name in ("fails", "kills", "surrogate", "three")]
    found = [("test_before",), ("test_passes",), ("test_with_a_broken_end", "error"), *failed]
    assert found_in(tmp_path / "found.xml") == sorted(found)
    assert "4 failed, 3 passed, 1 error" in run.stdout


_MANY = "import pytest\n@pytest.mark.parametrize('n', range(50))\ndef test_each(n): pass\n"


def test_the_same_cases_are_left_out_in_each_run(tmp_path: Path) -> None:
    """The order is another one in each run, and the cases that `make test` runs are not."""
    (tmp_path / "test_many.py").write_text(_MANY, encoding="utf-8")
    options = ("-p", "pytest_randomly", "-p", "tests.cases", "--collect-only", "-q")
    runs = [pytest_in(tmp_path, *options, f"--randomly-seed={seed}") for seed in (1, 2)]
    collected = [run.stdout.splitlines()[:4] for run in runs]
    assert [run.returncode for run in runs] == [0, 0]
    assert sorted(collected[0]) == sorted(collected[1])
    assert collected[0] != collected[1]


@pytest.mark.parametrize("pattern", UNTRACED)
def test_each_untraced_file_exists(pattern: str) -> None:
    """A file that was renamed or removed leaves its glob with it."""
    assert list(TESTS.glob(pattern))
