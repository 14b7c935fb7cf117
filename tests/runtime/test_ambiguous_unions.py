"""Results whose type has a union that JSON does not distinguish: in memory, in a store, in the ledger."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Literal

import pytest

from handrail.errors import SchemaError, SessionUseError
from handrail.prompt import Tool, ToolContext, ToolResult
from handrail.runtime import EffectLedger, Session, ToolCall, ToolMessage
from handrail.store import MemoryStore
from tests.kit import executor
from tests.serde.kit import Approve, Disc, Reject, Tile, held
from tests.wording import Wording

Kind = Literal["state", "external"]


def deciding(kind: Any, value: object, effect: Kind = "state") -> Tool[Any, Any]:
    """A tool that returns this value."""

    def handle(_params: None, *, context: ToolContext) -> ToolResult[Any]:
        return ToolResult.ok(value)

    return Tool[None, kind](name="decide", description="Decides.", handler=handle, effect=effect)


def in_store() -> Session:
    """A session in a store."""
    return Session.open(MemoryStore(), "s")


EITHER: Any = Approve | Reject
HELD: Any = held(EITHER)


@pytest.mark.parametrize(
    "kind, value", [(EITHER, Reject("a")), (list[datetime | str], ["noon"]), (HELD, HELD(Reject("a")))], ids=str
)
def test_in_memory_any_union_is_returned(kind: Any, value: Any) -> None:
    """The value goes to the model and to the session as it is."""
    message = executor(deciding(kind, value), session=Session()).execute(ToolCall("1", "decide"))
    assert (message.success, message.result.value) == (True, value)


@pytest.mark.parametrize("make, effect", [(in_store, "state"), (in_store, "external"), (Session, "external")])
def test_it_is_refused_where_the_executor_has_a_store_or_the_effect_a_ledger(
    make: Callable[[], Session], effect: Kind, wording: Wording
) -> None:
    """When the executor is made: the error names the tool, the place, both members and the cure."""
    tool = deciding(list[datetime | str], ["noon"], effect)
    with pytest.raises(SchemaError) as raised:
        executor(tool, session=make(), effect_ledger=EffectLedger())
    assert raised.value.path == "$[*]"
    assert str(raised.value) == wording


def test_a_slice_is_refused_when_it_is_stored(wording: Wording) -> None:
    """It is named, with the same cure."""
    with pytest.raises(SessionUseError) as raised:
        in_store()[HELD].append(HELD(Reject("a")))
    assert str(raised.value) == wording


@pytest.mark.parametrize("effect", ["state", "external"])
def test_members_with_a_literal_field_come_back_from_a_store(effect: Kind) -> None:
    """As what they were."""
    store, tool = MemoryStore(), deciding(Disc | Tile, Tile("a"), effect)
    messages: list[ToolMessage] = []
    for _ in range(2):
        with Session.open(store, "s") as session:
            messages.append(executor(tool, session=session).execute(ToolCall("1", "decide"), reply="r"))
    assert [(each.result.value, each.replayed) for each in messages] == [(Tile("a"), False), (Tile("a"), True)]
