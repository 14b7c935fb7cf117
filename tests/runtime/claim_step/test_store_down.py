"""A store that is down: before the handler nothing is done, after it nothing is done twice."""

from __future__ import annotations

import pytest

from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import RecordingError
from handrail.prompt import ToolContext, ToolResult
from handrail.runtime import EffectLedger, IdempotencyConfig
from handrail.store.memory import MemoryStore
from handrail.store.protocol import EffectRow
from tests.kit import Note, Run, both_ways, call, executor, tool
from tests.store.kit import WriteByWrite
from tests.wording import Wording


def door_of(done: list[str], store: MemoryStore) -> ToolExecutor:
    """An executor with one external tool, `pay`, which keeps account of what it did."""

    def pay(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        done.append(params.text)
        return ToolResult.ok(params)

    paying = tool("pay", pay, effect="external", idempotency=IdempotencyConfig(strategy="custom", key_fn=lambda _: "A"))
    return executor(paying, effect_ledger=EffectLedger(store))


class FailingStore(WriteByWrite):
    """A store that is down at certain moments."""

    def __init__(self) -> None:
        super().__init__()
        self.down: set[str] = set()
        self.fails = 0

    def insert(self, row: EffectRow) -> EffectRow | None:
        self._check("insert")
        return super().insert(row)

    def replace(self, seen: EffectRow, row: EffectRow) -> bool:
        self._check("replace")
        if self.fails:
            self.fails -= 1
            raise OSError("disk gone")
        return super().replace(seen, row)

    def _check(self, what: str) -> None:
        if what in self.down:
            raise OSError("disk gone")


@both_ways
def test_a_store_that_is_down_before_the_handler_keeps_it_from_running(way: Run) -> None:
    """Fail closed: what cannot be recorded is not done."""
    store, done = FailingStore(), list[str]()
    store.down = {"insert"}
    door = door_of(done, store)
    assert not way(door, call("pay", "A")).success
    assert done == []


@both_ways
def test_a_store_that_is_down_after_the_handler_says_that_it_was_done(way: Run, wording: Wording) -> None:
    """The effect has happened and the run ends; the state is undone."""
    store, done = FailingStore(), list[str]()
    door = door_of(done, store)
    store.down = {"replace"}
    with pytest.raises(RecordingError) as raised:
        way(door, call("pay", "A"))
    assert str(raised.value) == wording
    assert raised.value.effect == "unknown"
    assert door.environment.session[Note].all() == ()
    row = door.environment.effect_ledger.row("session:A", partition="s")
    assert row is not None
    assert row.status == "running"


@both_ways
@pytest.mark.parametrize("fails, recorded", [(2, True), (3, False)])
def test_an_effect_is_recorded_in_three_attempts(way: Run, fails: int, recorded: bool) -> None:
    """A store that fails twice costs nothing; after the third time the effect is left to its lease."""
    store, done = FailingStore(), list[str]()
    door = door_of(done, store)
    store.fails = fails
    if recorded:
        assert way(door, call("pay", "A")).success
    else:
        with pytest.raises(RecordingError):
            way(door, call("pay", "A"))
    row = door.environment.effect_ledger.row("session:A", partition="s")
    assert row is not None
    assert (row.status, store.fails, done) == ("done" if recorded else "running", 0, ["A"])
