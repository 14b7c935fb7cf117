"""A call is named by session, reply and id: what is recorded is not run again, and no other call is taken for it."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import (
    CallIdReusedError,
    CallPostponed,
    EffectNotApplied,
    PromptEvaluationError,
    ToolValidationError,
    TurnConflictError,
)
from handrail.limits import Deadline
from handrail.prompt import Approval, ApprovalRequest, PolicyDecision, Tool, ToolContext, ToolResult
from handrail.runtime import EffectLedger, IdempotencyConfig, Session, ToolCall, ToolInvoked, ToolMessage
from handrail.session.calls import CallRef
from handrail.store import SqliteStore, Store, session_sql
from handrail.testing import FakeClock
from tests.runtime.bench import Kept, Note, call, events, executor, tool
from tests.store.stores import STORES

MINUTES = timedelta(minutes=2)


@dataclass
class World:
    """The sessions of one store, and what handlers have done."""

    store: Store
    clock: FakeClock
    done: list[str] = field(default_factory=list[str])
    raises: list[BaseException] = field(default_factory=list[BaseException])
    seen: list[ToolContext] = field(default_factory=list[ToolContext])

    def session(self, name: str = "s") -> Session:
        """A session, opened."""
        return Session.open(self.store, name)

    def handle(self, params: Note, *, context: ToolContext) -> ToolResult[Note]:
        """Do it, unless something is to be raised."""
        self.seen.append(context)
        if self.raises:
            raise self.raises.pop()
        self.done.append(params.text)
        if params.text == "refuse":
            return ToolResult.error("no")
        return ToolResult.ok(params)

    @property
    def tools(self) -> tuple[Tool[Any, Any], ...]:
        """One of each effect, and one with a declared key."""
        return (
            tool("look", self.handle, effect="read"),
            tool("change", self.handle),
            tool("send", self.handle, effect="external"),
            tool("pay", self.handle, effect="external", idempotency=IdempotencyConfig()),
        )

    def executor(self, session: Session, **options: Any) -> ToolExecutor:
        """What carries calls out in that session."""
        return executor(*self.tools, session=session, clock=self.clock, **options)


@pytest.fixture(params=list(STORES))
def world(request: pytest.FixtureRequest) -> Generator[World]:
    """A world over each kind of store."""
    clock = FakeClock()
    with STORES[request.param](clock) as store:
        yield World(store, clock)


EFFECTS = ("look", "change", "send", "pay")


@pytest.mark.parametrize("name", EFFECTS)
def test_ids_that_begin_anew_in_each_reply_name_different_calls(world: World, name: str) -> None:
    """A server that counts from 0 in each reply: the second mail is sent."""
    with world.session() as session:
        door = world.executor(session)
        for reply, text in (("r1", "a"), ("r2", "b"), ("r3", "c")):
            message = door.execute(call(name, text, id="call_0"), reply=reply)
            assert (message.success, message.replayed) == (True, False)
    assert world.done == ["a", "b", "c"]


def test_a_refusal_under_a_lost_claim_is_not_final(world: World) -> None:
    """Another session has taken the effect over: what becomes of it is for that one to say."""
    shared = IdempotencyConfig(scope="shop", lease=timedelta(minutes=1), on_orphan="retry")
    lapsed: list[str] = []

    def pay(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        if context.fence == 1:
            world.clock.advance(MINUTES)
            lapsed.append(other.execute(call("pay", "a", id="call_0"), reply="r1").content)
            return ToolResult.error("the service has seen a newer fence")
        return ToolResult.ok(params, "paid")

    paying = tool("pay", pay, effect="external", idempotency=shared)
    with world.session("one") as one, world.session("two") as two:
        door, other = (executor(paying, session=session, clock=world.clock) for session in (one, two))
        refused = door.execute(call("pay", "a", id="call_0"), reply="r1")
        assert (refused.success, [event.final for event in events(door)]) == (False, [False])
        again = door.execute(call("pay", "a", id="call_0"), reply="r1")
        assert (again.success, again.replayed, len(lapsed)) == (True, True, 1)


def test_equal_words_in_two_replies_are_two_calls(world: World) -> None:
    """Only a declared key makes one effect of them."""
    with world.session() as session:
        door = world.executor(session)
        for name in EFFECTS:
            for reply in ("r1", "r2"):
                assert door.execute(call(name, name, id="call_0"), reply=f"{name} {reply}").success
    assert world.done == ["look", "look", "change", "change", "send", "send", "pay"]


@pytest.mark.parametrize("reopened", [False, True])
@pytest.mark.parametrize("name", EFFECTS)
def test_a_recorded_call_is_answered_from_its_record(world: World, name: str, *, reopened: bool) -> None:
    """The same reply and id, after a crash or in a second run: no handler runs, nothing is recorded again."""
    session = world.session()
    first = world.executor(session).execute(call(name, "a"), reply="r1")
    if reopened:
        session.close()
        session = world.session()
    with session:
        again = world.executor(session).execute(call(name, "a"), reply="r1")
        assert (again.content, again.success, again.replayed) == (first.content, True, True)
        assert len(session[ToolInvoked]) == 1
    assert world.done == ["a"]


@pytest.mark.anyio
async def test_the_asynchronous_entry_answers_from_the_record(world: World) -> None:
    """What holds for one entry holds for the other."""
    with world.session() as session:
        door = world.executor(session)
        messages = await door.execute_all_async([call("change", "a", id="1"), call("send", "b", id="2")], reply="r")
        again = await door.execute_all_async([call("change", "a", id="1"), call("send", "b", id="2")], reply="r")
    assert [message.replayed for message in (*messages, *again)] == [False, False, True, True]
    assert sorted(world.done) == ["a", "b"]


def test_a_refusal_is_final(world: World) -> None:
    """What the handler, a policy or the request itself has refused is not asked again."""

    @dataclass(frozen=True)
    class Refuses:
        name: str = "refuses"

        def check(self, tool: Any, params: Any, *, context: ToolContext) -> PolicyDecision:
            asked.append(params.text)
            return PolicyDecision.deny("no") if params.text == "denied" else PolicyDecision.allow()

        def on_result(self, tool: Any, params: Any, result: Any, *, context: ToolContext) -> None: ...

    asked: list[str] = []
    calls = [
        call("change", "refuse", id="1"),
        call("send", "refuse", id="2"),
        call("change", "denied", id="3"),
        call("nothing", id="4"),
        ToolCall("5", "change", "{}"),
        call("send", "found wanting", id="6"),
    ]
    world.raises.append(ToolValidationError("found wanting"))
    with world.session() as session:
        door = world.executor(session, policies=[Refuses()])
        calls = calls[-1:] + calls[:-1]
        first = door.execute_all(calls, reply="r")
        before = list(asked)
        again = door.execute_all(calls, reply="r")
        assert [message.content for message in again] == [message.content for message in first]
        assert {(message.success, message.replayed) for message in again} == {(False, True)}
        assert len(session[ToolInvoked]) == len(calls)
    assert (asked, world.done) == (before, ["refuse", "refuse"])


@dataclass(frozen=True)
class Guard:
    """A policy that does what a test says."""

    decide: Callable[[], PolicyDecision]
    name: str = "guard"

    def check(self, tool: Any, params: Any, *, context: ToolContext) -> PolicyDecision:
        return self.decide()

    def on_result(self, tool: Any, params: Any, result: Any, *, context: ToolContext) -> None: ...


def raises(error: Exception) -> Callable[..., Any]:
    """What raises an exception, whatever it is asked."""

    def decide(*_: object) -> Any:
        raise error

    return decide


def answers(*, answer: object) -> Callable[[ApprovalRequest], Any]:
    """An approver that has one answer."""

    def approver(_request: ApprovalRequest) -> Any:
        return answer

    return approver


def asks() -> PolicyDecision:
    """A policy's question."""
    return PolicyDecision.ask("may it?")


