"""Values of unions whose members JSON does not tell apart: in calls, sessions and the ledger."""

from __future__ import annotations

from dataclasses import dataclass, make_dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from handrail.errors import PromptValidationError
from handrail.prompt import Tool, ToolContext, ToolResult
from handrail.runtime import EffectLedger, IdempotencyConfig, Session, ToolCall, ToolInvoked
from handrail.session.persistence.stored_types import stored_as
from handrail.store import SqliteStore
from tests.kit import executor
from tests.serde.members import PAIRS, Approve, Decision, Reject, When
from tests.wording import Wording

AT = "2026-01-31T12:00:00Z"


_NUMBERS = count()


def held(kind: Any) -> Any:
    """A dataclass with a field of this type, which stores know by a name of its own."""
    return stored_as(f"tests.held.{next(_NUMBERS)}")(make_dataclass("Held", [("x", kind)]))


@dataclass(frozen=True)
class Done:
    """What the tools return."""

    number: int


def deciding(kind: Any, value: object) -> Tool[Any, Any]:
    """A tool that returns this value, once for all sessions."""

    def handle(_params: None, *, context: ToolContext) -> ToolResult[Any]:
        return ToolResult.ok(value)

    once = IdempotencyConfig(scope="shop")
    return Tool[None, kind](name="decide", description="Decides.", handler=handle, effect="external", idempotency=once)


@pytest.mark.parametrize("kind, values", PAIRS, ids=count())
def test_a_result_comes_back_from_session_record_and_ledger(kind: Any, values: list[Any], tmp_path: Path) -> None:
    """As the member that it was, after its session was closed."""
    cls = held(kind)
    for number, value in enumerate(values):
        tool = deciding(cls, cls(value))
        with SqliteStore(tmp_path / f"{number}.db") as store:
            with Session.open(store, "s", types=(cls,)) as session:
                executor(tool, session=session).execute(ToolCall("1", "decide"), reply="r")
            with Session.open(store, "s", types=(cls,)) as session:
                door = executor(tool, session=session)
                again = [door.execute(ToolCall(name, "decide"), reply="r") for name in ("1", "2")]
                found: list[Any] = [session[cls].latest(), *(message.result.value for message in again)]
                assert [event.result.value for event in session[ToolInvoked].all()] == [cls(value)] * 2
        assert [message.replayed for message in again] == [True, True]
        assert [each == cls(value) and type(each.x) is type(value) for each in found] == [True] * 3


@pytest.mark.parametrize("kind, values", PAIRS, ids=count())
def test_a_saved_session_gives_members_back_as_what_they_were(kind: Any, values: list[Any]) -> None:
    """`from_json(to_json())`."""
    cls = held(kind)
    session = Session()
    for value in values:
        session[cls].append(cls(value))
    back = Session.from_json(session.to_json(), types=(cls,))[cls].all()
    assert back == session[cls].all()
    assert [type(each.x) for each in back] == [type(value) for value in values]


def test_a_result_that_is_a_union_comes_back_from_the_ledger() -> None:
    """The type of the result itself may be the union; the message has no tag."""
    kind: Any = Approve | Reject
    door = executor(deciding(kind, Reject("A")), effect_ledger=EffectLedger())
    first, second = (door.execute(ToolCall(name, "decide")) for name in ("1", "2"))
    assert (second.result.value, second.replayed) == (Reject("A"), True)
    assert first.content == second.content == "rejected: A"


def test_parameters_that_a_model_cannot_tell_apart_are_refused_when_the_tool_is_made(wording: Wording) -> None:
    """With the field, both classes, and what to write instead."""
    with pytest.raises(PromptValidationError) as raised:
        Tool[Decision, Done](name="decide", description="Decides.", handler=None)
    assert str(raised.value) == wording


class Paid:
    """A ledger with one tool whose parameter is ambiguous, and how often its handler has run."""

    def __init__(self, config: IdempotencyConfig) -> None:
        """Begin with an empty ledger."""
        self.config = config
        self.ledger = EffectLedger()
        self.times = 0
        self.tool = Tool[When, Done](
            name="pay", description="Pays.", handler=self._pay, effect="external", idempotency=config
        )

    def _pay(self, params: When, *, context: ToolContext) -> ToolResult[Done]:
        self.times += 1
        return ToolResult.ok(Done(self.times))

    def call(self, at: str = AT) -> ToolResult[Any]:
        """What comes of a call."""
        door = executor(self.tool, effect_ledger=self.ledger)
        return door.execute(ToolCall("1", "pay", f'{{"at":"{at}"}}')).result


def test_members_are_two_effects() -> None:
    """What is the same text to a model is a moment to one call and a text to another."""
    paid = Paid(IdempotencyConfig(scope="shop"))
    assert [paid.call(at).value for at in (AT, "noon", AT, "noon")] == [Done(1), Done(2), Done(1), Done(2)]
