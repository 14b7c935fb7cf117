"""`handrail.adapters.pydantic_ai.foreign.arguments`: functions take what the schema says that the model sees."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import IntEnum
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BeforeValidator, Field
from pydantic_ai import RunContext, Tool
from pydantic_ai.toolsets import FunctionToolset

from handrail.prompt import Tool as HandrailTool
from handrail.prompt import ToolContext, ToolResult
from handrail.runtime import Session, Step
from handrail.testing import Call, Outcome
from tests.adapters.foreign_desk import called, outcomes, pipeline, play, returns
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


def function_of(kind: Any) -> tuple[Callable[..., str], list[Any]]:
    """A function of one parameter `x`, and what it is called with."""
    got: list[Any] = []

    def take(x: Any) -> str:
        got.append(x)
        return "taken"

    take.__annotations__["x"] = kind
    return take, got


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
    take, got = function_of(kind)
    session = Session()
    await play(pipeline(session), called(Call("take", f'{{"x": {written}}}'), c1=Outcome.ok()), tools=[take])
    assert got == [value]
    assert type(got[0]) is type(value)


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
    take, got = function_of(kind)
    session = Session()
    script = called(Call("take", f'{{"x": {written}}}'), c1=Outcome.failed())
    result = await play(pipeline(session), script, tools=[take], retries=0)
    assert returns(result.all_messages())["c1"].content == wording
    assert got == []
    assert outcomes(session) == [("c1", False, Step.PARSE)]


@dataclass(frozen=True)
class Booking:
    """The parameters of a tool of Handrail's."""

    at: datetime
    seats: int = 1


def booking(params: Booking, *, context: ToolContext) -> ToolResult[str]:
    """Book."""
    del context
    return ToolResult.ok(str(params))


def book(at: datetime, seats: int = 1) -> str:
    """Book."""
    return f"{at} {seats}"


WRITTEN = ['{"at": "2024"}', '{"at": "2026-01-31T12:00:00Z", "seats": true}', '{"seats": 1}', '{"at": 1, "zz": 2}']


@pytest.mark.parametrize("written", WRITTEN)
async def test_the_words_are_those_for_a_tool_of_handrails(written: str) -> None:
    """A model reads the same of the same fault."""
    own = HandrailTool[Booking, str](name="own", description="Book.", handler=booking)
    session = Session()
    result = await play(pipeline(session, own), called(Call("own", written), Call("book", written)), tools=[book])
    parts = returns(result.all_messages())
    assert str(parts["c2"].content) == str(parts["c1"].content).replace("own", "book", 1)
    assert not any(success for _, success, _ in outcomes(session))


def of_model(order: At) -> str:
    """The fields of its only parameter are its parameters."""
    return repr(order)


def with_context(ctx: RunContext[Any], at: datetime) -> str:
    """The run context is no parameter of the model's."""
    return f"{ctx.run_step} {at}"


def with_field(at: datetime = Field(default=NOON, description="When.")) -> str:  # noqa: B008
    """A parameter whose default says more."""
    return str(at)


MISREAD: dict[str, tuple[dict[str, Any], str, str]] = {
    "only model": ({"tools": [of_model]}, "of_model", '{"at": "2024"}'),
    "run context": ({"tools": [with_context]}, "with_context", '{"at": "2024"}'),
    "field": ({"tools": [with_field]}, "with_field", '{"at": "2024"}'),
    "Tool": ({"tools": [Tool(book, metadata={"effect": "external"})]}, "book", '{"at": "2024"}'),
    "toolset": ({"toolsets": [FunctionToolset([book])]}, "book", '{"at": "2024"}'),
    "prefix": ({"toolsets": [FunctionToolset([book]).prefixed("desk")]}, "desk_book", '{"at": "2024"}'),
}


@pytest.mark.parametrize("agent, name, written", MISREAD.values(), ids=MISREAD)
async def test_it_does_not_matter_how_a_function_is_declared(agent: dict[str, Any], name: str, written: str) -> None:
    """Its signature says what it takes."""
    calls = (Call(name, written), Call(name, written.replace("2024", "2026-01-31T12:00:00Z")))
    await play(pipeline(Session()), called(*calls, c1=Outcome.failed("ISO 8601"), c2=Outcome.ok()), **agent)
