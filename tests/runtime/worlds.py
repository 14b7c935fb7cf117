"""The sessions of one store, with tools of every effect, for the tests of what a session knows of its calls."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from handrail.adapters.tool_executor import ToolExecutor
from handrail.prompt import Tool, ToolContext, ToolResult
from handrail.runtime import IdempotencyConfig, Session
from handrail.store import Store
from handrail.testing import FakeClock
from tests.kit import Note, executor, tool

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
