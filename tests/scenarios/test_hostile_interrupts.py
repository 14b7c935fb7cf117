"""Interrupts: a cancellation at every point where a call can be suspended, Ctrl-C out of everything that it calls."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import EffectUncertain, LeaseLostError, PromptEvaluationError, RecordingError
from handrail.filesystem import Filesystem, InMemoryFilesystem
from handrail.prompt import ApprovalRequest, External, PolicyDecision, Tool, ToolContext, ToolResult
from handrail.resources import Binding, Scope
from handrail.runtime import Deadline, EffectLedger, IdempotencyConfig, Session, ToolMessage
from handrail.session import Append, SliceView
from handrail.store import EffectRow
from handrail.testing import FakeClock
from handrail.transaction import current
from tests.kit import Handler, Kept, Note, Run, both_ways, call, events, executor, files, raises, scribble, tool
from tests.store.kit import WriteByWrite, replace
from tests.wording import Wording

PLACES = ("policy", "approver", "key", "provider", "handler", "on_result", "reducer", "subscriber", "close", "render")


@dataclass(frozen=True, slots=True)
class Loud:
    """A value that interrupts when it is shown."""

    text: str

    def render(self) -> str:
        raise KeyboardInterrupt


class Connection:
    """A resource of one call."""

    def __init__(self, interrupt: Callable[[str], None]) -> None:
        interrupt("provider")
        self.interrupt = interrupt

    def close(self) -> None:
        self.interrupt("close")


class Interrupting:
    """A policy that asks, and interrupts where it is told to."""

    name = "interrupting"

    def __init__(self, interrupt: Callable[[str], None]) -> None:
        self.interrupt = interrupt

    def check(self, tool: Any, params: Any, *, context: ToolContext) -> PolicyDecision:
        self.interrupt("policy")
        return PolicyDecision.ask("sure?")

    def on_result(self, tool: Any, params: Any, result: Any, *, context: ToolContext) -> None:
        self.interrupt("on_result")


def _door(place: str, kind: type[BaseException], store: InMemoryFilesystem) -> ToolExecutor:
    """A door whose calls are interrupted in one place."""

    def interrupt(here: str) -> None:
        if here == place:
            raise kind

    def approver(request: ApprovalRequest) -> bool:
        interrupt("approver")
        return True

    def key(params: Note) -> str:
        interrupt("key")
        return params.text

    def reduce(view: SliceView[Kept], event: Note) -> Append[Kept]:
        interrupt("reducer")
        return Append(Kept("reduced"))

    def handler(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        scribble(params, context=context)
        context.resources.get(Connection)
        interrupt("handler")
        return ToolResult.ok(params)

    session = Session(session_id="s")
    session[Kept].register(Note, reduce)
    session.dispatcher.subscribe(Note, lambda note: interrupt("subscriber"))
    once = IdempotencyConfig(strategy="custom", key_fn=key)
    connection = Binding(Connection, lambda _: Connection(interrupt), scope=Scope.TOOL_CALL)
    pay = tool("pay", handler, effect="external", idempotency=once)
    resources = {Filesystem: store, Connection: connection}
    policies = (Interrupting(interrupt),)
    return executor(pay, policies=policies, approver=approver, session=session, resources=resources)


@pytest.mark.requirement("E-05", "M-03c")
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("place", [place for place in PLACES if place != "render"])
def test_an_interrupt_out_of_anything_that_a_call_calls_undoes_it(place: str, kind: type[BaseException]) -> None:
    """It reaches the caller as it is; nothing is kept, one event is recorded, nobody waits for the call any more.

    A question that was not answered leaves the call open: no event says that it failed.
    """
    store = files(note="before")
    door = _door(place, kind, store)
    with pytest.raises(kind):
        door.execute(call("pay"))
    session = door.environment.session
    assert (session[Kept].all(), session[Note].all()) == ((), ())
    assert store.read_text("note.txt") == "before"
    assert [event.success for event in events(door)] == ([] if place == "approver" else [False])
    assert (session.turn.queue, store.turn.queue, current()) == ([], [], None)
    done = ("on_result", "reducer", "subscriber", "close")
    expected = ["done"] if place in done else ["unknown"] if place in ("handler", "provider") else []
    assert [row.status for row in door.environment.find_ledger().rows()] == expected


@pytest.mark.requirement("E-05a")
@both_ways
@pytest.mark.parametrize("place", [place for place in PLACES if place != "render"])
def test_a_cancellation_by_another_party_fails_the_call(place: str, way: Run) -> None:
    """What a handler or a policy waits for was cancelled: the caller goes on, and reads of a failure."""
    store = files(note="before")
    door = _door(place, asyncio.CancelledError, store)
    message = way(door, call("pay"))
    assert not message.success
    assert store.read_text("note.txt") == "before"
    assert (door.environment.session.turn.queue, current()) == ([], None)
    expected = (
        [] if place in {"policy", "approver", "key"} else ["unknown" if place in {"handler", "provider"} else "done"]
    )
    assert [row.status for row in door.environment.find_ledger().rows()] == expected


def test_an_interrupt_while_the_message_is_rendered_leaves_a_committed_call() -> None:
    """The call is over by then."""

    def handler(params: Note, *, context: ToolContext) -> ToolResult[Any]:
        return ToolResult.ok(Loud(params.text))

    loud = Tool[Note, Loud](name="loud", description="Shouts.", handler=handler)
    door = executor(loud)
    with pytest.raises(KeyboardInterrupt):
        door.execute(call("loud"))
    assert [event.success for event in events(door)] == [True]
    assert door.environment.session[Loud].all() == (Loud("hello"),)
    assert door.environment.session.turn.queue == []


async def _spin(rounds: int) -> None:
    for _ in range(rounds):
        await asyncio.sleep(0)


class Slowly:
    """A world of async parts, each of which suspends a few times, so that there is much to cancel."""

    def __init__(self) -> None:
        self.store = files(note="before")

        async def approver(request: ApprovalRequest) -> bool:
            await _spin(2)
            return True

        async def pay(params: Note, *, context: ToolContext) -> ToolResult[Note]:
            scribble(params, context=context)
            await _spin(3)
            context.session[Kept].append(Kept("more"))
            return ToolResult.ok(params)

        async def nest(params: Note, *, context: ToolContext) -> ToolResult[Note]:
            context.session[Kept].append(Kept("outer"))
            await self.door.execute_async(call("pay", params.text, id=f"{context.call_id}.1"))
            await self.door.execute_async(call("look", params.text, id=f"{context.call_id}.2"))
            return ToolResult.ok(params)

        async def look(params: Note, *, context: ToolContext) -> ToolResult[Note]:
            await _spin(2)
            return ToolResult.ok(params)

        self.door = executor(
            tool("pay", pay, effect="external", idempotency=IdempotencyConfig()),
            tool("bounded", pay, timeout=timedelta(minutes=1)),
            tool("nest", nest),
            tool("look", look, effect="read"),
            policies=(Interrupting(lambda place: None),),
            approver=approver,
            resources={Filesystem: self.store},
        )

    def notes(self) -> list[str]:
        """The values that have been applied, but for the effect's."""
        return [note.text for note in self.door.environment.session[Note] if note.text != "hello"]


