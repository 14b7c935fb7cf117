"""Which records are final: what was refused for good is not run again, and what may pass is."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import (
    CallIdReusedError,
    CallPostponed,
    EffectNotApplied,
    PromptEvaluationError,
    SessionError,
    ToolValidationError,
    TurnConflictError,
)
from handrail.limits import Deadline
from handrail.prompt import Approval, ApprovalRequest, External, PolicyDecision, ToolContext, ToolResult
from handrail.prompt.idempotency import slot_key
from handrail.runtime import IdempotencyConfig, ToolCall, ToolInvoked
from handrail.session import Session
from handrail.session.calls import CallRef
from tests.kit import ASKS, Decides, Kept, Note, call, events, executor, prompt, raises, tool
from tests.runtime.kit import EFFECTS, World, later
from tests.runtime.ledger_calls import prove_nothing
from tests.wording import Wording

MINUTES = timedelta(minutes=2)


def test_a_refusal_under_a_lost_claim_is_not_final(world: World) -> None:
    """Another session has taken the effect over: what becomes of it is for that one to say."""
    shared = IdempotencyConfig(scope="shop")
    lapsed: list[str] = []

    def pay(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        if context.fence == 1:
            prove_nothing(world.store)
            world.clock.advance(MINUTES)
            lapsed.append(other.execute(call("pay", "a", id="call_0"), reply="r1").content)
            return ToolResult.error("the service has seen a newer fence")
        return ToolResult.ok(params, "paid")

    paying = tool("pay", pay, effect=External(on_orphan="retry"), idempotency=shared)
    with world.session("one") as one, world.session("two") as two:
        door, other = (executor(paying, session=session, clock=world.clock) for session in (one, two))
        refused = door.execute(call("pay", "a", id="call_0"), reply="r1")
        assert (refused.success, [event.final for event in events(door)]) == (False, [False])
        again = door.execute(call("pay", "a", id="call_0"), reply="r1")
        assert (again.success, again.replayed, len(lapsed)) == (True, True, 1)


def test_a_refusal_is_final(world: World) -> None:
    """What the handler, a policy or the request itself has refused is not asked again."""

    def decide(_tool: object, params: Note) -> PolicyDecision:
        asked.append(params.text)
        if params.text == "too much":
            raise ToolValidationError(params.text)
        return PolicyDecision.deny("no") if params.text == "denied" else PolicyDecision.allow()

    asked: list[str] = []
    calls = [
        call("change", "refuse", id="1"),
        call("send", "refuse", id="2"),
        call("change", "denied", id="3"),
        call("nothing", id="4"),
        call("change", "too much", id="7"),
        ToolCall("5", "change", "{}"),
        call("send", "found wanting", id="6"),
    ]
    world.raises.append(ToolValidationError("found wanting"))
    with world.session() as session:
        door = world.executor(session, policies=[Decides(decide)])
        calls = calls[-1:] + calls[:-1]
        first = door.execute_all(calls, reply="r")
        before = list(asked)
        again = door.execute_all(calls, reply="r")
        assert [message.content for message in again] == [message.content for message in first]
        assert {(message.success, message.replayed) for message in again} == {(False, True)}
        assert len(session[ToolInvoked]) == len(calls)
    assert (asked, world.done) == (before, ["refuse", "refuse"])


def raising(error: Exception) -> Callable[..., Any]:
    """What raises an exception, whatever it is asked."""

    def decide(*_: object) -> Any:
        raise error

    return decide


def answers(*, answer: object) -> Callable[[ApprovalRequest], Any]:
    """An approver that has one answer."""

    def approver(_request: ApprovalRequest) -> Any:
        return answer

    return approver


NOT_NOW = Decides(lambda _tool, _params: PolicyDecision.deny("not now", final=False))


UNDECIDED: dict[str, dict[str, Any]] = {
    "the policy raised": {"policies": [Decides(raising(sqlite3.OperationalError("database is locked")))]},
    "the policy could not look": {"policies": [Decides(raising(TurnConflictError("the file is in use")))]},
    "the policy said not now": {"policies": [NOT_NOW]},
    "no approver": {"policies": [ASKS]},
    "the approver raised": {"policies": [ASKS], "approver": raising(ConnectionError("no line"))},
    "the approver said not now": {
        "policies": [ASKS],
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
        approving = world.executor(session, policies=[ASKS], approver=answers(answer=True))
        again = approving.execute(call(name, "a"), reply="r")
        assert (again.success, again.replayed) == (True, False)
        assert [event.final for event in session[ToolInvoked]] == [False, True]
    assert world.done == ["a"]


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


def test_a_call_that_the_deadline_refused_goes_through_the_pipeline_again(world: World) -> None:
    """It was not refused for what it asks."""
    with world.session() as session:
        late = world.executor(session, deadline=Deadline(world.clock.now(), clock=world.clock))
        with pytest.raises(PromptEvaluationError):
            late.execute(call("change", "a"), reply="r")
        assert world.executor(session).execute(call("change", "a"), reply="r").success
    assert world.done == ["a"]


IDS = {
    "a megabyte": "x" * 1_000_000,
    "a NUL": "a\0b",
    "no Unicode": "\ud800",
    "wide": "\u6f22" * 3_000,
    "501": "y" * 501,
}


def note(params: Note, *, context: ToolContext) -> ToolResult[Note]:
    """Leave the text in the session."""
    context.session[Kept].append(Kept(params.text))
    return ToolResult.ok(params)


def ask_on_ask(_tool: object, params: Note) -> PolicyDecision:
    """Have every call with the text `ask` approved."""
    return PolicyDecision.ask("now?") if params.text == "ask" else PolicyDecision.allow()


def executor_call_ids(session: Session) -> ToolExecutor:
    """A tool of each effect, over a session."""
    tools = tool("look", effect="read"), tool("note", note), tool("pay", effect="external")
    return ToolExecutor(prompt=prompt(*tools, policies=[Decides(ask_on_ask)]), session=session, approver=later)


@pytest.mark.parametrize("call_id", IDS.values(), ids=IDS)
@pytest.mark.parametrize("reply", [None, "r1", "a\0b", "\ud800" * 501])
def test_a_call_of_any_id_runs_once_is_recorded_and_is_found_again(
    world: World, call_id: str, reply: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """Of each effect; so does one that waits for approval. Nothing of it is logged as a failure."""
    with world.session() as session:
        door = executor_call_ids(session)
        for name in ("look", "note", "pay"):
            call = ToolCall(f"{call_id}{name}", name, {"text": "a"})
            assert door.execute(call, reply=reply).content == "a"
            if reply is None:
                with pytest.raises(CallIdReusedError) as caught:
                    door.execute(call)
                assert len(str(caught.value)) < 1_000
            else:
                assert door.execute(call, reply=reply).replayed
        with pytest.raises(CallPostponed):
            door.execute(ToolCall(f"{call_id}ask", "note", {"text": "ask"}), reply=reply)
        (waits,) = session.open_calls
        assert waits.call == CallRef(reply, f"{call_id}ask").storable
    with world.session() as session:
        assert (session[Kept].all(), [each.state for each in session.open_calls]) == ((Kept("a"),), ["postponed"])
        door = executor_call_ids(session)
        for name in ("look", "note", "pay") if reply else ():
            again, other = (ToolCall(f"{call_id}{name}", name, {"text": text}) for text in "ab")
            assert door.execute(again, reply=reply).replayed
            with pytest.raises(CallIdReusedError):
                door.execute(other, reply=reply)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.parametrize("call_id", IDS.values(), ids=IDS)
def test_a_session_is_forked_at_a_call_of_any_id(world: World, call_id: str, wording: Wording) -> None:
    """By the id as the model gave it; a call that there is not is refused in few words."""
    with world.session() as session:
        door = executor_call_ids(session)
        for number, text in enumerate("abc"):
            door.execute(ToolCall(f"{call_id}{number}", "note", {"text": text}), reply="r1")
        with session.fork(at=("r1", f"{call_id}1")) as fork:
            assert fork[Kept].all() == (Kept("a"), Kept("b"))
        for gone in ((None, f"{call_id}1"), ("r1", f"{call_id}9"), (call_id, call_id)):
            with raises(SessionError, wording) as caught:
                session.fork(at=gone)
            assert len(str(caught.value)) < 500


@pytest.mark.parametrize("depth", range(1, 7))
def test_the_slot_of_a_call_has_a_key_that_every_store_can_index(depth: int) -> None:
    """However long its id is, and however deep it was made inside others, whose names are its reply."""
    ref = CallRef("\u6f22" * 500, "\u5b57" * 500)
    for _ in range(depth):
        ref = CallRef(str(ref), "\u5b57" * 500)
    assert len(slot_key(ref)) < 1_000
    assert len({slot_key(CallRef(ref.reply, f"{ref.call_id}{number}")) for number in range(9)}) == 9
    assert slot_key(CallRef("r" * 250, "c" * 250)) == f"call:{'r' * 250}/{'c' * 250}"
