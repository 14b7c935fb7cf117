"""What the tests of foreign tools are built on: an agent whose calls all take the pipeline, and looks at the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic_ai import Agent, ModelMessage, RunContext, RunUsage, ToolReturnPart
from pydantic_ai.agent import AgentRunResult
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ModelRequest, ModelResponse
from pydantic_ai.models.test import TestModel
from pydantic_ai.toolsets import AbstractToolset

from handrail.adapters.pydantic_ai import PipelineCapability, tool_context
from handrail.adapters.tool_executor import ToolExecutor
from handrail.prompt import MarkdownSection, Prompt, PromptTemplate, Tool, ToolContext, ToolPolicy
from handrail.runtime import Session, Step, ToolInvoked
from handrail.testing import Call, Expect, Outcome, Reply, ScriptedModel
from tests.adapters.notes import Note

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


def called(*calls: Call, **came: Outcome) -> list[Reply]:
    """A script of one reply with calls, named `c1`, `c2`, ..., and what must have come of them."""
    named = [Call(call.name, call.arguments, id=call.id or f"c{number}") for number, call in enumerate(calls, 1)]
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
