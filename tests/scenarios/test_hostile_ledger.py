"""A ledger whose store fails, handlers that lie about their effect, deadlines that pass at the worst moment."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import EffectUncertain, LeaseLostError, PromptEvaluationError, RecordingError
from handrail.prompt import ToolContext, ToolResult
from handrail.runtime import Deadline, EffectLedger, IdempotencyConfig, Session
from handrail.store import EffectRow
from handrail.testing import FakeClock
from tests.kit import Handler, Kept, Note, Run, both_ways, call, executor, raises, tool
from tests.store.kit import WriteByWrite, replace
from tests.wording import Wording

ONCE = IdempotencyConfig()


class Flaky(WriteByWrite):
    """A store in memory that refuses some writes, as long as it is told to."""

    __slots__ = ("refuses",)

    def __init__(self, refuses: Callable[[EffectRow], bool]) -> None:
        super().__init__()
        self.refuses: Callable[[EffectRow], bool] = refuses

    def insert(self, row: EffectRow) -> EffectRow | None:
        self._check(row)
        return super().insert(row)

    def replace(self, seen: EffectRow, row: EffectRow) -> bool:
        self._check(row)
        return super().replace(seen, row)

    def _check(self, row: EffectRow) -> None:
        if self.refuses(row):
            raise OSError("the store is down")


def paying(log: list[str], outcome: str = "ok") -> Handler:
    """A handler that notes what it did outside, and ends as it is told."""

    def pay(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        log.append(params.text)
        context.session[Kept].append(Kept(params.text))
        if outcome == "raise":
            raise ConnectionError("reset")
        if outcome == "unsure":
            raise EffectUncertain("no answer came")
        return ToolResult.ok(params)

    return pay


def pay_tool(handler: Any, **options: Any) -> Any:
    """An external tool with a declared key."""
    return tool("pay", handler, **{"effect": "external", "idempotency": ONCE, **options})


@both_ways
def test_an_effect_that_could_not_be_recorded_is_told_as_done(way: Run, wording: Wording) -> None:
    """The world has changed: a model that reads "failed" asks for it again, so the run ends."""
    log: list[str] = []
    ledger = EffectLedger(Flaky(lambda row: row.status == "done"))
    with pytest.raises(RecordingError) as raised:
        way(executor(pay_tool(paying(log)), effect_ledger=ledger), call("pay"))
    assert log == ["hello"]
    assert str(raised.value) == wording


@pytest.mark.parametrize("effect, status", [("external", "done"), ("state", "failed")])
def test_a_claim_that_could_not_be_ended_is_ended_once_the_store_takes_it(effect: str, status: str) -> None:
    """Its call is over, so nobody may give signs of life for it; what it has done is recorded later."""
    log: list[str] = []
    clock = FakeClock()
    store = Flaky(lambda row: row.status == status)
    ledger = EffectLedger(store, clock=clock)
    handler = paying(log, "ok" if status == "done" else "raise")
    door = executor(pay_tool(handler, effect=effect), effect_ledger=ledger)
    with suppress(RecordingError):
        door.execute(call("pay"))
    for _ in range(2):
        clock.advance(timedelta(seconds=2))
        assert ledger.tick() == 1
        assert [row.status for row in store.rows()] == ["running"]
    store.refuses = lambda row: False
    clock.advance(timedelta(seconds=2))
    assert (ledger.tick(), ledger.tick()) == (1, 0)
    assert [row.status for row in store.rows()] == [status]


def test_of_nested_state_calls_all_are_recorded_or_none() -> None:
    """The second record fails, so the first call is undone with the outer one; done, a replay would skip it."""
    store = Flaky(lambda row: row.status == "done" and row.key.endswith("second"))
    door: list[ToolExecutor] = []

    def keep(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        context.session[Kept].append(Kept(params.text))
        return ToolResult.ok(params)

    def outer(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        assert all(door[0].execute(call("keep", text, id=text)).success for text in ("first", "second"))
        return ToolResult.ok(params)

    by_text = IdempotencyConfig(strategy="custom", key_fn=lambda params: params.text)
    tools = tool("outer", outer), tool("keep", keep, idempotency=by_text)
    door.append(executor(*tools, effect_ledger=EffectLedger(store)))
    assert not door[0].execute(call("outer")).success
    assert door[0].environment.session[Kept].all() == ()
    again = door[0].execute(call("keep", "first", id="again"))
    assert not again.replayed
    assert door[0].environment.session[Kept].all() == (Kept("first"),)


@both_ways
def test_a_coroutine_that_nobody_awaited_is_no_effect(way: Run) -> None:
    """A handler that forgot to await has done nothing; recorded as done, it would never be done."""

    async def real(params: Note) -> ToolResult[Note]:
        return ToolResult.ok(params)

    def pay(params: Note, *, context: ToolContext) -> Any:
        coroutine = real(params)
        coroutine.close()
        return coroutine

    door = executor(pay_tool(pay))
    first, second = way(door, call("pay", id="1")), way(door, call("pay", id="2"))
    assert [first.success, second.success] == [False, False]
    assert not second.replayed


@both_ways
@pytest.mark.requirement("S-06")
def test_a_deadline_that_passes_during_the_claim_keeps_the_handler_from_starting(way: Run, wording: Wording) -> None:
    """The key took its time; the handler would start past the deadline, and nobody would learn what it did."""
    log: list[str] = []
    clock = FakeClock()

    def slow_key(params: Note) -> str:
        clock.advance(timedelta(hours=2))
        return "key"

    once = IdempotencyConfig(strategy="custom", key_fn=slow_key)
    door = executor(
        pay_tool(paying(log), idempotency=once), clock=clock, deadline=Deadline.after(timedelta(hours=1), clock=clock)
    )
    with raises(PromptEvaluationError, wording):
        way(door, call("pay"))
    assert log == []
    assert [row.status for row in door.environment.effect_ledger.rows()] in ([], ["failed"])


@both_ways
@pytest.mark.requirement("S-09")
@pytest.mark.parametrize("by", ["deadline", "timeout"])
def test_a_bound_that_lies_centuries_ahead_is_no_bound(way: Run, by: str) -> None:
    """Threads cannot wait for so long at once, which is no reason to fail the call."""
    waits = threading.Event()
    timer = threading.Timer(0.05, waits.set)

    def handler(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        timer.start()
        waits.wait()
        return ToolResult.ok(params)

    far = Deadline(datetime.max.replace(tzinfo=UTC)) if by == "deadline" else None
    bounded = tool("slow", handler, timeout=timedelta.max if by == "timeout" else None)
    assert way(executor(bounded, deadline=far), call("slow")).content == "hello"


@both_ways
@pytest.mark.requirement("S-10d")
def test_a_replay_is_applied_by_each_session_once(way: Run) -> None:
    """Also by one whose first application was rolled back, and not again by one that has applied it."""
    log: list[str] = []
    ledger, once = EffectLedger(), IdempotencyConfig(scope="tenant")

    def door_of(session: Session) -> ToolExecutor:
        return executor(pay_tool(paying(log), idempotency=once), session=session, effect_ledger=ledger)

    first, other = Session(session_id="first"), Session(session_id="other")
    refuse = first.dispatcher.subscribe(Note, _raise)
    assert not way(door_of(first), call("pay", id="1")).success
    assert first[Note].all() == ()
    refuse.close()
    for session in (first, first, other, other):
        message = way(door_of(session), call("pay", id="2"))
        assert (message.success, message.replayed) == (True, True)
        assert session[Note].all() == (Note("hello"),)
    assert log == ["hello"]


def _raise(note: Note) -> None:
    raise RuntimeError("deaf")


@both_ways
def test_a_handler_that_lost_its_lease_leaves_nothing(way: Run, wording: Wording) -> None:
    """Another owner has taken the effect over; what this one wrote to the session is undone."""
    clock = FakeClock()
    ledger = EffectLedger(clock=clock)
    taken = IdempotencyConfig(on_orphan="retry")

    def pay(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        context.session[Kept].append(Kept("half"))
        row = ledger.row(context.idempotency_key or "", partition="s")
        assert row is not None
        replace(ledger.store, row, row._replace(fence=row.fence + 1))
        with pytest.raises(LeaseLostError):
            context.beat()
        return ToolResult.ok(params)

    door = executor(pay_tool(pay, idempotency=taken), effect_ledger=ledger)
    message = way(door, call("pay"))
    assert message.content == wording
    assert door.environment.session[Kept].all() == ()
    assert [(row.status, row.fence) for row in ledger.rows()] == [("running", 2)]
