"""The ledger as a cache of results, the traps that such caches fall into, and claims that stay alive by themselves."""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import FrozenInstanceError
from datetime import UTC, datetime, timedelta
from functools import partial
from operator import attrgetter
from typing import Any
from uuid import UUID

import pytest

from handrail.adapters.loop import session_ledger
from handrail.clock import SYSTEM_CLOCK, Clock
from handrail.errors import LeaseLostError, LedgerError
from handrail.prompt import IdempotencyConfig, Tool, ToolContext, ToolResult
from handrail.runtime import Session, ToolCall
from handrail.runtime.ledger.effects import (
    Busy,
    Claimed,
    ClaimRequest,
    Conflict,
    EffectResult,
    NotApplied,
    NotKnown,
    ToolEffect,
    Unknown,
)
from handrail.runtime.ledger.lease_renewal import LeaseRenewer
from handrail.runtime.ledger.ledger import EffectLedger
from handrail.store import ClaimOwner, EffectRow, LedgerStore, MemoryStore
from handrail.testing import FakeClock
from tests.kit import executor, raises
from tests.runtime.kit import expect, present
from tests.runtime.ledger_calls import (
    KEY,
    MINUTE,
    PAYMENT,
    REQUEST,
    RESULT,
    Payment,
    busy,
    claimed,
    hit,
    prove_nothing,
    record,
    stop_renewing,
)
from tests.store.kit import WriteByWrite, insert
from tests.wording import Wording

HOUR, DAY = timedelta(hours=1), timedelta(days=1)


@pytest.mark.parametrize("partition", ["", "s1"])
def test_key_that_one_partition_has_is_found_without_it(ledger: EffectLedger, partition: str) -> None:
    """By `row`, `lookup` and `invalidate`, in every scope; other keys of other partitions do not count."""
    kept = record(ledger, partition=partition)
    record(ledger, "other", partition="s2")
    row = present(ledger.row(KEY))
    assert row.partition == partition
    assert ledger.lookup(KEY) == kept
    assert ledger.invalidate(KEY)
    assert (ledger.row(KEY), ledger.lookup(KEY), ledger.invalidate(KEY)) == (None, None, False)
    assert [row.key for row in ledger.rows()] == ["other"]


def test_key_that_several_partitions_have_is_refused_without_one(ledger: EffectLedger, wording: Wording) -> None:
    """The error names the partitions; nothing is removed."""
    for partition in ("", "s1", "s2"):
        record(ledger, partition=partition)
    for ask in (ledger.row, ledger.lookup, ledger.invalidate):
        with raises(LedgerError, wording):
            ask(KEY)
    assert len(list(ledger.rows())) == 3


@pytest.mark.parametrize("strategy", ["auto", "params", "custom"])
@pytest.mark.parametrize("scope", ["session", "prompt", "global"])
def test_key_for_names_what_an_executor_has_recorded(strategy: Any, scope: str) -> None:
    """Of every strategy and scope: `lookup` finds the effect, and after `invalidate` it happens again."""
    options: dict[str, Any] = {"params": {"param_keys": ["order_id"]}, "custom": {"key_fn": attrgetter("order_id")}}
    config = IdempotencyConfig(strategy=strategy, scope=scope, **options.get(strategy, {}))
    effects: list[str] = []

    def pay(params: Payment, *, context: ToolContext) -> ToolResult[str]:
        effects.append(params.order_id)
        return ToolResult.ok("paid")

    tool = Tool[Payment, str](name="pay", description="Pay.", handler=pay, effect="external", idempotency=config)
    ledger = EffectLedger()
    door = executor(tool, effect_ledger=ledger)
    key = config.key_for("pay", PAYMENT) or ""
    for number, _ in enumerate(range(2), 1):
        door.execute(ToolCall(f"c{number}", "pay", {"order_id": "7"}), reply="r")
        assert len(effects) == number
        assert ledger.lookup(key) is not None
        assert ledger.invalidate(key)


def test_running_and_unknown_effects_are_never_dropped_silently(ledger: EffectLedger, clock: FakeClock) -> None:
    """No time that passes, no pruning and no clearing forgets an effect that may happen or have happened."""
    running = claimed(ledger)
    stop_renewing(ledger, running)
    unknown = claimed(ledger, REQUEST._replace(key="unknown"))
    ledger.end(unknown, NotKnown("timed out"))
    record(ledger, "done", ttl=HOUR)
    clock.advance(timedelta(days=10_000))
    assert ledger.prune_expired() == 1
    assert (ledger.clear(), ledger.invalidate_by_tool("pay")) == (0, 0)
    assert sorted(row.status for row in ledger.rows()) == ["running", "unknown"]
    assert ledger.invalidate_by_tool("pay", force=True) == 2
    claimed(ledger)
    assert ledger.clear(force=True) == 1


def test_slots_that_were_given_up_are_unresolved_for_their_session_and_tool_alone(
    ledger: EffectLedger, clock: FakeClock
) -> None:
    """The store has noted none of them, because they were claimed after it was asked and have run since."""
    owners = [(partition, tool) for partition in ("s1", "s2", "s3") for tool in ("buy", "pay", "send")]
    assert [ledger.unresolved_slots(*owner) for owner in owners] == [()] * len(owners)
    for partition, tool_name in owners:
        for key in ("call:", "declared:"):
            stop_renewing(
                ledger, claimed(ledger, REQUEST._replace(partition=partition, tool=tool_name, key=f"{key}{tool_name}"))
            )
    clock.advance(REQUEST.lease)
    for owner in owners:
        found = [(row.partition, row.tool, row.key) for row in ledger.unresolved_slots(*owner)]
        assert found == [(*owner, f"call:{owner[1]}")]


