"""Which tests are collected, and in which order: each worker begins with another part of the files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT
from tests.collection import turned

_MANY = "import pytest\n@pytest.mark.parametrize('n', range(50))\ndef test_each(n): pass\n"


@pytest.mark.parametrize("workers", [1, 2, 3, 5])
def test_each_worker_begins_elsewhere_and_leaves_nothing_out(workers: int) -> None:
    """The parts before the first files of the next worker are all files, each once."""
    items = list("abcdefg")
    lists = [turned(items, worker, workers) for worker in range(workers)]
    assert all(sorted(turn) == items for turn in lists)
    firsts = [turn[0] for turn in lists]
    assert firsts == sorted(set(firsts))
    assert firsts[0] == "a"


def test_the_same_cases_are_left_out_in_each_run(tmp_path: Path) -> None:
    """The order is another one in each run, and the cases that `make test` runs are not."""
    (tmp_path / "test_many.py").write_text(_MANY, encoding="utf-8")
    options = ("-p", "pytest_randomly", "-p", "tests.cases", "-p", "no:cacheprovider", "-c", os.devnull)
    collected = [
        subprocess.run(
            [sys.executable, "-m", "pytest", *options, "--collect-only", "-q", f"--randomly-seed={seed}", "."],
            cwd=tmp_path,
            env={
                **os.environ,
                "HANDRAIL_TESTS": "short",
                "PYTHONPATH": str(ROOT),
                "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            },
            capture_output=True,
            check=True,
            text=True,
        ).stdout.splitlines()[:4]
        for seed in (1, 2)
    ]
    assert sorted(collected[0]) == sorted(collected[1])
    assert collected[0] != collected[1]
