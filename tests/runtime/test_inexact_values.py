"""A value that would not come back from a store ends no run, and the effect that made it is not repeated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from handrail import store
from handrail.adapters.tool_executor import ToolExecutor
from handrail.prompt import Prompt, PromptTemplate, Tool, ToolContext, ToolResult, ToolsSection
from handrail.runtime import IdempotencyConfig, Session, ToolCall


@dataclass(frozen=True)
class Base:
    name: str


@dataclass(frozen=True)
class Card(Base):
    number: int = 0


@dataclass(frozen=True)
class Holder:
    """Declares less than it is given."""

    base: Base


@dataclass(frozen=True)
class Amount:
    cents: int = 0


def as_result(context: ToolContext) -> Any:
    """The value is that of the call."""
    del context
    return Holder(Card("a", 5))


def in_a_slice(context: ToolContext) -> Any:
    """The value is put into the session."""
    context.session[Holder].append(Holder(Card("a", 5)))
    return Holder(Base("a"))


@pytest.mark.parametrize("make", [as_result, in_a_slice])
def test_a_value_of_a_subclass_does_not_repeat_the_effect(make: Callable[[ToolContext], Any], tmp_path: Path) -> None:
    """Nothing of it is stored as something else, and the message names the place."""
    ran: list[int] = []

    def pay(params: Amount, *, context: ToolContext) -> ToolResult[Holder]:
        ran.append(params.cents)
        return ToolResult.ok(make(context))

    tool = Tool[Amount, Holder](
        name="pay", description="Pays.", handler=pay, effect="external", idempotency=IdempotencyConfig()
    )
    template = PromptTemplate[None](ns="tests", key="pay", sections=[ToolsSection(title="Tools", tools=[tool])])
    messages: list[Any] = []
    for number in range(2):
        with store.open(f"sqlite:///{tmp_path}/a.db") as opened, Session.open(opened, "s") as session:
            executor = ToolExecutor(prompt=Prompt(template), session=session)
            messages.append(executor.execute(ToolCall(f"c{number}", "pay", "{}"), reply=f"r{number}"))
    assert ran == [0]
    assert [message.replayed for message in messages] == [False, True]
    assert "$.base: a Card would come back as a Base" in messages[0].content
