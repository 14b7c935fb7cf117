"""A prompt's tools as a PydanticAI toolset.

Arguments are not validated here: they reach the pipeline as the model wrote them, so that the pipeline reports their
faults, as a failed tool return. A failed return spends none of PydanticAI's retries. Exceptions of PydanticAI keep
their meaning in a handler: the call is rolled back and recorded, or left open, and PydanticAI gets the exception.

A bare toolset and one in a capability differ in two points:

| | bare | in a capability |
|---|---|---|
| the order of calls | `ToolDefinition.sequential`: PydanticAI runs a call that writes alone | the capability keeps it |
| the tools of `Environment.added_tools` | the first toolset of a run offers them | the capability offers them |

Turns decide in either case which calls run together. In a capability nothing is declared to be sequential, because
PydanticAI would hold back calls of other tools, too, for as long as a slow one before them takes.
"""

from __future__ import annotations

import json
from contextvars import ContextVar
from dataclasses import replace
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
from pydantic_ai.messages import InstructionPart
from pydantic_ai.toolsets import AbstractToolset
from pydantic_core import from_json
from typing_extensions import override  # a dependency of pydantic; in `typing` since Python 3.12

from handrail.adapters.loop import expansion_message, read_ahead
from handrail.adapters.pydantic_ai.added_tools import ADDING_TOOLSETS, AddedTool
from handrail.adapters.pydantic_ai.arrival_order import leave_queue
from handrail.adapters.pydantic_ai.pipeline_reach import PIPELINE_METADATA_KEY, refuse_lost_marks
from handrail.adapters.pydantic_ai.questions import MADE_AGAIN, asked_by, with_caller_answers
from handrail.adapters.pydantic_ai.replies import asked, learn_replies
from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import CallPostponed, VisibilityExpansionRequired
from handrail.loop_guard import asynchronous_entry
from handrail.prompt import BinaryPart, RenderedPrompt, Tool
from handrail.prompt.tool_result import ContentPart, shown_schema
from handrail.resources import Binding, ResourceRegistry, Scope
from handrail.runtime import ToolMessage
from handrail.serde import canonical_json

_RUN_CONTEXT: ContextVar[RunContext[Any]] = ContextVar("handrail_pydantic_ai_run_context")


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


class RawArguments(dict[str, Any]):
    """The arguments of a call: decoded, for hooks, and as the text that the model wrote.

    Attributes:
        text: the text that the model wrote.
    """

    def __init__(self, text: str, *, max_length: int) -> None:
        """Decode the text; text that is not a JSON object, or is too long, is shown to hooks as no arguments."""
        self.text = text
        self._readable = len(text) <= max_length
        super().__init__(self._decoded())

    def given(self) -> str | dict[str, Any]:
        """The text, or the arguments as a hook has changed them."""
        # NaN differs from itself, so the decoded arguments are used if they have one: they are refused either way.
        return self.text if self == self._decoded() else dict(self)

    def _decoded(self) -> dict[str, Any]:
        try:
            found: object = from_json(self.text) if self._readable else None
        except (ValueError, TypeError):  # the latter for a lone surrogate, which is not JSON
            return {}
        return cast("dict[str, Any]", found) if isinstance(found, dict) else {}  # decoded JSON


class AnyArguments:
    """A validator that accepts everything; step 2 of the pipeline validates."""

    def __init__(self, *, max_length: int) -> None:
        """Show hooks no arguments of more than `max_length` characters."""
        self._max_length = max_length

    def validate_json(self, input: str | bytes | bytearray, **_options: Any) -> RawArguments:  # noqa: ANN401 - PydanticAI's
        """Return the text unchanged."""
        # Bytes that are not UTF-8 become lone surrogates, which the pipeline refuses with its usual message.
        text = input if isinstance(input, str) else input.decode("utf-8", "surrogateescape")
        return RawArguments(text, max_length=self._max_length)

    def validate_python(self, input: Any, **_options: Any) -> dict[str, Any]:  # noqa: ANN401 - PydanticAI's
        """Return an object unchanged, and any other value as its text."""
        if isinstance(input, dict):
            return cast("dict[str, Any]", input)  # decoded JSON
        return self.validate_json(json.dumps(input, default=str))


