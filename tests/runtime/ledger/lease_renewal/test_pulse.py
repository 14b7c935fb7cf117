"""The timer and its thread. Where a test waits, it waits for an event, never for a time."""

from __future__ import annotations

import gc
import itertools
import logging
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

from handrail.clock import SYSTEM_CLOCK
from handrail.runtime.ledger.effects import Claimed, ClaimRequest
from handrail.runtime.ledger.lease_renewal import RecurringTimer
from handrail.runtime.ledger.ledger import EffectLedger
from handrail.store import EffectRow
from handrail.testing import FakeClock
from tests.store.units import WriteByWrite

PATIENCE = 60.0  # seconds after which a test that waits for an event gives up
MOMENT = 0.001
_names = itertools.count()


@pytest.fixture
def name() -> str:
    """A name that no other thread has."""
    return f"pulse {next(_names)}"


@pytest.fixture
def clock() -> FakeClock:
    """The clock that says what is due."""
    return FakeClock()


def _threads(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == name]


@pytest.fixture
def stopping() -> Iterator[Callable[[RecurringTimer[str]], RecurringTimer[str]]]:
    """Stops the pulses that are handed to it when the test is over."""
    pulses: list[RecurringTimer[str]] = []

    def stop_later(pulse: RecurringTimer[str]) -> RecurringTimer[str]:
        pulses.append(pulse)
        return pulse

    yield stop_later
    for pulse in pulses:
        pulse.stop()


Stopping = Callable[[RecurringTimer[str]], RecurringTimer[str]]


def test_task_is_performed_when_it_is_due(clock: FakeClock, name: str, stopping: Stopping) -> None:
    """`tick` performs what is due by the clock, again after as long as the task says, until it is through."""
    performed: list[tuple[str, float]] = []
    again = {"once": iter([None]), "thrice": iter([2.0, 3.0, None])}

    def perform(task: str) -> float | None:
        performed.append((task, clock.monotonic()))
        return next(again[task])

    pulse = stopping(RecurringTimer(perform, clock=clock, name=name))
    pulse.schedule("thrice", 1.0)
    pulse.schedule("once", 4.0)
    ticks: list[int] = []
    for _ in range(10):
        clock.advance(timedelta(seconds=1))
        ticks.append(pulse.tick())
    assert performed == [("thrice", 1), ("thrice", 3), ("once", 4), ("thrice", 6)]
    assert ticks == [1, 0, 1, 1, 0, 1, 0, 0, 0, 0]


def test_task_that_is_unscheduled_is_not_performed(clock: FakeClock, name: str, stopping: Stopping) -> None:
    """Also when it is unscheduled while it is being performed; and what was not scheduled may be unscheduled."""
    performed: list[str] = []

    def perform(task: str) -> float:
        performed.append(task)
        pulse.unschedule(task)
        return 1.0

    pulse = stopping(RecurringTimer(perform, clock=clock, name=name))
    for task in "ab":
        pulse.schedule(task, 1.0)
    pulse.unschedule("b")
    pulse.unschedule("c")
    for _ in range(3):
        clock.advance(timedelta(seconds=1))
        pulse.tick()
    assert performed == ["a"]


def test_task_that_fails_is_tried_again_and_stops_no_other(
    clock: FakeClock, name: str, stopping: Stopping, caplog: pytest.LogCaptureFixture
) -> None:
    """A failure is logged with its traceback, the task is due again in a second, and the next one is performed."""
    performed: list[str] = []

    def perform(task: str) -> None:
        performed.append(task)
        if performed == ["fails"]:
            raise ConnectionError("the store is down")

    pulse = stopping(RecurringTimer(perform, clock=clock, name=name))
    pulse.schedule("fails", 1.0)
    pulse.schedule("works", 1.0)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            clock.advance(timedelta(seconds=1))
            pulse.tick()
    assert performed == ["fails", "works", "fails"]
    assert [record.exc_info is not None for record in caplog.records] == [True]


def test_thread_performs_by_itself_what_is_due(name: str, stopping: Stopping) -> None:
    """On the system's clock the thread wakes for the earliest task, also one that comes after it has gone to sleep."""
    done = {task: threading.Event() for task in ("late", "early", "again")}
    runs = iter([MOMENT, None])

    def perform(task: str) -> float | None:
        if task == "again" and (again := next(runs)) is not None:
            return again
        done[task].set()
        return None

    pulse = stopping(RecurringTimer(perform, clock=SYSTEM_CLOCK, name=name))
    pulse.schedule("late", 3600.0)
    pulse.schedule("early", MOMENT)
    assert done["early"].wait(PATIENCE)
    pulse.schedule("again", MOMENT)
    assert done["again"].wait(PATIENCE)
    assert not done["late"].is_set()
    assert len(_threads(name)) == 1


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
    before = set(_threads("handrail-ledger"))
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
    (thread,) = set(_threads("handrail-ledger")) - before
    del ledger
    gc.collect()
    thread.join(PATIENCE)
    assert not thread.is_alive()
