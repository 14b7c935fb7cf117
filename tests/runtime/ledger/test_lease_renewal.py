"""Claims that stay alive by themselves."""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from datetime import datetime, timedelta
from functools import partial

import pytest

from handrail.adapters.loop import session_ledger
from handrail.clock import SYSTEM_CLOCK, Clock
from handrail.errors import LeaseLostError
from handrail.runtime import Session
from handrail.runtime.ledger.effects import Claimed, ClaimRequest, Unknown
from handrail.runtime.ledger.lease_renewal import LeaseRenewer
from handrail.runtime.ledger.ledger import EffectLedger
from handrail.store import EffectRow, LedgerStore, MemoryStore
from handrail.testing import FakeClock
from handrail.transaction import UnitOfWork
from handrail.transaction.unit_of_work import Refusal
from tests.runtime.ledger_calls import MINUTE, REQUEST, RESULT, busy, claimed, prove_nothing, stop_renewing
from tests.store.kit import WriteByWrite

THIRD = MINUTE / 3


def _lease_until(ledger: EffectLedger) -> object:
    row = ledger.row(REQUEST.key)
    return row and row.lease_until


def test_handler_that_hangs_holds_its_key_only_until_the_deadline(ledger: EffectLedger, clock: FakeClock) -> None:
    """Past `beat_until` no sign is given, so the effect becomes an orphan when the last lease has passed."""
    hung = claimed(ledger, REQUEST._replace(beat_until=clock.now() + timedelta(seconds=50)))
    for _ in range(3):
        clock.advance(THIRD)
        ledger.tick()
    clock.advance(MINUTE - THIRD)
    assert ledger.tick() == 0
    assert isinstance(ledger.claim(REQUEST), Unknown)
    assert not ledger.end(hung, RESULT)


def test_claim_that_was_given_up_is_left_to_its_lease(ledger: EffectLedger, clock: FakeClock) -> None:
    """It is not renewed; from its next beat on its row names no process, which would prove that the owner lives."""
    claim = claimed(ledger)
    stop_renewing(ledger, claim)
    clock.advance(THIRD)
    ledger.tick()
    assert ledger.tick() == 0
    assert ledger.row(REQUEST.key) == claim.row._replace(owner=claim.row.owner._replace(process=""))
    clock.advance(MINUTE)
    assert isinstance(ledger.claim(REQUEST), Unknown)


class _SetForward(FakeClock):
    """A clock that is set forward, and whose monotonic time knows nothing of it."""

    ahead = timedelta(0)

    def now(self) -> datetime:
        return super().now() + self.ahead


def test_clock_that_is_set_forward_ends_no_claim() -> None:
    """Neither by the lease, nor by `beat_until`, which is reached when that much time has passed."""
    clock = _SetForward()
    ledger = EffectLedger(MemoryStore(clock=clock), clock=clock)
    claim = claimed(ledger, REQUEST._replace(beat_until=clock.now() + MINUTE))
    clock.ahead = timedelta(hours=2)
    busy(ledger)
    clock.advance(THIRD)
    assert ledger.tick() == 1
    assert _lease_until(ledger) == clock.now() + MINUTE
    assert ledger.end(claim, RESULT)


def test_lost_claim_is_told_at_the_next_sign(ledger: EffectLedger, store: LedgerStore, clock: FakeClock) -> None:
    """An owner that slept past its lease finds out when it gives a sign, and gives no more by itself."""
    claim = claimed(ledger)
    clock.advance(MINUTE)
    prove_nothing(store)
    EffectLedger(store, clock=clock).claim(REQUEST)
    assert ledger.tick() == 1
    assert ledger.tick() == 0
    with pytest.raises(LeaseLostError) as lost:
        ledger.renew(claim)
    assert (lost.value.key, lost.value.fence) == (REQUEST.key, 1)


class _Noting(MemoryStore):
    """A store that notes when a unit is submitted, and when its answer is read."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock=clock)
        self.noted: list[str] = []

    def submit(self, unit: UnitOfWork) -> Future[Refusal | None]:
        self.noted.append("submitted")
        return _Answer(super().submit(unit), self.noted)


class _Answer(Future[Refusal | None]):
    def __init__(self, answer: Future[Refusal | None], noted: list[str]) -> None:
        super().__init__()
        self._answer = answer
        self._noted = noted

    def result(self, timeout: float | None = None) -> Refusal | None:
        self._noted.append("read")
        return self._answer.result(timeout)


def test_leases_that_are_due_together_are_renewed_together(clock: FakeClock) -> None:
    """All are submitted before one is waited for, so that a store can write them in one transaction."""
    store = _Noting(clock)
    ledger = EffectLedger(store, clock=clock)
    for number in range(3):
        assert isinstance(ledger.claim(REQUEST._replace(key=f"key {number}")), Claimed)
    clock.advance(THIRD)
    assert ledger.tick() == 3
    assert store.noted == ["submitted"] * 3 + ["read"] * 3
    assert {row.lease_until for row in store.rows()} == {clock.now() + MINUTE}


def test_sessions_of_one_store_share_a_ledger(clock: FakeClock) -> None:
    """Its thread renews the claims of all; a session in memory, and another clock, have a ledger of their own."""
    store = MemoryStore(clock=clock)
    with Session.open(store, "a") as first, Session.open(store, "b") as second:
        ledger = session_ledger(first, clock=clock)
        assert ledger.store is store
        assert session_ledger(second, clock=clock) is ledger
        assert session_ledger(second, clock=FakeClock()) is not ledger
    assert session_ledger(Session(), clock=clock) is not session_ledger(Session(), clock=clock)


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
