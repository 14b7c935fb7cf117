"""What becomes of recorded and of missing calls when the tools are others by the time the run is taken up again."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from pydantic_ai import (
    Agent,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelRetry,
    RunContext,
    TextPart,
    Tool,
    ToolCallPart,
    ToolFailed,
    ToolOutput,
)
from pydantic_ai.messages import UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from handrail.runtime import Session, Step
from handrail.testing import Call, ScriptedModel
from tests.adapters.foreign_desk import called, events, outcomes, pipeline, play, resume, returns
from tests.adapters.notes import ADD_NOTE

pytestmark = pytest.mark.anyio


@dataclass
class Sum:
    """A structured answer."""

    total: int


async def jot(text: str) -> str:
    """What there was."""
    if text == "fail":
        raise ToolFailed("jot refuses")
    return f"jotted {text}"


async def first_run(session: Session) -> list[ModelMessage]:
    """A run with a success and a failure, and what was said in it."""
    calls = called(Call("jot", {"text": "milk"}), Call("jot", {"text": "fail"}))
    return (await play(pipeline(session), calls, tools=[jot])).all_messages()


def history(messages: list[ModelMessage], *calls: tuple[str, str]) -> list[ModelMessage]:
    """What ends with the first reply of these messages, which asks for more calls: names and ids."""
    more = [ToolCallPart(name, {"text": "milk"}, tool_call_id=call_id) for name, call_id in calls]
    reply = messages[1]
    assert isinstance(reply, ModelResponse)
    return [messages[0], replace(reply, parts=[*reply.parts, *more])]


async def test_a_recorded_call_is_answered_although_its_arguments_fit_no_longer() -> None:
    """The schema and the validator are others by now: a success stays one, and so does a failure."""
    session = Session()
    said = await first_run(session)
    before = events(session)

    async def jot_anew(text: int) -> str:
        raise AssertionError(text)

    def fussy(ctx: RunContext[object], text: str) -> None:
        raise ModelRetry("not like that")

    changed = Tool(jot_anew, name="jot")
    result = await resume(pipeline(session), said, tools=[changed])
    found = returns(result.all_messages())
    assert [(part.content, part.outcome) for part in found.values()] == [
        ("jotted milk", "success"),
        ("jot refuses", "failed"),
    ]
    reply = said[1]
    assert isinstance(reply, ModelResponse)
    (only,) = [part for part in reply.tool_calls if part.tool_call_id == "c1"]
    said[1] = replace(reply, parts=[only])
    result = await resume(pipeline(session), said, tools=[Tool(jot, args_validator=fussy)])
    assert returns(result.all_messages())["c1"].content == "jotted milk"
    assert events(session) == before


async def test_a_recorded_call_is_answered_although_its_tool_is_gone() -> None:
    """From the record, as success or failure; a missing call of that name is refused and recorded, once."""
    session = Session()
    said = await first_run(session)
    before = events(session)
    capability = pipeline(session, ADD_NOTE)
    offered: list[str] = []

    def reply(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        offered.extend(tool.name for tool in info.function_tools)
        return ModelResponse(parts=[TextPart("Done.")])

    agent = Agent(FunctionModel(reply), capabilities=[capability], output_type=[str, ToolOutput(Sum)])
    asked = history(said, ("jot", "c3"), ("gone", "c4"))
    result = await agent.run(message_history=asked)
    assert offered == ["add_note"]
    found = returns(result.all_messages())
    assert (found["c1"].content, found["c1"].outcome) == ("jotted milk", "success")
    assert (found["c2"].content, found["c2"].outcome) == ("jot refuses", "failed")
    for call_id in ("c3", "c4"):
        assert found[call_id].outcome == "failed"
        assert "add_note" in str(found[call_id].content)
    assert events(session)[: len(before)] == before
    assert outcomes(session)[len(before) :] == [("c3", False, Step.LOOK_UP), ("c4", False, Step.LOOK_UP)]


async def test_a_structured_answer_of_an_earlier_run_stays_one() -> None:
    """Its name is one of PydanticAI's, and no tool that is gone."""
    call = ToolCallPart("final_result", {"total": 3}, tool_call_id="c1")
    asked: list[ModelMessage] = [ModelRequest(parts=[UserPromptPart("Do it.")]), ModelResponse(parts=[call])]
    session = Session()
    with ScriptedModel([]) as model:
        agent = Agent(model, capabilities=[pipeline(session, ADD_NOTE)], output_type=Sum)
        result = await agent.run(message_history=asked)
    assert result.output == Sum(3)
    assert events(session) == ()
