"""A value that would come back from a store as something else is the developer's mistake, and repeats no effect."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from handrail import store
from handrail.errors import SessionUseError
from handrail.prompt import Tool, ToolContext, ToolResult
from handrail.runtime import IdempotencyConfig, Session
from tests.kit import Note, call, executor
from tests.serde.kit import Base, Card
from tests.wording import Wording


@dataclass(frozen=True)
class Holder:
    """Declares less than it is given."""

    base: Base


def as_result(context: ToolContext) -> Any:
    """The value is that of the call."""
    del context
    return Holder(Card("a", 5))


def in_a_slice(context: ToolContext) -> Any:
    """The value is put into the session."""
    context.session[Holder].append(Holder(Card("a", 5)))
    return Holder(Base("a"))


@contextmanager
def opened_session(folder: Path) -> Generator[Session]:
    """The session of a database."""
    with store.open(f"sqlite:///{folder}/a.db") as opened, Session.open(opened, "s") as session:
        yield session


@pytest.mark.parametrize("make", [as_result, in_a_slice])
def test_a_value_of_a_subclass_does_not_repeat_the_effect(
    make: Callable[[ToolContext], Any], tmp_path: Path, wording: Wording
) -> None:
    """Nothing of it is stored as something else, and the error names the place."""
    ran: list[str] = []

    def pay(params: Note, *, context: ToolContext) -> ToolResult[Holder]:
        ran.append(params.text)
        return ToolResult.ok(make(context))

    key = IdempotencyConfig()
    tool = Tool[Note, Holder](name="pay", description="Pays.", handler=pay, effect="external", idempotency=key)
    with opened_session(tmp_path) as session, pytest.raises(SessionUseError) as raised:
        executor(tool, session=session).execute(call("pay"), reply="r1")
    assert str(raised.value) == wording
    with opened_session(tmp_path) as session:
        message = executor(tool, session=session).execute(call("pay"), reply="r2")
    assert (message.success, message.replayed) == (True, True)
    assert ran == ["hello"]
