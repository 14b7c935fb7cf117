"""What is recorded of the arguments of foreign tools, and what rules see of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel, Field, computed_field
from pydantic_ai import Tool, ToolDefinition

from handrail.adapters.pydantic_ai.foreign.values import plain_arguments
from handrail.runtime import IdempotencyConfig, Session
from handrail.testing import Call, Outcome
from tests.adapters.kit import Shy, called, events, pipeline, play

pytestmark = pytest.mark.anyio


def test_arguments_are_recorded_one_by_one() -> None:
    """One that JSON cannot say hides none of the others; what is no mapping has a name."""
    assert plain_arguments({"order_id": 7, "\ud800": "\ud800"}) == {"order_id": 7, r"'\ud800'": r"'\ud800'"}
    assert plain_arguments(Shy(part=7)) == {"part": 7}
    assert plain_arguments([1]) == {"arguments": [1]}
    assert plain_arguments("\ud800") == {"arguments": r"'\ud800'"}


class Order(BaseModel):
    """What an order is paid by."""

    order_id: str
    size: int = 1


class Open(BaseModel, extra="allow"):
    """It has a computed field, and room for any other."""

    path: str
    hidden: str = Field(default="", exclude=True)
    other: str = Field(default="", serialization_alias="o")

    @computed_field
    def size(self) -> int:
        return len(self.path)


@dataclass
class Place:
    """A dataclass is a model, too."""

    path: str


def by_open(a: Open) -> None:
    """A model with more than its fields."""


def by_name(path: Open) -> None:
    """Its name is that of a field."""


def by_place(a: Place) -> None:
    """A dataclass."""


def by_maybe(path: Place | None) -> None:
    """A model or nothing, which is a parameter like others."""


OPEN = {"path": "x", "o": "", "zzz": 1, "size": 1}
WRITTEN: dict[str, tuple[Callable[..., None], dict[str, Any], dict[str, Any]]] = {
    "more fields than declared": (by_open, {"path": "x", "zzz": 1}, OPEN),
    "a field named as the parameter": (by_name, {"path": "x", "zzz": 1}, OPEN),
    "dataclass": (by_place, {"path": "x"}, {"path": "x"}),
    "a parameter that may be nothing": (by_maybe, {"path": {"path": "x"}}, {"path": {"path": "x"}}),
}


@pytest.mark.parametrize("function, written, seen", WRITTEN.values(), ids=WRITTEN)
async def test_the_fields_of_an_only_model_are_the_arguments(
    function: Callable[..., None], written: dict[str, Any], seen: dict[str, Any]
) -> None:
    """Whatever fields it has, under whatever names it writes them."""
    session = Session()
    await play(pipeline(session), called(Call("f", written), c1=Outcome.ok()), tools=[Tool(function, name="f")])
    assert [event.params for event in events(session)] == [seen]


@pytest.mark.parametrize("properties", [None, [], {"path": True}])
def test_a_schema_that_says_nothing_of_a_field_leaves_the_arguments_as_they_are(properties: Any) -> None:
    """A server may send any."""
    definition = ToolDefinition(name="f", parameters_json_schema={"properties": properties})
    assert plain_arguments({"path": Place("x")}, definition) == {"path": {"path": "x"}}


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
