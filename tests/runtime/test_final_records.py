"""Which records are final: what was refused for good is not run again, and what may pass is."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from handrail.errors import (
    EffectNotApplied,
    PromptEvaluationError,
    ToolValidationError,
    TurnConflictError,
)
from handrail.limits import Deadline
from handrail.prompt import Approval, ApprovalRequest, PolicyDecision, ToolContext, ToolResult
from handrail.runtime import EffectLedger, IdempotencyConfig, ToolCall, ToolInvoked
from handrail.session.calls import CallRef
from tests.kit import ASKS, Decides, Note, call, events, executor, tool
from tests.runtime.ledger_calls import prove_nothing
from tests.runtime.worlds import EFFECTS, World

MINUTES = timedelta(minutes=2)


def test_a_refusal_under_a_lost_claim_is_not_final(world: World) -> None:
    """Another session has taken the effect over: what becomes of it is for that one to say."""
    shared = IdempotencyConfig(scope="shop", lease=timedelta(minutes=1), on_orphan="retry")
    lapsed: list[str] = []

    def pay(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        if context.fence == 1:
            prove_nothing(world.store)
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


def test_a_refusal_is_final(world: World) -> None:
    """What the handler, a policy or the request itself has refused is not asked again."""

    def decide(_tool: object, params: Note) -> PolicyDecision:
        asked.append(params.text)
        return PolicyDecision.deny("no") if params.text == "denied" else PolicyDecision.allow()

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
        door = world.executor(session, policies=[Decides(decide)])
        calls = calls[-1:] + calls[:-1]
        first = door.execute_all(calls, reply="r")
        before = list(asked)
        again = door.execute_all(calls, reply="r")
        assert [message.content for message in again] == [message.content for message in first]
        assert {(message.success, message.replayed) for message in again} == {(False, True)}
        assert len(session[ToolInvoked]) == len(calls)
    assert (asked, world.done) == (before, ["refuse", "refuse"])


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


NOT_NOW = Decides(lambda _tool, _params: PolicyDecision.deny("not now", final=False))
UNDECIDED: dict[str, dict[str, Any]] = {
    "the policy raised": {"policies": [Decides(raises(sqlite3.OperationalError("database is locked")))]},
    "the policy could not look": {"policies": [Decides(raises(TurnConflictError("the file is in use")))]},
    "the policy said not now": {"policies": [NOT_NOW]},
    "no approver": {"policies": [ASKS]},
    "the approver raised": {"policies": [ASKS], "approver": raises(ConnectionError("no line"))},
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


DECIDED: dict[str, dict[str, Any]] = {
    "the policy denied": {"policies": [Decides(lambda _tool, _params: PolicyDecision.deny("no"))]},
    "the policy found the arguments wanting": {"policies": [Decides(raises(ToolValidationError("too much")))]},
    "the approver said no": {"policies": [ASKS], "approver": answers(answer=False)},
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
