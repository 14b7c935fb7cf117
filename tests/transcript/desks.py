"""A desk with tools and a session, for transcripts of what is done at it."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import SecretStr

from handrail import store as stores
from handrail.adapters.tool_executor import PendingAnswers, ToolExecutor
from handrail.errors import CallPostponed, EffectUncertain
from handrail.prompt import (
    ApprovalRequest,
    IdempotencyConfig,
    PolicyDecision,
    Prompt,
    PromptTemplate,
    Tool,
    ToolContext,
    ToolResult,
    ToolsSection,
)
from handrail.runtime import Session, ToolCall
from handrail.session import stored_as
from handrail.session.conversation import Conversation, ConversationPart
from handrail.session.persistence.protocol import SessionRow
from handrail.store import Store
from handrail.testing import FakeClock
from handrail.transcript import TranscriptCall, TranscriptItem, TranscriptMessage, TranscriptReader
from tests.kit import Decides

EVENING = datetime(2026, 1, 5, 20, tzinfo=UTC)


@dataclass(frozen=True)
class Payment:
    """The arguments of the tools that pay."""

    order: str
    token: SecretStr | None = None


@stored_as("tests.transcript.note")
@dataclass(frozen=True)
class Note:
    """A value of the session."""

    text: str


ASKS_ABOUT_PAYMENTS = Decides(
    lambda tool, _: PolicyDecision.ask("May it be paid?") if tool.name == "approved" else PolicyDecision.allow(),
    name="payments",
)
"""A policy that has payments by the tool `approved` approved."""


@dataclass
class Desk:
    """A session in which a program's own loop works.

    Attributes:
        store: where it is stored.
        session: the session.
        clock: the time.
        answers: what the approver says, from the first question on; `None` leaves it open.
    """

    store: Store
    session: Session
    clock: FakeClock
    answers: list[bool | None]
    _count: int = 0

    def __post_init__(self) -> None:
        self.conversation = Conversation(self.session[ConversationPart], self.session.calls, clock=self.clock)
        once = IdempotencyConfig(ttl=None)
        tools: tuple[Tool[Any, Any], ...] = (
            Tool[Payment, str](name="pay", description="Pays.", handler=self._pay),
            Tool[Payment, str](name="outer", description="Pays inside.", handler=self._outer),
            Tool[Payment, str](name="fail", description="Fails.", handler=self._fail),
            Tool[Payment, str](name="doubt", description="Pays.", handler=self._doubt, effect="external"),
            Tool[Payment, str](
                name="once", description="Pays.", handler=self._pay, effect="external", idempotency=once
            ),
            Tool[Payment, str](name="approved", description="Pays.", handler=self._pay, effect="external"),
        )
        section = ToolsSection(title="Desk", tools=tools, policies=[ASKS_ABOUT_PAYMENTS])
        self._count = len(self.conversation)  # the replies of a session that is opened again have names already
        self.executor = ToolExecutor(
            prompt=Prompt(PromptTemplate(ns="tests", key="desk", sections=[section])),
            session=self.session,
            clock=self.clock,
            approver=self._approve,
        )

    def ask(self, text: str) -> None:
        """The user says something."""
        self.conversation.append({"role": "user", "content": text})

    def say(self, text: str) -> None:
        """The model says something."""
        self.conversation.append({"role": "assistant", "content": text})

    def request(self, *calls: tuple[str, str], text: str = "") -> list[ToolCall]:
        """The model asks for calls of tools with arguments as JSON, in a reply of its own."""
        self._count += 1
        asked = [
            ToolCall(f"c{self._count}{number}", tool, arguments) for number, (tool, arguments) in enumerate(calls, 1)
        ]
        message = {
            "role": "assistant",
            "content": text or None,
            "tool_calls": [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in asked
            ],
        }
        self.conversation.append(message, calls=asked, reply=f"r{self._count}")
        return asked

    def answer(self, calls: Iterable[ToolCall]) -> None:
        """Carry the calls of the last reply out, and answer them unless some of them wait."""
        answered = self.executor.answer(list(calls), reply=f"r{self._count}")
        if not isinstance(answered, PendingAnswers):
            self.conversation.append(
                *({"role": "tool", "tool_call_id": each.call_id, "content": each.content} for each in answered)
            )

    def turn(self, *calls: tuple[str, str], text: str = "") -> None:
        """A reply with calls that are carried out."""
        self.answer(self.request(*calls, text=text))

    def flush(self) -> None:
        """Write a unit, with which a reply is stored that no call has stored yet."""
        self.session[Note].append(Note("x"))

    @property
    def row(self) -> SessionRow:
        """The session as it is stored now."""
        return find_row(self.store, self.session.session_id)

    def items(self) -> list[TranscriptItem]:
        """The transcript."""
        return read_items(self.store, self.session.session_id)

    def calls(self) -> list[TranscriptCall]:
        """The calls of the transcript."""
        return [item for item in self.items() if isinstance(item, TranscriptCall)]

    def _pay(self, params: Payment, *, context: ToolContext) -> ToolResult[str]:
        return ToolResult.ok(f"{params.order} is paid")

    def _outer(self, params: Payment, *, context: ToolContext) -> ToolResult[str]:
        inner = self.executor.execute(ToolCall("n1", "pay", {"order": params.order}))
        return ToolResult.ok(f"inside: {inner.content}")

    def _fail(self, params: Payment, *, context: ToolContext) -> ToolResult[str]:
        return ToolResult.error(f"fail failed: {params.order} cannot be paid")

    def _doubt(self, params: Payment, *, context: ToolContext) -> ToolResult[str]:
        raise EffectUncertain("the bank has not answered")

    def _approve(self, request: ApprovalRequest) -> bool:
        answer = self.answers.pop(0)
        if answer is None:
            raise CallPostponed(f"may {request.params.order} be paid?")
        return answer


@contextmanager
def desk(url: str = "memory:", session: str = "desk") -> Generator[Desk]:
    """A desk, for the time of the block."""
    clock = FakeClock(EVENING)
    with stores.open(url, clock=clock) as store, Session.open(store, session) as opened:
        yield Desk(store, opened, clock, [])


def find_row(store: Store, session_id: str) -> SessionRow:
    """A session as it is stored."""
    row = store.find(session_id)
    assert row is not None
    return row


def read_items(store: Store, session_id: str) -> list[TranscriptItem]:
    """The transcript of a session."""
    reader = TranscriptReader(store, session_id)
    return [*reader.read(), *reader.unfinished()]


def shown(items: Iterable[TranscriptItem]) -> list[str]:
    """Items in short: who says what, and calls with their outcomes."""
    lines: list[str] = []
    for item in items:
        if isinstance(item, TranscriptMessage):
            lines.append(f"{item.role}: {' | '.join(block.text for block in item.blocks)}")
        elif isinstance(item, TranscriptCall):
            lines.append(f"{item.tool} {item.outcome}")
        else:
            lines.append(f"{item.kind} {item.count}")
    return lines


def order(name: str, **more: str) -> str:
    """Arguments of a tool that pays."""
    extra = "".join(f', "{key}": "{value}"' for key, value in more.items())
    return f'{{"order": "{name}"{extra}}}'


HOURS = timedelta(hours=3)
