"""Questions of a program with a loop of its own, and loops that are killed while they wait."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic import SecretStr
from typing_extensions import override

from handrail import store as stores
from handrail.adapters.tool_executor import PendingAnswers, ToolExecutor
from handrail.prompt import External, Tool, ToolContext, ToolResult
from handrail.runtime import Session, ToolCall
from handrail.session.open_calls import PostponedCall
from tests.cli.approvals.loops import Loop, Order, asks_about_payments, pay_call
from tests.cli.desk import Command
from tests.crash.forks import fork_to_crash
from tests.kit import executor
from tests.wording import Wording


def test_yes_carries_the_call_out_once(handrail: Command, loop: Loop, wording: Wording) -> None:
    """Its approver is not asked again, and a further start pays nothing."""
    assert loop.waits() == ["c1"]
    assert handrail("approvals", "list").out.splitlines()[1].split()[:4] == ["loop", "c1", "-", "pay"]
    shown = handrail.document("approvals", "show", "loop", "c1")
    assert (shown["arguments"], shown["asks"][0]) == ({"number": "A-1", "cents": 500}, "payments: May it be paid?")
    assert (shown["own_loop"], shown["answerable"]) == (True, True)
    ran = handrail("approvals", "answer", "loop", "c1", "yes", "--by", "ada")
    assert (ran.code, ran.out, ran.err) == (0, wording, "")
    assert loop.texts() == ["A-1 is paid"]
    assert loop.texts() == ["A-1 is paid"]
    assert (loop.paid, len(loop.asked)) == (["A-1"], 1)
    assert handrail("approvals", "list", "--format", "json").out == ""


def test_no_refuses_the_call_with_the_reason(handrail: Command, loop: Loop, wording: Wording) -> None:
    """For good: the call is recorded, and asked about no more."""
    loop.waits()
    ran = handrail("approvals", "answer", "loop", "resp_1/c1", "no", "--reason", "It is paid already.")
    assert (ran.code, ran.err) == (0, "")
    assert loop.texts() == wording
    assert loop.texts()[0] == loop.texts()[0]
    assert (loop.paid, len(loop.asked)) == ([], 1)


def test_answer_is_for_one_call(handrail: Command, loop: Loop, wording: Wording) -> None:
    """Another call of the same reply waits on, with equal arguments too."""
    loop.calls = (pay_call(), pay_call(call_id="c2"))
    assert loop.waits() == ["c1", "c2"]
    ran = handrail("approvals", "answer", "loop", "c1", "yes")
    assert [line for line in ran.out.splitlines() if line.startswith("1 ")] == wording
    assert loop.waits() == ["c2"]
    assert loop.paid == ["A-1"]


def test_answer_does_not_cover_what_a_policy_asks_since(handrail: Command, loop: Loop) -> None:
    """The question is open again, with what is asked now."""
    loop.waits()
    handrail("approvals", "answer", "loop", "c1", "yes")
    loop.policy = asks_about_payments("Is it really due?")
    assert loop.waits() == ["c1"]
    (line,) = handrail("approvals", "list", "--format", "json").out.splitlines()
    assert json.loads(line)["asks"] == ["payments: Is it really due?"]
    assert loop.paid == []


def test_answer_does_not_cover_a_question_that_was_asked_before_another(handrail: Command, loop: Loop) -> None:
    """The same question is asked anew after another one: it is listed at once, and can be answered."""
    loop.waits()
    handrail("approvals", "answer", "loop", "c1", "yes")
    before = loop.policy
    for policy in (asks_about_payments("Is it really due?"), before, before):
        loop.policy = policy
        assert loop.waits() == ["c1"]
        assert len(handrail("approvals", "list", "--format", "json").out.splitlines()) == 1
    assert handrail("approvals", "answer", "loop", "c1", "yes").code == 0
    assert loop.texts() == ["A-1 is paid"]


def test_answer_is_for_one_attempt(handrail: Command, loop: Loop, wording: Wording) -> None:
    """A handler that has failed is a reason to ask again; the new question can be answered, too."""
    loop.fails = OSError("the bank is closed")
    loop.waits()
    handrail("approvals", "answer", "loop", "c1", "yes")
    assert loop.texts() == [wording]
    assert loop.waits() == ["c1"]
    assert handrail("approvals", "answer", "loop", "c1", "yes").code == 0
    assert loop.texts() == ["A-1 is paid"]
    assert loop.paid == ["A-1"]


def test_call_whose_question_was_not_recorded_is_listed_and_left_to_its_program(
    handrail: Command, url: str, wording: Wording
) -> None:
    """As a call that waits for a result of its program."""
    with stores.open(url) as store, Session.open(store, "loop") as session:
        session[PostponedCall].append(PostponedCall("loop", "resp_1", "c1", "pay", store.now()))
    (line,) = handrail("approvals", "list", "--format", "json").out.splitlines()
    assert json.loads(line)["answerable"] is False
    assert re.split("  +", handrail("approvals", "list").out.splitlines()[1])[-1] == wording
    assert handrail("approvals", "show", "loop", "c1").out.splitlines()[-1] == wording
    ran = handrail("approvals", "answer", "loop", "c1", "yes")
    assert (ran.code, ran.out, ran.err) == (1, "", wording)


@pytest.mark.short(1)
def test_program_that_holds_its_session_takes_in_the_answer_of_another_process(loop: Loop) -> None:
    """At its next step, without opening the session again; with who has given it, and not asking its approver."""
    loop.calls = [pay_call("A-1", "c1"), pay_call("A-2", "c2")]
    with stores.open(loop.url) as store, Session.open(store, "loop") as session:
        assert isinstance(loop.answer_in(session), PendingAnswers)
        command = [sys.executable, "-m", "handrail", "approvals", "answer", "loop", "c2", "yes", "--by", "ada"]
        subprocess.run([*command, "--store", loop.url], check=True)
        waiting = loop.answer_in(session)
        assert isinstance(waiting, PendingAnswers)
        assert [question.call.id for question in waiting.questions] == ["c1"]
        assert (loop.paid, [request.call_id for request in loop.asked]) == (["A-2"], ["c1", "c2", "c1"])
        answers = [item.answer for item in session[PostponedCall] if item.answer is not None]
        assert [(answer.by, answer.approved) for answer in answers] == [("ada", True)]


@dataclass(frozen=True)
class SecretOrder(Order):
    """An order that is paid with a secret."""

    pin: SecretStr = field(default_factory=lambda: SecretStr(""))


class SecretLoop(Loop):
    """A program whose payments have a secret."""

    def pay(self, params: Order, *, context: ToolContext) -> ToolResult[Order]:
        """Pay it; the result has no secret."""
        return super().pay(Order(params.number), context=context)

    def tool(self) -> Tool[Any, Any]:
        """The tool that pays."""
        return Tool[SecretOrder, Order](name="pay", description="Pays an order.", handler=self.pay)


@pytest.mark.short(1)
def test_secret_call_is_answered_while_its_process_lives(handrail: Command, url: str, wording: Wording) -> None:
    """A yes after that is refused, because the secret is not stored; a no is recorded, and the model reads it."""
    loop = SecretLoop(url, [pay_call("A-1", "c1", pin="pin-4711"), pay_call("A-2", "c2", pin="pin-4711")])
    with stores.open(loop.url) as store, Session.open(store, "loop") as session:
        assert isinstance(loop.answer_in(session), PendingAnswers)
        shown = handrail("approvals", "show", "loop", "c1").out
        said = handrail("approvals", "answer", "loop", "c1", "yes", "--by", "ada").out
        assert isinstance(loop.answer_in(session), PendingAnswers)
        assert loop.paid == ["A-1"]
    ran = handrail("approvals", "answer", "loop", "c2", "yes")
    assert f"{shown.splitlines()[-1]}\n---\n{said}---\n{ran.err}" == wording
    assert ran.code == 1
    ran = handrail("approvals", "answer", "loop", "c2", "no", "--reason", "password=hunter2")
    assert (ran.code, ran.out) == (0, wording)
    with stores.open(url) as store:
        answers = store.answers("loop")
    assert [row.answer for row in answers if b"hunter2" in row.answer] == []
    assert loop.texts() == wording
    assert loop.paid == ["A-1"]


def test_answer_to_an_earlier_attempt_is_replaced(handrail: Command, loop: Loop) -> None:
    """It was for one attempt; the call that is asked about again while its session is held has another answer."""
    loop.fails = RuntimeError("down")
    with stores.open(loop.url) as store, Session.open(store, "loop") as session:
        for attempt in range(2):
            assert isinstance(loop.answer_in(session), PendingAnswers)
            assert handrail("approvals", "answer", "loop", "c1", "yes").code == 0
            assert not isinstance(loop.answer_in(session), PendingAnswers)
            assert len(loop.paid) == attempt
        assert len(store.answers("loop")) == 1


def test_answer_does_not_outlive_a_reset_of_its_session(handrail: Command, loop: Loop) -> None:
    """The same reply, call and arguments are another question, without an answer."""
    with stores.open(loop.url) as store, Session.open(store, "loop") as session:
        assert isinstance(loop.answer_in(session), PendingAnswers)
        assert handrail("approvals", "answer", "loop", "c1", "yes").code == 0
        session.reset(with_open_calls=True)
        for _ in range(2):
            assert isinstance(loop.answer_in(session), PendingAnswers)
        assert loop.paid == []
        assert handrail("approvals", "answer", "loop", "c1", "yes").code == 0
        assert not isinstance(loop.answer_in(session), PendingAnswers)


def test_answer_of_a_loop_is_for_no_later_calls(handrail: Command, loop: Loop, wording: Wording) -> None:
    """It would not be asked about them at all."""
    loop.waits()
    ran = handrail("approvals", "answer", "loop", "c1", "yes", "--remember", "rule")
    assert (ran.code, ran.out, ran.err) == (1, "", wording)


def test_fork_has_no_question_of_its_origin(handrail: Command, loop: Loop) -> None:
    """A yes to the one is none to the other."""
    loop.waits()
    assert handrail("sessions", "fork", "loop", "--as", "branch").code == 0
    lines = handrail("approvals", "list", "--format", "json").out.splitlines()
    assert [json.loads(line)["session_id"] for line in lines] == ["loop"]


KEY = "call:resp_1/c1"


class Bank(Loop):
    """A program whose payments are outside."""

    @override
    def tool(self) -> Tool[Any, Any]:
        """The tool that pays."""
        return Tool[Order, Order](name="pay", description="Pays an order.", handler=self.pay, effect="external")


def resume(url: str) -> None:
    """Run the program, in a process of its own."""
    Bank(url).answer()


def test_a_call_that_was_killed_is_not_asked_about_again(handrail: Command, url: str, wording: Wording) -> None:
    """It is unknown until a person has found out, whatever anybody would answer to the question."""
    bank = Bank(url)
    assert bank.waits() == ["c1"]
    assert handrail("approvals", "answer", "loop", "c1", "yes").code == 0
    fork_to_crash(resume, url, at="after-handler")
    for _ in range(2):
        (unknown,) = bank.texts()
        assert unknown == wording
    assert handrail("approvals", "list", "--format", "json").out == ""
    done = ("ledger", "reconcile", KEY, "--happened", "--message", "A-1 is paid, says the bank")
    assert handrail(*done).code == 0
    (paid,) = bank.texts()
    assert paid.startswith("A-1 is paid, says the bank")
    assert (bank.paid, len(bank.asked)) == ([], 1)
    with stores.open(url) as store, Session.open(store, "loop") as session:
        assert session.open_calls == ()


@dataclass(frozen=True)
class Card:
    """Parameters with a secret."""

    number: str
    pin: SecretStr


def charge(params: Card, *, context: ToolContext) -> ToolResult[str]:
    """Charge the card."""
    return ToolResult.ok(f"{params.number} is charged")


def book(params: Card, result: ToolResult[str], *, context: ToolContext) -> None:
    """Nothing is written here: the test looks at who is asked to."""


def make_executor(session: Session) -> ToolExecutor:
    """The tool, over a session that has its call."""
    tool = Tool[Card, str](name="charge", description="Charges.", handler=charge, effect=External(apply=book))
    if not session.conversation:
        calls = [ToolCall("c1", "charge", {"number": "A-1", "pin": "pin-4711"})]
        session.conversation.append({"role": "assistant"}, calls=calls, reply="resp_1")
    return executor(tool, session=session)


def charge_in(url: str) -> None:
    """Make the call, in a process of its own."""
    with stores.open(url) as store, Session.open(store, "loop") as session:
        make_executor(session).answer()


@pytest.mark.parametrize("point", ["after-handler", "after-apply"])
@pytest.mark.short(1)
def test_a_result_whose_secrets_have_died_with_the_process_is_applied_by_hand(
    handrail: Command, url: str, point: str, wording: Wording
) -> None:
    """The session is deleted when a person has recorded that; the program is not asked to make the call again."""
    fork_to_crash(charge_in, url, at=point)
    with stores.open(url) as store, Session.open(store, "loop") as session:
        answers = make_executor(session).answer()
        assert not isinstance(answers, PendingAnswers)
        assert not answers[0].success
        session.conversation.append({"role": "tool", "content": answers[0].content})
    assert handrail("ledger", "reconcile", KEY, "--happened", "--value", '"A-1 is charged"').code == 0
    reported: list[str] = []
    for _ in range(2):
        with stores.open(url) as store, Session.open(store, "loop") as session:
            reported += [each.message.content for each in make_executor(session).settle_open()]
    assert reported == wording
    assert KEY in handrail("ledger", "list", "--unapplied").out
    assert handrail("sessions", "delete", "loop", "--yes").code == 1
    assert handrail("ledger", "reconcile", KEY, "--applied", "--why", "booked by Ada").code == 0
    assert KEY not in handrail("ledger", "list", "--unapplied").out
    with stores.open(url) as store, Session.open(store, "loop") as session:
        assert (make_executor(session).settle_open(), session.open_calls) == ((), ())
    assert handrail("sessions", "delete", "loop", "--yes").code == 0
