"""Step 12: who hears of a call that is over, and when."""

from __future__ import annotations

import asyncio

import pytest

from handrail.errors import CallPostponed
from handrail.prompt import ApprovalRequest, ToolContext, ToolResult
from handrail.runtime import Session, ToolInvoked
from handrail.session import Append, SliceView
from tests.kit import ASKS, BOTH_WAYS, Kept, Note, Run, call, echo, events, executor, soon, tool
from tests.wording import Wording


def test_listeners_of_the_record_may_write() -> None:
    """Reducers of `ToolInvoked` have a transaction of their own, in the turn of the call."""

    def count(view: SliceView[Kept], event: ToolInvoked) -> Append[Kept]:
        return Append(Kept(event.name))

    session = Session()
    session[Kept].register(ToolInvoked, count)
    session.dispatcher.subscribe(ToolInvoked, lambda event: session[Note].append(Note(event.call_id)))
    door = executor(tool("fail", lambda_fail), tool("look", effect="read"), session=session)
    door.execute(call("fail", id="1"))
    door.execute(call("look", id="2"))
    door.execute(call("nothing", id="3"))
    assert [kept.text for kept in session[Kept]] == ["fail", "look", "nothing"]
    assert [note.text for note in session[Note]] == ["1", "hello", "2", "3"]


def lambda_fail(params: Note, *, context: ToolContext) -> ToolResult[Note]:
    """Fail."""
    return ToolResult.error("no")


@pytest.mark.anyio
async def test_a_refusal_past_the_deadline_is_recorded_out_of_its_order(wording: Wording) -> None:
    """Better so than not at all."""
    started, release = asyncio.Event(), asyncio.Event()

    async def hold(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        started.set()
        await release.wait()
        return ToolResult.ok(params)

    session = Session()
    holder = executor(tool("hold", hold), session=session)
    hurried = executor(session=session, deadline=soon())
    holding = asyncio.ensure_future(holder.execute_async(call("hold", id="1")))
    await started.wait()
    assert (await hurried.execute_async(call("nothing", id="2"))).content == wording
    release.set()
    assert (await holding).success
    assert [event.call_id for event in session[ToolInvoked]] == ["2", "1"]


@pytest.mark.anyio
async def test_subscribers_of_a_call_that_left_the_queue_hear_of_it_while_others_hold_the_session() -> None:
    """Reducers would need the turn; subscribers are told without it."""
    started = asyncio.Event()

    async def hold(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        started.set()
        await asyncio.Event().wait()
        return ToolResult.ok(params)

    door = executor(tool("hold", hold), tool("echo", echo))
    session = door.environment.session
    heard = noting(session)
    holding = asyncio.ensure_future(door.execute_async(call("hold", id="1")))
    await started.wait()
    waiting = asyncio.ensure_future(door.execute_async(call("echo", id="2")))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert heard == ["2"]
    holding.cancel()
    await asyncio.wait([holding])
    assert heard == ["2", "1"]
    assert session[Kept].all() == (Kept("1"),)


def noting(session: Session) -> list[str]:
    """Have a reducer of the session note each call in `Kept`, and a subscriber in the list that is returned."""
    heard: list[str] = []

    def note(view: SliceView[Kept], event: ToolInvoked) -> Append[Kept]:
        return Append(Kept(event.call_id))

    session[Kept].register(ToolInvoked, note)
    session.dispatcher.subscribe(ToolInvoked, lambda event: heard.append(event.call_id))
    return heard


def test_reducers_hear_of_a_call_that_was_interrupted_before_it_was_first() -> None:
    """It has left its turn, and no other call holds the session: it takes the event in on its own."""

    def interrupted(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        raise KeyboardInterrupt

    door = executor(tool("look", interrupted, effect="read"))
    session = door.environment.session
    heard = noting(session)
    with pytest.raises(KeyboardInterrupt):
        door.execute(call("look", id="1"))
    assert (heard, session[Kept].all(), session.turn.queue) == (["1"], (Kept("1"),), [])


def test_only_subscribers_hear_of_a_nested_call_that_was_refused_its_turn() -> None:
    """What reducers made of it would be a change by its caller, which may only read."""
    inside: list[tuple[list[str], tuple[Kept, ...]]] = []

    def outer(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        assert not door.execute(call("echo", id="inner")).success
        inside.append((list(heard), context.session[Kept].all()))
        return ToolResult.ok(params)

    door = executor(tool("outer", outer, effect="read"), tool("echo"))
    heard = noting(door.environment.session)
    assert door.execute(call("outer", id="outer")).success
    assert inside == [(["inner"], ())]
    assert (heard, door.environment.session[Kept].all()) == (["inner", "outer"], (Kept("outer"),))


class Away:
    """An approver that is not there until it is."""

    there = False

    def __call__(self, request: ApprovalRequest) -> bool:
        if not self.there:
            raise CallPostponed("nobody is there")
        return True


@pytest.mark.requirement("S-12a")
@pytest.mark.parametrize("way", BOTH_WAYS)
def test_a_call_that_an_approver_puts_off_is_recorded_when_it_is_carried_out(way: Run, wording: Wording) -> None:
    """Nobody hears of it before, its effect is free, and its place is given up."""
    away, heard = Away(), list[str]()
    pay = tool("pay", effect="external")
    door = executor(pay, policies=[ASKS], approver=away)
    door.environment.session.dispatcher.subscribe(ToolInvoked, lambda event: heard.append(event.call_id))
    for _ in range(2):
        with pytest.raises(CallPostponed) as raised:
            way(door, call("pay"))
        assert str(raised.value) == wording
    assert (heard, events(door), door.environment.session.turn.queue) == ([], (), [])
    away.there = True
    assert not way(door, call("pay")).replayed
    assert heard == [event.call_id for event in events(door)] == ["call-1"]


@pytest.mark.requirement("S-12a")
def test_a_call_made_inside_puts_its_caller_off_too() -> None:
    """What waits for an answer waits as a whole; a caller that can do without goes on, and is recorded alone."""

    def outer(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        context.session[Kept].append(Kept(params.text))
        try:
            door.execute(call("inner", id="inner"))
        except CallPostponed:
            if params.text != "without":
                raise
        return ToolResult.ok(params)

    def inner(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        context.session[Kept].append(Kept("inner"))
        raise CallPostponed("it waits")

    door = executor(tool("outer", outer), tool("inner", inner))
    with pytest.raises(CallPostponed):
        door.execute(call("outer"))
    assert (events(door), door.environment.session[Kept].all()) == ((), ())
    assert door.execute(call("outer", "without")).success
    assert [event.call_id for event in events(door)] == ["call-1"]
    assert door.environment.session[Kept].all() == (Kept("without"),)
