"""The timer and its thread. Where a test waits, it waits for an event, never for a time."""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial

import pytest

from handrail.clock import SYSTEM_CLOCK, Clock
from handrail.runtime.ledger.effects import Claimed, ClaimRequest
from handrail.runtime.ledger.lease_renewal import LeaseRenewer
from handrail.runtime.ledger.ledger import EffectLedger
from handrail.store import EffectRow, MemoryStore
from handrail.testing import FakeClock
from tests.store.kit import WriteByWrite

PATIENCE = 60.0  # seconds after which a test that waits for an event gives up
MOMENT = 0.001

Stopping = Callable[[Clock], LeaseRenewer]


@pytest.fixture
def clock() -> FakeClock:
    """The clock that says what is due."""
    return FakeClock()


def _threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "handrail-ledger"}


@pytest.fixture
def stopping() -> Iterator[Stopping]:
    """Makes timers over a clock, and stops them when the test is over."""
    pulses: list[LeaseRenewer] = []

    def make(clock: Clock) -> LeaseRenewer:
        pulses.append(LeaseRenewer(MemoryStore(), clock=clock, jitter=float))
        return pulses[-1]

    yield make
    for pulse in pulses:
        pulse.stop()


def test_task_is_performed_when_it_is_due(clock: FakeClock, stopping: Stopping) -> None:
    """`tick` performs what is due by the clock, again after as long as the task says, until it is through."""
    performed: list[tuple[str, float]] = []
    again = {"once": iter([None]), "thrice": iter([2.0, 3.0, None])}

    def perform(task: str) -> float | None:
        performed.append((task, clock.monotonic()))
        return next(again[task])

    pulse = stopping(clock)
    pulse.schedule("thrice", 1.0, partial(perform, "thrice"))
    pulse.schedule("once", 4.0, partial(perform, "once"))
    ticks: list[int] = []
    for _ in range(10):
        clock.advance(timedelta(seconds=1))
        ticks.append(pulse.tick())
    assert performed == [("thrice", 1), ("thrice", 3), ("once", 4), ("thrice", 6)]
    assert ticks == [1, 0, 1, 1, 0, 1, 0, 0, 0, 0]


def test_task_that_is_unscheduled_is_not_performed(clock: FakeClock, stopping: Stopping) -> None:
    """Also when it is unscheduled while it is being performed; and what was not scheduled may be unscheduled."""
    performed: list[str] = []

    def perform(task: str) -> float:
        performed.append(task)
        pulse.unschedule(task)
        return 1.0

    pulse = stopping(clock)
    for task in "ab":
        pulse.schedule(task, 1.0, partial(perform, task))
    pulse.unschedule("b")
    pulse.unschedule("c")
    for _ in range(3):
        clock.advance(timedelta(seconds=1))
        pulse.tick()
    assert performed == ["a"]


def test_task_that_fails_is_tried_again_and_stops_no_other(
    clock: FakeClock, stopping: Stopping, caplog: pytest.LogCaptureFixture
) -> None:
    """A failure is logged with its traceback, the task is due again in a second, and the next one is performed."""
    performed: list[str] = []

    def perform(task: str) -> None:
        performed.append(task)
        if performed == ["fails"]:
            raise ConnectionError("the store is down")

    pulse = stopping(clock)
    pulse.schedule("fails", 1.0, partial(perform, "fails"))
    pulse.schedule("works", 1.0, partial(perform, "works"))
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            clock.advance(timedelta(seconds=1))
            pulse.tick()
    assert performed == ["fails", "works", "fails"]
    assert [record.exc_info is not None for record in caplog.records] == [True]


def test_thread_performs_by_itself_what_is_due(stopping: Stopping) -> None:
    """On the system's clock the thread wakes for the earliest task, also one that comes after it has gone to sleep."""
    before, done = _threads(), {task: threading.Event() for task in ("late", "early", "again")}
    runs = iter([MOMENT, None])

    def perform(task: str) -> float | None:
        if task == "again" and (again := next(runs)) is not None:
            return again
        done[task].set()
        return None

    pulse = stopping(SYSTEM_CLOCK)
    pulse.schedule("late", 3600.0, partial(perform, "late"))
    pulse.schedule("early", MOMENT, partial(perform, "early"))
    assert done["early"].wait(PATIENCE)
    pulse.schedule("again", MOMENT, partial(perform, "again"))
    assert done["again"].wait(PATIENCE)
    assert not done["late"].is_set()
    assert len(_threads() - before) == 1


class _Beaten(WriteByWrite):
    """A store that says when a lease has been extended twice."""

    def __init__(self) -> None:
        super().__init__()
        self.extended = threading.Semaphore(0)

    def replace(self, seen: EffectRow, row: EffectRow) -> bool:
        kept = super().replace(seen, row)
        self.extended.release()
        return kept


def test_ledgers_thread_keeps_a_claim_alive_and_ends_with_the_ledger() -> None:
    """A claim is extended in real time by nobody's doing; when the ledger is gone, so is its thread."""
    before = _threads()
    store = _Beaten()
    ledger = EffectLedger(store)
    claim = ledger.claim(ClaimRequest("s1", "key", "pay", "a" * 64, lease=timedelta(milliseconds=3)))
    assert isinstance(claim, Claimed)
    assert all(store.extended.acquire(timeout=PATIENCE) for _ in range(3))
    row = ledger.row("key", partition="s1")
    assert row is not None
    assert row.lease_until is not None
    assert claim.row.lease_until is not None
    assert row.lease_until > claim.row.lease_until
    (thread,) = _threads() - before
    del ledger
    gc.collect()
    thread.join(PATIENCE)
    assert not thread.is_alive()
