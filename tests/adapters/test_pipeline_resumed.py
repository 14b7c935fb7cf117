"""What becomes of recorded and of missing calls when the tools are others by the time the run is taken up again."""

from __future__ import annotations

from dataclasses import dataclass

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
    ToolOutput,
)
from pydantic_ai.messages import UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from handrail.runtime import Session, Step, ToolInvoked
from handrail.testing import Call, ScriptedModel
from tests.adapters.foreign_desk import called, events, outcomes, pipeline, play, returns
from tests.adapters.notes import ADD_NOTE

pytestmark = pytest.mark.anyio


@dataclass
class Sum:
    """A structured answer."""

    total: int


async def jot(text: str) -> str:
    """What there was."""
    if text == "fail":
        raise KeyError(text)
    return f"jotted {text}"


async def first_run(session: Session) -> dict[str, ToolInvoked]:
    """The record of a success and of a failure."""
    await play(pipeline(session), called(Call("jot", {"text": "milk"}), Call("jot", {"text": "fail"})), tools=[jot])
    return {event.call_id: event for event in events(session)}


def history(*calls: tuple[str, str]) -> list[ModelMessage]:
    """What ends with a reply that asks for these calls: names and ids."""
    parts = [ToolCallPart(name, {"text": "milk"}, tool_call_id=call_id) for name, call_id in calls]
    return [ModelRequest(parts=[UserPromptPart("Do it.")]), ModelResponse(parts=parts)]


async def test_a_recorded_call_is_answered_although_its_arguments_fit_no_longer() -> None:
    """The schema and the validator are others by now: a success stays one, and so does a failure."""
    session = Session()
    recorded = await first_run(session)
    before = events(session)

    async def jot_anew(text: int) -> str:
        raise AssertionError(text)

    def fussy(ctx: RunContext[object], text: str) -> None:
        raise ModelRetry("not like that")

    calls = called(Call("jot", {"text": "milk"}), Call("jot", {"text": "fail"}))
    changed = Tool(jot_anew, name="jot")
    result = await play(pipeline(session, recorded=recorded), calls, tools=[changed])
    found = returns(result.all_messages())
    assert [(part.content, part.outcome) for part in found.values()] == [
        ("jotted milk", "success"),
        ("jot failed: KeyError: 'fail'", "failed"),
    ]
    only = called(Call("jot", {"text": "milk"}))
    result = await play(pipeline(session, recorded=recorded), only, tools=[Tool(jot, args_validator=fussy)])
    assert returns(result.all_messages())["c1"].content == "jotted milk"
    assert events(session) == before


async def test_a_recorded_call_is_answered_although_its_tool_is_gone() -> None:
    """From the record, as success or failure; a missing call of that name is refused and recorded, once."""
    session = Session()
    recorded = await first_run(session)
    before = events(session)
    capability = pipeline(session, ADD_NOTE, recorded=recorded)
    offered: list[str] = []

    def reply(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        offered.extend(tool.name for tool in info.function_tools)
        return ModelResponse(parts=[TextPart("Done.")])

    agent = Agent(FunctionModel(reply), capabilities=[capability], output_type=[str, ToolOutput(Sum)])
    asked = history(("jot", "c1"), ("jot", "c2"), ("jot", "c3"), ("gone", "c4"))
    result = await agent.run(message_history=asked)
    assert offered == ["add_note"]
    found = returns(result.all_messages())
    assert (found["c1"].content, found["c1"].outcome) == ("jotted milk", "success")
    assert (found["c2"].content, found["c2"].outcome) == ("jot failed: KeyError: 'fail'", "failed")
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
