"""A short form of `make chaos`: real processes, killed, stopped and starved at random over both stores."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.architecture.sources import ROOT
from tests.extent import some

_ENOUGH_KILLS = 30
"""In a run with fewer kills there may be no handler that fails."""


# The run ends itself after two minutes and says what is not done; if it were killed, its workers would go on.
@pytest.mark.timeout(150)
@pytest.mark.parametrize(
    "store, policy, kills", some([("sqlite", "unknown", 30), ("postgres", "unknown", 30), ("postgres", "retry", 10)], 2)
)
def test_nothing_is_lost_and_nothing_happens_twice_when_workers_are_killed(store: str, policy: str, kills: int) -> None:
    """Every key is done in the end, once; the session agrees with the service, the table and the files.

    Handlers raise before their effect and after it, and overrun: what happened is never recorded as failed.
    """
    command = ["-m", "chaos", "--store", store, "--policy", policy, "--kills", str(kills), "--seed", "11"]
    done = subprocess.run(
        [sys.executable, *command, "--minutes", "2"], capture_output=True, check=False, cwd=ROOT, encoding="utf-8"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    head, row = done.stdout.splitlines()[-2:]
    counts = dict(zip(head.split()[1:], [int(count) for count in row.split()[2:]], strict=True))
    assert counts["kills"] >= kills
    assert counts["done"] == counts["keys"] > 0
    assert (counts["duplicates"], counts["lost"], counts["denied"], counts["torn"]) == (0, 0, 0, 0)
    assert counts["unknown"] == counts["resolved"]
    assert kills < _ENOUGH_KILLS or counts["raised"] + counts["overran"] > 0