class HandrailToolset(AbstractToolset[Any]):
    """The tools and the guidance of a prompt, for any PydanticAI agent.

    Calls of unknown names never reach a toolset: PydanticAI answers the first one itself, and ends the run at the
    second. With `HandrailCapability`, which includes this toolset, the pipeline answers them.

    Attributes:
        executor: runs the calls.
        validator: the validator of the arguments of its tools.
    """

    def __init__(self, executor: ToolExecutor, *, id: str | None = None, in_capability: bool = False) -> None:
        """Offer the tools of the executor's prompt.

        Args:
            executor: runs the calls.
            id: the id of the toolset within an agent; by default the name of the prompt.
            in_capability: whether a capability keeps the order of its calls, and offers what the session adds.
        """
        rendered = executor.environment.rendered_prompt
        self.executor: ToolExecutor = with_caller_answers(executor)
        self.validator: AnyArguments = AnyArguments(max_length=executor.environment.max_argument_bytes)
        self._id = id or rendered.name
        self._is_bare = not in_capability
        self._offered = self._offers(rendered)

    @property
    @override
    def id(self) -> str:
        """The id of the toolset within an agent."""
        return self._id

    @override
    @asynchronous_entry
    async def for_run(self, ctx: RunContext[Any]) -> HandrailToolset:
        """The same toolset. Of several bare ones with closed sections, the first opens those of all."""
        await read_ahead(self.executor.environment.session)
        rendering = self.executor.environment.rendering
        if self._is_bare and rendering.may_change:
            first = ADDING_TOOLSETS.first(ctx.run_id, self)
            if isinstance(first, HandrailToolset) and first is not self:
                first.executor.environment.rendering.join(rendering)
        return self

    @override
    @asynchronous_entry
    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """The tools of the prompt as it is now, in the order of their declaration, and those that are added."""
        await learn_replies(self.executor.environment.session)
        rendered = self.executor.environment.rendered_prompt
        if self._offered[0] is not rendered:
            self._offered = self._offers(rendered)
        tools = {name: self.tool(definition, ctx.max_retries) for name, definition in self._offered[1].items()}
        if self._is_bare and (added := self.added_tools()) and ADDING_TOOLSETS.is_first(ctx.run_id, self):
            tools |= added
        return tools

    def added_tools(self) -> dict[str, AddedTool]:
        """The tools that the session adds now, by name."""
        environment = self.executor.environment
        opening = {tool.name for tool in environment.rendering.tools}
        return {
            tool.name: AddedTool(
                toolset=self,
                tool_def=self._definition(tool),
                max_retries=0,
                args_validator=self.validator,
                opens=tool.name in opening,
            )
            for tool in environment.added_tools
        }

    def tool(self, definition: ToolDefinition, max_retries: int = 0) -> ToolsetTool[Any]:
        """A tool of this toolset, for PydanticAI. Only a `ModelRetry` of its handler spends a retry."""
        return ToolsetTool(toolset=self, tool_def=definition, max_retries=max_retries, args_validator=self.validator)

    @override
    @asynchronous_entry
    async def get_instructions(self, ctx: RunContext[Any]) -> InstructionPart | None:
        """The text of the prompt; the same at each step until a section is opened, so providers may cache it."""
        text = self.executor.environment.rendered_prompt.text
        return InstructionPart(text) if text else None

    @override
    @asynchronous_entry
    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> ToolReturn[Any]:
        """Run a call; see `call`. PydanticAI's tool is not used, because the prompt has Handrail's.

        Raises:
            PromptValidationError: a tool of the agent is marked as untrusted, and its calls do not reach the pipeline.
        """
        # A toolset does not see those of others before its own calls are made.
        if self._is_bare and ctx.tool_manager is not None and ctx.tool_manager.tools:
            refuse_lost_marks(ctx.tool_manager.tools, ctx, used=type(self).__name__)
        return await self.call(name, tool_args, ctx)

    @asynchronous_entry
    async def call(self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any]) -> ToolReturn[Any]:
        """Run a call of any name; one that has a final record is answered from it.

        Returns:
            The text that the model reads, or text and files in a list. The metadata, which no model sees, has the flag
            `replayed`.

        Raises:
            DeveloperMistake: the program is at fault, or the reply has another call with the same id. A
                `HandrailCapability` defers it until the other calls of the reply have ended; without one it cancels
                them.
            ToolFailed: the call was refused or failed; the message is what the model reads, and the run continues.
            ModelRetry: the call failed, because its handler raised this; PydanticAI counts a retry.
            ApprovalRequired: the call waits: the question about it was left open, or its handler raised this.
            CallDeferred: its handler raised this.
            RunAbortedError: the run is over; not for a call that has opened sections.
        """
        arguments = tool_args.given() if isinstance(tool_args, RawArguments) else tool_args
        found = asked(ctx, self.executor.environment.session)
        call = found.tool_call(name, arguments)
        # Nothing is awaited between this line and the ticket that `invoke` draws, so the order of the queue is
        # preserved.
        await leave_queue()
        token = _RUN_CONTEXT.set(ctx)
        try:
            with asked_by(ctx, found.ref):
                message = await self.executor.execute_async(call, reply=found.ref.reply)
        except VisibilityExpansionRequired as error:
            # PydanticAI asks for text and tools at each step, so the next request has those of the opened sections.
            message = expansion_message(call, error, self.executor.environment.rendering)
        except CallPostponed as error:
            if isinstance(error.__cause__, ApprovalRequired | CallDeferred):
                raise error.__cause__ from None
            raise ApprovalRequired(metadata={"reason": str(error)}) from error
        finally:
            _RUN_CONTEXT.reset(token)
        if not message.success:
            refusal = message.refusal
            if refusal is not None and isinstance(refusal.__cause__, ModelRetry):
                raise ModelRetry(message.content) from refusal
            raise ToolFailed(message.content)
        return ToolReturn(message_content(message), metadata={"replayed": message.replayed})

    def _offers(self, rendered: RenderedPrompt[Any]) -> tuple[RenderedPrompt[Any], dict[str, ToolDefinition]]:
        """A rendering, and the definitions of its tools by name."""
        return rendered, {tool.name: self._definition(tool) for tool in rendered.tools}

    def _definition(self, tool: Tool[Any, Any]) -> ToolDefinition:
        return ToolDefinition(
            name=tool.name,
            description=tool_description(tool),
            parameters_json_schema=tool.parameters_schema,
            metadata={"effect": tool.effect, PIPELINE_METADATA_KEY: tool.name},
            sequential=tool.writes and self._is_bare,
            # Stated for the reader of the definition: `HandrailToolset` leaves it to the pipeline, which enforces it.
            timeout=None if tool.timeout is None else tool.timeout.total_seconds(),
            return_schema=shown_schema(tool.result_type),
            toolset_id=self._id,
        )


def message_content(message: ToolMessage) -> Any:  # noqa: ANN401 - PydanticAI's
    """What the model gets of a message: its text, or a list of text and files."""
    return [*map(part_content, message.parts)] if message.parts else message.content


def part_content(part: ContentPart) -> str | BinaryContent:
    """A part of a message as PydanticAI has it, also after it was stored."""
    if isinstance(part, BinaryPart):
        return BinaryContent.narrow_type(BinaryContent(part.data, media_type=part.media_type))
    return part.text


def tool_description(tool: Tool[Any, Any]) -> str:
    """The description for the model, with the examples, for which providers have no field."""
    examples = [
        f"Example ({example.description}): {canonical_json({} if example.input is None else example.input).decode()}"
        for example in tool.examples
    ]
    return "\n".join((tool.description, *examples))
