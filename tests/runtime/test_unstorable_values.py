"""What no store can keep for its type is the developer's mistake; a lone surrogate or a NaN in a value is not."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from handrail import store
from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import DeveloperMistake, SessionUseError
from handrail.prompt import Tool, ToolContext, ToolResult
from handrail.runtime import IdempotencyConfig, Session, ToolCall, ToolMessage
from tests.kit import Kept, Note, call, events, executor, tool
from tests.wording import Wording


@dataclass(frozen=True)
class Impossible:
    """No JSON says it."""

    value: complex


@dataclass(frozen=True)
class Anything:
    """JSON may say it."""

    value: Any


@dataclass(frozen=True)
class Measured:
    """A number."""

    value: float


@pytest.fixture
def session(tmp_path: Path) -> Generator[Session]:
    """A stored session."""
    with store.open(f"sqlite:///{tmp_path}/s.db") as opened, Session.open(opened, "s") as session:
        yield session


def appends(value: Any, times: list[str] | None = None) -> Any:
    """A handler that leaves a value in the session."""

    def handler(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        if times is not None:
            times.append(params.text)
        kind: Any = value.__class__
        context.session[kind].append(value)
        return ToolResult.ok(params)

    return handler


def of_result(kind: Any, value: Any, **options: Any) -> Tool[Any, Any]:
    """A tool that returns a value of a type."""

    def handler(params: Note, *, context: ToolContext) -> ToolResult[Any]:
        return ToolResult.ok(value)

    made: Any = Tool[Note, kind]
    returned: Tool[Any, Any] = made(name="wrong", description="Wrong.", handler=handler, **options)
    return returned


MISTAKES: dict[str, Callable[[], Tool[Any, Any]]] = {
    "a class without JSON": lambda: tool("wrong", appends(Impossible(1j))),
    "Any with a key that is no text": lambda: tool("wrong", appends(Anything({1: 2}))),
    "Any with a set": lambda: tool("wrong", appends(Anything({"a": {1}}))),
    "a value of another type": lambda: tool("wrong", appends(Kept(5))),  # type: ignore[arg-type]
    "a result with Any": lambda: of_result(Anything, Anything({1: 2})),
    "an external result": lambda: of_result(Anything, Anything({1: 2}), effect="external"),
}


@pytest.mark.parametrize("make", MISTAKES.values(), ids=MISTAKES)
def test_it_is_raised_when_the_other_calls_have_been_recorded(
    make: Callable[[], Tool[Any, Any]], session: Session, wording: Wording
) -> None:
    """The call is undone and recorded as failed; its record is not final."""
    door = executor(make(), tool("fine"), session=session)
    calls = [call("fine", "a", id="1"), call("wrong", "b", id="2"), call("fine", "c", id="3")]
    with pytest.raises(SessionUseError) as caught:
        door.execute_all(calls, reply="r")
    assert str(caught.value) == wording
    assert isinstance(caught.value, DeveloperMistake)
    assert [(event.call_id, event.success, event.final) for event in events(door)] == [
        ("1", True, True),
        ("2", False, False),
        ("3", True, True),
    ]
    assert session[Note].all() == (Note("a"), Note("c"))
    assert not session[Anything]


def test_the_effect_of_such_a_call_is_done(session: Session) -> None:
    """Its handler ran to its end: once the program is right, it is answered from the ledger and not run again."""
    done: list[str] = []
    key = IdempotencyConfig()
    wrong = tool("pay", appends(Impossible(1j), done), effect="external", idempotency=key)
    with pytest.raises(SessionUseError):
        _paid(wrong, session)
    right = tool("pay", appends(Kept("x"), done), effect="external", idempotency=key)
    message = _paid(right, session)
    assert (message.success, message.replayed) == (True, True)
    assert done == ["hello"]


def _paid(paying: Tool[Any, Any], session: Session) -> ToolMessage:
    return executor(paying, session=session).execute(call("pay", id="1"), reply="r")


OF_THE_DAY: dict[str, Any] = {
    "a lone surrogate": Kept("\ud800"),
    "a number that is not finite": Measured(float("nan")),
    "a surrogate in Any": Anything({"a": "\ud800"}),
}


@pytest.mark.parametrize("value", OF_THE_DAY.values(), ids=OF_THE_DAY)
def test_what_a_value_of_the_day_holds_fails_the_call(value: Any, session: Session, wording: Wording) -> None:
    """No program can rule it out by its types, so the model is told, as of an exception of the handler."""
    door = executor(tool("wrong", appends(value)), session=session)
    message = door.execute(call("wrong"))
    assert not message.success
    assert message.content == wording


def test_in_memory_nothing_is_stored() -> None:
    """So nothing is refused."""
    door: ToolExecutor = executor(tool("wrong", appends(Anything({1: 2}))))
    assert door.execute(ToolCall("c", "wrong", '{"text": "a"}')).success
