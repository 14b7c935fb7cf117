"""What `docs/how-to/change-stored-types.md` says of a tool whose parameters change while a store has calls of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from handrail import store, tool
from handrail.adapters.tool_executor import PendingAnswers, ToolExecutor
from handrail.prompt import IdempotencyConfig, Prompt, PromptTemplate, ToolsSection
from handrail.runtime import Session, ToolCall

ENDED = ToolCall("call-1", "pay", {"order": "A-1", "cents": 5})
OPEN = ToolCall("call-2", "pay", {"order": "A-2", "cents": 5})


def executor_of(session: Session, pay: Callable[..., str], idempotency: IdempotencyConfig) -> ToolExecutor:
    """An executor with one tool, made of a version of the function."""
    made = tool(effect="external", name="pay", description="Pay.", idempotency=idempotency)(pay)
    section = ToolsSection(title="Desk", tools=[made])
    return ToolExecutor(prompt=Prompt(PromptTemplate(ns="shop", key="desk", sections=[section])), session=session)


def before(order: str, cents: int) -> str:
    """The first version."""
    return f"{order}: {cents}"


def with_default(order: str, cents: int, note: str = "") -> str:
    """A version with one more parameter."""
    return f"{order}: {cents} again{note}"


def renamed(order: str, amount: int) -> str:
    """A version in which a parameter has another name."""
    return f"{order}: {amount} again"


@pytest.mark.parametrize(
    "now, idempotency, open_call, equal_call",
    [
        (with_default, IdempotencyConfig(), "A-2: 5 again", "A-1: 5 again"),
        (with_default, IdempotencyConfig(strategy="params", param_keys=("order",)), "A-2: 5 again", "A-1: 5"),
        (renamed, IdempotencyConfig(), None, None),
    ],
)
@pytest.mark.short(3)
def test_calls_of_the_store_meet_the_new_parameters(
    now: Callable[..., str], idempotency: IdempotencyConfig, open_call: str | None, equal_call: str | None
) -> None:
    """An ended call keeps its answer, an open one is checked again, a key may be another one; `None` is a refusal."""
    with store.open("memory:") as kept:
        with Session.open(kept, "desk") as session:
            assert executor_of(session, before, idempotency).execute(ENDED, reply="reply-1").content == "A-1: 5"
            session.conversation.append({"role": "assistant"}, calls=[OPEN], reply="reply-2")
        with Session.open(kept, "desk") as session:
            executor = executor_of(session, now, idempotency)
            assert executor.execute(ENDED, reply="reply-1").content == "A-1: 5"
            answers = executor.answer()
            assert not isinstance(answers, PendingAnswers)
            assert [answer.content if answer.success else None for answer in answers] == [open_call]
            equal = executor.execute(ENDED, reply="reply-3")
            assert (equal.content.partition("\n")[0] if equal.success else None) == equal_call
