"""A prompt's tools as a PydanticAI toolset, with those that a session adds, and the order in which their calls arrive.

Arguments are not validated here: they reach the pipeline as the model wrote them, so that the pipeline reports their
faults, as a failed tool return. A failed return spends none of PydanticAI's retries. Exceptions of PydanticAI keep
their meaning in a handler: the call is rolled back and recorded, or left open, and PydanticAI gets the exception.

| | a bare toolset | a toolset in a capability |
|---|---|---|
| the order of calls | `ToolDefinition.sequential`: PydanticAI runs a call that writes alone | `in_queue` keeps it |
| the tools of `Environment.added_tools` | it offers them itself | `WithAddedTools` offers them |

Turns decide in either case which calls run together. In a capability nothing is declared to be sequential, because
PydanticAI would hold back calls of other tools, too, for as long as a slow one before them takes.

PydanticAI refuses two tools of one name in an agent, so capabilities offer added tools once, and never in the place of
others.
An agent with a tool whose name is that of one that opens sections is refused. So is a tool that is marked as untrusted,
and whose calls do not reach the pipeline: only that taints a session and delimits what a tool returns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from pydantic_ai import (
    ApprovalRequired,
    BinaryContent,
    CallDeferred,
    ModelRetry,
    RunContext,
    ToolDefinition,
    ToolFailed,
    ToolReturn,
    ToolsetTool,
)
from pydantic_ai.capabilities import Instrumentation
from pydantic_ai.messages import InstructionPart
from pydantic_ai.toolsets import AbstractToolset, WrapperToolset
from typing_extensions import override  # a dependency of pydantic; in `typing` since Python 3.12

from handrail.adapters.engines import refuse_in_temporal_workflow
from handrail.adapters.loop import asynchronous_entries, find_outcome, read_ahead, read_open_replies, tool_description
from handrail.adapters.pydantic_ai.conversation import MADE_AGAIN
from handrail.adapters.pydantic_ai.replies import Words, decode_words, find_call
from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import CallPostponed, PromptValidationError, ToolConflictError
from handrail.prompt import Approval, ApprovalRequest, BinaryPart, Tool
from handrail.prompt.tool_result import ContentPart, shown_schema
from handrail.resources import Binding, ResourceRegistry, Scope
from handrail.runtime import ToolMessage
from handrail.runtime.execution import ASYNC
from handrail.serde.json_schema import is_object
from handrail.session.calls import CallRef
from handrail.waiting import in_context

PIPELINE_METADATA_KEY = "handrail"
"""The key in a tool's metadata that marks tools whose calls reach the pipeline by themselves; the value is the name of
the tool there, without any prefix."""

SECTION_TOOLS = "the sections with a summary"
"""Where the tools come from that open, close and read sections, in words."""

_RUN_CONTEXT: ContextVar[RunContext[Any]] = ContextVar("handrail_pydantic_ai_run_context")

_ASKED_FOR: ContextVar[tuple[RunContext[Any], CallRef] | None] = ContextVar(
    "handrail_asked_by_pydantic_ai", default=None
)

# --------------------------------------------------------------------------------------- run context, and its approval


def call_run_context() -> RunContext[Any]:
    """The run context that PydanticAI has given the current call of a `HandrailToolset`.

    Raises:
        LookupError: no such call runs here.
    """
    return _RUN_CONTEXT.get()


def _context_for_functions() -> RunContext[Any]:
    ctx = call_run_context()
    # Made again by a resumed run, which approves nothing.
    return replace(ctx, tool_call_approved=False) if ctx.tool_call_metadata == MADE_AGAIN else ctx


RUN_CONTEXT: Final = ResourceRegistry.of(
    Binding(RunContext, lambda _resources: _context_for_functions(), Scope.TOOL_CALL)
)
"""Binds PydanticAI's run context for a function that has it injected: `Prompt(template).bind(resources=RUN_CONTEXT)`.

