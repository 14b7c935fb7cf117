"""The idempotency ledger as document 000 tells of it: strategies, keys, operations, expiry."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest

from handrail.prompt import IdempotencyConfig, Tool, ToolContext, ToolResult
from handrail.runtime import EffectLedger, Session, ToolEffect
from handrail.testing import FakeClock, run_tool
from tests.documents.surroundings import Params, Result, run

pytestmark = pytest.mark.requirement("M-01")

HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Order:
    order_id: str = "123"
    idempotency_token: str = "token-abc"  # noqa: S105 - the word of the document
    amount: int = 1


@pytest.fixture
def clock() -> FakeClock:
    """A clock that is told the time."""
    return FakeClock()


@pytest.fixture
def ledger(clock: FakeClock) -> EffectLedger:
    """A ledger by that clock."""
    return EffectLedger(clock=clock)


def record(ledger: EffectLedger, key: str = "session:create_order:1", **more: Any) -> ToolEffect | None:
    """Record a result under a key, as the block does."""
    given: dict[str, Any] = {"tool_name": "create_order", "params": Order(), "result": ToolResult.ok("made", "done")}
    return ledger.record(idempotency_key=key, **{**given, **more})


@pytest.mark.parametrize(
    "config, key, same, other",
    [
        (IdempotencyConfig(strategy="auto"), r"session:create_order:[0-9a-f]{12}", {}, {"amount": 2}),
        (
            IdempotencyConfig(strategy="params", param_keys=("order_id",)),
            r"session:create_order:[0-9a-f]{12}",
            {"amount": 2},
            {"order_id": "124"},
        ),
        (
            IdempotencyConfig(strategy="custom", key_fn=lambda p: f"order:{p.order_id}:{p.idempotency_token}"),
            r"session:order:123:token-abc",
            {"amount": 2},
            {"idempotency_token": "token-abd"},
        ),
    ],
    ids=["auto", "params", "custom"],
)
def test_strategies_make_keys_of_the_documented_form(
    config: IdempotencyConfig, key: str, same: dict[str, Any], other: dict[str, Any]
) -> None:
    """The table of strategies: what contributes to the key, and how keys look."""
    made = config.key_for("create_order", Order())
    assert made is not None
    assert re.fullmatch(key, made)
    assert config.key_for("create_order", replace(Order(), **same)) == made
    assert config.key_for("create_order", replace(Order(), **other)) != made


def test_strategy_none_always_executes() -> None:
    """There is no key, and two equal calls run twice."""
    assert IdempotencyConfig(strategy="none").key_for("create_order", Order()) is None
    assert calls_of(IdempotencyConfig(strategy="none")) == 2


def test_auto_is_the_default_and_executes_once() -> None:
    """Strategy, scope and time to live are those of the document."""
    config = IdempotencyConfig()
    assert (config.strategy, config.scope, config.ttl) == ("auto", "session", timedelta(hours=24))
    assert calls_of(config) == 1


def calls_of(config: IdempotencyConfig) -> int:
    """How often the handler of a tool runs that is called twice with the same arguments."""
    runs: list[Order] = []

    def create(params: Order, *, context: ToolContext) -> ToolResult[str]:
        runs.append(params)
        return ToolResult.ok("made")

    tool = Tool[Order, str](name="create_order", description="Creates.", handler=create, idempotency=config)
    session, ledger = Session(), EffectLedger()
    for _ in range(2):
        assert run_tool(tool, Order(), session=session, effect_ledger=ledger).success
    return len(runs)


def test_the_configuration_of_the_block_is_that_of_its_tool() -> None:
    """A tool takes `idempotency=`, and a result lasts as long as it says."""
    tool = run("000.16")["tool"]
    assert tool.idempotency == IdempotencyConfig(strategy="auto", ttl=HOUR, scope="session")


def test_the_ledger_block_finds_nothing_and_records() -> None:
    """What it has recorded is found under the same key, with everything that `ToolEffect` has."""
    names = run("000.18")
    assert names["effect"] is None
    effect = names["ledger"].lookup("session:create_order:abc123")
    assert (effect.idempotency_key, effect.tool_name) == ("session:create_order:abc123", "create_order")
    assert (effect.result_message, effect.result_value) == ("order made", {"answer": "made"})
    assert effect.result_success
    assert effect.expires_at - effect.created_at == HOUR
    assert re.fullmatch("[0-9a-f]{64}", effect.params_hash)


def test_the_ledger_block_answers_from_the_ledger_where_there_is_something(monkeypatch: pytest.MonkeyPatch) -> None:
    """The branch of the block that returns."""
    filled = EffectLedger()
    record(filled, "session:create_order:abc123", params=Params(), result=ToolResult.ok(Result("made"), "made before"))
    monkeypatch.setattr("handrail.runtime.EffectLedger", lambda: filled)
    assert run("000.18")["returned"] == "made before"


@pytest.mark.parametrize(
    "method, arguments",
    [("invalidate", ("session:create_order:1",)), ("invalidate_by_tool", ("create_order",)), ("clear", ())],
)
def test_entries_are_removed_on_request(ledger: EffectLedger, method: str, arguments: tuple[str, ...]) -> None:
    """One entry, those of a tool, all."""
    record(ledger)
    assert ledger.lookup("session:create_order:1") is not None
    assert getattr(ledger, method)(*arguments) == 1
    assert ledger.lookup("session:create_order:1") is None


def test_what_is_removed_is_what_was_named(ledger: EffectLedger) -> None:
    """Other keys, and those of other tools, stay."""
    record(ledger)
    record(ledger, "session:pay:1", tool_name="pay")
    assert not ledger.invalidate("session:create_order:2")
    assert ledger.invalidate_by_tool("create_order") == 1
    assert [row.tool for row in ledger.rows()] == ["pay"]


def test_results_expire_and_are_removed_when_looked_up_or_pruned(ledger: EffectLedger, clock: FakeClock) -> None:
    """`ttl=None` never expires; a lookup removes what has expired, `prune_expired` all of it."""
    for key, ttl in (("short", HOUR), ("shorter", HOUR / 2), ("day", timedelta(hours=24)), ("ever", None)):
        record(ledger, key, ttl=ttl)
    clock.advance(HOUR)
    assert ledger.lookup("short") is None
    assert sorted(row.key for row in ledger.rows()) == ["day", "ever", "shorter"]
    assert ledger.prune_expired() == 1
    clock.advance(timedelta(days=36_500))
    assert ledger.lookup("day") is None
    assert ledger.lookup("ever") is not None


def test_the_default_time_to_live_is_a_day(ledger: EffectLedger) -> None:
    """24 hours, unless something else is said."""
    effect = record(ledger)
    assert effect is not None
    assert effect.expires_at is not None
    assert effect.expires_at - effect.created_at == timedelta(hours=24)


def test_only_successes_are_recorded(ledger: EffectLedger) -> None:
    """A failed call may be tried again."""
    assert record(ledger, result=ToolResult.error("no")) is None
    assert ledger.lookup("session:create_order:1") is None


def test_scopes_partition_keys() -> None:
    """Scope `session` belongs to one session; another word is shared by all that use the ledger."""
    runs: list[Order] = []

    def create(params: Order, *, context: ToolContext) -> ToolResult[str]:
        runs.append(params)
        return ToolResult.ok("made")

    for scope, expected in (("session", 2), ("global", 1)):
        runs.clear()
        config = IdempotencyConfig(scope=scope)
        tool = Tool[Order, str](name="create_order", description="Creates.", handler=create, idempotency=config)
        ledger = EffectLedger()
        for session in (Session(), Session()):
            run_tool(tool, Order(), session=session, effect_ledger=ledger)
        assert len(runs) == expected
