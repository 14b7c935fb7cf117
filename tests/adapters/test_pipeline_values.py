"""What is recorded of a foreign call: its arguments and its value as JSON has them, whatever they are."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Tool, ToolDefinition
from pydantic_ai.toolsets import FunctionToolset

from handrail.adapters.pydantic_ai.foreign import arguments_of
from handrail.runtime import IdempotencyConfig, Session
from handrail.testing import Call, Outcome
from tests.adapters.foreign_desk import call_by_hand, called, events, pipeline, play, write
from tests.adapters.notes import noted
from tests.runtime.test_stored_calls import through_a_store


class Mute:
    """It cannot even be looked at."""

    def __repr__(self) -> str:
        raise RuntimeError("no")


class Shy(BaseModel):
    """Its JSON cannot be made."""

    part: Any

    def __repr__(self) -> str:
        return "shy \ud800"


def _deep() -> list[Any]:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    return deep


def _itself() -> dict[str, Any]:
    ring: dict[str, Any] = {}
    ring["ring"] = ring
    return ring


UNSAYABLE = "(a value of type list that cannot be shown)"
VALUES: dict[str, tuple[Callable[[], Any], Any]] = {
    "nothing": (lambda: None, None),
    "truth": (lambda: True, True),
    "number": (lambda: 2**70, 2**70),
    "not a number": (lambda: {"rate": float("nan")}, {"rate": "NaN"}),
    "model": (lambda: Shy(part=7), {"part": 7}),
    "bytes": (lambda: b"\xff", r"b'\xff'"),
    "odd text": (lambda: "Zoë 🍞", "Zoë 🍞"),
    "half a character": (lambda: "\ud800", r"'\ud800'"),
    "half a character by repr": (lambda: Shy(part="\ud800"), r"shy \ud800"),
    "huge": (lambda: "x" * 3_000_000, "x" * 3_000_000),
    "holds itself": (_itself, {"ring": "..."}),
    "too deep": (_deep, UNSAYABLE),
    "cannot be looked at": (lambda: [Mute(), "\ud800"], UNSAYABLE),
    "number too long": (lambda: [10**5000], UNSAYABLE),
}


@pytest.mark.parametrize("make, kept", VALUES.values(), ids=VALUES)
@pytest.mark.anyio
async def test_a_value_is_recorded_as_json_has_it(make: Callable[[], Any], kept: Any) -> None:
    """What JSON cannot say is told in words; the toolset's own value reaches PydanticAI as it is."""
    value = make()

    async def give() -> Any:
        return value

    session = Session()
    given = await call_by_hand(pipeline(session), FunctionToolset[Any]([give]), "give")
    assert given is value
    assert events(session)[0].result.value == kept
    assert through_a_store(events(session)[0]).result.value == kept


@pytest.mark.anyio
async def test_a_generator_is_read_inside_the_call() -> None:
    """It can be read only once, and what it does on the way is part of the call."""

    def lines() -> Generator[str]:
        write("one")
        yield "one"
        yield "two"

    session = Session()
    given = await call_by_hand(pipeline(session), FunctionToolset[Any]([lines]), "lines")
    assert given == events(session)[0].result.value == ["one", "two"]
    assert noted(session) == ["one"]


def test_arguments_are_recorded_one_by_one() -> None:
    """One that JSON cannot say hides none of the others; what is no mapping has a name."""
    assert arguments_of({"order_id": 7, "\ud800": "\ud800"}) == {"order_id": 7, r"'\ud800'": r"'\ud800'"}
    assert arguments_of(Shy(part=7)) == {"part": 7}
    assert arguments_of([1]) == {"arguments": [1]}
    assert arguments_of("\ud800") == {"arguments": r"'\ud800'"}


class Order(BaseModel):
    """What an order is paid by."""

    order_id: str
    size: int = 1


DECLARED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "the only parameter": ({"order": Order(order_id="7")}, {"order_id": "7", "size": 1}),
    "one of its own fields": ({"order_id": {"size": 1}}, {"order_id": {"size": 1}}),
    "another field": ({"more": {"order_id": "7", "text": "x"}}, {"more": {"order_id": "7", "text": "x"}}),
    "no mapping": ({"more": "order_id"}, {"more": "order_id"}),
    "nothing in it": ({"more": {}}, {"more": {}}),
    "several": ({"order_id": "7", "more": {"size": 1}}, {"order_id": "7", "more": {"size": 1}}),
    "none": ({}, {}),
}


@pytest.mark.parametrize("args, seen", DECLARED.values(), ids=DECLARED)
def test_arguments_are_those_that_the_tool_declares(args: dict[str, Any], seen: dict[str, Any]) -> None:
    """PydanticAI offers the fields of a function's only model as the parameters, and hands the function the model."""
    definition = ToolDefinition(name="pay", parameters_json_schema=Order.model_json_schema())
    assert arguments_of(args, definition) == seen
    assert arguments_of(args, ToolDefinition(name="pay")) == arguments_of(args)


@pytest.mark.anyio
async def test_a_key_may_be_made_from_a_field_of_the_only_model() -> None:
    """What a check of the declaration finds among the parameters is there when a call is made."""
    paid: list[str] = []

    async def pay(order: Order) -> str:
        paid.append(order.order_id)
        return "paid"

    once = IdempotencyConfig(strategy="params", param_keys=("order_id",))
    session = Session()
    script = called(*[Call("pay", {"order_id": "7"})] * 2, c1=Outcome.ok("paid"), c2=Outcome.ok("paid"))
    await play(pipeline(session), script, tools=[Tool(pay, metadata={"effect": "external", "idempotency": once})])
    assert paid == ["7"]
    assert [event.params for event in events(session)] == [{"order_id": "7", "size": 1}] * 2
