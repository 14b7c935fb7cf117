"""What tests of entry points are built on: notes, mails, agents whose calls take the pipeline, a closed port."""

from __future__ import annotations

import socket
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from openai import AsyncOpenAI
from pydantic import BaseModel
from pydantic_ai import Agent, RunUsage
from pydantic_ai.agent import AgentRunResult
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models import Model
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.openai import OpenAIResponsesModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.tools import RunContext
from pydantic_ai.toolsets import AbstractToolset

from handrail.adapters.pydantic_ai import PipelineCapability, PromptResponse, PydanticAIAdapter, tool_context
from handrail.adapters.tool_executor import ToolExecutor
from handrail.prompt import (
    MarkdownSection,
    Prompt,
    PromptTemplate,
    Section,
    Tool,
    ToolContext,
    ToolExample,
    ToolPolicy,
    ToolResult,
)
from handrail.prompt.signature import Effect
from handrail.runtime import IdempotencyConfig, Session, Step, ToolInvoked
from handrail.session.conversation import REPLY_KEY
from handrail.testing import Call, Expect, Outcome, Reply, ScriptedModel


@dataclass(frozen=True, slots=True)
class Note:
    """A note; what a successful `add_note` leaves in the session."""

    text: str

    def render(self) -> str:
        """What the model reads."""
        return f"noted: {self.text}"


@dataclass(frozen=True, slots=True)
class Notes:
    """All notes."""

    texts: tuple[str, ...]

    def render(self) -> str:
        """What the model reads."""
        return ", ".join(self.texts) or "no notes"


@dataclass(slots=True)
class World:
    """What the tools do outside of the session."""

    charged: list[str] = field(default_factory=list[str])


def add_note(params: Note, *, context: ToolContext) -> ToolResult[Note]:
    """Keep a note."""
    return ToolResult.ok(params)


def read_notes(params: None, *, context: ToolContext) -> ToolResult[Notes]:
    """Say all notes."""
    return ToolResult.ok(Notes(tuple(note.text for note in context.session[Note].all())))


def charge(params: Note, *, context: ToolContext) -> ToolResult[Note]:
    """Charge a fee outside."""
    context.resources.get(World).charged.append(params.text)
    return ToolResult.ok(params, message=f"charged {params.text}")


ADD_NOTE = Tool[Note, Note](
    name="add_note",
    description="Keep a note.",
    handler=add_note,
    examples=[ToolExample(description="a reminder", input=Note("buy milk"), output=Note("buy milk"))],
)
READ_NOTES = Tool[None, Notes](name="read_notes", description="Say all notes.", handler=read_notes, effect="read")
CHARGE = Tool[Note, Note](
    name="charge", description="Charge a fee.", handler=charge, effect="external", idempotency=IdempotencyConfig()
)

TOOLS = (ADD_NOTE, READ_NOTES, CHARGE)


def notes_prompt(
    world: World | None = None, *, tools: tuple[Tool[Any, Any], ...] = TOOLS, policies: tuple[ToolPolicy, ...] = ()
) -> Prompt[str]:
    """A prompt with these tools, bound to a world."""
    section = MarkdownSection(title="Desk", template="Keep notes.", tools=tools, policies=policies)
    template = PromptTemplate[str](ns="tests", key="notes", sections=[section])
    return Prompt(template).bind(resources={World: world or World()})


def noted(session: Session) -> list[str]:
    """The notes that were kept."""
    return [note.text for note in session[Note].all()]


class GoneError(BaseException):
    """Ends the run, as the end of the process does."""


@dataclass
class Outbox:
    """The mails that were sent; the text `fail` ends the run instead, once."""

    sent: list[str] = field(default_factory=list[str])
    fails: bool = False

    def send(self, params: Note, *, context: ToolContext) -> ToolResult[Note]:
        """Send a mail."""
        if params.text == "fail" and not self.fails:
            self.fails = True
            raise GoneError
        self.sent.append(params.text)
        return ToolResult.ok(params)

    async def send_foreign(self, text: str) -> str:
        """Send a mail, as a plain function."""
        self.send(Note(text), context=ToolContext.of())
        return f"sent {text}"

    def prompt(self, effect: Effect = "external") -> Prompt[str]:
        """A prompt with the mail for a tool."""
        return Prompt(PromptTemplate[str](ns="tests", key="mails", sections=[self.section(effect)]))

    def section(self, effect: Effect) -> Section[Any]:
        """A section with the mail for a tool."""
        tool = Tool[Note, Note](name="send", description="Send.", handler=self.send, effect=effect)
        return MarkdownSection(title="Desk", template="Send mails.", tools=(tool,))


def asks(*texts: str, tool: str = "send", reply_id: str | None = None) -> ModelResponse:
    """A reply that asks for these mails, by ids that are counted from 0."""
    calls = [ToolCallPart(tool, {"text": text}, f"call_{number}") for number, text in enumerate(texts)]
    return ModelResponse(calls, provider_response_id=reply_id)


