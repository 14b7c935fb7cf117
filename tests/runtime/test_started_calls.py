"""A call whose effect has been started was decided before: it is answered from the ledger, and not judged anew."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from handrail.adapters.loop import session_ledger
from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import CallPostponed, EffectUncertain, PromptEvaluationError
from handrail.limits import Deadline
from handrail.prompt import (
    Approval,
    ApprovalRequest,
    External,
    IdempotencyConfig,
    PolicyDecision,
    Tool,
    ToolContext,
    ToolResult,
)
from handrail.runtime import Session, ToolCall, ToolInvoked, ToolMessage
from handrail.runtime.calls import Step
from handrail.runtime.ledger.effects import EffectResult, NotApplied
from handrail.session.open_calls import GivenAnswer, PostponedCall, postponed_call
from tests.kit import ASKS, Decides, Note, tool
from tests.runtime.shops import MINUTE, Shop, ask
from tests.store.kit import replace
from tests.wording import Wording

both_entries = pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])

DENIES = Decides(lambda _tool, _params: PolicyDecision.deny("the shop is closed"))


@dataclass
class Desk:
    """A tool that pays, whose calls are asked about.

    Attributes:
        shop: where the sessions are.
        answers: what the approver answers, the first one first.
        asked: how often it was asked.
        paid: how often the handler ran; it does not know whether it has paid until `knows`.
        knows: whether the handler knows.
        found: what the reconciler finds.
    """

    shop: Shop
    answers: list[bool | Approval]
    asked: list[ApprovalRequest] = field(default_factory=list[ApprovalRequest])
    paid: list[str] = field(default_factory=list[str])
    knows: bool = False
    found: Callable[[], ToolResult[Note] | None] | None = None

    def approve(self, request: ApprovalRequest) -> bool | Approval:
        """Answer as planned."""
        self.asked.append(request)
        return self.answers.pop(0)

    def pay(self, params: Note, *, context: ToolContext) -> ToolResult[Note]:
        """Pay; the bank may not answer."""
        self.paid.append(params.text)
        if not self.knows:
            raise EffectUncertain("the bank has not answered")
        return ToolResult.ok(params, "paid")

    def look(self, _params: Note, _key: str) -> ToolResult[Note] | None:
        """Ask the bank."""
        assert self.found is not None
        return self.found()

    def door(
        self, session: Session, policy: Any = ASKS, *, key: IdempotencyConfig | None = None, **options: Any
    ) -> ToolExecutor:
        """The tool over a session."""
        retries = options.pop("on_orphan", None) == "retry"
        look = None if self.found is None else self.look
        effect = External(lease=MINUTE, on_orphan="retry") if retries else External(lease=MINUTE, reconcile=look)
        made: Tool[Note, Note] = tool("charge", self.pay, effect=effect, idempotency=key)
        options.setdefault("approver", self.approve)
        return self.shop.door(session, made, policies=[policy], **options)


def make(door: ToolExecutor, is_async: bool) -> ToolMessage:
    """Make the call, by one of the entries."""
    if not is_async:
        return ask(door)
    return asyncio.run(door.execute_async(ToolCall("call-1", "charge", {"text": "lamp"}), reply="r1"))


def resolve(shop: Shop, session: Session, finding: EffectResult | NotApplied) -> None:
    """A person finds out."""
    assert session_ledger(session, clock=shop.clock).resolve(shop.row(), finding)


@both_entries
def test_a_call_that_was_approved_and_has_started_is_not_asked_about_again(
    shop: Shop, is_async: bool, wording: Wording
) -> None:
    """Unknown, and then done: a no would come too late, and would have the model read that nothing happened."""
    desk = Desk(shop, [True, False])
    session = shop.session()
    door = desk.door(session)
    assert not make(door, is_async).success
    unknown = make(door, is_async)
    assert unknown.content == wording
    assert [each.state for each in session.open_calls] == ["unknown"]
    resolve(shop, session, EffectResult("paid, says the bank", b'{"text":"lamp"}'))
    done = make(door, is_async)
    assert (done.success, done.replayed, done.result.message) == (True, True, "paid, says the bank")
    assert (len(desk.asked), desk.paid, session.open_calls) == (1, ["lamp"], ())


@both_entries
def test_a_call_whose_process_has_died_is_not_asked_about_again(shop: Shop, is_async: bool, wording: Wording) -> None:
    """Its lease has expired, and no attempt is recorded."""
    desk = Desk(shop, [True])
    session = shop.session()
    make(desk.door(session), is_async)
    row = shop.row()
    claimed = row._replace(status="running", lease_until=shop.clock.now() - MINUTE, note="")
    assert replace(shop.store, row, claimed)
    assert make(desk.door(session), is_async).content == wording
    assert (len(desk.asked), desk.paid) == (1, ["lamp"])


@both_entries
def test_a_policy_that_denies_comes_too_late_for_what_has_started(shop: Shop, is_async: bool, wording: Wording) -> None:
    """Until the effect is found not to have happened: then nothing runs that a policy denies."""
    desk = Desk(shop, [True])
    session = shop.session()
    make(desk.door(session), is_async)
    closed = desk.door(session, DENIES)
    assert make(closed, is_async).content == wording
    resolve(shop, session, NotApplied("says the bank"))
    assert "the shop is closed" in make(closed, is_async).content
    assert (len(desk.asked), desk.paid) == (1, ["lamp"])
    assert session[ToolInvoked][-1].final


@both_entries
def test_what_a_person_finds_not_to_have_happened_is_asked_about_again(
    shop: Shop, is_async: bool, wording: Wording
) -> None:
    """The handler would run again."""
    desk = Desk(shop, [True, False])
    session = shop.session()
    door = desk.door(session)
    make(door, is_async)
    resolve(shop, session, NotApplied("says the bank"))
    assert make(door, is_async).content == wording
    assert (len(desk.asked), desk.paid) == (2, ["lamp"])


@both_entries
@pytest.mark.parametrize("answer", [True, False])
def test_what_the_reconciler_finds_not_to_have_happened_is_asked_about_again(
    shop: Shop, is_async: bool, answer: bool
) -> None:
    """Before the handler runs; the refusal is final, and the effect is recorded as not happened."""
    desk = Desk(shop, [True, answer], found=lambda: None)
    session = shop.session()
    door = desk.door(session)
    make(door, is_async)
    desk.knows = True
    message = make(door, is_async)
    assert (message.success, len(desk.asked)) == (answer, 2)
    assert desk.paid == (["lamp", "lamp"] if answer else ["lamp"])
    assert shop.row().status == ("done" if answer else "failed")
    assert make(door, is_async).content == message.content
    assert len(desk.asked) == 2


@both_entries
def test_what_the_reconciler_finds_to_have_happened_is_not_asked_about(shop: Shop, is_async: bool) -> None:
    """Nothing is to run."""
    desk = Desk(shop, [True], found=lambda: ToolResult.ok(Note("lamp"), "found"))
    door = desk.door(shop.session())
    make(door, is_async)
    message = make(door, is_async)
    assert (message.success, message.result.message, len(desk.asked), desk.paid) == (True, "found", 1, ["lamp"])


@both_entries
def test_a_question_that_is_asked_again_can_be_left_open(shop: Shop, is_async: bool) -> None:
    """The call is listed with it, and runs with the answer that is recorded."""
    desk = Desk(shop, [True, Approval.later("the office is asked")], found=lambda: None)
    session = shop.session()
    door = desk.door(session)
    make(door, is_async)
    with pytest.raises(CallPostponed):
        make(door, is_async)
    (waits,) = session.open_calls
    assert waits.state == "postponed"
    item = postponed_call(session[PostponedCall], waits.call)
    assert item is not None
    (event,) = session[ToolInvoked]
    yes = GivenAnswer(approved=True, reason="a person said yes", by="ada", at=item.at)
    session[PostponedCall].append(dataclasses.replace(item, answer=yes, last_attempt=event.at))
    desk.knows = True
    assert make(door, is_async).success
    assert (len(desk.asked), desk.paid) == (2, ["lamp", "lamp"])


def test_a_deadline_that_passes_while_it_is_asked_again_stops_the_call(stall: Shop, wording: Wording) -> None:
    """As it does while it is asked first."""
    desk = Desk(stall, [True], found=lambda: None)
    session = stall.session()
    make(desk.door(session), is_async=False)

    def slow(request: ApprovalRequest) -> bool:
        stall.clock.advance(timedelta(hours=1))
        return desk.approve(request)  # type: ignore[return-value]  # a bool is planned

    desk.answers.append(True)
    deadline = Deadline.after(MINUTE, clock=stall.clock)
    with pytest.raises(PromptEvaluationError) as raised:
        make(desk.door(session, approver=slow, deadline=deadline), is_async=False)
    assert str(raised.value) == wording
    assert session[ToolInvoked][-1].refused_at is Step.DEADLINE
    assert (len(desk.asked), desk.paid) == (2, ["lamp"])


@both_entries
def test_a_tool_that_runs_again_is_asked_about_again(shop: Shop, is_async: bool, wording: Wording) -> None:
    """With `on_orphan="retry"` an unknown effect is started once more."""
    desk = Desk(shop, [True, False])
    door = desk.door(shop.session(), on_orphan="retry")
    make(door, is_async)
    assert make(door, is_async).content == wording
    assert shop.row().status == "unknown"
    assert (len(desk.asked), desk.paid) == (2, ["lamp"])


def test_another_call_with_the_same_key_is_asked_about(stall: Shop, wording: Wording) -> None:
    """What was answered about the first call was not about this one."""
    desk = Desk(stall, [True, False], knows=True)
    door = desk.door(stall.session(), key=IdempotencyConfig(ttl=None))
    assert ask(door).success
    assert ask(door, reply="r2").content == wording
    assert len(desk.asked) == 2