UNDECIDED: dict[str, dict[str, Any]] = {
    "the policy raised": {"policies": [Guard(raises(sqlite3.OperationalError("database is locked")))]},
    "the policy could not look": {"policies": [Guard(raises(TurnConflictError("the file is in use")))]},
    "the policy returned nothing": {"policies": [Guard(lambda: cast("PolicyDecision", None))]},
    "the policy said not now": {"policies": [Guard(lambda: PolicyDecision.deny("not now", final=False))]},
    "no approver": {"policies": [Guard(asks)]},
    "the approver raised": {"policies": [Guard(asks)], "approver": raises(ConnectionError("no line"))},
    "the approver gave no answer": {"policies": [Guard(asks)], "approver": answers(answer="yes")},
    "the approver said not now": {
        "policies": [Guard(asks)],
        "approver": answers(answer=Approval(approved=False, final=False)),
    },
}


@pytest.mark.parametrize("name", EFFECTS)
@pytest.mark.parametrize("why", UNDECIDED)
def test_a_refusal_that_nobody_has_decided_is_not_final(world: World, name: str, why: str) -> None:
    """The same call, asked again, is judged again."""
    with world.session() as session:
        refused = world.executor(session, **UNDECIDED[why]).execute(call(name, "a"), reply="r")
        assert (refused.success, world.done) == (False, [])
        approving = world.executor(session, policies=[Guard(asks)], approver=answers(answer=True))
        again = approving.execute(call(name, "a"), reply="r")
        assert (again.success, again.replayed) == (True, False)
        assert [event.final for event in session[ToolInvoked]] == [False, True]
    assert world.done == ["a"]


