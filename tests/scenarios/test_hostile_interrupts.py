"""Interrupts: a cancellation at every point where a call can be suspended, Ctrl-C out of everything that it calls."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from handrail.adapters.tool_executor import ToolExecutor
from handrail.filesystem import Filesystem, InMemoryFilesystem
from handrail.prompt import ApprovalRequest, PolicyDecision, Tool, ToolContext, ToolResult
from handrail.resources import Binding, Scope
from handrail.runtime import IdempotencyConfig, Session, ToolMessage
from handrail.session import Append, SliceView
from handrail.transaction import current
from tests.kit import Kept, Note, Run, both_ways, call, events, executor, files, scribble, tool

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
    return executor(
        tool("pay", handler, effect="external", idempotency=once),
        policies=(Interrupting(interrupt),),
        approver=approver,
        session=session,
        resources={Filesystem: store, Connection: connection},
    )


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
    assert [row.status for row in door.environment.effect_ledger.rows()] == expected


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
    assert [row.status for row in door.environment.effect_ledger.rows()] == expected


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
        assert "running" not in {row.status for row in door.environment.effect_ledger.rows()}
    assert rounds > 3 or ASKED[place] == "unknown"


def _notes(kept: list[int]) -> list[str]:
    """The values that the calls leave, but for the effect, which may be replayed; `nest` leaves those inside it too."""
    left = {1: ["1"], 2: ["2", "2", "2"], 3: ["3"]}
    return [text for number in kept for text in left.get(number, [])]
