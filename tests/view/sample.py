"""A store that real calls have filled: a desk for refunds at which calls come to every outcome, and agents.

The times of the desk are those of a clock that its handlers advance, so that its pictures look the same each time.
`python -m tests.view.sample sqlite:///sample.db` fills a store to look at.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from pydantic import SecretStr

from handrail import store as stores
from handrail import tool
from handrail.adapters.tool_executor import PendingAnswers, ToolExecutor
from handrail.agents import RunOptions, load_agent
from handrail.errors import EffectUncertain
from handrail.filesystem import Filesystem, InMemoryFilesystem
from handrail.operations.answers import give_answer
from handrail.operations.questions import stored_questions
from handrail.prompt import Approval, PolicyDecision, Prompt, PromptTemplate, Tool, ToolContext, ToolsSection
from handrail.runtime import Session, ToolCall, ToolInvoked
from handrail.session import stored_as
from handrail.session.conversation import Conversation, ConversationPart
from handrail.session.open_calls import GivenAnswer
from handrail.store import Store
from handrail.testing import FakeClock, ScriptedModel
from handrail.testing.script_file import read_script
from tests.kit import Decides

NIGHT: Final = "night-desk"
"""The session of the desk, in which a call waits for an approval at the end."""

FORK: Final = "night-desk-again"
"""A fork of it, which goes another way."""

SALES: Final = "sales-report"
"""The session of an agent that asks another one."""

SECRET: Final = "card-4111-1111-1111-1111"  # noqa: S105 - looked for in what is shown
"""A secret among the arguments of calls."""

_REPORT = """\
# Refunds of the night

