"""Calls of a session whose store fails, is in doubt, or belongs to somebody else by now: nothing twice or lost."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator
from datetime import timedelta
from typing import Any

import pytest

from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import CommitInDoubtError, RecordingError, SessionLostError
from handrail.prompt import IdempotencyConfig, ToolContext, ToolResult
from handrail.runtime import EffectLedger, Session, ToolCall, ToolInvoked, ToolMessage
from handrail.testing import FakeClock
from handrail.waiting import check_blocking
from tests.kit import Handler, Kept, Note, call, events, executor, raises, tool
from tests.session.faulty_stores import FaultyStore, Point, faulty
from tests.session.samples import Happened
from tests.store.stores import STORES
from tests.wording import Wording

NOW = timedelta(0)
PATIENCE = 30.0  # seconds after which a thread that waits has been forgotten
ONCE = IdempotencyConfig(on_busy="reject")


def refuse(event: Note) -> None:
    """A subscriber that fails."""
    raise ValueError(event.text)


class Desk:
    """A program over one stored session, with a tool `pay` that acts outside and a tool `note` that does not."""

    def __init__(self, store: FaultyStore, clock: FakeClock) -> None:
        self.clock = clock
        self.store = store
        self.paid: list[str] = []
        self.noted: list[str] = []
        self.door = self.opened()

    def opened(self) -> ToolExecutor:
        """The program as it starts."""

        def noting_in(log: list[str]) -> Handler:
            def handler(params: Note, *, context: ToolContext) -> ToolResult[Note]:
                log.append(params.text)
                context.session[Kept].append(Kept(params.text))
                return ToolResult.ok(params)

            return handler

        pay, note = noting_in(self.paid), noting_in(self.noted)
        session = Session.open(self.store, "s", wait=NOW)
        paying = tool("pay", pay, effect="external", idempotency=ONCE)
        noting = tool("note", note)
        careful = tool("careful", note, idempotency=ONCE)
        return executor(paying, noting, careful, session=session, clock=self.clock)

    @property
    def session(self) -> Session:
        return self.door.environment.session

    def again(self) -> None:
        """End the program, and start it anew."""
        self.session.close()
        self.door = self.opened()

    def kept(self) -> list[str]:
        """What the session holds."""
        return [kept.text for kept in self.session[Kept]]

    def statuses(self) -> list[str]:
        """What the ledger knows."""
        return [row.status for row in self.store.rows()]


def ended(desk: Desk, name: str, text: str, id: str = "call-1") -> RecordingError:
    """What ends the run, in place of a message to the model."""
    with pytest.raises(RecordingError) as raised:
        desk.door.execute(call(name, text, id=id))
    assert (raised.value.phase, raised.value.session_id, raised.value.tool) == ("store", "s", name)
    return raised.value


@pytest.fixture(params=list(STORES))
def desk(request: pytest.FixtureRequest) -> Generator[Desk]:
    """The desk over each kind of store."""
    clock = FakeClock()
    with faulty(str(request.param), clock) as store:
        yield Desk(store, clock)


def test_a_call_is_there_whole_when_the_session_is_opened_again(desk: Desk) -> None:
    """Its changes, its record and its effect; asked again, it is replayed and not applied twice."""
    desk.door.execute(call("pay", "A"))
    (before,) = events(desk.door)
    desk.again()
    (after,) = events(desk.door)
    assert after == before
    assert desk.kept() == ["A"]
    message = desk.door.execute(call("pay", "A", id="call-2"))
    assert (message.success, message.replayed, desk.paid, desk.kept()) == (True, True, ["A"], ["A"])
    assert desk.session[Note].all() == (Note("A"),)


@pytest.mark.parametrize("point, name", [("insert", "pay"), ("insert", "careful")])
def test_down_before_the_handler_nothing_is_run(desk: Desk, point: Point, name: str) -> None:
    """The run ends, and the call is known to have been made; there is no row of the ledger."""
    desk.store.go_down(point)
    assert ended(desk, name, "A").effect == "none"
    assert (desk.paid, desk.noted, desk.statuses()) == ([], [], [])
    desk.store.come_back()
    desk.again()
    assert [event.success for event in events(desk.door)] == [False]
    assert desk.door.execute(call(name, "A", id="call-2")).success
    assert (desk.paid + desk.noted, desk.kept()) == (["A"], ["A"])


@pytest.mark.parametrize("point", ["begin", "begun", "append", "commit", "committed"])
@pytest.mark.parametrize("name", ["pay", "careful", "note"])
def test_down_for_a_moment_after_the_handler_nobody_notices(desk: Desk, point: Point, name: str) -> None:
    """The unit is tried again; one that was committed although the store said otherwise is known again."""
    desk.store.lose(point)
    assert desk.door.execute(call(name, "A")).success
    assert desk.door.execute(call("note", "B", id="call-2")).success
    desk.again()
    assert (desk.kept(), [event.call_id for event in events(desk.door)]) == (["A", "B"], ["call-1", "call-2"])
    assert set(desk.statuses()) <= {"done"}


def test_down_after_an_effect_it_is_said_and_never_done_again(desk: Desk, wording: Wording) -> None:
    """The row stays running, and is unknown when its lease has passed; the state is undone."""
    desk.store.go_down("begin", "replace")
    error = ended(desk, "pay", "A")
    assert str(error) == wording
    assert error.effect == "unknown"
    assert (desk.kept(), desk.statuses()) == ([], ["running"])
    desk.store.come_back()
    assert not desk.door.execute(call("pay", "A", id="call-2")).success
    desk.again()
    desk.clock.advance(timedelta(minutes=1, seconds=1))
    assert not desk.door.execute(call("pay", "A", id="call-3")).success
    assert (desk.paid, desk.kept(), desk.statuses()) == (["A"], [], ["unknown"])
    assert [event.success for event in events(desk.door)] == [False, False, False]


@pytest.mark.parametrize("name", ["note", "careful"])
def test_down_after_a_call_that_changes_state_it_is_undone(desk: Desk, name: str, wording: Wording) -> None:
    """And the run ends; asked again when the store answers, it runs."""
    desk.store.go_down("begin")
    assert str(ended(desk, name, "A")) == wording
    assert desk.kept() == []
    desk.store.come_back()
    assert desk.door.execute(call(name, "A", id="call-2")).success
    desk.again()
    assert (desk.kept(), [event.success for event in events(desk.door)]) == (["A"], [False, True])


@pytest.mark.parametrize("name", ["pay", "careful", "note"])
def test_a_commit_in_doubt_ends_the_run(desk: Desk, name: str, wording: Wording) -> None:
    """Nothing more is done in this session; opened again, it holds what the store has, and nothing is done twice."""
    desk.store.lose("committed")
    desk.store.at("begin", lambda: None)
    desk.store.go_down("begin")
    with raises(CommitInDoubtError, wording):
        desk.door.execute(call(name, "A"))
    desk.store.come_back()
    assert str(ended(desk, name, "B", id="call-2")) == wording
    assert len(desk.paid + desk.noted) == 1
    desk.again()
    assert desk.kept() == ["A"]
    message = desk.door.execute(call(name, "A", id="call-3"))
    assert message.replayed == (name != "note")
    assert len(desk.paid + desk.noted) == (2 if name == "note" else 1)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
@pytest.mark.parametrize("name, deferred", [("pay", False), ("pay", True), ("note", False)])
def test_a_commit_asks_on_a_thread_whether_the_one_before_it_was_made(kind: str, name: str, deferred: bool) -> None:
    """The event loop runs meanwhile: another session commits. The calls of the session wait, and keep their order.

    Asked on the loop, as it would be with a claim or a commit that asks by itself, the loop guard raises.
    """
    clock, reached, opened = FakeClock(), threading.Event(), threading.Event()

    def ask() -> None:
        reached.set()
        check_blocking("asking the store")
        assert opened.wait(PATIENCE)

    async def calls(desk: Desk, beside: Session) -> list[ToolMessage]:
        first = asyncio.ensure_future(desk.door.execute_async(call(name, "B", id="call-2")))
        assert await asyncio.to_thread(reached.wait, PATIENCE)
        second = asyncio.ensure_future(desk.door.execute_async(call("note", "C", id="call-3")))
        other = await executor(tool("note"), session=beside).execute_async(call("note", "D"))
        assert not second.done()
        opened.set()
        return [other, await first, await second]

    with faulty(kind, clock) as store:
        desk = Desk(store, clock)
        store.go_down("begin")
        with pytest.raises(RecordingError):
            asyncio.run(desk.door.execute_async(call("note", "A")))
        store.come_back()
        if deferred:  # as the reply of a model is, which is written with the first claim
            desk.session[Happened].log(Happened("a reply"), write="deferred")
        store.at("check", ask)
        with Session.open(store, "beside") as beside:
            messages = asyncio.run(calls(desk, beside))
        assert [message.success for message in messages] == [True] * 3
        desk.again()
        assert [event.call_id for event in events(desk.door)] == ["call-1", "call-2", "call-3"]
        assert desk.kept() == ["B", "C"]
        assert len(desk.session[Happened]) == deferred


@pytest.mark.parametrize("name", ["pay", "note"])
def test_a_session_that_has_passed_to_another_is_told_and_nothing_is_done_outside(
    desk: Desk, name: str, wording: Wording
) -> None:
    """The claim, or else the commit, is refused. What the other one has written stays, and nothing else is kept."""
    desk.door.execute(call("note", "A"))
    desk.store.release(desk.store.holds[-1])
    stale, desk.door = desk.door, desk.opened()
    desk.door.execute(call("note", "B", id="call-2"))
    with raises(RecordingError, wording) as raised:
        stale.execute(call(name, "C", id="call-3"))
    assert isinstance(raised.value.__cause__, SessionLostError)
    assert desk.paid == []
    desk.door.execute(call("note", "D", id="call-4"))
    desk.again()
    assert desk.kept() == ["A", "B", "D"]


@pytest.mark.parametrize("name", ["pay", "note"])
def test_a_session_that_is_lost_while_the_handler_runs_keeps_nothing_of_it(desk: Desk, name: str) -> None:
    """What has been done outside is in the ledger all the same."""
    desk.store.at("begin", lambda: desk.store.release(desk.store.holds[-1]))
    error = ended(desk, name, "A")
    assert isinstance(error.__cause__, SessionLostError)
    assert error.effect == ("done" if name == "pay" else "none")
    assert desk.kept() == []
    desk.again()
    assert (desk.kept(), desk.statuses()) == ([], ["done"] if name == "pay" else [])


def test_what_a_model_sends_is_recorded_and_read_again(desk: Desk) -> None:
    """Also what is no Unicode, no JSON, or nothing at all; and the calls after it are as if nothing had been."""
    deep: dict[str, Any] = {}
    for _ in range(5000):
        deep = {"a": deep}
    sent: list[Any] = ['{"text": "\ud800"}', deep, {"text": object()}, {1: 2}, b"\xff", None, 10**5000, float("nan")]
    for number, arguments in enumerate(sent):
        desk.door.execute(ToolCall(f"c{number}", "note", arguments))
        desk.door.execute(ToolCall(f"c{number}", "note", arguments), reply="reply-1")
    odd: Any = b"note"
    desk.door.execute(ToolCall("\ud800", "no\ud800te", "{}"))
    desk.door.execute(ToolCall("c", odd, "{}"))
    assert desk.door.execute(call("note", "A")).success
    shown = [(event.success, event.result.message) for event in events(desk.door)]
    desk.again()
    assert [(event.success, event.result.message) for event in desk.session[ToolInvoked]] == shown
    assert len(shown) == 2 * len(sent) + 3
    for number, arguments in enumerate(sent):  # each is known again as the call that it was
        assert not desk.door.execute(ToolCall(f"c{number}", "note", arguments), reply="reply-1").success


@pytest.mark.parametrize("is_down, status", [(False, "done"), (True, "running")])
def test_an_effect_whose_call_fails_after_it_is_told_to_be_done(
    desk: Desk, is_down: bool, status: str, wording: Wording
) -> None:
    """Whatever it was that failed. One that cannot be recorded is unknown when its lease has passed by itself."""
    desk.session.dispatcher.subscribe(Note, refuse)
    if is_down:
        desk.store.go_down("replace")
    message = desk.door.execute(call("pay", "A"))
    assert not message.success
    assert message.content == wording
    assert (desk.kept(), desk.statuses()) == ([], [status])


def test_an_effect_recorded_elsewhere_is_not_told_to_be_undone(desk: Desk, wording: Wording) -> None:
    """A ledger in memory knows of it at once; the session, whose store is down, does not."""
    ledger = EffectLedger()
    environment = desk.door.environment
    door = ToolExecutor(prompt=environment.prompt, session=desk.session, effect_ledger=ledger, clock=desk.clock)
    desk.store.go_down("begin")
    with raises(RecordingError, wording) as raised:
        door.execute(call("pay", "A"))
    assert raised.value.effect == "done"
    desk.store.come_back()
    again = door.execute(call("pay", "A"))
    assert (again.success, again.replayed, desk.paid, desk.kept()) == (True, True, ["A"], [])
