"""What another process does to a store, for tests.

It says `ready` when it has done it, and ends when its input does, or when it is killed. With `fork` a forked child says
so, and ends when the input does; the parent waits to be killed.
"""

from __future__ import annotations

import os
import signal
import sys
from datetime import timedelta

import handrail.store
from handrail import crash_points
from handrail.transaction import RecordCommit, UnitOfWork


def main(url: str, session_id: str, what: str, then: str = "") -> None:
    """Hold a session, or begin a unit, and stay so."""
    store = handrail.store.open(url)
    if what == "hold":
        store.acquire(session_id, wait=timedelta(0))
        if then == "fork" and os.fork():
            signal.pause()
        stay()
    else:
        crash_points.arm(lambda point: stay() if point == "unit-before-commit" else None)
        store.apply(UnitOfWork((RecordCommit("j1"),)))


def stay() -> None:
    """Say that it is so, and do nothing more."""
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.read()
