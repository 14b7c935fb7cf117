"""A program with a loop of its own whose payments wait for a person, run over a store that the command reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from handrail import store as stores
from handrail.adapters.tool_executor import PendingAnswers, ToolExecutor
from handrail.errors import CallPostponed
from handrail.prompt import (
    ApprovalRequest,
    Approver,
    PolicyDecision,
    Prompt,
    PromptTemplate,
    Tool,
    ToolContext,
    ToolResult,
    ToolsSection,
)
from handrail.runtime import Session, ToolCall, ToolMessage
from handrail.session import stored_as
from tests.kit import Decides


@stored_as("loops.order")
@dataclass(frozen=True)
class Order:
    """What is paid."""

    number: str
    cents: int = 500

    def render(self) -> str:
        """What the model reads."""
        return f"{self.number} is paid"


def asks_about_payments(question: str = "May it be paid?") -> Decides:
    """A policy that has payments approved."""
    return Decides(
        lambda tool, _: PolicyDecision.ask(question) if tool.name in {"pay", "order"} else PolicyDecision.allow(),
        name="payments",
    )


def later(request: ApprovalRequest) -> bool:
    """Leave every question open."""
    raise CallPostponed(f"the desk is asked about {request.params.number}")


def pay_call(number: str = "A-1", call_id: str = "c1", **arguments: Any) -> ToolCall:
    """A call that pays."""
    return ToolCall(call_id, "pay", {"number": number, **arguments})


@dataclass
class Loop:
    """The program, started anew for each `answer`.

    Attributes:
        url: the store.
        calls: what its model asks for in the first reply.
        session_id: its session.
        reply: the name of that reply.
        paid: the orders that were paid, in order.
        asked: the requests that its approver was asked.
        policy: what asks.
        approver: answers what is asked; `None` for none.
        fails: raised by the handler instead of paying, once.
    """

    url: str
    calls: Sequence[ToolCall] = (pay_call(),)
    session_id: str = "loop"
    reply: str = "resp_1"
    paid: list[str] = field(default_factory=list[str])
    asked: list[ApprovalRequest] = field(default_factory=list[ApprovalRequest])
    policy: Decides = field(default_factory=asks_about_payments)
    approver: Approver | None = later
    fails: Exception | None = None

    def answer(self, **tags: str) -> tuple[ToolMessage, ...] | PendingAnswers:
        """Run it: answer the open reply, and leave the session."""
        with stores.open(self.url) as store, Session.open(store, self.session_id, tags=tags) as session:
            return self.answer_in(session)

    def answer_in(self, session: Session) -> tuple[ToolMessage, ...] | PendingAnswers:
        """Answer the open reply in a session that is open."""
        if not session.conversation:
            message = {"role": "assistant", "content": "I pay what is due."}
            session.conversation.append(message, calls=self.calls, reply=self.reply)
        return ToolExecutor(prompt=self._prompt(), session=session, approver=self._approver()).answer()

    def ask(self, session: Session, *, reply: str | None = "") -> None:
        """Have its first call postponed in a session that is open, under another reply or under none."""
        executor = ToolExecutor(prompt=self._prompt(), session=session, approver=later)
        executor.answer(self.calls, reply=self.reply if reply == "" else reply)

    def texts(self) -> list[str]:
        """Run it, and give what its model reads; it must not wait."""
        answers = self.answer()
        assert not isinstance(answers, PendingAnswers)
        return [message.content for message in answers]

    def waits(self, **tags: str) -> list[str]:
        """Run it, and give the calls that wait; there is at least one."""
        answers = self.answer(**tags)
        assert isinstance(answers, PendingAnswers)
        return [question.call.id for question in answers.questions]

    def _approver(self) -> Approver | None:
        approver = self.approver
        if approver is None:
            return None

        def ask(request: ApprovalRequest) -> Any:
            self.asked.append(request)
            return approver(request)

        return ask

    def pay(self, params: Order, *, context: ToolContext) -> ToolResult[Order]:
        """Pay an order, or fail."""
        if self.fails is not None:
            fault, self.fails = self.fails, None
            raise fault
        self.paid.append(params.number)
        return ToolResult.ok(params)

    def tool(self) -> Tool[Any, Any]:
        """The tool that pays."""
        return Tool[Order, Order](name="pay", description="Pays an order.", handler=self.pay)

    def _prompt(self) -> Prompt[Any]:
        section = ToolsSection(title="Desk", tools=[self.tool()], policies=[self.policy])
        template: PromptTemplate[Any] = PromptTemplate(ns="tests", key="loop", sections=[section])
        return Prompt(template)
