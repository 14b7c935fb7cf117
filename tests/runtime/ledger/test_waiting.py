"""Those who wait for an effect that another is carrying out."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import timedelta

import pytest

import handrail.store
from handrail.clock import SYSTEM_CLOCK
from handrail.errors import LedgerError, StoreUnavailableError
from handrail.prompt.idempotency import OnOrphan
from handrail.runtime.ledger.effects import Busy, Claimed, NotApplied, NotKnown, Unknown
from handrail.runtime.ledger.ledger import EffectLedger
from handrail.store import EffectRow, LedgerStore, MemoryStore, Store
from handrail.store.protocol import RefusedWrite, WatchCallback
from handrail.testing import FakeClock
from handrail.transaction import UnitOfWork
from tests.crash.forks import Fork, start
from tests.runtime.kit import present
from tests.runtime.ledger_calls import KEY, MINUTE, REQUEST, RESULT, busy, claimed, prove_nothing, stop_renewing
from tests.wording import Wording

PATIENCE = 60.0  # seconds after which a test that waits for an event gives up


ENDINGS: dict[str, Callable[[EffectLedger, Claimed], object]] = {
    "completed": lambda ledger, claim: ledger.end(claim, RESULT),
    "failed": lambda ledger, claim: ledger.end(claim, NotApplied()),
    "unknown": lambda ledger, claim: ledger.end(claim, NotKnown("timed out")),
}


@pytest.mark.parametrize("end", ENDINGS.values(), ids=ENDINGS)
def test_waiter_is_told_of_the_end(ledger: EffectLedger, end: Callable[[EffectLedger, Claimed], object]) -> None:
    """The future is done as soon as the row is no longer running, however it ended."""
    claim = claimed(ledger)
    first, second = ledger.leases.watch(busy(ledger).row), ledger.leases.watch(busy(ledger).row)
    assert not first.done()
    end(ledger, claim)
    assert (first.done(), second.done()) == (True, True)
    assert first.result() is None


def test_waiter_who_comes_too_late_is_told_at_once(ledger: EffectLedger) -> None:
    """A change between being told "busy" and waiting is not missed."""
    claim = claimed(ledger)
    told = busy(ledger)
    ledger.end(claim, RESULT)
    assert ledger.leases.watch(told.row).done()


def _remove_and_claim(ledger: EffectLedger) -> None:
    ledger.clear(force=True)
    claimed(ledger)


SUCCESSIONS: dict[str, Callable[[EffectLedger], object]] = {
    "taken over": lambda ledger: claimed(ledger, REQUEST._replace(on_orphan="retry")),
    "removed and claimed anew": _remove_and_claim,
}


@pytest.mark.parametrize("poll_every", [None, timedelta(seconds=1)], ids=["watched", "polled"])
@pytest.mark.parametrize("succeed", SUCCESSIONS.values(), ids=SUCCESSIONS)
def test_waiter_is_told_of_another_owner(
    clock: FakeClock, succeed: Callable[[EffectLedger], object], poll_every: timedelta | None
) -> None:
    """A row that is running still, or again, but for another owner has changed."""
    store = _Counting(clock, poll_every=poll_every)
    died, ledger = EffectLedger(store, clock=clock), EffectLedger(store, clock=clock)
    claimed(died)
    told = busy(ledger)
    future = ledger.leases.watch(told.row)
    prove_nothing(store)
    clock.advance(MINUTE)
    succeed(EffectLedger(store, clock=clock))
    assert ledger.leases.watch(told.row).done()
    ledger.tick()
    assert future.done()


def test_waiter_is_not_told_of_a_sign_of_life(ledger: EffectLedger, clock: FakeClock) -> None:
    """While the owner works, there is nothing to come back for, however long that takes."""
    claim = claimed(ledger)
    future = ledger.leases.watch(busy(ledger).row)
    for _ in range(9):
        clock.advance(MINUTE / 3)
        ledger.tick()
    assert not future.done()
    ledger.end(claim, RESULT)
    assert future.done()


def test_waiter_is_told_when_the_lease_has_passed(ledger: EffectLedger, store: LedgerStore, clock: FakeClock) -> None:
    """A dead owner keeps nobody waiting beyond its lease."""
    died = EffectLedger(store, clock=clock)
    stop_renewing(died, claimed(died))
    future = ledger.leases.watch(busy(ledger).row)
    clock.advance(MINUTE - timedelta(seconds=1))
    ledger.tick()
    assert not future.done()
    clock.advance(timedelta(seconds=1))
    ledger.tick()
    assert future.done()
    assert ledger.tick() == 0
    assert isinstance(ledger.claim(REQUEST), Unknown)


def test_waiter_that_looks_after_the_lease_is_told_at_once(ledger: EffectLedger, clock: FakeClock) -> None:
    """A lease that passes between being told "busy" and waiting is not waited for."""
    stop_renewing(ledger, claimed(ledger))
    told = busy(ledger)
    clock.advance(MINUTE)
    assert ledger.leases.watch(told.row).done()


def test_polling_goes_on_while_the_store_is_down(
    clock: FakeClock, caplog: pytest.LogCaptureFixture, wording: Wording
) -> None:
    """A store that fails once is asked again; the waiter is told of the change all the same."""
    store = _Counting(clock, poll_every=timedelta(seconds=2))
    ledger, elsewhere = EffectLedger(store, clock=clock), EffectLedger(store, clock=clock)
    claim = claimed(elsewhere)
    future = ledger.leases.watch(busy(ledger).row)
    elsewhere.end(claim, RESULT)
    store.fails = 1
    clock.advance(timedelta(seconds=2))
    with caplog.at_level(logging.WARNING):
        ledger.tick()
    assert caplog.messages == wording
    assert not future.done()
    clock.advance(timedelta(seconds=1))
    ledger.tick()
    assert future.done()


def test_wait_that_cannot_begin_leaves_nothing_behind(clock: FakeClock) -> None:
    """Where the store is down, whoever would wait is told so, and is watched for no longer."""
    store = _Counting(clock)
    ledger = EffectLedger(store, clock=clock)
    claimed(ledger)
    told = busy(ledger)
    store.fails = 1
    with pytest.raises(ConnectionError):
        ledger.leases.watch(told.row)
    assert store.watched == 0


def test_change_while_the_wait_begins_is_not_missed(clock: FakeClock) -> None:
    """A row that changes after it was looked at, and before the wait has begun, ends the wait at once."""
    store = _Counting(clock)
    ledger = EffectLedger(store, clock=clock)
    claim = claimed(ledger)
    told = busy(ledger)
    store.after_get = lambda: ledger.end(claim, RESULT)
    assert ledger.leases.watch(told.row).done()
    clock.advance(MINUTE * 2)
    assert ledger.tick() == 0


class _Counting(MemoryStore):
    """A store that counts its watchers, tells them nothing if it is to be polled, and may fail to answer."""

    def __init__(self, clock: FakeClock, *, poll_every: timedelta | None = None) -> None:
        super().__init__(clock=clock)
        self.poll_every = poll_every
        self.watched = 0
        self.fails = 0
        self.after_get: Callable[[], object] = bool

    def get(self, partition: str, key: str) -> EffectRow | None:
        if self.fails:
            self.fails -= 1
            raise ConnectionError("the store is down")
        row = super().get(partition, key)
        self.after_get()
        return row

    def watch(self, partition: str, key: str, wake: WatchCallback) -> Callable[[], None]:
        self.watched += 1
        stop = super().watch(partition, key, wake) if self.poll_every is None else bool

        def stop_once() -> None:
            self.watched -= 1
            stop()

        return stop_once


class Interrupted(MemoryStore):
    """A store that has written a unit when Ctrl-C comes, and may be down afterwards."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock=clock)
        self.interrupts = False
        self.is_down = False
        self.ends_down = False

    def apply(self, unit: UnitOfWork) -> RefusedWrite | None:
        """Write, and be interrupted once."""
        if self.is_down:
            raise StoreUnavailableError("no line", store="memory:")
        refused = super().apply(unit)
        if self.interrupts and refused is None:
            self.interrupts, self.is_down = False, self.ends_down
            raise KeyboardInterrupt
        return refused


