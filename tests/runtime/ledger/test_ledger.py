"""The ledger as a cache of results, and the traps that such caches fall into."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import Any
from uuid import UUID

import pytest

from handrail.errors import LedgerError
from handrail.prompt import IdempotencyConfig, Tool, ToolContext, ToolResult
from handrail.runtime import ToolCall
from handrail.runtime.ledger.effects import (
    Busy,
    Conflict,
    EffectResult,
    NotApplied,
    NotKnown,
    ToolEffect,
    Unknown,
)
from handrail.runtime.ledger.ledger import EffectLedger
from handrail.store import ClaimOwner, EffectRow
from handrail.testing import FakeClock
from tests.kit import executor
from tests.runtime.ledger_calls import KEY, PAYMENT, REQUEST, Payment, claimed, hit, record, stop_renewing
from tests.store.kit import WriteByWrite, insert
from tests.wording import Wording

HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def test_failed_result_is_not_recorded(ledger: EffectLedger) -> None:
    """Only successful executions are cached."""
    assert record(ledger, result=ToolResult("no stock", None, success=False)) is None
    assert list(ledger.rows()) == []


def test_span_that_is_none_is_refused(ledger: EffectLedger, wording: Wording) -> None:
    """A result that would have expired already is not recorded."""
    with pytest.raises(ValueError) as raised:
        record(ledger, ttl=timedelta(0))
    assert str(raised.value) == wording
    assert ledger.row(KEY) is None


@pytest.mark.parametrize("partition", ["", "s1"])
def test_key_that_one_partition_has_is_found_without_it(ledger: EffectLedger, partition: str) -> None:
    """By `row`, `lookup` and `invalidate`, in every scope; other keys of other partitions do not count."""
    kept = record(ledger, partition=partition)
    record(ledger, "other", partition="s2")
    row = ledger.row(KEY)
    assert row is not None
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
        with pytest.raises(LedgerError) as caught:
            ask(KEY)
        assert str(caught.value) == wording
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
    assert ledger.invalidate(gone.key, force=True)
    clock.advance(REQUEST.lease)
    assert ledger.unresolved_slots("", "pay") == ()


def test_life_of_a_result_starts_with_its_completion(ledger: EffectLedger, clock: FakeClock) -> None:
    """A handler that takes longer than the ttl still leaves a result that lasts as long as promised."""
    claim = claimed(ledger)
    clock.advance(HOUR * 3)
    assert ledger.end(claim, EffectResult("paid"), ttl=HOUR)
    clock.advance(HOUR - timedelta(microseconds=1))
    assert hit(ledger) == EffectResult("paid")


class _Crowded(WriteByWrite):
    """A store in which others are quicker: what stands changes before each of the next writes."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock=clock)
        self.others: list[EffectRow | None] = []

    def replace(self, seen: EffectRow, row: EffectRow) -> bool:
        self._be_quicker(seen)
        return super().replace(seen, row)

    def delete(self, seen: EffectRow) -> bool:
        self._be_quicker(seen)
        return super().delete(seen)

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
    failed = ledger.row(KEY)
    assert failed is not None
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
    assert busy == wording
    assert conflict == wording
    assert unknown == wording
    assert Unknown(ROW).message == wording


def test_a_call_that_runs_is_not_asked_for_again(wording: Wording) -> None:
    """Its slot belongs to its identity: an equal call would have another one, and be another effect."""
    assert Busy(ROW._replace(key="call:r/c", status="running")).message == wording


def test_unreadable_value_is_unavailable() -> None:
    """The effect is done all the same; it is never taken for one whose value is None."""
    found = ToolEffect.of(ROW._replace(value=b'{"a":'))
    assert (found.result_success, found.result_value, found.value_unavailable) == (True, None, True)
