"""What is raised, and what is logged, when a toolset of a run cannot be closed."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from pydantic_ai import RunContext, ToolDefinition, ToolsetTool
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset
from pydantic_core import SchemaValidator, core_schema
from typing_extensions import override  # pydantic brings it; `typing` has it from Python 3.12 on

from handrail.runtime import Session
from handrail.testing import Call
from tests.adapters.foreign_desk import called, pipeline, play
from tests.wording import Wording

pytestmark = pytest.mark.anyio


class Connection(AbstractToolset[Any]):
    """A toolset of one tool; its calls and its closing fail as they are told to."""

    def __init__(self, name: str, *, fails: bool = False, closes: bool = True) -> None:
        self._name = name
        self._fails = fails
        self._closes = closes

    @property
    @override
    def id(self) -> str:
        return self._name

    @override
    async def __aexit__(self, *args: object) -> bool | None:
        if not self._closes:
            raise ConnectionError(f"{self._name} cannot be closed")
        return None

    @override
    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        validator = SchemaValidator(core_schema.dict_schema())
        definition = ToolDefinition(name=self._name)
        return {self._name: ToolsetTool(toolset=self, tool_def=definition, max_retries=0, args_validator=validator)}

    @override
    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        if self._fails:
            raise ConnectionError(f"{self._name} is gone")
        return "done"


class Leaky(FunctionToolset[Any]):
    """Functions, and something that cannot be closed."""

    @override
    async def __aexit__(self, *args: object) -> bool | None:
        raise OSError("the functions cannot be closed")


def fail() -> str:
    """Fail."""
    raise ValueError("no")


async def run(*toolsets: AbstractToolset[Any]) -> None:
    """A run that calls each tool once."""
    names = [toolset.id if isinstance(toolset, Connection) else "fail" for toolset in toolsets]
    await play(pipeline(Session()), called(*map(Call, names)), toolsets=toolsets)


async def test_a_toolset_that_has_lost_an_answer_is_closed_with_a_warning(
    caplog: pytest.LogCaptureFixture, wording: Wording
) -> None:
    """The model has been told of the call; a lost connection cannot be closed as it should be."""
    with caplog.at_level(logging.WARNING, logger="handrail.adapters"):
        await run(Connection("bank", fails=True, closes=False), Connection("mail"))
    assert caplog.messages == wording


RAISED: dict[str, tuple[list[AbstractToolset[Any]], str]] = {
    "no answer was lost": ([Connection("bank", closes=False)], "bank cannot be closed"),
    "a plain function raised": ([Leaky([fail])], "the functions cannot be closed"),
}


@pytest.mark.parametrize("toolsets, words", RAISED.values(), ids=RAISED)
async def test_what_else_cannot_be_closed_is_raised(toolsets: list[AbstractToolset[Any]], words: str) -> None:
    """Nobody has been told of it."""
    with pytest.raises(OSError, match=words):
        await run(*toolsets)
