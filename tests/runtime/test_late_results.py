"""What an owner learns after its handler has timed out, or after it has lost its claim: its late result."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Generator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import EffectNotApplied
from handrail.prompt import External, IdempotencyConfig, Tool, ToolContext, ToolResult
from handrail.runtime import EffectLedger, Session
from handrail.runtime.ledger.effects import NotApplied
from handrail.store import EffectRow, Store
from handrail.testing import FakeClock
from tests.handler_threads import HandlerThreads
from tests.kit import Note, Run, both_ways, call, executor, tool
from tests.session.faulty_stores import faulty
from tests.store.stores import STORES
from tests.wording import Wording

SHORT = timedelta(milliseconds=20)
SHARED = IdempotencyConfig(scope="shop", ttl=None)


@dataclass
class Slow:
    """A handler that charges, overruns its time, and ends when it is released."""

    outcome: Any = None
    charges: list[str] = field(default_factory=list[str])
    release: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)

    def __call__(self, params: Note, *, context: ToolContext) -> ToolResult[Note]:
        """Charge, wait, and end as was said."""
        self.charges.append(params.text)
        self.release.wait()
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome or ToolResult.ok(params, "charged")


@dataclass
class World:
    """A store, with the sessions that share its ledger."""

    store: Store
    clock: FakeClock
    threads: HandlerThreads = field(default_factory=HandlerThreads)

    @property
    def ledger(self) -> EffectLedger:
        """A ledger over the store."""
        return EffectLedger(self.store, clock=self.clock)

    def row(self) -> EffectRow:
        """The only effect."""
        (row,) = self.store.rows()
        return row

    def door(self, paying: Tool[Any, Any], session: Session) -> ToolExecutor:
        """An executor of one tool."""
        return executor(paying, session=session, effect_ledger=self.ledger, clock=self.clock)


@pytest.fixture(params=list(STORES))
def world(request: pytest.FixtureRequest) -> Generator[World]:
    """A world over each kind of store."""
    clock = FakeClock()
    with STORES[request.param](clock) as store:
        yield World(store, clock)


def pay(handler: Any, **said: Any) -> Tool[Note, Note]:
    """A tool that is cut off after a moment."""
    return tool("pay", handler, effect=External(**said), idempotency=SHARED, timeout=SHORT)


OUTCOMES = [
    (ToolResult.ok(Note("A"), "charged"), "done"),
    (ToolResult.error("no money"), "failed"),
    (EffectNotApplied("closed"), "failed"),
    (ValueError("not JSON"), "unknown"),
]


@both_ways
@pytest.mark.parametrize("outcome, status", OUTCOMES)
def test_late_result_that_is_not_accepted_is_logged(  # noqa: PLR0913, PLR0917 - what differs, and where it shows
    world: World, way: Run, outcome: Any, status: str, wording: Wording, caplog: pytest.LogCaptureFixture
) -> None:
    """The effect is as unknown as it was, and is not run again."""
    slow = Slow(outcome)
    with Session.open(world.store, "s") as session:
        door = world.door(pay(slow), session)
        assert way(door, call("pay", "A")).content == wording
        with caplog.at_level(logging.WARNING):
            slow.release.set()
            world.threads.join()
        assert (world.row().status, world.row().fence) == ("unknown", 2)
        assert bool(caplog.records) == (status != "unknown")
        assert not way(door, call("pay", "A")).success
    assert slow.charges == ["A"]


@both_ways
@pytest.mark.parametrize("outcome, status", OUTCOMES)
def test_late_result_is_accepted_where_the_tool_says_so(world: World, way: Run, outcome: Any, status: str) -> None:
    """While nobody else has claimed the effect or settled it."""
    slow = Slow(outcome)
    with Session.open(world.store, "s") as session:
        door = world.door(pay(slow, accept_late_result=True), session)
        way(door, call("pay", "A"))
        slow.release.set()
        world.threads.join()
        assert world.row().status == status
        again = way(door, call("pay", "A"))
    assert (again.success, again.replayed) == {"done": (True, True), "failed": (again.success, False)}.get(
        status, (False, False)
    )
    assert slow.charges == (["A", "A"] if status == "failed" else ["A"])


@pytest.mark.parametrize("outcome", [ToolResult.error("no money"), EffectNotApplied("closed")])
def test_late_proof_of_a_retried_attempt_proves_nothing_of_the_one_before(world: World, outcome: Any) -> None:
    """That one raised, and may have charged."""
    slow = Slow(outcome)

    def handler(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        if context.fence == 1:
            raise TimeoutError("read timed out")
        return slow(params, context=context)

    with Session.open(world.store, "s") as session:
        door = world.door(pay(handler, accept_late_result=True, on_orphan="retry"), session)
        for _ in range(2):
            assert not door.execute(call("pay", "A")).success
        slow.release.set()
        world.threads.join()
    assert (world.row().status, world.row().fence) == ("unknown", 4)


def test_late_result_of_an_effect_that_was_resolved_changes_nothing(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """A person has found out first; that the handler contradicts it is logged at ERROR."""
    slow = Slow()
    with Session.open(world.store, "s") as session:
        door = world.door(pay(slow, accept_late_result=True), session)
        door.execute(call("pay", "A"))
        assert world.ledger.resolve(world.row(), NotApplied("the account shows nothing"))
        slow.release.set()
        world.threads.join()
    assert world.row().status == "failed"
    assert [record.levelname for record in caplog.records][-1] == "ERROR"


def test_late_result_of_an_effect_that_another_owner_started_is_logged(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """At ERROR, because the effect has happened twice; the row of the other owner is as it was."""
    slow, again = Slow(), threading.Event()

    def handler(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        if context.fence == 1:
            return slow(params, context=context)
        again.set()
        return ToolResult.ok(params, "charged again")

    with Session.open(world.store, "s") as session, caplog.at_level(logging.ERROR):
        door = world.door(pay(handler, accept_late_result=True, on_orphan="retry"), session)
        assert not door.execute(call("pay", "A")).success
        assert door.execute(call("pay", "A")).success
        assert again.is_set()
        before = world.row()
        slow.release.set()
        world.threads.join()
    assert world.row() == before
    assert [record.levelname for record in caplog.records if "pay" in record.getMessage()][-1] == "ERROR"


async def charges_when_cancelled(params: Note, *, context: ToolContext) -> ToolResult[Note]:
    """Return a result after all."""
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        return ToolResult.ok(params, "charged")
    raise AssertionError


@pytest.mark.anyio
async def test_task_that_overran_settles_its_effect_in_its_moment_to_clean_up() -> None:
    """An `async def` handler is cancelled; what it returns all the same is heard."""
    clock = FakeClock()
    with STORES["memory"](clock) as store:
        world = World(store, clock)

        with Session.open(store, "s") as session:
            door = world.door(pay(charges_when_cancelled, accept_late_result=True), session)
            message = await door.execute_async(call("pay", "A"))
            assert not message.success
            assert (world.row().status, world.row().message) == ("done", "charged")
            assert (await door.execute_async(call("pay", "A"))).replayed


@pytest.mark.anyio
async def test_late_outcome_that_the_store_does_not_take_is_logged_and_the_call_is_answered(
    caplog: pytest.LogCaptureFixture, wording: Wording
) -> None:
    """The effect stays unknown, and the model reads that."""
    with faulty("memory", FakeClock()) as store, Session.open(store, "s") as session:
        world = World(store, FakeClock())
        door = world.door(pay(charges_when_cancelled, accept_late_result=True), session)
        store.lose("replace")
        message = await door.execute_async(call("pay", "A"))
        assert (message.success, message.content) == (False, wording)
        assert caplog.messages == wording
        assert world.row().status == "unknown"


def test_late_result_of_a_nested_call_outlives_its_parent(world: World) -> None:
    """It is not undone with the call that the nested one was made in."""
    slow = Slow()
    with Session.open(world.store, "s") as session:

        def outer(params: Note, *, context: ToolContext) -> ToolResult[Note]:
            door.execute(call("pay", "A", id="inner"))
            slow.release.set()
            world.threads.join()
            return ToolResult.error("undo it all")

        paying = pay(slow, accept_late_result=True)
        door = executor(tool("outer", outer), paying, session=session, effect_ledger=world.ledger, clock=world.clock)
        assert not door.execute(call("outer", "A", id="outer")).success
    assert world.row().status == "done"