DECIDED: dict[str, dict[str, Any]] = {
    "the policy denied": {"policies": [Guard(lambda: PolicyDecision.deny("no"))]},
    "the policy found the arguments wanting": {"policies": [Guard(raises(ToolValidationError("too much")))]},
    "the approver said no": {"policies": [Guard(asks)], "approver": answers(answer=False)},
}


@pytest.mark.parametrize("why", DECIDED)
def test_a_refusal_that_was_decided_is_final(world: World, why: str) -> None:
    """No policy is asked again, and no approver."""
    with world.session() as session:
        first = world.executor(session, **DECIDED[why]).execute(call("send", "a"), reply="r")
        again = world.executor(session).execute(call("send", "a"), reply="r")
        assert (again.content, again.success, again.replayed) == (first.content, False, True)
    assert world.done == []


@pytest.mark.parametrize("name", EFFECTS)
def test_a_call_whose_handler_raised_goes_through_the_pipeline_again(world: World, name: str) -> None:
    """An exception is not a refusal: what was in the way may have passed, and a claim decides about the effect."""
    world.raises.append(EffectNotApplied("not yet"))
    with world.session() as session:
        door = world.executor(session)
        assert not door.execute(call(name, "a"), reply="r").success
        again = door.execute(call(name, "a"), reply="r")
        assert (again.success, again.replayed) == (True, False)
        assert [event.final for event in session[ToolInvoked]] == [False, True]
    assert world.done == ["a"]


def test_a_call_in_doubt_is_claimed_again_until_it_is_resolved(world: World) -> None:
    """The record of a call whose effect is unknown is not final."""
    world.raises.append(KeyboardInterrupt())
    with world.session() as session:
        door = world.executor(session)
        with pytest.raises(KeyboardInterrupt):
            door.execute(call("send", "a"), reply="r")
        refused = door.execute(call("send", "a"), reply="r")
        assert (refused.success, refused.replayed) == (False, False)
        ledger = EffectLedger(world.store)
        (row,) = ledger.rows()
        assert (row.status, row.owner.call) == ("unknown", CallRef("r", "call-1"))
        assert [event.final for event in session[ToolInvoked]] == [False, False]
    assert world.done == []


def test_a_call_that_the_deadline_refused_goes_through_the_pipeline_again(world: World) -> None:
    """It was not refused for what it asks."""
    with world.session() as session:
        late = world.executor(session, deadline=Deadline(world.clock.now(), clock=world.clock))
        with pytest.raises(PromptEvaluationError):
            late.execute(call("change", "a"), reply="r")
        assert world.executor(session).execute(call("change", "a"), reply="r").success
    assert world.done == ["a"]


@pytest.mark.parametrize("name", EFFECTS)
def test_an_id_without_a_reply_is_used_once_in_a_stored_session(world: World, name: str) -> None:
    """Whether it is the same call cannot be known, so it is the developer's to say, whatever the arguments are."""
    with world.session() as session:
        door = world.executor(session)
        assert door.execute(call(name, "a")).success
        for text in ("a", "b"):
            with pytest.raises(CallIdReusedError) as refused:
                door.execute(call(name, text))
            assert (refused.value.call_id, refused.value.reply, refused.value.tool) == ("call-1", None, name)
            assert refused.value.recorded_at == session[ToolInvoked].all()[0].at
        assert len(session[ToolInvoked]) == 1
    assert world.done == ["a"]


@pytest.mark.parametrize("is_stored", [True, False])
def test_an_empty_id_without_a_reply_names_nothing(world: World, *, is_stored: bool) -> None:
    """Such a call is not known again, so it runs each time; one that acts outside is refused, unless it has a key."""
    with world.session() if is_stored else Session(session_id="s") as session:
        door = world.executor(session)
        for name in ("look", "change", "pay"):
            assert [door.execute(call(name, name, id="")).replayed for _ in range(2)] == [False, name == "pay"]
        for _ in range(2):
            assert "no id by which it could be known again" in door.execute(call("send", id="")).content
    assert world.done == ["look", "look", "change", "change", "pay"]


