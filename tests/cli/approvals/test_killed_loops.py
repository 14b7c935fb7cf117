"""Calls whose process is killed: what the next process, and the commands, make of the approval and of the result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import SecretStr
from typing_extensions import override

from handrail import store as stores
from handrail.adapters.tool_executor import PendingAnswers, ToolExecutor
from handrail.prompt import External, Tool, ToolContext, ToolResult
from handrail.runtime import Session, ToolCall
from tests.cli.approvals.loops import Loop, Order
from tests.cli.desk import Command
from tests.crash.forks import fork_to_crash
from tests.kit import executor
from tests.wording import Wording

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


def executor_of(session: Session) -> ToolExecutor:
    """The tool, over a session that has its call."""
    tool = Tool[Card, str](name="charge", description="Charges.", handler=charge, effect=External(apply=book))
    if not session.conversation:
        calls = [ToolCall("c1", "charge", {"number": "A-1", "pin": "pin-4711"})]
        session.conversation.append({"role": "assistant"}, calls=calls, reply="resp_1")
    return executor(tool, session=session)


def charge_in(url: str) -> None:
    """Make the call, in a process of its own."""
    with stores.open(url) as store, Session.open(store, "loop") as session:
        executor_of(session).answer()


@pytest.mark.parametrize("point", ["after-handler", "after-apply"])
@pytest.mark.short(1)
def test_a_result_whose_secrets_have_died_with_the_process_is_applied_by_hand(
    handrail: Command, url: str, point: str, wording: Wording
) -> None:
    """The session is deleted when a person has recorded that; the program is not asked to make the call again."""
    fork_to_crash(charge_in, url, at=point)
    with stores.open(url) as store, Session.open(store, "loop") as session:
        answers = executor_of(session).answer()
        assert not isinstance(answers, PendingAnswers)
        assert not answers[0].success
        session.conversation.append({"role": "tool", "content": answers[0].content})
    assert handrail("ledger", "reconcile", KEY, "--happened", "--value", '"A-1 is charged"').code == 0
    reported: list[str] = []
    for _ in range(2):
        with stores.open(url) as store, Session.open(store, "loop") as session:
            reported += [each.message.content for each in executor_of(session).settle_open()]
    assert reported == wording
    assert KEY in handrail("ledger", "list", "--unapplied").out
    assert handrail("sessions", "delete", "loop", "--yes").code == 1
    assert handrail("ledger", "reconcile", KEY, "--applied", "--why", "booked by Ada").code == 0
    assert KEY not in handrail("ledger", "list", "--unapplied").out
    with stores.open(url) as store, Session.open(store, "loop") as session:
        assert (executor_of(session).settle_open(), session.open_calls) == ((), ())
    assert handrail("sessions", "delete", "loop", "--yes").code == 0
