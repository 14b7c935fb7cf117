"""Handlers that behave badly: what they may not break is the state, the record, and the turn of those behind them."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import PromptEvaluationError
from handrail.filesystem import Filesystem
from handrail.prompt import ApprovalRequest, PolicyDecision, ToolContext, ToolResult
from handrail.runtime import EffectLedger, IdempotencyConfig, Session, ToolInvoked, ToolMessage
from tests.kit import (
    BOTH_WAYS,
    Decides,
    Kept,
    Note,
    Run,
    both_ways,
    call,
    echo,
    events,
    executor,
    files,
    scribble,
    tool,
)
from tests.scenarios.watchdog import ended, in_time, start
from tests.wording import Wording

BRIEF = timedelta(milliseconds=20)


class Mute(Exception):
    """An exception that cannot say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


@both_ways
@pytest.mark.requirement("E-07")
def test_an_exception_that_cannot_be_told_is_told_by_its_type(way: Run) -> None:
    """It fails the call like any other; it neither leaves the door nor goes unrecorded."""

    def handler(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        context.session[Kept].append(Kept("half"))
        raise Mute

    door = executor(tool("mute", handler))
    message = way(door, call("mute"))
    assert "Mute" in message.content
    assert [event.success for event in events(door)] == [False]


@both_ways
@pytest.mark.requirement("E-06")
def test_a_timeout_does_not_wait_for_threads_of_an_async_handler(way: Run, wording: Wording) -> None:
    """A thread that the handler awaits cannot be stopped, and is left behind like any other."""
    release = threading.Event()

    async def handler(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        await asyncio.to_thread(release.wait)
        return ToolResult.ok(params)

    def run() -> ToolMessage:
        try:
            return way(executor(tool("slow", handler, timeout=BRIEF)), call("slow"))
        finally:
            release.set()

    if way is BOTH_WAYS[0]:  # the loop of the other entry is the caller's own
        assert in_time(run).content == wording


def test_a_call_inside_a_call_that_timed_out_is_recorded() -> None:
    """Also where somebody listens: one event for each call, whatever came of the call it was made in."""
    release, over = threading.Event(), threading.Event()
    door: list[ToolExecutor] = []
    heard: list[str] = []

    def inner(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        release.wait()
        return ToolResult.ok(params)

    def outer(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        door[0].execute(call("inner", id="inside"))
        over.set()
        return ToolResult.ok(params)

    door.append(executor(tool("outer", outer, timeout=BRIEF), tool("inner", inner)))
    door[0].environment.session.dispatcher.subscribe(ToolInvoked, lambda event: heard.append(event.call_id))
    assert not door[0].execute(call("outer")).success
    release.set()
    assert over.wait(10)
    assert [event.call_id for event in events(door[0])] == ["call-1", "inside"]
    assert heard == ["call-1", "inside"]
    assert door[0].environment.session.turn.queue == []


@both_ways
def test_a_handler_may_go_on_after_a_call_that_ended_the_run(way: Run) -> None:
    """It caught what the call inside raised: that call is undone, the rest is kept."""
    door: list[ToolExecutor] = []

    def stop(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        scribble(params, context=context)
        raise PromptEvaluationError("stop")

    def outer(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        context.session[Kept].append(Kept("outer"))
        with pytest.raises(PromptEvaluationError):
            door[0].execute(call("stop", id="inside"))
        return ToolResult.ok(params)

    store = files(note="before")
    door.append(executor(tool("outer", outer), tool("stop", stop), resources={Filesystem: store}))
    assert way(door[0], call("outer")).success
    assert door[0].environment.session[Kept].all() == (Kept("outer"),)
    assert store.read_text("note.txt") == "before"
    assert [event.call_id for event in events(door[0])] == ["inside", "call-1"]


@pytest.mark.anyio
@pytest.mark.parametrize("ending", ["returns", "raises"])
async def test_a_handler_that_swallows_its_cancellation_leaves_nothing(ending: str) -> None:
    """Its caller is cancelled, whatever the handler makes of that; the effect is unknown."""
    started = asyncio.Event()

    async def handler(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            context.session[Kept].append(Kept("after"))
            if ending == "raises":
                raise ValueError("cancelled") from None
        return ToolResult.ok(params)

    door = executor(tool("deaf", handler, effect="external"))
    task = asyncio.ensure_future(door.execute_async(call("deaf")))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert door.environment.session[Kept].all() == ()
    assert [event.success for event in events(door)] == [False]
    assert [row.status for row in door.environment.find_ledger().rows()] == ["unknown"]


@pytest.mark.anyio
async def test_a_call_in_the_cleanup_of_a_cancelled_task_is_an_ordinary_one() -> None:
    """A cancellation that came before the call is not one of the call."""
    door = executor(tool("wait", _waits))
    answers: list[bool] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            answers.append((await door.execute_async(call("wait"))).success)

    task = asyncio.ensure_future(work())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert answers == [True]


async def _waits(params: Note, *, context: ToolContext) -> ToolResult[Note]:
    await asyncio.sleep(0)
    return ToolResult.ok(params)


@pytest.mark.anyio
async def test_a_call_that_is_left_running_inside_is_undone_with_its_caller() -> None:
    """The caller cannot commit past it; both leave nothing, and the session is free at once."""
    door: list[ToolExecutor] = []
    started, release = asyncio.Event(), asyncio.Event()
    left: list[asyncio.Future[ToolMessage]] = []

    async def inner(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        context.session[Kept].append(Kept("inner"))
        started.set()
        await release.wait()
        return ToolResult.ok(params)

    async def outer(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        context.session[Kept].append(Kept("outer"))
        left.append(asyncio.ensure_future(door[0].execute_async(call("inner", id="inside"))))
        await started.wait()
        return ToolResult.ok(params)

    door.append(executor(tool("outer", outer), tool("inner", inner), tool("echo")))
    session = door[0].environment.session
    assert not (await door[0].execute_async(call("outer"))).success
    assert (session[Kept].all(), session.turn.queue) == ((), [])
    assert (await door[0].execute_async(call("echo"))).success
    release.set()
    assert not (await left[0]).success
    assert session[Kept].all() == ()
    assert len(events(door[0])) == 3


def test_calls_inside_calls_without_end_are_undone_in_full() -> None:
    """Python's stack ends it; every level that failed is undone, and the session is free."""
    door: list[ToolExecutor] = []

    def deeper(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        context.session[Kept].append(Kept(params.text))
        inner = door[0].execute(call("deeper", id=f"{context.call_id}."))
        return ToolResult.ok(params) if inner.success else ToolResult.error(inner.content[:200])

    door.append(executor(tool("deeper", deeper), tool("echo")))
    session = door[0].environment.session
    assert not door[0].execute(call("deeper")).success
    assert (session[Kept].all(), session[Note].all(), session.turn.queue) == ((), (), [])
    assert door[0].execute(call("echo")).success


def test_a_call_whose_event_loop_is_gone_is_undone_when_it_is_collected() -> None:
    """Nobody cancelled it and nobody will go on with it; it must not hold the session for ever."""

    async def handler(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        context.session[Kept].append(Kept("half"))
        await asyncio.Event().wait()
        return ToolResult.ok(params)

    door = executor(tool("wait", handler), tool("echo"))
    _abandon(door)
    gc.collect()
    session = door.environment.session
    assert (session[Kept].all(), session.turn.queue) == ((), [])
    assert door.execute(call("echo")).success


def _abandon(door: ToolExecutor) -> None:
    coroutine: Any = door.execute_async(call("wait"))
    loop = asyncio.new_event_loop()

    async def begin() -> None:
        copy_context().run(coroutine.send, None)

    loop.run_until_complete(begin())
    loop.close()


def rule(act: Callable[[], PolicyDecision]) -> Decides:
    """A policy that does what it is told when it judges a call of `outer`."""
    return Decides(lambda tool, _params: act() if tool.name == "outer" else PolicyDecision.allow())


@both_ways
@pytest.mark.parametrize("who", ["policy", "approver"])
def test_a_policy_or_an_approver_that_makes_a_call_is_refused_it(who: str, way: Run) -> None:
    """The call that it judges, or is asked about, holds the session, so the one that it makes could never run."""
    door: list[ToolExecutor] = []

    def echoes(_request: object = None) -> bool:
        return door[0].execute(call("echo", id="n")).success

    def judge() -> PolicyDecision:
        if who == "approver":
            return PolicyDecision.ask("sure?")
        return PolicyDecision.allow() if echoes() else PolicyDecision.deny("no")

    door.append(executor(tool("outer"), tool("echo"), policies=(rule(judge),), approver=echoes))
    message = in_time(lambda: way(door[0], call("outer")))
    assert not message.success
    assert [event.success for event in events(door[0])] == [False, False]
    assert door[0].execute(call("echo")).success


def test_a_listener_of_a_reading_call_that_ended_the_run_can_make_a_call() -> None:
    """It hears of the end of the call, so the call must not stand in its way."""
    door: list[ToolExecutor] = []

    def stop(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        raise PromptEvaluationError("stop")

    def listen(event: ToolInvoked) -> None:
        if event.name == "stop":
            door[0].execute(call("echo", id="n"))

    door.append(executor(tool("stop", stop, effect="read"), tool("echo")))
    door[0].environment.session.dispatcher.subscribe(ToolInvoked, listen)
    with pytest.raises(PromptEvaluationError):
        in_time(lambda: door[0].execute(call("stop")))
    assert "stop" in [event.name for event in events(door[0])]


@pytest.mark.requirement("M-05")
def test_two_concurrent_calls_with_one_key_do_not_wait_for_each_other() -> None:
    """The first waits for the effect of the second, which waits to be applied after the first."""

    async def run() -> tuple[ToolMessage, ...]:
        second_runs = asyncio.Event()

        async def approver(request: ApprovalRequest) -> bool:
            if request.call_id == "1":
                await second_runs.wait()
            return True

        async def fetch(params: Note, *, context: ToolContext) -> ToolResult[Note]:
            second_runs.set()
            return ToolResult.ok(params)

        outer = tool("outer", fetch, concurrent=True, idempotency=IdempotencyConfig())
        door = executor(outer, policies=(rule(lambda: PolicyDecision.ask("?")),), approver=approver)
        return await door.execute_all_async([call("outer", id="1"), call("outer", id="2")])

    messages = in_time(lambda: asyncio.run(run()))
    assert [message.content for message in messages] == ["hello", "hello"]


def test_a_wait_for_an_effect_and_a_wait_for_a_turn_make_no_circle() -> None:
    """`a` holds its session and waits for the effect of `b`, whose handler makes a call on that session."""
    ledger, once = EffectLedger(), IdempotencyConfig(scope="tenant")
    sessions = {name: Session(session_id=name) for name in "ab"}
    inside, a_has_its_turn = threading.Event(), threading.Event()
    doors: dict[str, ToolExecutor] = {}

    def pay(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        if context.session is sessions["a"]:
            return ToolResult.ok(params)
        inside.set()
        a_has_its_turn.wait()
        return ToolResult.ok(Note(doors["a"].execute(call("echo", id="n")).content))

    class Noted(Decides):
        def check(self, tool: Any, params: Any, *, context: ToolContext) -> PolicyDecision:
            if tool.name == "pay" and context.session is sessions["a"]:
                a_has_its_turn.set()
            return PolicyDecision.allow()

    paying = tool("pay", pay, effect="external", idempotency=once)
    for name, session in sessions.items():
        rules = (Noted(lambda _tool, _params: PolicyDecision.allow()),)
        doors[name] = executor(paying, tool("echo"), policies=rules, session=session, effect_ledger=ledger)
    b = start(lambda: doors["b"].execute(call("pay", id="b")))
    assert inside.wait(10)
    a = start(lambda: doors["a"].execute(call("pay", id="a")))
    assert {ended(a).call_id, ended(b).call_id} == {"a", "b"}
    assert all(session.turn.queue == [] for session in sessions.values())


def _crossing(shared: bool) -> dict[str, ToolMessage]:
    """Two sessions, each with a call that makes a call on the other session at the same moment."""
    doors: dict[str, ToolExecutor] = {}
    both = threading.Barrier(1 if shared else 2, timeout=10)  # with one filesystem, one call waits for the other
    one = files(log="")

    def across(other: str) -> Any:
        def handler(params: Note, *, context: ToolContext) -> ToolResult[Note]:
            both.wait()
            message = doors[other].execute(call("scribble", id=f"in {other}"))
            return ToolResult.ok(params) if message.success else ToolResult.error(message.content)

        return handler

    for name, other in ("ab", "ba"):
        store = one if shared else files(log="")
        tools = tool("across", across(other)), tool("scribble", scribble)
        doors[name] = executor(*tools, session=Session(session_id=name), resources={Filesystem: store})
    runs = {name: start(partial(door.execute, call("across"))) for name, door in doors.items()}
    messages = {name: ended(run) for name, run in runs.items()}
    assert all(door.environment.session.turn.queue == [] for door in doors.values())
    assert one.turn.queue == []
    return messages


def test_of_two_calls_that_reach_into_each_others_sessions_one_is_refused(wording: Wording) -> None:
    """Neither waits for ever, and the refused one leaves nothing."""
    messages = _crossing(shared=False)
    assert sorted(message.success for message in messages.values()) == [False, True]
    [refused] = [message.content for message in messages.values() if not message.success]
    assert refused == wording


def test_two_sessions_on_one_filesystem_reach_into_each_other_one_after_the_other() -> None:
    """The filesystem puts them in a row, so both succeed."""
    assert all(message.success for message in _crossing(shared=True).values())


def test_twenty_threads_of_nested_calls_come_to_an_end() -> None:
    """Reads, writers and failures, three deep, on two sessions and one filesystem."""
    store = files(log="")
    doors: list[ToolExecutor] = []

    def nest(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        depth, number = (int(part) for part in params.text.split("/"))
        context.session[Kept].append(Kept(params.text))
        name = ("echo", "look", "fail", "nest")[(depth + number) % 4] if depth else "scribble"
        own = 0 if context.session is doors[0].environment.session else 1
        for turn in range(2):
            inner = doors[own].execute(call(name, f"{max(depth - 1, 0)}/{number}", id=f"{context.call_id}.{turn}"))
            assert inner.success is (name != "fail") or "fail" in inner.content or name == "nest"
        return ToolResult.ok(params) if number % 3 else ToolResult.error("no")

    def fail(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        scribble(params, context=context)
        raise ValueError("fail")

    for name in "ab":
        tools = tool("nest", nest), tool("look", echo, effect="read"), tool("fail", fail), tool("echo")
        session = Session(session_id=name)
        doors.append(executor(*tools, tool("scribble", scribble), session=session, resources={Filesystem: store}))

    def ask(number: int) -> ToolMessage:
        return doors[number % 2].execute(call("nest", f"3/{number}", id=str(number)))

    def run() -> list[ToolMessage]:
        with ThreadPoolExecutor(20) as threads:
            return list(threads.map(ask, range(40)))

    assert [message.success for message in in_time(run)] == [n % 3 != 0 for n in range(40)]
    for door in doors:
        session = door.environment.session
        assert session.turn.queue == []
        tops = {kept.text for kept in session[Kept] if kept.text.startswith("3/")}
        assert all(int(text.split("/")[1]) % 3 for text in tops)
    assert store.turn.queue == []
