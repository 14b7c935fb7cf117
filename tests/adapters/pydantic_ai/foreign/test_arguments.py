"""`handrail.adapters.pydantic_ai.foreign.arguments`: what is checked, and what is left to PydanticAI."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from pydantic import ValidationError
from pydantic_ai import RunContext, Tool
from pydantic_ai.models.test import TestModel
from pydantic_ai.toolsets import FunctionToolset
from pydantic_ai.usage import RunUsage

from handrail.adapters.pydantic_ai.foreign.arguments import FunctionArguments, read_by_signature

pytestmark = pytest.mark.anyio


def take(seats: int, note: object = None) -> str:
    """Take seats."""
    return f"{seats} {note}"


async def make_validator(function: Callable[..., str]) -> Any:
    """What reads the arguments of a function."""
    toolset = FunctionToolset[None]([Tool(function, name="take", description="Take seats.")])
    tools = await toolset.get_tools(RunContext(deps=None, model=TestModel(), usage=RunUsage()))
    return read_by_signature(tools, toolset)["take"].args_validator


async def test_values_that_are_made_already_are_left_to_pydantic_ai() -> None:
    """Only decoded JSON is held to the schema; an object is not encoded again."""
    validator = await make_validator(take)
    assert type(validator) is FunctionArguments
    note = object()
    assert validator.validate_python({"seats": 5, "note": note}) == {"seats": 5, "note": note}
    assert validator.validate_python({"seats": 5.0, "note": "a"}) == {"seats": 5, "note": "a"}
    with pytest.raises(ValidationError, match="valid integer"):
        validator.validate_python({"seats": "5", "note": "a"})


async def test_other_ways_to_say_the_same_are_read() -> None:
    """A list in a text where no text is taken, and nothing for no arguments."""

    def count(numbers: list[int] = []) -> str:  # noqa: B006 - it is not changed
        """Count."""
        return str(numbers)

    validator = await make_validator(count)
    assert validator.validate_json('{"numbers": "[1.0, 2]"}') == {"numbers": [1, 2]}
    assert [validator.validate_json(nothing) for nothing in ("", " ", "null")] == [{"numbers": []}] * 3
    with pytest.raises(ValidationError):
        validator.validate_json('{"numbers": "[1"}')


async def test_arguments_that_are_still_arriving_are_not_held_to_the_schema() -> None:
    """They are read strictly once they are whole."""
    validator = await make_validator(take)
    assert validator.validate_json('{"seats": "7', allow_partial="trailing-strings")["seats"] == 7
    with pytest.raises(ValidationError, match="valid integer"):
        validator.validate_json('{"seats": "7"}')


async def test_a_function_whose_annotations_cannot_be_read_is_left_to_pydantic_ai() -> None:
    """As a partial, behind which it looks for them."""
    function: Any = partial(take, note="a")
    function.__name__ = function.__qualname__ = "take"
    validator = await make_validator(function)
    assert type(validator) is not FunctionArguments
    assert validator.validate_json('{"seats": "7"}')["seats"] == 7