def model(*replies: ModelResponse | str) -> FunctionModel:
    """A model that gives these replies, each as a new object, and text for the last ones."""
    rest = list(replies)

    def reply(messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
        given = rest.pop(0) if rest else "Done."
        if isinstance(given, ModelResponse):
            return replace(given, parts=list(given.parts), timestamp=datetime.now(UTC))
        return ModelResponse([TextPart(str(given))])

    return FunctionModel(reply)


def names(messages: Sequence[ModelMessage]) -> list[str | None]:
    """The names that the responses have been given."""
    return [(message.metadata or {}).get(REPLY_KEY) for message in messages if isinstance(message, ModelResponse)]


DONE = Reply(text="Done.")


def pipeline(
    session: Session,
    *own: Tool[Any, Any],
    resources: Mapping[type[Any], object] | None = None,
    policies: Sequence[ToolPolicy] = (),
    own_policies: Sequence[ToolPolicy] = (),
    **options: Any,
) -> PipelineCapability:
    """The capability, with these tools of Handrail's own; `policies` judge the others."""
    sections = [MarkdownSection(title="Desk", template="Keep notes.", tools=own, policies=own_policies)] if own else []
    prompt = Prompt(PromptTemplate[str](ns="tests", key="desk", sections=sections)).bind(resources=resources or {})
    executor = ToolExecutor(prompt=prompt, session=session, **options)
    return PipelineCapability(executor, policies=policies)


async def play(
    capability: PipelineCapability,
    replies: Sequence[Reply],
    *,
    tools: Sequence[Any] = (),
    toolsets: Sequence[AbstractToolset[Any]] = (),
    capabilities: Sequence[AbstractCapability[Any]] = (),
    **options: Any,
) -> AgentRunResult[Any]:
    """Run a script to its end with an agent that has these tools."""
    with ScriptedModel(replies) as model:
        agent: Agent[Any, Any] = Agent(
            model, tools=tools, toolsets=toolsets, capabilities=[*capabilities, capability], **options
        )
        return await agent.run("Do it.")


async def resume(
    capability: PipelineCapability,
    messages: Sequence[ModelMessage],
    *,
    tools: Sequence[Any] = (),
    toolsets: Sequence[AbstractToolset[Any]] = (),
) -> AgentRunResult[Any]:
    """Resume a run whose history ends with the first reply of these messages, as it stands in them."""
    ends = next(number for number, message in enumerate(messages, 1) if isinstance(message, ModelResponse))
    with ScriptedModel([DONE]) as model:
        agent: Agent[Any, Any] = Agent(model, tools=tools, toolsets=toolsets, capabilities=[capability])
        return await agent.run(message_history=messages[:ends])


async def evaluate(model: Model, executor: ToolExecutor) -> PromptResponse[Any]:
    """Evaluate the prompt of an executor on its session."""
    environment = executor.environment
    return await PydanticAIAdapter(model).evaluate_async(environment.prompt, session=environment.session)


def called(*calls: Call, **came: Outcome) -> list[Reply]:
    """A script of one reply with calls, named `c1`, `c2`, ..., and what must have come of them."""
    named = [replace(call, id=call.id or f"c{number}") for number, call in enumerate(calls, 1)]
    return [Reply(calls=named), Reply(text="Done.", expect=Expect(messages=came))]


def events(session: Session) -> tuple[ToolInvoked, ...]:
    """What was recorded."""
    return session[ToolInvoked].all()


def outcomes(session: Session) -> list[tuple[str, bool, Step | None]]:
    """Id, success and the step that refused or failed, in the order in which the calls ended."""
    return [(event.call_id, event.success, event.refused_at) for event in events(session)]


def context() -> ToolContext:
    """The context of the call that runs here."""
    found = tool_context()
    assert found is not None
    return found


def write(text: str) -> None:
    """Leave a note in the session of the call that runs here."""
    context().session[Note].append(Note(text))


def returns(messages: Sequence[ModelMessage]) -> dict[str, ToolReturnPart]:
    """What the model was sent of each call, by its id."""
    requests = [message for message in messages if isinstance(message, ModelRequest)]
    parts = [part for message in requests for part in message.parts if isinstance(part, ToolReturnPart)]
    return {part.tool_call_id: part for part in parts}


async def call_by_hand(
    capability: PipelineCapability,
    toolset: AbstractToolset[Any],
    name: str,
    call_id: str | None = "c1",
    **arguments: Any,
) -> Any:
    """What PydanticAI is handed of one call, made without an agent and a model."""
    ctx = RunContext[Any](deps=None, model=TestModel(), usage=RunUsage(), tool_call_id=call_id, tool_name=name)
    wrapper = capability.get_wrapper_toolset(toolset)
    tool = (await wrapper.get_tools(ctx))[name]
    return await wrapper.call_tool(name, arguments, ctx, tool)


@contextmanager
def closed_port() -> Generator[int]:
    """A port that is taken, so that nobody else listens on it, and on which nothing listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


def openai_at(port: int) -> OpenAIResponsesModel:
    """A model of OpenAI whose client asks this machine, once."""
    client = AsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0)
    return OpenAIResponsesModel("gpt-5", provider=OpenAIProvider(openai_client=client))


class Shy(BaseModel):
    """Its JSON cannot be made."""

    part: Any

    def __repr__(self) -> str:
        return "shy \ud800"