@pytest.fixture
def faulty_store(clock: FakeClock) -> Interrupted:
    """A faulty_store that is not interrupted yet."""
    return Interrupted(clock)


@pytest.fixture
def faulty_ledger(faulty_store: Interrupted, clock: FakeClock) -> EffectLedger:
    """A faulty_ledger over it."""
    return EffectLedger(faulty_store, clock=clock)


def status(faulty_ledger: EffectLedger) -> str:
    """The status of the effect."""
    row = present(faulty_ledger.row(KEY))
    return row.status


def test_first_claim_is_recorded_as_failed(faulty_store: Interrupted, faulty_ledger: EffectLedger) -> None:
    """The effect has not happened, and the same call may run."""
    faulty_store.interrupts = True
    with pytest.raises(KeyboardInterrupt):
        faulty_ledger.claim(REQUEST)
    assert status(faulty_ledger) == "failed"
    claimed(faulty_ledger)


def test_claim_of_an_effect_that_may_have_happened_leaves_it_unknown(
    faulty_store: Interrupted, faulty_ledger: EffectLedger
) -> None:
    """What an earlier attempt did is not known, though this one did nothing."""
    assert faulty_ledger.end(claimed(faulty_ledger), NotKnown("no answer"))
    faulty_store.interrupts = True
    with pytest.raises(KeyboardInterrupt):
        faulty_ledger.claim(REQUEST._replace(on_orphan="retry"))
    assert status(faulty_ledger) == "unknown"