| order | cents |
|---|---|
| A-11 | 1990 |
"""
_EXAMPLE = Path(__file__).parents[2] / "examples" / "report"
_ORDERS = ("A-17", "A-18", "A-19")


@stored_as("shop.finding")
@dataclass(frozen=True)
class Finding:
    """What the desk has found out about an order."""

    order: str
    text: str


@dataclass(frozen=True)
class Order:
    """An order of the shop."""

    number: str
    cents: int
    status: str


def _judge(tool: Tool[Any, Any], params: Any) -> PolicyDecision:
    if tool.name == "cancel_order":
        return PolicyDecision.deny("Orders are cancelled by the shop alone. Offer a refund.")
    if tool.name == "refund" and params.cents > 5_000:
        return PolicyDecision.ask(f"{params.cents / 100:.2f} euros are more than 50. May they be refunded?")
    return PolicyDecision.allow()


@dataclass
class RefundDesk:
    """A program with a loop of its own, whose model is played.

    Attributes:
        store: where it is stored.
        session: the session.
        clock: the time.
        files: what it writes to.
        bank_is_asked: is set when a refund has begun.
        bank_answers: a refund waits for it.
    """

    store: Store
    session: Session
    clock: FakeClock
    files: InMemoryFilesystem = field(default_factory=lambda: InMemoryFilesystem({"report.md": _REPORT}))
    bank_is_asked: threading.Event = field(default_factory=threading.Event)
    bank_answers: threading.Event = field(default_factory=threading.Event)
    _replies: int = 0
    _looked_up: int = 0

    def __post_init__(self) -> None:
        section = ToolsSection(title="Refunds", tools=self._tools(), policies=[Decides(_judge, name="refund_limits")])
        self.executor = ToolExecutor(
            prompt=Prompt(PromptTemplate(ns="shop", key="refunds", sections=[section])),
            session=self.session,
            resources={Filesystem: self.files},
            clock=self.clock,
            approver=self._leave_open,
        )
        self.conversation = Conversation(self.session[ConversationPart], self.session.calls, clock=self.clock)
        self._in_order = threading.Condition()
        self.bank_answers.set()
        self.session.dispatcher.subscribe(ToolInvoked, self._count)

    def say(self, text: str, role: str = "user") -> None:
        """A user or the model says something, some seconds later."""
        self.pass_time(4_000)
        self.conversation.append({"role": role, "content": text})

    def turn(self, text: str, *calls: tuple[str, dict[str, Any]]) -> None:
        """The model says something, and asks for calls, which are made."""
        self.pass_time(2_500)
        self._replies += 1
        requested = [
            ToolCall(f"call-{number}", name, arguments) for number, (name, arguments) in enumerate(calls, start=1)
        ]
        functions = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in requested
        ]
        message = {"role": "assistant", "content": text, "tool_calls": functions}
        self.conversation.append(message, calls=requested, reply=f"reply-{self._replies}")
        self.answer()

    def answer(self) -> None:
        """The calls of the last reply are made, as far as none waits."""
        answers = self.executor.answer()
        if not isinstance(answers, PendingAnswers):
            self.conversation.append(
                *({"role": "tool", "tool_call_id": answer.call_id, "content": answer.content} for answer in answers)
            )

    def approve(self, by: str) -> None:
        """A person answers the open questions with yes, and the calls are made."""
        questions = [one for one in stored_questions(self.store, self.session.session_id) if one.answer is None]
        answer = GivenAnswer(approved=True, reason="The invoice is right.", by=by, at=self.clock.now())
        for question in questions:
            give_answer(self.store, question, answer)
        self.pass_time(2_000)  # until its program has taken it in
        self.answer()

    def pass_time(self, milliseconds: float) -> None:
        """Time passes."""
        self.clock.advance(timedelta(milliseconds=milliseconds))

    def _count(self, event: ToolInvoked) -> None:
        with self._in_order:
            self._looked_up += event.call.name == "look_up"
            self._in_order.notify_all()

    def _leave_open(self, _request: object) -> Approval:
        self.pass_time(40)
        return Approval.later("the office is asked")

    def _tools(self) -> list[Tool[Any, Any]]:
        return [
            tool(effect="read")(self._look_up()),
            tool(effect="external", idempotency=True)(self._refund()),
            tool(self._note()),
            tool(effect="external")(cancel_order),
            tool(self._file_report()),
            tool(effect="read")(self._read_log()),
        ]

    def _look_up(self) -> Callable[..., Any]:
        def look_up(order: str) -> Order:
            """Look an order up."""
            # The calls of a reply run side by side, and each ends when the one before it has been recorded.
            with self._in_order:
                self._in_order.wait_for(lambda: _ORDERS.index(order) == self._looked_up, timeout=10)
                self.pass_time((120, 70, 160)[self._looked_up])
            return Order(order, 2_490, "delivered")

        return look_up

    def _refund(self) -> Callable[..., Any]:
        def refund(order: str, cents: int, card: SecretStr) -> str:
            """Refund an order."""
            self.pass_time(340)
            self.bank_is_asked.set()
            self.bank_answers.wait()
            if order == "A-19":
                raise EffectUncertain("the bank closed the connection before it answered")
            return f"{cents} cents were refunded for {order}"

        return refund

    def _note(self) -> Callable[..., Any]:
        def note(order: str, text: str, context: ToolContext) -> None:
            """Note a finding about an order."""
            self.pass_time(3)
            context.session[Finding].append(Finding(order, text))

        return note

    def _file_report(self) -> Callable[..., Any]:
        def file_report(orders: list[str], context: ToolContext, files: Filesystem) -> str:
            """Write the refunds of the night into the report."""
            self.pass_time(35)
            lines = "".join(f"| {order} | 2490 |\n" for order in orders)
            files.write_text("report.md", files.read_text("report.md") + lines)
            for number, order in enumerate(orders, start=1):
                self.executor.execute(ToolCall(f"note-{number}", "note", {"order": order, "text": "in the report"}))
            files.write_text("summary.txt", f"{len(orders)} orders\n")
            if "A-19" in orders:
                raise ValueError("A-19 has no receipt, so its refund cannot be reported")
            return "The report is filed."

        return file_report

    def _read_log(self) -> Callable[..., Any]:
        def read_log(day: str) -> str:
            """Read the log of a day."""
            self.pass_time(12)
            return "".join(f"{day} {minute // 60:02}:{minute % 60:02} all is well\n" for minute in range(1_440))

        return read_log


def cancel_order(order: str) -> None:
    """Cancel an order."""


def _refund(order: str, cents: object) -> tuple[str, dict[str, Any]]:
    return "refund", {"order": order, "cents": cents, "card": SECRET}


_FIRST_REFUND: Final = (
    "A-17 arrived broken, so I refund it, and note why.",
    _refund("A-17", 2_490),
    ("note", {"order": "A-17", "text": "the lamp arrived broken"}),
)


def work_at_night(desk: RefundDesk) -> None:
    """What is asked of the desk, and the calls that its model makes, some of which are mistakes."""
    desk.say("Refund what came back tonight: A-17, A-18 and A-19. Then file the report.")
    desk.turn("I look the three orders up first.", *(("look_up", {"order": order}) for order in _ORDERS))
    desk.turn(*_FIRST_REFUND)
    desk.turn(
        "Next are the other two.",
        _refund("A-18", "twenty"),
        _refund("A-19", 890),
        ("cancel_order", {"order": "A-18"}),
    )
    desk.turn("I file the report.", ("file_report", {"orders": ["A-17", "A-19"]}))


def finish_the_night(desk: RefundDesk) -> None:
    """The rest of it: two refunds that a person is asked about, of which one is answered."""
    desk.turn("A-19 is not clear yet. I leave it out.", ("file_report", {"orders": ["A-17"]}))
    desk.turn("A-18 is a large one.", _refund("A-18", 8_400))
    desk.pass_time(95_000)
    desk.approve("ada")
    desk.turn("Was there anything else tonight?", ("read_log", {"day": "2026-01-05"}))
    desk.say("A-20 came back, too: 129 euros.")
    desk.turn("", _refund("A-20", 12_900))


@contextmanager
def refund_desk(url: str, session_id: str = NIGHT, *, begin: datetime | None = None) -> Generator[RefundDesk]:
    """A desk in a session that is open for the time of the block; its clock begins ten minutes ago."""
    clock = FakeClock(begin or datetime.now(UTC) - timedelta(minutes=10))
    tags = {"desk": "refunds", "shift": "night"}
    with stores.open(url, clock=clock) as store, Session.open(store, session_id, tags=tags) as session:
        yield RefundDesk(store, session, clock)


def fill(url: str) -> None:
    """Fill a store: the night of the desk, a fork of it, and agents that ask each other."""
    with refund_desk(url) as desk:
        work_at_night(desk)
        with desk.session.fork(session_id=FORK, at=("reply-1", "call-3")) as fork:
            again = RefundDesk(desk.store, fork, desk.clock, _replies=1)
            again.answer()  # what the model reads of the calls before the fork
            again.turn(*_FIRST_REFUND)
            again.turn("Next is A-18.", _refund("A-18", 1_250))
            again.turn("I file the report.", ("file_report", {"orders": ["A-17", "A-18"]}))
            again.say("A-17 and A-18 are refunded, and the report is filed.", "assistant")
        finish_the_night(desk)
    with stores.open(url) as store, Session.open(store, SALES) as session:
        model = ScriptedModel(read_script(_EXAMPLE / "script.yaml"))
        options = RunOptions(session=session, model=model, mode="approve-all")
        load_agent(_EXAMPLE / "report.agent").run("Report on the sales of January to March.", options)


if __name__ == "__main__":
    fill(sys.argv[1])
