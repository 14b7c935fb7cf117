"""A process is killed while it changes files: whoever opens the tree next finds all of the change, or none of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.extent import some
from tests.filesystem import killing
from tests.filesystem.kit import CHANGES, PROGRAMS

STEPS = {"several": 11, "move a folder": 7, "remove a folder": 3, "a program": 5, "a program between changes": 31}
"""Changes that make so many calls that not each of them is tried."""


@pytest.mark.parametrize("what", some([*CHANGES, *PROGRAMS], 5))
@pytest.mark.short(1)
def test_change_of_a_killed_process_is_whole_or_undone(tmp_path: Path, what: str) -> None:
    """Killed at each crash point, at each call to the disk, and over and over while it is undone: no trace is left."""
    line = [sys.executable, killing.__file__, what, str(tmp_path), str(STEPS.get(what, 1))]
    done = subprocess.run(line, env=killing.environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (points, at_points), (calls, at_calls), (openings, at_openings) = json.loads(done.stdout)
    assert (at_points, at_calls, at_openings) == ([], [], [])
    assert points >= 5
    assert calls >= 20
    assert openings >= 20