ASKED = ["pay", "bounded", "nest", "look", "unknown", "pay"]
"""A call of each kind; the last one has the same effect as the first."""


async def _cancelled_after(rounds: int, place: int, *, twice: bool) -> tuple[Slowly, list[asyncio.Task[ToolMessage]]]:
    """Cancel one call of a reply after so many rounds of the loop, and let the others end."""
    world = Slowly()
    asked = [call(name, "hello" if name == "pay" else str(n), id=str(n)) for n, name in enumerate(ASKED)]
    tasks = [asyncio.create_task(world.door.execute_async(one)) for one in asked]
    await _spin(1 + rounds)
    tasks[place].cancel()
    if twice:
        await _spin(1)
        tasks[place].cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.gather(*tasks, return_exceptions=True)
    return world, tasks


@pytest.mark.requirement("S-03a", "E-05", "M-03d", "M-04c")
@pytest.mark.parametrize("twice", [False, True], ids=["once", "twice"])
@pytest.mark.parametrize("place", range(len(ASKED)), ids=lambda place: f"{place} {ASKED[place]}")
def test_a_cancellation_at_any_moment_undoes_one_call_and_no_other(place: int, twice: bool) -> None:
    """After each number of rounds of the loop: one event for each call, and just the others' changes.

    A call that is cancelled while its question, or one before it, has no answer has not begun, and has no event.
    """
    rounds, ended = 0, False
    while not ended:
        world, tasks = asyncio.run(_cancelled_after(rounds, place, twice=twice))
        door, rounds = world.door, rounds + 1
        ended = not tasks[place].cancelled()
        top = [event for event in events(door) if "." not in event.call_id]
        recorded = sorted(event.call_id for event in top)
        unrecorded = {str(n) for n in range(len(ASKED))}.difference(recorded)
        assert len(recorded) + len(unrecorded) == len(ASKED)
        assert not unrecorded or (unrecorded == {str(place)} and tasks[place].cancelled())
        assert (door.environment.session.turn.queue, world.store.turn.queue) == ([], [])
        kept = [n for n, task in enumerate(tasks) if not task.cancelled() and task.result().success]
        assert {n for n in range(len(ASKED)) if n not in {*kept, place}} <= {4, 0, 5}
        assert world.notes() == _notes(kept)
        assert "running" not in {row.status for row in door.environment.find_ledger().rows()}
    assert rounds > 3 or ASKED[place] == "unknown"


def _notes(kept: list[int]) -> list[str]:
    """The values that the calls leave, but for the effect, which may be replayed; `nest` leaves those inside it too."""
    left = {1: ["1"], 2: ["2", "2", "2"], 3: ["3"]}
    return [text for number in kept for text in left.get(number, [])]


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

    def replace(self, before: EffectRow, row: EffectRow) -> bool:
        self._check(row)
        return super().replace(before, row)

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
    assert [row.status for row in door.environment.find_ledger().rows()] in ([], ["failed"])


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

    def pay(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        context.session[Kept].append(Kept("half"))
        row = ledger.row(context.idempotency_key or "", partition="s")
        assert row is not None
        replace(ledger.store, row, row._replace(fence=row.fence + 1))
        with pytest.raises(LeaseLostError):
            context.beat()
        return ToolResult.ok(params)

    door = executor(pay_tool(pay, effect=External(on_orphan="retry"), idempotency=True), effect_ledger=ledger)
    message = way(door, call("pay"))
    assert message.content == wording
    assert door.environment.session[Kept].all() == ()
    assert [(row.status, row.fence) for row in ledger.rows()] == [("running", 2)]
