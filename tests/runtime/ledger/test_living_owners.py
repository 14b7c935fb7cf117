"""An owner that lives is never an orphan, whatever the clock says: in its process, and seen from another one."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

import handrail.store
from handrail.clock import SYSTEM_CLOCK
from handrail.errors import LedgerError
from handrail.prompt.idempotency import OnOrphan
from handrail.runtime.ledger.effects import Busy, Claimed, NotApplied, Unknown
from handrail.runtime.ledger.ledger import EffectLedger
from handrail.store import LedgerStore, Store
from handrail.testing import FakeClock
from tests.crash.forks import Fork, start
from tests.runtime.ledger_calls import KEY, MINUTE, REQUEST, RESULT, busy, claimed, stop_renewing

LATER = timedelta(hours=2)
ORPHANS: list[OnOrphan] = ["unknown", "retry", "reconcile"]
SLOT = REQUEST._replace(partition="s1", key="call:reply 1/call 1")


@pytest.mark.parametrize("on_orphan", ORPHANS)
def test_claim_of_this_process_lives_past_its_lease(store: LedgerStore, clock: FakeClock, on_orphan: OnOrphan) -> None:
    """Another ledger of the same store finds it busy; its owner completes it."""
    ledger, other = (EffectLedger(store, clock=clock) for _ in range(2))
    claim = claimed(ledger)
    clock.advance(LATER)
    assert isinstance(other.claim(REQUEST._replace(on_orphan=on_orphan)), Busy)
    assert ledger.end(claim, RESULT)


def test_claim_that_lives_is_neither_left_over_nor_to_be_resolved(store: LedgerStore, clock: FakeClock) -> None:
    """Its slot is not listed, and a person cannot record its outcome, until its owner has given it up."""
    ledger, other = (EffectLedger(store, clock=clock) for _ in range(2))
    claim = claimed(ledger, SLOT)
    clock.advance(LATER)
    row = other.row(SLOT.key)
    assert row is not None
    assert other.unresolved_slots("s1", "pay") == ()
    with pytest.raises(LedgerError):
        other.resolve(row, NotApplied())
    stop_renewing(ledger, claim)
    assert other.unresolved_slots("s1", "pay") == (row,)
    assert other.resolve(row, NotApplied())


def test_waiter_waits_for_an_owner_that_lives_past_its_lease(store: LedgerStore, clock: FakeClock) -> None:
    """It is woken when the owner gives the claim up, and asks no store without end until then."""
    ledger, other = (EffectLedger(store, clock=clock, jitter=lambda: 0.5) for _ in range(2))
    claim = claimed(ledger)
    clock.advance(LATER)
    future = other.leases.watch(busy(other).row)
    assert (future.done(), other.tick()) == (False, 0)
    stop_renewing(ledger, claim)
    clock.advance(MINUTE)
    other.tick()
    assert future.done()


def test_ledger_that_is_no_longer_used_leaves_its_claims_to_their_leases(store: LedgerStore, clock: FakeClock) -> None:
    """Nobody else can renew them."""
    ledger = EffectLedger(store, clock=clock)
    claimed(ledger)
    del ledger
    clock.advance(MINUTE)
    assert isinstance(EffectLedger(store, clock=clock).claim(REQUEST), Unknown)


def test_other_store_on_the_same_file_finds_the_claim_alive(tmp_path: Path) -> None:
    """The claims of a process are known to all its stores; with the store, its claims are given up."""
    clock, url = FakeClock(), f"sqlite:///{tmp_path / 'desk.db'}"
    with handrail.store.open(url, clock=clock) as second:
        with handrail.store.open(url, clock=clock) as first:
            ledger = EffectLedger(first, clock=clock)
            claim = claimed(ledger)
            clock.advance(LATER)
            assert isinstance(EffectLedger(second, clock=clock).claim(REQUEST), Busy)
        stop_renewing(ledger, claim)
        assert isinstance(EffectLedger(second, clock=clock).claim(REQUEST), Unknown)


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


def test_claim_that_its_living_owner_has_given_up_becomes_unknown(url: str, later: Store) -> None:
    """From its next beat on its row does not name the process, so that the lease decides."""
    with owner(url) as process:
        process.stdin.write("give up\n")
        process.stdin.flush()
        assert process.stdout.readline() == "given up\n"
        assert isinstance(EffectLedger(later).claim(REQUEST), Unknown)
        row = EffectLedger(later).row(KEY)
        assert row is not None
        assert row.owner.process == ""
