"""A key that the model gives twice in one object is refused, whoever validates the arguments of the tool."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai import Agent, ModelRetry, RunContext, Tool
from pydantic_ai.mcp import MCPToolset

from handrail.adapters.pydantic_ai import HandrailCapability
from handrail.adapters.tool_executor import ToolExecutor
from handrail.runtime import Session, Step, ToolCall
from handrail.testing import Call, Outcome, ScriptedModel
from tests.adapters.foreign_desk import called, events, outcomes, pipeline, play, returns
from tests.adapters.mcp_desk import desk_server
from tests.adapters.notes import ADD_NOTE, notes_prompt
from tests.adapters.test_mcp_toolset import InProcess
from tests.wording import Wording

pytestmark = pytest.mark.anyio

TWICE = '{"text": "milk", "text": "bread"}'


class Noted:
    """A plain function, and what it was called with."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def note(self, text: str) -> str:
        """Note a text."""
        self.texts.append(text)
        return "noted"


def executors_words(arguments: str) -> str:
    """What the executor says of these arguments for a tool of Handrail's."""
    executor = ToolExecutor(prompt=notes_prompt(tools=(ADD_NOTE,)), session=Session())
    return executor.execute(ToolCall("c", "add_note", arguments)).content


async def test_a_foreign_tool_is_refused_in_the_words_of_the_executor(wording: Wording) -> None:
    """It does not run; the call is recorded as refused when its arguments were parsed, and spends no retry."""
    noted, session = Noted(), Session()
    script = called(Call("note", TWICE), Call("note", {"text": "milk"}), c1=Outcome.failed(), c2=Outcome.ok())
    result = await play(pipeline(session), script, tools=[noted.note], retries=0)
    assert returns(result.all_messages())["c1"].content == wording
    assert executors_words(TWICE) == wording
    assert noted.texts == ["milk"]
    assert outcomes(session) == [("c1", False, Step.PARSE), ("c2", True, None)]
    assert events(session)[0].call.arguments == TWICE


async def test_a_tool_of_an_mcp_server_is_refused_alike(wording: Wording) -> None:
    """The server is not asked."""
    carried_out: list[str] = []
    toolset: MCPToolset[Any] = MCPToolset(InProcess(desk_server(carried_out)), id="desk")
    script = called(Call("send", TWICE), c1=Outcome.failed())
    result = await play(pipeline(Session()), script, toolsets=[toolset])
    assert returns(result.all_messages())["c1"].content == wording
    assert carried_out == []


async def test_beside_a_prompts_tools_those_of_others_are_refused_too(wording: Wording) -> None:
    """`HandrailCapability` records only its own calls; what it refuses of others is told in the same words."""
    noted, session = Noted(), Session()
    own = HandrailCapability(ToolExecutor(prompt=notes_prompt(tools=(ADD_NOTE,)), session=session))
    calls = (Call("note", TWICE), Call("add_note", TWICE))
    with ScriptedModel(called(*calls, c1=Outcome.failed(), c2=Outcome.failed())) as model:
        agent: Agent[None, str] = Agent(model, tools=[noted.note], capabilities=[own], retries=0)
        result = await agent.run("Note it.")
    contents = returns(result.all_messages())
    assert [contents["c1"].content, contents["c2"].content] == [wording, wording]
    assert noted.texts == []
    assert outcomes(session) == [("c2", False, Step.PARSE)]


NOT_REFUSED = {
    "the key in two objects": '{"text": "milk", "more": {"text": "a"}}',
    "a text that looks like it": '{"text": "{\\"a\\": 1, \\"a\\": 2}", "more": {}}',
}


@pytest.mark.parametrize("arguments", NOT_REFUSED.values(), ids=NOT_REFUSED)
async def test_a_key_may_stand_in_several_objects(arguments: str) -> None:
    """Only within one object it means two things."""

    def note(text: str, more: dict[str, str]) -> str:
        return f"{text} {more}"

    await play(pipeline(Session()), called(Call("note", arguments), c1=Outcome.ok()), tools=[note])


async def test_a_validator_of_the_program_is_not_asked(wording: Wording) -> None:
    """It would be shown one of the two values."""
    seen: list[str] = []

    def check(_ctx: RunContext[Any], text: str) -> None:
        seen.append(text)
        raise ModelRetry("another")

    noted = Noted()
    script = called(Call("note", TWICE), c1=Outcome.failed())
    result = await play(pipeline(Session()), script, tools=[Tool(noted.note, args_validator=check)])
    assert returns(result.all_messages())["c1"].content == wording
    assert seen == []