def test_an_empty_id_names_one_call_of_a_reply(world: World) -> None:
    """With a reply it is an id like any other, but for what acts outside without a key."""
    with world.session() as session:
        door = world.executor(session)
        assert [door.execute(call("change", id=""), reply="r").replayed for _ in range(2)] == [False, True]
        with pytest.raises(CallIdReusedError):
            door.execute(call("change", "b", id=""), reply="r")
    assert world.done == ["hello"]


def test_an_id_without_a_reply_whose_record_is_not_final_goes_on(world: World) -> None:
    """A call that failed may be made again under its id."""
    world.raises.append(EffectNotApplied("not yet"))
    with world.session() as session:
        door = world.executor(session)
        assert not door.execute(call("send", "a")).success
        assert door.execute(call("send", "a")).success
    assert world.done == ["a"]


def test_calls_without_a_reply_run_each_time_in_memory() -> None:
    """Read and state calls; an external one is answered by its slot."""
    world = World(store=STORES["memory"](FakeClock()), clock=FakeClock())
    door = world.executor(Session(session_id="s"))
    for name in ("look", "look", "change", "change", "send", "send"):
        assert door.execute(call(name, name, id=name)).success
    assert world.done == ["look", "look", "change", "change", "send"]


def test_a_session_in_memory_answers_calls_with_a_reply_from_their_record() -> None:
    """As a stored one does."""
    world = World(store=STORES["memory"](FakeClock()), clock=FakeClock())
    door = world.executor(Session(session_id="s"))
    messages = [door.execute(call("change", "a"), reply="r") for _ in range(2)]
    assert ([message.replayed for message in messages], world.done) == ([False, True], ["a"])


@pytest.mark.parametrize("other", [call("change", "b"), call("send", "a")])
def test_an_identity_that_stands_for_another_call_is_refused(world: World, other: ToolCall) -> None:
    """Another tool or other words of the model under one reply and id: a mistake of the adapter, not of the model."""
    with world.session() as session:
        door = world.executor(session)
        door.execute(call("change", "a"), reply="r")
        with pytest.raises(CallIdReusedError) as refused:
            door.execute(other, reply="r")
        assert (refused.value.call_id, refused.value.reply, refused.value.tool) == ("call-1", "r", "change")
        assert len(session[ToolInvoked]) == 1
    assert world.done == ["a"]


def test_a_slot_that_stands_for_another_call_is_refused_before_it_is_claimed() -> None:
    """In memory and without a reply the ledger is what knows the call."""
    world = World(store=STORES["memory"](FakeClock()), clock=FakeClock())
    door = world.executor(Session(session_id="s"))
    door.execute(call("send", "a"))
    with pytest.raises(CallIdReusedError) as refused:
        door.execute(call("send", "b"))
    assert (refused.value.call_id, refused.value.tool, len(events(door))) == ("call-1", "send", 1)
    assert world.done == ["a"]


def test_words_are_compared_as_json(world: World) -> None:
    """Blanks and the order of fields do not make another call."""
    pair = ToolCall("c", "change", '{"text":   "a"}'), ToolCall("c", "change", {"text": "a"})
    with world.session() as session:
        door = world.executor(session)
        assert [door.execute(each, reply="r").replayed for each in pair] == [False, True]


@pytest.mark.parametrize("name", ["change", "send"])
def test_arguments_that_a_person_has_changed_are_recorded_beside_the_original(world: World, name: str) -> None:
    """An override runs, and the call stays the one that the model asked for."""
    overridden = ToolCall("c", name, {"text": "cheaper"}, written='{"text": "dear"}')
    with world.session() as session:
        assert world.executor(session).execute(overridden, reply="r").success
    with world.session() as session:
        (event,) = session[ToolInvoked].all()
        assert (event.params, event.call.written) == (Note("cheaper"), '{"text": "dear"}')
        again = world.executor(session).execute(ToolCall("c", name, '{"text": "dear"}'), reply="r")
        assert (again.replayed, again.content) == (True, "cheaper")
    assert world.done == ["cheaper"]


def test_an_override_under_a_slot_is_the_same_effect(world: World) -> None:
    """A slot compares what the model wrote: asked again with another override, it is replayed and does not run."""
    with world.session() as session:
        door = world.executor(session)
        for price in ("cheap", "cheaper"):
            message = door.execute(ToolCall("c", "send", {"text": price}, written={"text": "dear"}), reply="r")
            assert message.success
        (row,) = EffectLedger(world.store).rows()
    assert (world.done, row.key) == (["cheap"], "call:r/c")


