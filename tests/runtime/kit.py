"""What tests of calls share: sessions of one store with tools of every effect, and with one that charges and books."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Never, TypeVar

from pydantic import SecretStr

from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import CallPostponed
from handrail.prompt import External, IdempotencyConfig, Tool, ToolContext, ToolResult
from handrail.prompt.context import tool_context
from handrail.runtime import Session, ToolCall, ToolMessage
from handrail.store import EffectRow, Store
from handrail.testing import FakeClock
from tests.kit import Note, executor, tool

T = TypeVar("T")

SHARED = IdempotencyConfig(scope="shop")


MINUTE = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Booked:
    """What `apply` writes to the session."""

    text: str
    key: str


@dataclass
class Shop:
    """Sessions of one store with the tool `charge`, and what its handler and its `apply` have done.

    Attributes:
        charged: what the handler has charged.
        booked: what `apply` has written, also in calls that were rolled back.
        fails: what `apply` raises, the last one first.
        meets: what happens while `apply` runs, the last one first.
        known: what the reconciler knows.
    """

    store: Store
    clock: FakeClock
    opened: ExitStack
    charged: list[str] = field(default_factory=list[str])
    booked: list[str] = field(default_factory=list[str])
    fails: list[BaseException] = field(default_factory=list[BaseException])
    meets: list[Callable[[], object]] = field(default_factory=list[Callable[[], object]])
    known: list[str] = field(default_factory=list[str])

    def charge(self, params: Note, *, context: ToolContext) -> ToolResult[Note]:
        """Charge; `lost` after the deed."""
        self.charged.append(params.text)
        if params.text == "lost":
            raise TimeoutError
        return ToolResult.ok(params)

    def find(self, params: Note, key: str) -> ToolResult[Note] | None:
        """What the service knows."""
        return ToolResult.ok(params, "found") if params.text in self.known else None

    def book(self, params: Note, result: ToolResult[Note], *, context: ToolContext) -> None:
        """Write to the session, then fail if that is planned."""
        assert result.value == params
        assert tool_context() is context
        context.session[Booked].append(Booked(params.text, str(context.idempotency_key)))
        self.booked.append(params.text)
        if self.meets:
            self.meets.pop()()
        if self.fails:
            raise self.fails.pop()

    def tool(self, *, apply: Any = None, key: IdempotencyConfig | None = None, **options: Any) -> Tool[Note, Note]:
        """The tool; it books with `book` unless something else is given."""
        said = External(apply=apply or self.book, reconcile=self.find, lease=MINUTE)
        return tool("charge", self.charge, effect=said, idempotency=key, **options)

    def session(self, name: str = "till") -> Session:
        """A session, open until the end of the test."""
        return self.opened.enter_context(Session.open(self.store, name, types=(Booked, Note)))

    def door(self, session: Session, *tools: Tool[Any, Any], **options: Any) -> ToolExecutor:
        """The tool, and others, over a session."""
        return executor(*(tools or (self.tool(),)), session=session, clock=self.clock, **options)

    def rows(self) -> list[EffectRow]:
        """All effects."""
        return list(self.store.rows())

    def row(self) -> EffectRow:
        """The only effect."""
        (row,) = self.rows()
        return row


def ask(door: ToolExecutor, text: str = "lamp", name: str = "charge", reply: str = "r1") -> ToolMessage:
    """Ask for a call."""
    return door.execute(ToolCall("call-1", name, {"text": text}), reply=reply)


EFFECTS = ("look", "change", "send", "pay")
"""The names of the tools."""


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


def later(_request: object) -> Never:
    """Leave every question open."""
    raise CallPostponed("later")


@dataclass(frozen=True)
class Login:
    """Parameters with a secret that hides itself, and one that shows itself."""

    user: str
    password: SecretStr
    pin: int = field(default=0, metadata={"secret": True})


def present(value: T | None) -> T:
    """The value, which must be there."""
    assert value is not None
    return value


def expect(kind: type[T], value: object) -> T:
    """The value, which must be of a type."""
    assert isinstance(value, kind)
    return value
