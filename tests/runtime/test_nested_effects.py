"""The message of a call that fails says which effects of the calls nested in it are done or unknown."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from handrail import crash_points, store
from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import EffectNotApplied
from handrail.prompt import External, IdempotencyConfig, Tool, ToolContext, ToolResult
from handrail.runtime import Session, ToolCall, ToolInvoked
from tests.handler_threads import HandlerThreads
from tests.kit import Kept, Note, Run, both_ways, call, events, executor, sync, tool
from tests.runtime.test_durable_tasks import Paid, Pay
from tests.wording import Wording

MOMENT = timedelta(milliseconds=50)


@pytest.fixture(params=["memory", "sqlite"])
def session(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Session]:
    """A session in memory, and one in a store."""
    if request.param == "memory":
        yield Session(session_id="s")
        return
    with store.open(f"sqlite:///{tmp_path}/s.db") as opened, Session.open(opened, "s") as session:
        yield session


def pay(params: Note, *, context: ToolContext) -> ToolResult[Note]:
    """Pay, and note it in the session."""
    context.session[Kept].append(Kept(params.text))
    return ToolResult.ok(params)


def no_answer(params: Note, *, context: ToolContext) -> ToolResult[Note]:
    """A payment of which it is not known whether it was made."""
    raise TimeoutError("no answer of the bank")


def closed(_params: Note, _context: ToolContext) -> ToolResult[Note]:
    """A failure after the nested calls."""
    raise ValueError("the shop is closed")


End = Callable[[Note, ToolContext], ToolResult[Note]]


def nesting(
    name: str, *inner: str, end: End = closed, by: Run = sync, among: list[ToolExecutor], **options: Any
) -> Tool[Any, Any]:
    """A tool whose handler calls others by name with an executor among these, and then ends."""

    def blocking(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        for number, each in enumerate(inner):
            among[0].execute(call(each, params.text, id=f"{name}.{number}"))
        return end(params, context)

    async def on_the_loop(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        for number, each in enumerate(inner):
            await among[0].execute_async(call(each, params.text, id=f"{name}.{number}"))
        return end(params, context)

    return tool(name, blocking if by is sync else on_the_loop, **options)


LEFT = threading.Event()


"""Set when handlers that were left behind may end."""


@pytest.fixture(autouse=True)
def left_handlers() -> Generator[None]:
    """Have handlers that were left behind end with the test."""
    threads = HandlerThreads()
    LEFT.clear()
    yield
    LEFT.set()
    threads.join()


def nested(session: Session, *tools: Callable[[list[ToolExecutor]], Tool[Any, Any]]) -> ToolExecutor:
    """An executor of tools that call each other with it."""
    doors: list[ToolExecutor] = []
    doors.append(executor(*(make(doors) for make in tools), session=session))
    return doors[0]


def plain(name: str, handler: Any = pay, **options: Any) -> Callable[[list[ToolExecutor]], Tool[Any, Any]]:
    """A tool that calls no other."""
    options.setdefault("effect", "external")
    return lambda _doors: tool(name, handler, **options)


def outer(name: str, *inner: str, **options: Any) -> Callable[[list[ToolExecutor]], Tool[Any, Any]]:
    """A tool that calls others."""
    return lambda doors: nesting(name, *inner, among=doors, **options)


def cancelled(_params: Note, _context: ToolContext) -> ToolResult[Note]:
    """End because what was awaited was cancelled."""
    raise asyncio.CancelledError


def refused(_params: Note, _context: ToolContext) -> ToolResult[Note]:
    """Return a failure."""
    return ToolResult.error("the shop is closed")


def invalid(_params: Note, _context: ToolContext) -> Any:
    """Return what is not a result."""
    return 5


ENDS: dict[str, End] = {"raised": closed, "refused": refused, "invalid": invalid, "cancelled": cancelled}


@both_ways
@pytest.mark.parametrize("effect", ["state", "external"])
@pytest.mark.parametrize("end", ENDS)
def test_a_failed_call_says_that_a_nested_effect_is_done(
    session: Session, way: Run, effect: str, end: str, wording: Wording
) -> None:
    """However the caller has failed; its record says so, too."""
    door = nested(session, plain("pay"), outer("both", "pay", by=way, effect=effect, end=ENDS[end]))
    message = way(door, call("both"))
    (event,) = [event for event in events(door) if event.name == "both"]
    assert (event.result.message, message.content, session[Kept].all()) == (message.content, wording, ())


@both_ways
def test_a_failed_call_says_that_a_nested_effect_is_unknown(session: Session, way: Run, wording: Wording) -> None:
    """Its own message has said so to the handler alone."""
    door = nested(session, plain("pay", no_answer), outer("both", "pay", by=way))
    assert way(door, call("both")).content == wording


@both_ways
def test_an_effect_is_named_at_every_depth(session: Session, way: Run, wording: Wording) -> None:
    """Whether the calls between have succeeded or failed, and each sentence once."""

    def done(params: Note, _context: ToolContext) -> ToolResult[Note]:
        return ToolResult.ok(params)

    door = nested(
        session,
        plain("pay"),
        plain("book", no_answer),
        outer("good", "pay", "pay", by=way, end=done),
        outer("bad", "book", by=way),
        outer("all", "good", "bad", by=way),
    )
    assert way(door, call("all")).content == wording


@both_ways
def test_nothing_is_said_of_a_nested_effect_that_has_not_happened(session: Session, way: Run, wording: Wording) -> None:
    """It has failed with a proof, or is undone with its caller."""

    def not_paid(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        raise EffectNotApplied("no money")

    keyed = plain("keyed", effect="state", idempotency=IdempotencyConfig())
    door = nested(session, plain("pay", not_paid), keyed, outer("both", "pay", "keyed", by=way))
    assert way(door, call("both")).content == wording


def test_nothing_is_said_by_a_call_that_succeeds(session: Session) -> None:
    """Its handler has read the failure."""

    def done(params: Note, _context: ToolContext) -> ToolResult[Note]:
        return ToolResult.ok(params)

    door = nested(session, plain("pay", no_answer), outer("both", "pay", end=done))
    assert door.execute(call("both")).content == "hello"


def test_a_nested_effect_that_is_replayed_is_named_as_well(session: Session, wording: Wording) -> None:
    """A repeat of the caller finds it done."""
    door = nested(session, plain("pay"), outer("both", "pay"))
    for _ in range(2):
        assert door.execute(call("both"), reply="r").content == wording


def test_a_nested_effect_that_still_runs_is_unknown(session: Session, wording: Wording) -> None:
    """Its caller was left behind by its timeout meanwhile."""
    started: list[str] = []

    def slow(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        started.append(params.text)
        LEFT.wait()
        return ToolResult.ok(params)

    door = nested(session, plain("pay", slow), outer("both", "pay", timeout=MOMENT))
    message, ids = door.execute(call("both", id="0")), map(str, count(1))
    while not started:  # on a busy machine the time may be over before that, and the nested call is refused then
        message = door.execute(call("both", id=next(ids)))
    assert message.content == wording


@both_ways
def test_an_effect_on_a_child_session_is_named(session: Session, way: Run, wording: Wording) -> None:
    """The calls of an agent that is used as a tool commit on their own."""

    def agent(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        inner = executor(tool("pay", pay, effect="external"), session=context.session.child())
        assert inner.execute(call("pay", id="n")).success
        raise ValueError("the model does not answer")

    door = executor(tool("agent", agent, concurrent=True), session=session)
    assert way(door, call("agent")).content == wording


ABSENT = External(reconcile=lambda _params, _key: None, reconcile_proves_absence=True)


"""An effect that has not happened, as its other side says at once."""


def test_a_reconciler_takes_back_the_note_on_the_effect_of_its_own_call(session: Session, wording: Wording) -> None:
    """The effects of nested calls are done all the same."""
    door = nested(session, plain("pay"), outer("both", "pay", effect=ABSENT))
    assert door.execute(call("both")).content == wording


PAY = ToolCall("1", "pay_all", {"cents": 5})


async def _cancelled(session: Session, left: int, times: int) -> bool:
    """Make the call, and cancel it at a point; returns whether it came to that."""

    async def pay(params: Pay, *, context: ToolContext) -> ToolResult[Paid]:
        context.session[Paid].append(Paid(params.cents))
        await asyncio.sleep(0)
        return ToolResult.ok(Paid(params.cents))

    async def pay_all(params: Pay, *, context: ToolContext) -> ToolResult[Paid]:
        context.session[Paid].append(Paid(params.cents))
        await door.execute_async(ToolCall(f"{context.call_id}.1", "pay", {"cents": params.cents}), reply="r")
        await asyncio.sleep(0)
        return ToolResult.ok(Paid(params.cents))

    door = executor(
        Tool[Pay, Paid](name="pay", description="Pays.", handler=pay, effect="external"),
        Tool[Pay, Paid](name="pay_all", description="Pays all.", handler=pay_all),
        session=session,
    )
    loop = asyncio.get_running_loop()
    task = asyncio.create_task(door.execute_async(PAY, reply="r"))

    def reached(point: str) -> None:
        nonlocal left
        left -= 1
        if left == -1:
            for _ in range(times):
                loop.call_soon_threadsafe(task.cancel)

    crash_points.arm(reached)
    try:
        await asyncio.gather(task, return_exceptions=True)
    finally:
        crash_points.arm(None)
    return left < 0


@pytest.mark.parametrize("times", [1, 2])
def test_a_call_with_a_nested_effect_is_undone_as_a_whole_wherever_it_is_cancelled(tmp_path: Path, times: int) -> None:
    """Its record, what it wrote, and the effect nested in it agree, also after the session is opened again."""
    outcomes = set[bool]()
    point, came_to_it = 0, True
    with store.open(f"sqlite:///{tmp_path / 'desk.db'}") as kept:
        while came_to_it:
            name = f"{times} {point}"
            with Session.open(kept, name) as session:
                came_to_it = asyncio.run(_cancelled(session, point, times))
            with Session.open(kept, name) as session:
                made = [event.result.success for event in session[ToolInvoked].all() if "." not in event.call_id]
                assert len(made) == 1, point
                assert len(session[Paid].all()) == (4 if made[0] else 0), point
                assert "running" not in [row.status for row in kept.rows() if row.partition == name], point
            outcomes.update(made)
            point += 1
    assert outcomes == {True, False}
    assert point > 10