def test_a_slot_that_was_given_up_and_settled_since_is_not_unresolved(ledger: EffectLedger, clock: FakeClock) -> None:
    """It has failed, was done or was removed: nothing has to be found out about it."""
    assert ledger.unresolved_slots("", "pay") == ()
    failed, done, gone = (claimed(ledger, REQUEST._replace(key=f"call:{number}")) for number in range(3))
    for claim in (failed, done, gone):
        stop_renewing(ledger, claim)
    assert ledger.end(failed, NotApplied())
    assert ledger.end(done, EffectResult("paid"))
    assert ledger.invalidate(gone.row.key, force=True)
    clock.advance(REQUEST.lease)
    assert ledger.unresolved_slots("", "pay") == ()


class _Crowded(WriteByWrite):
    """A store in which others are quicker: what stands changes before each of the next writes."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock=clock)
        self.others: list[EffectRow | None] = []

    def replace(self, before: EffectRow, row: EffectRow) -> bool:
        self._be_quicker(before)
        return super().replace(before, row)

    def delete(self, before: EffectRow) -> bool:
        self._be_quicker(before)
        return super().delete(before)

    def _be_quicker(self, seen: EffectRow) -> None:
        if self.others:
            super().delete(seen)
            other = self.others.pop(0)
            if other is not None:
                super().insert(other)


def test_whoever_is_too_late_decides_anew() -> None:
    """Where another has changed the row between reading and writing, the ledger reads it again."""
    clock = FakeClock()
    store = _Crowded(clock)
    ledger = EffectLedger(store, clock=clock)
    ledger.end(claimed(ledger), NotApplied())
    failed = present(ledger.row(KEY))
    done = failed._replace(status="done", fence=2, value=b"1", message="by another")
    store.others = [failed._replace(fence=5), done]
    assert hit(ledger) == EffectResult("by another", b"1")
    store.others = [done._replace(fence=3), None]
    assert not ledger.invalidate(KEY)
    insert(store, failed)
    store.others = [done]
    kept = record(ledger)
    assert kept == ledger.lookup(KEY)
    assert hit(ledger) == EffectResult("by another", b"1")


NOW = datetime(2026, 1, 1, tzinfo=UTC)


ROW = EffectRow("s1", "session:pay:1", "0" * 31 + "7", "pay", "a" * 64, ClaimOwner(), "done", 3, NOW, completed_at=NOW)


def test_effect_has_the_fields_of_the_documents() -> None:
    """A done row becomes the record that the documents describe, and nobody can change it."""
    later = NOW + timedelta(hours=1)
    row = ROW._replace(message="paid", value=b"{}", completed_at=later, expires_at=later, created_at=NOW)
    effect = ToolEffect.of(row)
    assert effect == ToolEffect(
        idempotency_key="session:pay:1",
        tool_name="pay",
        params_hash="a" * 64,
        result_message="paid",
        result_value={},
        result_success=True,
        created_at=later,
        expires_at=later,
        effect_id=UUID(int=7),
        partition="s1",
    )
    with pytest.raises(FrozenInstanceError):
        effect.result_message = "changed"  # type: ignore[misc]


def test_refusals_tell_the_model_what_to_do(wording: Wording) -> None:
    """Each names the tool and the key, says that nothing was run, and what would be right."""
    busy, conflict = Busy(ROW).message, Conflict(ROW).message
    unknown = Unknown(ROW._replace(status="unknown", note="its owner (call 1) gave no sign in time")).message
    assert all("pay" in message and "session:pay:1" in message for message in (busy, conflict, unknown))
    assert (busy, conflict, unknown, Unknown(ROW).message) == (wording, wording, wording, wording)


def test_a_call_that_runs_is_not_asked_for_again(wording: Wording) -> None:
    """Its slot belongs to its identity: an equal call would have another one, and be another effect."""
    assert Busy(ROW._replace(key="call:r/c", status="running")).message == wording


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
        pulses.append(LeaseRenewer(MemoryStore(), clock=clock))
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
    assert (done["late"].is_set(), len(_threads() - before)) == (False, 1)


class _Beaten(WriteByWrite):
    """A store that says when a lease has been extended twice."""

    def __init__(self) -> None:
        super().__init__()
        self.extended = threading.Semaphore(0)

    def replace(self, before: EffectRow, row: EffectRow) -> bool:
        kept = super().replace(before, row)
        self.extended.release()
        return kept


def test_ledgers_thread_keeps_a_claim_alive_and_ends_with_the_ledger() -> None:
    """A claim is extended in real time by nobody's doing; when the ledger is gone, so is its thread."""
    before = _threads()
    store = _Beaten()
    ledger = EffectLedger(store)
    claim = expect(Claimed, ledger.claim(ClaimRequest("s1", "key", "pay", "a" * 64, lease=timedelta(milliseconds=3))))
    assert all(store.extended.acquire(timeout=PATIENCE) for _ in range(3))
    row = present(ledger.row("key", partition="s1"))
    assert row.lease_until is not None
    assert claim.row.lease_until is not None
    assert row.lease_until > claim.row.lease_until
    (thread,) = _threads() - before
    del ledger
    gc.collect()
    thread.join(PATIENCE)
    assert not thread.is_alive()
