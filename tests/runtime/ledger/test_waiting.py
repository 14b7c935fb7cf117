"""Those who wait for an effect that another is carrying out."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta

import pytest

from handrail.runtime.ledger.effects import Claimed, NotApplied, NotKnown, Unknown
from handrail.runtime.ledger.ledger import EffectLedger
from handrail.store import EffectRow, LedgerStore, MemoryStore
from handrail.store.protocol import WatchCallback
from handrail.testing import FakeClock
from tests.runtime.ledger_calls import MINUTE, REQUEST, RESULT, busy, claimed, prove_nothing, stop_renewing
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
    assert first.done()
    assert second.done()
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
    died, ledger = EffectLedger(store, clock=clock), EffectLedger(store, clock=clock, jitter=lambda: 0.5)
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


def test_cancelled_waiter_leaves_nothing_behind(clock: FakeClock) -> None:
    """One waiter is one future; cancelled, it is watched for no longer, and the others are still told."""
    store = _Counting(clock)
    ledger = EffectLedger(store, clock=clock)
    claim = claimed(ledger)
    gone, stays = ledger.leases.watch(busy(ledger).row), ledger.leases.watch(busy(ledger).row)
    assert store.watched == 2
    assert gone.cancel()
    assert store.watched == 1
    ledger.end(claim, RESULT)
    assert store.watched == 0
    assert stays.done()
    assert gone.cancelled()
    clock.advance(MINUTE * 2)
    assert ledger.tick() == 0


def test_store_that_cannot_be_watched_is_polled(clock: FakeClock) -> None:
    """Where others may write unseen, the ledger looks again and again, each waiter a little out of step."""
    store = _Counting(clock, poll_every=timedelta(seconds=2))
    jitter = iter([0.5, 1.0, 0.0, 0.5])
    ledger, elsewhere = EffectLedger(store, clock=clock, jitter=jitter.__next__), EffectLedger(store, clock=clock)
    claim = claimed(elsewhere)
    future = ledger.leases.watch(busy(ledger).row)
    for seconds in (2, 3):
        clock.advance(timedelta(seconds=seconds - 0.5))
        assert ledger.tick() == 0
        clock.advance(timedelta(seconds=0.5))
        assert ledger.tick() == 1
    elsewhere.end(claim, RESULT)
    assert not future.done()
    clock.advance(timedelta(seconds=1))
    ledger.tick()
    assert future.done()


def test_polling_goes_on_while_the_store_is_down(
    clock: FakeClock, caplog: pytest.LogCaptureFixture, wording: Wording
) -> None:
    """A store that fails once is asked again; the waiter is told of the change all the same."""
    store = _Counting(clock, poll_every=timedelta(seconds=2))
    ledger, elsewhere = EffectLedger(store, clock=clock, jitter=lambda: 0.5), EffectLedger(store, clock=clock)
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
