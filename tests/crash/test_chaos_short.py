"""A short form of `make chaos`: real processes, killed, stopped and starved at random over both stores."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.architecture.sources import ROOT
from tests.extent import SHORT, some

_ENOUGH_KILLS = 30
"""In a run with fewer kills there may be no handler that fails."""


_RUNS = [
    *(("sqlite", "unknown", 1, 30), ("postgres", "retry", 20, 10)),
    *(("postgres", "unknown", 1, 30), ("sqlite", "retry", 20, 10)),
]
"""Stores, policies, agents on one event loop (one uses the synchronous entry), and kills."""


# The run ends itself after two minutes and says what is not done; if it were killed, its workers would go on.
@pytest.mark.timeout(150)
@pytest.mark.parametrize("store, policy, agents, kills", some(_RUNS, 2))
@pytest.mark.short(1)
def test_nothing_is_lost_and_nothing_happens_twice_when_workers_are_killed(
    store: str, policy: str, agents: int, kills: int
) -> None:
    """Every key is done in the end, once; the session agrees with the service, the table and the files.

    Handlers raise before their effect and after it, and overrun: what happened is never recorded as failed.
    """
    command = ["-m", "chaos", "--store", store, "--policy", policy, "--agents", str(agents)]
    kills = kills // 2 if SHORT else kills
    command += ["--kills", str(kills), "--seed", "11", "--programs", "2", "--sandboxes", "0"]
    outages = "1" if store == "postgres" and not SHORT else "0"
    command += ["--lines", "0", "--cancellations", "0", "--outages", outages, "--mcp", "0", "--langgraph", "0"]
    command += ["--engines", "0", "--queue", "0", "--undo", "0", "--forks", "0"]
    done = subprocess.run(
        [sys.executable, *command, "--minutes", "2"], capture_output=True, check=False, cwd=ROOT, encoding="utf-8"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    head, row = done.stdout.splitlines()[-2:]
    counts = dict(zip(head.split()[1:], [int(count) for count in row.split()[3:]], strict=True))
    assert counts["kills"] >= kills
    assert agents == 1 or counts["grouped"] > 0
    assert counts["done"] == counts["keys"] > 0
    assert (counts["duplicates"], counts["lost"], counts["denied"], counts["torn"]) == (0, 0, 0, 0)
    assert counts["applied"] > counts["misapplied"] == 0
    assert counts["unknown"] == counts["resolved"]
    assert kills < _ENOUGH_KILLS or counts["raised"] + counts["overran"] > 0
