"""An agent of PydanticAI with the capability rehearses as it is; its requests are compared part by part."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from pydantic import SecretStr
from pydantic_ai import Agent, AgentStreamEvent, ModelMessage, ModelResponse, RunContext, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel
from pydantic_ai.settings import ModelSettings

from handrail import store as stores
from handrail import tool as function_tool
from handrail.adapters.pydantic_ai import HandrailCapability, StoredHistory
from handrail.adapters.run_task import RunTask
from handrail.errors import PlanDeviatedError
from handrail.prompt import ToolContext, ToolResult
from handrail.undo import apply_plan, dry_run
from tests.kit import Kept, Note, executor, tool

pytestmark = pytest.mark.anyio


@dataclass(frozen=True)
class Clerk:
    """An agent that notes and pays.

    Attributes:
        paid: what was paid.
        settings, instructions, model, output: as PydanticAI has them.
        streams: its events are listened to.
    """

    paid: list[str] = field(default_factory=list[str])
    settings: ModelSettings = field(default_factory=lambda: ModelSettings(temperature=0.5))
    instructions: str = "Pay."
    model: str = "small"
    streams: bool = False
    asked: list[str] = field(default_factory=list[str])
    output: Any = str

    async def __call__(self, task: RunTask) -> object:
        """Runs it."""
        paid = self.paid

        def pay(params: Note, *, context: ToolContext) -> ToolResult[Note]:
            paid.append(params.text)
            return ToolResult.ok(params)

        def note(params: Note, *, context: ToolContext) -> ToolResult[Note]:
            context.session[Kept].append(Kept(params.text))
            return ToolResult.ok(params)

        loop = executor(tool("pay", pay, effect="external", preview=preview), tool("note", note), session=task.session)
        stored = StoredHistory(task.session, "clerk")
        agent: Agent[None, Any] = Agent(
            FunctionModel(self.answer, stream_function=self.stream, model_name=self.model),
            capabilities=[HandrailCapability(loop, conversation=stored)],
            model_settings=self.settings,
            instructions=self.instructions,
            output_type=self.output,
        )
        handler = listen if self.streams else None
        history = stored.history or None
        return (await agent.run(task.input, message_history=history, event_stream_handler=handler)).output

    def answer(self, messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        """Notes, pays, and answers."""
        said = sum(isinstance(message, ModelResponse) for message in messages)
        self.asked.append(str(said))
        if said == 2:
            return ModelResponse([TextPart("Done.")])
        return ModelResponse([ToolCallPart(("note", "pay")[said], {"text": "A"}, tool_call_id=f"c{said}")])

    async def stream(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
        """The same."""
        (part,) = self.answer(messages, info).parts
        if isinstance(part, ToolCallPart):
            yield {0: DeltaToolCall(part.tool_name, part.args_as_json_str(), tool_call_id=part.tool_call_id)}
        elif isinstance(part, TextPart):
            yield part.content


def preview(params: Note) -> ToolResult[Note]:
    """What paying returns."""
    return ToolResult.ok(params)


async def listen(_: RunContext[Any], events: AsyncIterable[AgentStreamEvent]) -> None:
    """Reads all events."""
    async for _event in events:
        pass


@pytest.mark.parametrize("streams", [False, True])
async def test_agent_is_rehearsed_and_executed(streams: bool) -> None:
    """Listened to or not, its model is asked in the dry run alone, and its conversation is stored."""
    clerk = Clerk(streams=streams)
    with stores.open("memory:") as store:
        plan = await dry_run(clerk, "Pay A.", store=store, session="s")
        assert (clerk.paid, clerk.asked, store.find("s")) == ([], ["0", "1", "2"], None)
        assert await apply_plan(plan, clerk, store=store) == "Done."
        assert (clerk.paid, clerk.asked) == (["A"], ["0", "1", "2"])
        with store.session("s") as session:
            history = StoredHistory(session, "clerk")
            assert (len(history.history), history.unfinished, history.answer) == (6, False, "Done.")


CHANGES: dict[str, Callable[[Clerk], Clerk]] = {
    "settings": lambda clerk: replace(clerk, settings=ModelSettings(temperature=0.6)),
    "instructions": lambda clerk: replace(clerk, instructions="Pay!"),
    "model": lambda clerk: replace(clerk, model="large"),
    "answer": lambda clerk: replace(clerk, output=int),
}


@pytest.mark.parametrize("name", CHANGES)
async def test_other_request_stops_the_run_at_once(name: str) -> None:
    """Before any call of it."""
    clerk = Clerk()
    with stores.open("memory:") as store:
        plan = await dry_run(clerk, "Pay A.", store=store, session="s")
        with pytest.raises(PlanDeviatedError):
            await apply_plan(plan, CHANGES[name](clerk), store=store)
        assert clerk.paid == []
        with store.session("s") as session:
            assert session[Kept].all() == ()


async def test_secret_arguments_end_a_plan() -> None:
    """No plan has them, in no reply."""

    @function_tool
    def sign(word: SecretStr) -> str:
        """Sign with a word."""
        return "signed"

    def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        if len(messages) > 1:
            return ModelResponse([TextPart("Done.")])
        return ModelResponse([ToolCallPart("sign", {"word": "swordfish"}, tool_call_id="c")])

    async def clerk(task: RunTask) -> object:
        loop = executor(sign, session=task.session)
        agent = Agent(FunctionModel(answer), capabilities=[HandrailCapability(loop)])
        return (await agent.run(task.input)).output

    with stores.open("memory:") as store:
        plan = await dry_run(clerk, "Sign.", store=store)
    assert plan.ends
    assert "swordfish" not in str(plan)