def test_a_handler_learns_reply_and_id(world: World) -> None:
    """`context.reply` and `context.call_id`, and both as `context.call`."""
    with world.session() as session:
        world.executor(session).execute(call("change", id="c"), reply="r")
    (context,) = world.seen
    assert (context.reply, context.call_id, context.call) == ("r", "c", CallRef("r", "c"))


def test_two_tasks_that_make_the_same_call_run_it_once(world: World) -> None:
    """The second waits for its turn, and is then answered from the record of the first."""

    async def twice() -> list[ToolMessage]:
        with world.session() as session:
            door = world.executor(session)
            return await asyncio.gather(*(door.execute_async(call("change", "a"), reply="r") for _ in range(5)))

    messages = asyncio.run(twice())
    assert sorted(message.replayed for message in messages) == [False, True, True, True, True]
    assert world.done == ["a"]


def test_two_threads_that_make_the_same_call_run_it_once(world: World) -> None:
    """The same on threads, through the synchronous entry."""
    with world.session() as session:
        door = world.executor(session)
        messages: list[ToolMessage] = []
        threads = [
            threading.Thread(target=lambda: messages.append(door.execute(call("send", "a"), reply="r")))
            for _ in range(5)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(message.replayed for message in messages) == [False, True, True, True, True]
    assert world.done == ["a"]


def test_calls_made_inside_others_are_named_by_these(world: World) -> None:
    """Two calls whose handlers use one id inside make two effects; a parent that is made again finds its own."""
    fails = [True]
    door: list[ToolExecutor] = []

    def outer(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        inner = door[0].execute(call("send", params.text, id="inside"))
        context.session[Kept].append(Kept(params.text))
        if params.text == "b" and fails.pop():
            raise ValueError("after the call inside")
        return ToolResult.ok(params) if inner.success else ToolResult.error(inner.content)

    with world.session() as session:
        door.append(executor(*world.tools, tool("outer", outer), session=session, clock=world.clock))
        fails.append(False)
        fails[:] = [False, True]
        replies = [("r1", "a"), ("r2", "b")]
        for reply, text in replies:
            door[0].execute(call("outer", text, id="call_0"), reply=reply)
        keys = [row.key for row in EffectLedger(world.store).rows()]
        assert sorted(keys) == ["call:@r1%2Fcall_0/inside", "call:@r2%2Fcall_0/inside"]
        assert [kept.text for kept in session[Kept]] == ["a"]
    assert world.done == ["a", "b"]


def test_no_reply_that_a_program_states_names_the_calls_inside_another(world: World) -> None:
    """Whatever its characters, a top-level call is not answered by a nested one; the mark of those is refused."""

    def outer(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        assert door.execute(call("send", params.text, id="inside")).success
        return ToolResult.ok(params)

    with world.session() as session:
        door = executor(*world.tools, tool("outer", outer), session=session, clock=world.clock)
        door.execute(call("outer", "a", id="7"), reply="day-1")
        door.execute(call("outer", "b", id="8"))
        for reply, text in (("day-1/7", "a"), ("8", "b")):
            message = door.execute(call("send", text, id="inside"), reply=reply)
            assert (message.success, message.replayed) == (True, False)
        for reply in ("@day-1/7", "@8", "@"):
            with pytest.raises(ValueError, match="does not begin with '@'"):
                door.execute(call("send", "a", id="inside"), reply=reply)
    assert world.done == ["a", "b", "a", "b"]


def test_a_fork_does_not_answer_from_the_records_of_its_origin(world: World) -> None:
    """The session is a part of the identity: a call of the past that is made again in the fork runs again."""
    with world.session() as session:
        world.executor(session).execute(call("change", "a"), reply="r")
        with session.fork(session_id="fork") as fork:
            door = world.executor(fork)
            assert [door.execute(call("change", "a"), reply="r").replayed for _ in range(2)] == [False, True]
    with world.session("fork") as fork:
        assert world.executor(fork).execute(call("change", "a"), reply="r").replayed
    assert world.done == ["a", "a"]


def test_a_postponed_call_is_not_recorded_and_runs_when_it_is_made_again(world: World) -> None:
    """It has no final record."""

    @dataclass(frozen=True)
    class Asks:
        name: str = "asks"

        def check(self, tool: Any, params: Any, *, context: ToolContext) -> PolicyDecision:
            return PolicyDecision.ask("may it?")

        def on_result(self, tool: Any, params: Any, result: Any, *, context: ToolContext) -> None: ...

    answers: list[bool] = []

    def approver(request: Any) -> bool:
        assert request.call == CallRef("r", "call-1")
        if not answers:
            raise CallPostponed("nobody is here")
        return answers.pop()

    with world.session() as session:
        door = world.executor(session, policies=[Asks()], approver=approver)
        with pytest.raises(CallPostponed):
            door.execute(call("change", "a"), reply="r")
        assert len(session[ToolInvoked]) == 0
        answers.append(True)
        assert door.execute(call("change", "a"), reply="r").success
    assert world.done == ["a"]


@pytest.mark.parametrize("reply", ["", "a\0b", "\ud800", "x" * 501, 7])
def test_a_reply_that_names_nothing_is_refused(world: World, reply: Any) -> None:
    """It could not be looked up."""
    with world.session() as session:
        door = world.executor(session)
        with pytest.raises(ValueError, match="names a reply of the model"):
            door.execute(call("change", "a"), reply=reply)
        assert len(session[ToolInvoked]) == 0


def test_a_session_with_many_records_finds_the_oldest(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond those that are loaded with the session each is asked for by itself."""
    monkeypatch.setattr("handrail.session.calls._MOST_LOADED", 3)
    with world.session() as session:
        door = world.executor(session)
        for number in range(8):
            door.execute(call("change", str(number), id="c"), reply=f"r{number}")
    with world.session() as session:
        door = world.executor(session)
        for number in range(8):
            assert door.execute(call("change", str(number), id="c"), reply=f"r{number}").replayed
        assert not door.execute(call("change", "new", id="c"), reply="r9").replayed
    assert world.done == [*map(str, range(8)), "new"]


@pytest.mark.parametrize("call_id", ["", "x" * 501, "a\0b", "\ud800"])
@pytest.mark.parametrize("name", ["look", "change", "pay"])
def test_an_id_that_no_store_can_hold_names_its_call_all_the_same(world: World, name: str, call_id: str) -> None:
    """Models send any id; its digest is looked up."""
    with world.session() as session:
        assert world.executor(session).execute(call(name, "a", id=call_id), reply="r").success
    with world.session() as session:
        door = world.executor(session)
        assert door.execute(call(name, "a", id=call_id), reply="r").replayed
        with pytest.raises(CallIdReusedError):
            door.execute(call(name, "b", id=call_id), reply="r")
        assert not door.execute(call("change", "c", id=call_id), reply="r2").replayed
    assert world.done == ["a", "c"]


@pytest.mark.parametrize("options", [{"effect": "read"}, {"concurrent": True}])
def test_calls_of_one_identity_that_run_side_by_side_are_recorded_once(world: World, options: dict[str, Any]) -> None:
    """Both run, because neither is recorded when they begin; the second one's result is dropped."""

    async def twice(session: Session, *asked: ToolCall) -> list[ToolMessage | BaseException]:
        door = executor(tool("beside", world.handle, **options), session=session, clock=world.clock)
        calls = [door.execute_async(each, reply="r") for each in asked]
        return await asyncio.gather(*calls, return_exceptions=True)

    with world.session() as session:
        first, second = asyncio.run(twice(session, call("beside", "a"), call("beside", "a")))
        assert isinstance(first, ToolMessage)
        assert isinstance(second, ToolMessage)
        assert [first.replayed, second.replayed] == [False, True]
        assert (len(session[ToolInvoked]), session[Note].all()) == (1, (Note("a"),))
        one, other = asyncio.run(twice(session, call("beside", "b", id="2"), call("beside", "c", id="2")))
        assert isinstance(one, ToolMessage)
        assert isinstance(other, CallIdReusedError)
        assert (len(session[ToolInvoked]), session[Note].all()) == (2, (Note("a"), Note("b")))


def test_records_are_found_by_the_index(tmp_path: Path) -> None:
    """A session of any length is asked for one call in the same time."""
    with SqliteStore(tmp_path / "desk.db") as store, Session.open(store, "s") as session:
        World(store, FakeClock()).executor(session).execute(call("change"), reply="r")
    with closing(sqlite3.connect(tmp_path / "desk.db")) as database:
        plan = database.execute(f"EXPLAIN QUERY PLAN {session_sql.RECORD}", ("s", "r", "c")).fetchall()
    assert "handrail_entries_of_calls" in str(plan)