Its `tool_call_approved` is true if the caller of the run has approved the call; a function that raises
`ApprovalRequired` otherwise needs it. Outside of a PydanticAI run, asking for it raises `LookupError`. The prompt of an
agent file has the run context without this.
"""


def asked_by(ctx: RunContext[Any], call: CallRef) -> AbstractContextManager[None]:
    """Lets `caller_answer` know in the block for which call PydanticAI has given a run context."""
    return in_context(_ASKED_FOR, (ctx, call))


def caller_answer(request: ApprovalRequest) -> Approval | None:
    """The approval that the caller of the run has given a call in `DeferredToolResults`; `None` without one.

    PydanticAI answers a denied call itself.
    """
    # An approval of a call is none of the calls that its handler makes.
    ctx, call = _ASKED_FOR.get() or (None, None)
    if ctx is None or call != request.call or ctx.tool_call_metadata == MADE_AGAIN:
        return None
    return Approval(approved=True) if ctx.tool_call_approved else None


def has_tool_span(call: CallRef) -> bool:
    """True if PydanticAI has opened a span for a call: the agent has the capability `Instrumentation`."""
    ctx, current = _ASKED_FOR.get() or (None, None)
    capabilities = () if ctx is None or current != call else ctx.capabilities.values()
    return any(isinstance(capability, Instrumentation) for capability in capabilities)


def in_pydantic_ai(executor: ToolExecutor) -> ToolExecutor:
    """The same run, whose calls PydanticAI makes: `ToolApproved` answers a question that the approver leaves open.

    Not that of an agent file, where every call that the gate has decided about is made again so, denied ones too.
    """
    environment, answer = executor.environment, executor.environment.caller_answer
    if environment.approver is not None and not environment.records_questions:
        answer = caller_answer
    if (environment.has_span, environment.caller_answer) == (has_tool_span, answer):
        return executor
    other = copy(executor)
    other.environment = replace(environment, has_span=has_tool_span, caller_answer=answer)
    return other


# ------------------------------------------------------------------------------------------------ the order of calls


@contextmanager
def in_queue(queue: list[asyncio.Event]) -> Generator[None]:
    """Joins the calls of a run that have not reached the pipeline yet; a call that has not by the end leaves then.

    They are in the order asked, whatever hooks run before: a call joins when PydanticAI starts it, which it does in
    that order, and leaves when it is queued in the pipeline, or ends before that. It continues only when all calls
    before it have left. A queue belongs to one event loop.
    """
    position = asyncio.Event()
    queue.append(position)
    queue[0].set()
    try:
        with in_context(_POSITION, (queue, position)):
            yield
    finally:
        # A call that was refused or cancelled before the pipeline leaves here; otherwise all calls after it would wait
        # forever.
        _leave(queue, position)


def _leave(queue: list[asyncio.Event], position: asyncio.Event) -> None:
    if position in queue:
        queue.remove(position)
        if queue:
            queue[0].set()


_POSITION: ContextVar[tuple[list[asyncio.Event], asyncio.Event] | None] = ContextVar(
    "handrail_queue_position", default=None
)


async def leave_queue() -> None:
    """Waits until all calls before this one have left the queue, and leaves it too.

    Nothing may be awaited between this and queuing in the pipeline, or another call could overtake this one.
    """
    # Calls outside of a capability have no position: a bare toolset cannot see the order of a reply.
    if (entry := _POSITION.get()) is not None:
        queue, position = entry
        await position.wait()
        _leave(queue, position)


# --------------------------------------------------------------------------------------------------------- arguments


class AnyArguments:
    """A validator that accepts everything; step PARSE of the pipeline validates. Hooks see what can be decoded."""

    def validate_json(self, input: str | bytes | bytearray, **_options: Any) -> dict[str, Any]:  # noqa: ANN401 - PydanticAI's
        """The decoded object; text that is not one is shown to hooks as no arguments."""
        value = decode_words(input)
        return dict(value) if is_object(value) else {}

    def validate_python(self, input: dict[str, Any], **_options: Any) -> dict[str, Any]:  # noqa: ANN401 - as above
        """An object unchanged."""
        return input


ANY_ARGUMENTS = AnyArguments()
"""The validator of all tools of the toolset."""


def as_written(words: Words, args: dict[str, Any]) -> str | dict[str, Any]:
    """The text that the model wrote, or the arguments as a hook, or who approved the call, has changed them."""
    # NaN differs from itself, so the decoded arguments are used if they have one: they are refused either way.
    return words if isinstance(words, str) and args == ANY_ARGUMENTS.validate_json(words) else args


# -------------------------------------------------------------------------------------------------------- the toolset


@dataclass(kw_only=True)
class AddedTool(ToolsetTool[Any]):
    """A tool that the session adds."""


@asynchronous_entries
class HandrailToolset(AbstractToolset[Any]):
    """The tools and the guidance of a prompt, for any PydanticAI agent.

    Calls of unknown names never reach a toolset: PydanticAI answers the first one itself, and ends the run at the
    second. With `HandrailCapability`, which includes this toolset, the pipeline answers them.

    Attributes:
        executor: runs the calls.
    """

    def __init__(self, executor: ToolExecutor, *, id: str | None = None, in_capability: bool = False) -> None:
        """Offers the tools of the executor's prompt.

        Args:
            executor: runs the calls.
            id: the id of the toolset within an agent; by default the name of the prompt.
            in_capability: whether a capability keeps the order of its calls, and adds tools.
        """
        prompt = executor.environment.rendered_prompt
        self.executor: ToolExecutor = in_pydantic_ai(executor)
        self._id = id or prompt.name
        self._is_bare = not in_capability

    @property
    @override
    def id(self) -> str:
        """The id of the toolset within an agent."""
        return self._id

    @override
    async def for_run(self, ctx: RunContext[Any]) -> HandrailToolset:
        """The same toolset, when its session has been read.

        Raises:
            DurableEngineError: a Temporal workflow runs the agent.
        """
        refuse_in_temporal_workflow(type(self).__name__)
        await read_ahead(self.executor.environment.session)
        return self

    @override
    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """The tools of the prompt as it is now, in the order of their declaration, and those that are added."""
        await read_open_replies(self.executor.environment.session)
        prompt = self.executor.environment.rendered_prompt
        tools = {tool.name: self.tool(self._definition(tool), ctx.max_retries) for tool in prompt.tools}
        return tools | self.added_tools() if self._is_bare else tools

    def added_tools(self) -> dict[str, AddedTool]:
        """The tools that the session adds now, by name."""
        options: Any = {"toolset": self, "max_retries": 0, "args_validator": ANY_ARGUMENTS}
        additions = self.executor.environment.added_tools
        return {tool.name: AddedTool(tool_def=self._definition(tool), **options) for tool in additions}

    def tool(self, definition: ToolDefinition, max_retries: int = 0) -> ToolsetTool[Any]:
        """A tool of this toolset, for PydanticAI. Only a `ModelRetry` of its handler spends a retry."""
        return ToolsetTool(toolset=self, tool_def=definition, max_retries=max_retries, args_validator=ANY_ARGUMENTS)

    @override
    async def get_instructions(self, ctx: RunContext[Any]) -> InstructionPart | None:
        """The text of the prompt; the same at each step until a section is opened, so providers may cache it."""
        text = self.executor.environment.rendered_prompt.text
        return InstructionPart(text) if text else None

    @override
    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> ToolReturn[Any]:
        """Runs a call; see `call`. PydanticAI's tool is not used, because the prompt has Handrail's."""
        # A toolset does not see those of others before its own calls are made.
        if self._is_bare and ctx.tool_manager is not None and ctx.tool_manager.tools:
            refuse_lost_marks(ctx.tool_manager.tools, ctx, capability=type(self).__name__)
        return await self.call(name, tool_args, ctx)

    async def call(self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any]) -> ToolReturn[Any]:
        """Runs a call of any name; one that has a final record is answered from it.

        The metadata of the return, which no model sees, has the flag `replayed`.

        Raises:
            DeveloperMistake: the program is at fault. Without a `HandrailCapability` it cancels the other calls.
            ToolFailed: the call was refused or failed; the message is what the model reads, and the run continues.
            ModelRetry: the call failed, because its handler raised this; PydanticAI counts a retry.
            ApprovalRequired: the call waits: the question about it was left open, or its handler raised this.
            CallDeferred: its handler raised this.
            RunAbortedError: the run is over; not for a call that has opened sections.
        """
        environment = self.executor.environment
        request = find_call(ctx, environment.session)
        call = request.tool_call(name, as_written(request.words, tool_args))
        # Nothing is awaited between this line and the ticket that `invoke` draws, so the order of the queue is
        # preserved.
        await leave_queue()
        with in_context(_RUN_CONTEXT, ctx), asked_by(ctx, request.ref):
            # PydanticAI asks for text and tools at each step, so the next request has those of opened sections.
            message = await find_outcome(call, request.ref.reply, environment, ASYNC)
        if isinstance(message, CallPostponed):
            if isinstance(message.__cause__, ApprovalRequired | CallDeferred):
                raise message.__cause__ from None
            raise ApprovalRequired(metadata={"reason": str(message)}) from message
        if not message.success:
            if message.refusal is not None and isinstance(message.refusal.__cause__, ModelRetry):
                raise ModelRetry(message.content) from message.refusal
            raise ToolFailed(message.content)
        return ToolReturn(message_content(message), metadata={"replayed": message.replayed})

    def _definition(self, tool: Tool[Any, Any]) -> ToolDefinition:
        return ToolDefinition(
            name=tool.name,
            description=tool_description(tool),
            parameters_json_schema=tool.parameters_schema,
            metadata={"effect": tool.effect, PIPELINE_METADATA_KEY: tool.name},
            sequential=tool.writes and self._is_bare,
            return_schema=shown_schema(tool.result_type),
            toolset_id=self._id,
        )


def message_content(message: ToolMessage) -> Any:  # noqa: ANN401 - PydanticAI's
    """The content of a message for the model: its text, or a list of text and files."""
    return [*map(part_content, message.parts)] if message.parts else message.content


def part_content(part: ContentPart) -> str | BinaryContent:
    """A part of a message as PydanticAI has it, also after it was stored."""
    if isinstance(part, BinaryPart):
        return BinaryContent.narrow_type(BinaryContent(part.data, media_type=part.media_type))
    return part.text


# ---------------------------------------------------------------------------------- beside the other tools of an agent


@asynchronous_entries
@dataclass
class WithAddedTools(WrapperToolset[Any]):
    """All toolsets of an agent, with the tools that the session adds.

    A tool of the agent with such a name stays, unless it would hide one that opens sections.

    Attributes:
        adding: adds tools, and makes their calls.
        capability: the capability that brings them, in words.
    """

    adding: HandrailToolset
    capability: str

    @override
    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """The tools of all toolsets, and those that are added."""
        tools = await super().get_tools(ctx)
        refuse_lost_marks(tools, ctx, capability=self.capability)
        additions = self.adding.added_tools()
        opening = [tool.name for tool in self.adding.executor.environment.rendering.tools]
        # Those of another capability of the agent are not the agent's.
        if conflicts := [name for name in opening if name in tools and not isinstance(tools[name], AddedTool)]:
            places = "".join(f"\n  {name}: {tools[name].toolset.label}, {SECTION_TOOLS}" for name in conflicts)
            raise ToolConflictError(
                f"the tools of an agent need different names, and these are taken more than once:{places}\nRename the "
                "tool of the agent: a tool with such a name opens, closes or reads the sections of the prompt that "
                "have a summary.",
                tools=conflicts,
            )
        return tools | {name: tool for name, tool in additions.items() if name not in tools}

    @override
    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Makes a call."""
        # The tool of another capability of the agent is left to that one.
        if isinstance(tool, AddedTool) and cast("object", tool.toolset) is self.adding:
            return await self.adding.call(name, tool_args, ctx)
        return await self.wrapped.call_tool(name, tool_args, ctx, tool)


def reaches_pipeline(definition: ToolDefinition) -> bool:
    """Whether the calls of a tool reach the pipeline by themselves, as those of a `HandrailToolset` do."""
    return PIPELINE_METADATA_KEY in (definition.metadata or {})


def refuse_lost_marks(tools: Mapping[str, ToolsetTool[Any]], ctx: RunContext[Any], *, capability: str) -> None:
    """Refuses tools of an agent that are marked as untrusted, and whose calls do not reach the pipeline.

    Raises:
        PromptValidationError: there are such tools; the message has the first one, and the cure.
    """
    for name, tool in tools.items():
        definition = tool.tool_def
        # A value that is not a boolean is refused where it is read, and means at least that the tool is not trusted.
        if reaches_pipeline(definition) or (definition.metadata or {}).get("untrusted", False) is False:
            continue
        if any(getattr(other, "sends_all_calls", False) for other in ctx.capabilities.values()):
            return
        raise PromptValidationError(
            f"its metadata has the mark untrusted, and nothing reads it, because {capability} sends only its own tools "
            "through the pipeline; use PipelineCapability, which sends those of the agent too.",
            tool=name,
        )
