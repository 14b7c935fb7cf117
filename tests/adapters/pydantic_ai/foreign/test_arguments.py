"""Functions take what the schema says that the model sees; what is recorded of arguments, and what rules see."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, BeforeValidator, Field, ValidationError, computed_field
from pydantic_ai import RunContext, Tool, ToolDefinition
from pydantic_ai.models.test import TestModel
from pydantic_ai.toolsets import FunctionToolset
from pydantic_ai.usage import RunUsage

from handrail.adapters.pydantic_ai.foreign.calls import plain_arguments
from handrail.adapters.pydantic_ai.foreign.values import FunctionArguments, read_by_signature
from handrail.runtime import IdempotencyConfig, Session, Step
from handrail.testing import Call, Outcome
from tests.adapters.kit import Shy, called, events, outcomes, pipeline, play, returns
from tests.wording import Wording

pytestmark = pytest.mark.anyio

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


class Level(IntEnum):
    """How urgent it is."""

    LOW = 1
    HIGH = 2


@dataclass
class At:
    """When, for how many."""

    at: datetime
    seats: int = 1


def taking_function(kind: Any) -> tuple[Callable[..., str], list[Any]]:
    """A function of one parameter `x`, and what it is called with."""
    values: list[Any] = []

    def take(x: Any) -> str:
        values.append(x)
        return "taken"

    take.__annotations__["x"] = kind
    return take, values


READ: dict[str, tuple[Any, str, Any]] = {
    "datetime": (datetime, '"2026-01-31T12:00:00Z"', NOON),
    "timedelta": (timedelta, '"PT1H"', timedelta(hours=1)),
    "a whole number": (int, "5.0", 5),
    "a number for float": (float, "1", 1.0),
    "Literal of a number": (Literal[1, "a"], "1", 1),
    "Decimal": (Decimal, '"12.50"', Decimal("12.50")),
    "Path": (Path, '"a/b"', Path("a/b")),
    "set": (set[int], "[1]", {1}),
    "or nothing": (datetime | None, "null", None),
    "made by the program's code": (Annotated[set[str], BeforeValidator(str.split)], '"a b"', {"a", "b"}),
}


@pytest.mark.parametrize("kind, written, value", READ.values(), ids=READ)
async def test_what_the_schema_takes_is_read(kind: Any, written: str, value: Any) -> None:
    """The function is called with the value that PydanticAI makes of it."""
    take, values = taking_function(kind)
    session = Session()
    await play(pipeline(session), called(Call("take", f'{{"x": {written}}}'), c1=Outcome.ok()), tools=[take])
    assert values == [value]
    assert type(values[0]) is type(value)


REFUSED: dict[str, tuple[Any, str]] = {
    "digits for datetime": (datetime, '"2024"'),
    "a number for datetime": (datetime, "2024"),
    "a clock for timedelta": (timedelta, '"01:00"'),
    "a boolean for int": (int, "true"),
    "text for int": (int, '"7"'),
    "a number for bool": (bool, "1"),
    "a boolean for a Literal": (Literal[1, "a"], "true"),
    "a boolean for an IntEnum": (Level, "true"),
    "digits in a list": (list[datetime], '["2024"]'),
    "a key that is no integer": (dict[int, str], '{"01": "a"}'),
}


@pytest.mark.parametrize("kind, written", REFUSED.values(), ids=REFUSED)
async def test_what_the_schema_does_not_take_is_refused(kind: Any, written: str, wording: Wording) -> None:
    """The function is not called, and the call is recorded as refused when its arguments were parsed."""
    take, values = taking_function(kind)
    session = Session()
    script = called(Call("take", f'{{"x": {written}}}'), c1=Outcome.failed())
    result = await play(pipeline(session), script, tools=[take], retries=0)
    assert returns(result.all_messages())["c1"].content == wording
    assert values == []
    assert outcomes(session) == [("c1", False, Step.PARSE)]


def book(at: datetime, seats: int = 1) -> str:
    """Book."""
    return f"{at} {seats}"


def of_model(order: At) -> str:
    """The fields of its only parameter are its parameters."""
    return repr(order)


def with_context(ctx: RunContext[Any], at: datetime) -> str:
    """The run context is no parameter of the model's."""
    return f"{ctx.run_step} {at}"


def with_field(at: datetime = Field(default=NOON, description="When.")) -> str:  # noqa: B008
    """A parameter whose default says more."""
    return str(at)


MISREAD: dict[str, tuple[dict[str, Any], str]] = {
    "only model": ({"tools": [of_model]}, "of_model"),
    "run context": ({"tools": [with_context]}, "with_context"),
    "field": ({"tools": [with_field]}, "with_field"),
    "Tool": ({"tools": [Tool(book, metadata={"effect": "external"})]}, "book"),
    "toolset": ({"toolsets": [FunctionToolset([book])]}, "book"),
    "prefix": ({"toolsets": [FunctionToolset([book]).prefixed("desk")]}, "desk_book"),
}


@pytest.mark.parametrize("agent, name", MISREAD.values(), ids=MISREAD)
async def test_it_does_not_matter_how_a_function_is_declared(agent: dict[str, Any], name: str) -> None:
    """Its signature says what it takes."""
    calls = [Call(name, {"at": text}) for text in ("2024", "2026-01-31T12:00:00Z")]
    await play(pipeline(Session()), called(*calls, c1=Outcome.failed("ISO 8601"), c2=Outcome.ok()), **agent)


def take(seats: int, note: object = None) -> str:
    """Take seats."""
    return f"{seats} {note}"


async def find_validator(function: Callable[..., str]) -> Any:
    """What reads the arguments of a function."""
    toolset = FunctionToolset[None]([Tool(function, name="take", description="Take seats.")])
    tools = await toolset.get_tools(RunContext(deps=None, model=TestModel(), usage=RunUsage()))
    return read_by_signature(tools, toolset)["take"].args_validator


async def test_values_that_are_made_already_are_left_to_pydantic_ai() -> None:
    """Only decoded JSON is held to the schema; an object is not encoded again."""
    validator = await find_validator(take)
    assert type(validator) is FunctionArguments
    note = object()
    assert validator.validate_python({"seats": 5, "note": note}) == {"seats": 5, "note": note}
    assert validator.validate_python({"seats": 5.0, "note": "a"}) == {"seats": 5, "note": "a"}
    with pytest.raises(ValidationError, match="valid integer"):
        validator.validate_python({"seats": "5", "note": "a"})
    # Arguments that are still arriving are read strictly once they are whole.
    assert validator.validate_json('{"seats": "7', allow_partial="trailing-strings")["seats"] == 7


async def test_other_ways_to_say_the_same_are_read() -> None:
    """A list in a text where no text is taken, and nothing for no arguments."""

    def count(numbers: list[int] = []) -> str:  # noqa: B006 - it is not changed
        """Count."""
        return str(numbers)

    validator = await find_validator(count)
    assert validator.validate_json('{"numbers": "[1.0, 2]"}') == {"numbers": [1, 2]}
    assert [validator.validate_json(nothing) for nothing in ("", " ", "null")] == [{"numbers": []}] * 3
    with pytest.raises(ValidationError):
        validator.validate_json('{"numbers": "[1"}')


async def test_a_function_whose_annotations_cannot_be_read_is_left_to_pydantic_ai() -> None:
    """As a partial, behind which it looks for them."""
    function: Any = partial(take, note="a")
    function.__name__ = function.__qualname__ = "take"
    validator = await find_validator(function)
    assert type(validator) is not FunctionArguments
    assert validator.validate_json('{"seats": "7"}')["seats"] == 7


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
