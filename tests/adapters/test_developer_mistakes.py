"""The developer's mistakes inside a PydanticAI run: raised when the other calls of the reply have ended."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent, ModelMessage, ModelRequest, ModelResponse, ModelRetry, TextPart, ToolReturnPart
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.tools import Tool as PlainTool

from handrail.adapters.pydantic_ai import PydanticAIAdapter, tool_context
from handrail.adapters.pydantic_ai.capability import HandrailCapability
from handrail.adapters.pydantic_ai.pipeline import PipelineCapability
from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import CallIdReusedError, UnboundResourceError
from handrail.prompt import Prompt, PromptTemplate, Section, Tool, ToolContext, ToolResult
from handrail.runtime import Session, ToolInvoked
from handrail.store.sqlite.store import SqliteStore
from handrail.testing import Call, Reply, ScriptedModel
from tests.adapters.kit import Note, asks, called, model, pipeline, play

pytestmark = pytest.mark.anyio


class Client:
    """A resource that nobody binds."""


def wrong(params: Note, *, context: ToolContext) -> ToolResult[Note]:
    """Ask for it."""
    context.resources.get(Client)
    raise AssertionError


def fine(params: Note, *, context: ToolContext) -> ToolResult[Note]:
    """Succeed."""
    return ToolResult.ok(params)


def prompt(**handlers: Any) -> Prompt[str]:
    """A prompt with a tool for each handler."""
    tools = [Tool[Note, Note](name=name, description="Does it.", handler=item) for name, item in handlers.items()]
    return Prompt(PromptTemplate[str](ns="tests", key="mistakes", sections=[Section(title="Desk", tools=tools)]))


def outcomes(session: Session) -> list[tuple[str, bool]]:
    """What was recorded of each call."""
    return [(event.call_id, event.success) for event in session[ToolInvoked].all()]


REPLY = Reply(calls=[Call("fine", {"text": "a"}), Call("wrong", {"text": "b"}), Call("fine", {"text": "c"})])


async def test_a_call_that_has_begun_is_not_cancelled() -> None:
    """PydanticAI cancels the other calls of a reply when one of them raises."""
    has_begun, may_end = asyncio.Event(), asyncio.Event()

    async def slow(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        has_begun.set()
        await may_end.wait()
        return ToolResult.ok(params)

    async def wrong_then(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        may_end.set()
        return wrong(params, context=context)

    session = Session()
    reply = Reply(calls=[Call("slow", {"text": "a"}), Call("wrong", {"text": "b"})])
    tools = [
        Tool[Note, Note](name="slow", description="Waits.", handler=slow, concurrent=True),
        Tool[Note, Note](name="wrong", description="Errs.", handler=wrong_then, concurrent=True),
    ]
    template = PromptTemplate[str](ns="tests", key="mistakes", sections=[Section(title="Desk", tools=tools)])
    with pytest.raises(UnboundResourceError), ScriptedModel([reply]) as scripted:
        await PydanticAIAdapter(scripted).evaluate_async(Prompt(template), session=session)
    assert sorted(outcomes(session)) == [("call-1", True), ("call-2", False)]


@pytest.mark.parametrize("mode", ["parallel", "sequential", "parallel_ordered_events"])
async def test_it_holds_in_every_mode_of_pydantic_ai(mode: Any) -> None:
    """Calls that have not been started are started: one after the other, or all at once."""
    session = Session()
    executor = ToolExecutor(prompt=prompt(fine=fine, wrong=wrong), session=session)
    scripted = ScriptedModel([REPLY])
    agent = Agent(scripted, capabilities=[HandrailCapability(executor)])
    with agent.parallel_tool_call_execution_mode(mode), pytest.raises(UnboundResourceError):
        await agent.run("Go.")
    assert sorted(outcomes(session)) == [("call-1", True), ("call-2", False), ("call-3", True)]


async def test_it_holds_beside_foreign_tools_and_for_what_they_ask_for() -> None:
    """A plain function finds our resources by `tool_context`."""
    done: list[str] = []

    def note(text: str) -> str:
        """Note it."""
        done.append(text)
        return "noted"

    def ask(text: str) -> str:
        """Ask for what nobody binds."""
        context = tool_context()
        assert context is not None
        context.resources.get(Client)
        return text

    session = Session()
    executor = ToolExecutor(prompt=prompt(fine=fine), session=session)
    reply = Reply(
        calls=[Call("ask", {"text": "a"}), Call("note", {"text": "b"}), Call("note", {}), Call("fine", {"text": "c"})]
    )
    agent = Agent(
        ScriptedModel([reply]),
        tools=[PlainTool(note, sequential=True), PlainTool(ask, sequential=True)],
        capabilities=[PipelineCapability(executor)],
    )
    with pytest.raises(UnboundResourceError):
        await agent.run("Go.")
    assert done == ["b"]
    assert sorted(outcomes(session)) == [("call-1", False), ("call-2", True), ("call-3", False), ("call-4", True)]


async def test_a_reused_identity_lets_the_other_calls_of_the_reply_end() -> None:
    """It raised at once before, and the other calls were cancelled."""
    session = Session()
    executor = ToolExecutor(prompt=prompt(send=fine), session=session)
    agent = Agent(model(asks("a", reply_id="r")), capabilities=[HandrailCapability(executor)])
    first = await agent.run("Go.")
    history = [*first.all_messages()[:1], asks("b", "c", reply_id="r")]
    with pytest.raises(CallIdReusedError):
        await Agent(model(), capabilities=[HandrailCapability(executor)]).run(message_history=history)
    assert outcomes(session) == [("call_0", True), ("call_1", True)]


def test_a_resumed_evaluation_tells_the_model_nothing_of_a_mistake(tmp_path: Path) -> None:
    """Once it is fixed, the call runs, and the conversation goes on as if it had run at once."""
    shown_text: list[str] = []

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        last = messages[-1]
        assert isinstance(last, ModelRequest)
        shown_text.extend(str(part.content) for part in last.parts if isinstance(part, ToolReturnPart))
        return ModelResponse([TextPart("Done.")])

    with SqliteStore(tmp_path / "desk.db") as store:
        with Session.open(store, "s") as session, pytest.raises(UnboundResourceError), ScriptedModel([REPLY]) as first:
            PydanticAIAdapter(first).evaluate(prompt(fine=fine, wrong=wrong), session=session)
        with Session.open(store, "s") as session:
            PydanticAIAdapter(FunctionModel(answer)).evaluate(prompt(fine=fine, wrong=fine), session=session)
            assert [(event.call_id, event.success) for event in session[ToolInvoked].all()] == [
                ("call-1", True),
                ("call-2", False),
                ("call-3", True),
                ("call-2", True),
            ]
    assert shown_text == ["noted: a", "noted: b", "noted: c"]


@pytest.mark.parametrize("kind", [ModelRetry, ToolFailed, RuntimeError])
async def test_what_a_plain_function_raises_from_a_mistake_does_not_tell_the_model_its_text(
    kind: type[Exception],
) -> None:
    """Of PydanticAI's exceptions for the model, too."""

    def ask(text: str) -> str:
        """Ask for what nobody binds."""
        context = tool_context()
        assert context is not None
        try:
            context.resources.get(Client)
        except UnboundResourceError as mistake:
            raise kind(f"the till is closed ({mistake})") from mistake
        raise AssertionError

    result = await play(pipeline(Session()), called(Call("ask", {"text": "a"})), tools=[ask])
    said = str(result.all_messages()[2])
    assert f"the till is closed ({UnboundResourceError.text_for_model})" in said
    assert "nothing is bound" not in said