def test_finding_that_an_owner_is_gone_is_not_withdrawn(
    faulty_store: Interrupted, faulty_ledger: EffectLedger, clock: FakeClock
) -> None:
    """It is no claim: the effect is unknown, whoever has found that."""
    claimed(faulty_ledger)
    prove_nothing(faulty_store)
    clock.advance(2 * MINUTE)
    faulty_store.interrupts = True
    with pytest.raises(KeyboardInterrupt):
        faulty_ledger.claim(REQUEST)
    assert status(faulty_ledger) == "unknown"


def test_claim_that_cannot_be_withdrawn_is_left_to_its_lease(
    faulty_store: Interrupted, faulty_ledger: EffectLedger, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The interrupt is raised, and the faulty_store is said to have failed."""
    faulty_store.interrupts = faulty_store.ends_down = True
    with pytest.raises(KeyboardInterrupt):
        faulty_ledger.claim(REQUEST)
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [StoreUnavailableError]
    faulty_store.is_down = False
    assert status(faulty_ledger) == "running"


LATER = timedelta(hours=2)


ORPHANS: list[OnOrphan] = ["unknown", "retry", "reconcile"]


SLOT = REQUEST._replace(partition="s1", key="call:reply 1/call 1")


def test_claim_that_lives_is_neither_left_over_nor_to_be_resolved(store: LedgerStore, clock: FakeClock) -> None:
    """Its slot is not listed, and a person cannot record its outcome, until its owner has given it up."""
    ledger, other = (EffectLedger(store, clock=clock) for _ in range(2))
    claim = claimed(ledger, SLOT)
    clock.advance(LATER)
    row = present(other.row(SLOT.key))
    assert other.unresolved_slots("s1", "pay") == ()
    with pytest.raises(LedgerError):
        other.resolve(row, NotApplied())
    stop_renewing(ledger, claim)
    assert other.unresolved_slots("s1", "pay") == (row,)
    assert other.resolve(row, NotApplied())


def test_waiter_waits_for_an_owner_that_lives_past_its_lease(store: LedgerStore, clock: FakeClock) -> None:
    """It is woken when the owner gives the claim up, and asks no store without end until then."""
    ledger, other = (EffectLedger(store, clock=clock) for _ in range(2))
    claim = claimed(ledger)
    clock.advance(LATER)
    future = other.leases.watch(busy(other).row)
    assert (future.done(), other.tick()) == (False, 0)
    stop_renewing(ledger, claim)
    clock.advance(MINUTE)
    other.tick()
    assert future.done()


@contextmanager
def owner(url: str) -> Generator[Fork]:
    """Another process, which holds the claim."""
    with start("tests.runtime.ledger.claim_child", url) as process:
        assert process.stdout.readline() == "claimed\n"
        yield process


@pytest.fixture
def later(url: str) -> Generator[Store]:
    """The same store, opened in this process, where it is two hours later."""
    with handrail.store.open(url, clock=FakeClock(SYSTEM_CLOCK.now() + LATER)) as store:
        yield store


@pytest.mark.parametrize("on_orphan", ORPHANS)
def test_claim_of_another_process_lives_until_that_is_killed(url: str, later: Store, on_orphan: OnOrphan) -> None:
    """Then it is an orphan at once."""
    request = REQUEST._replace(on_orphan=on_orphan)
    with owner(url) as process:
        assert isinstance(EffectLedger(later).claim(request), Busy)
        process.kill()
        process.watch(os.WEXITED)
        answer = EffectLedger(later).claim(request)
        assert isinstance(answer, Claimed if on_orphan == "retry" else Unknown)
