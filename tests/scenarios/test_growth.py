"""What ten thousand calls leave behind: what they wrote, one event each, and nothing else."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import weakref
from typing import Any

import pytest

from tests.architecture.sources import ROOT
from tests.kit import call
from tests.scenarios.growth import Growth, world

CALL_MADE = {"Transaction", "Ticket", "CallState", "EffectClaim", "Claimed", "Turn"}
"""What a call has made by the time that its handler runs; a claim that was granted is an `EffectClaim`."""


def counted(what: str) -> dict[str, Any]:
    """What was counted in a process that did nothing else."""
    line = [sys.executable, "-m", "tests.scenarios.growth", what]
    done = subprocess.run(line, capture_output=True, check=False, cwd=ROOT, encoding="utf-8")
    assert (done.returncode, done.stderr) == (0, "")
    printed: dict[str, Any] = json.loads(done.stdout)
    return printed


@pytest.mark.short(0)
@pytest.mark.parametrize("what, least, most", [("calls", 10_000, 10_000), ("replies", 660, 1_260)])
def test_thousands_of_calls_leave_what_they_wrote_and_nothing_else(what: str, least: int, most: int) -> None:
    """Transactions, tickets, turns and claims are gone, though a handler saw its own; the queue is empty.

    On an event loop there are many calls in the queue at once, and some of them are cancelled; futures are gone as
    well. Of the replies that are cancelled, the calls that had not begun have no record.
    """
    growth = Growth(**counted(what))
    assert growth.during.keys() >= CALL_MADE
    assert growth.after == growth.before
    assert least <= growth.recorded <= most
    assert growth.queued == 0


def test_nothing_of_a_durable_call_waits_for_a_garbage_collection() -> None:
    """Where many agents wait for their store, collections take a quarter of the time: no call adds to them."""
    assert counted("durable") == {}


def test_a_ledger_that_nobody_uses_any_more_is_collected() -> None:
    """Its thread does not keep it."""
    door = world()
    door.execute(call("pay"))
    ledger = weakref.ref(door.environment.find_ledger())
    del door
    gc.collect()
    assert ledger() is None
