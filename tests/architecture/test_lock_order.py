"""Locks are acquired in the order of `docs/contributing/locks.md`, so that two threads cannot wait for each other's."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from tests.architecture.sources import ROOT, listed

TEXT = (ROOT / "docs" / "contributing" / "locks.md").read_text(encoding="utf-8")
ROWS = [re.findall(r"`([\w.]+:[\w.]+)`", line.split(" | ")[0]) for line in TEXT.splitlines() if line.startswith("| `")]
PLACES = {name: place for place, names in enumerate(ROWS) for name in names}


@pytest.fixture(scope="module")
def acquired(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, str, str]]:
    """Which lock was held when another was acquired, and the callers, of a program that uses all of Handrail."""
    command = [sys.executable, "-m", "tests.architecture.lock_program", str(tmp_path_factory.mktemp("locks"))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, encoding="utf-8")
    return [(before, after, where) for before, after, where in json.loads(done.stdout.splitlines()[-1])]


@pytest.mark.timeout(120)  # a process that runs a few hundred calls
def test_locks_are_acquired_in_the_order_of_the_page(acquired: list[tuple[str, str, str]]) -> None:
    """A lock that is not on the page is neither held nor acquired together with another."""
    faults = [
        f"{after} is acquired while {before} is held ({where})"
        for before, after, where in acquired
        if before != after and PLACES.get(before, 99) >= PLACES.get(after, -1)
    ]
    assert not faults, listed(faults)


@pytest.mark.short(0)
def test_each_lock_of_the_page_is_held_together_with_another(acquired: list[tuple[str, str, str]]) -> None:
    """So that the page has no lock that is not there any more."""
    seen = {name for before, after, _ in acquired for name in (before, after)}
    assert set(PLACES) == seen
