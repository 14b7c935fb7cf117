"""A prompt's tools as a PydanticAI toolset.

Nothing is validated here: whatever the model wrote reaches the pipeline as it was written, so that what is wrong with
it is told in the pipeline's words, as a failed tool return. A failed return spends none of PydanticAI's retries.
"""

from __future__ import annotations

import json
from typing import Any, cast

from pydantic_ai import RunContext, ToolDefinition, ToolFailed, ToolReturn, ToolsetTool
from pydantic_ai.messages import InstructionPart
from pydantic_ai.toolsets import AbstractToolset
from pydantic_core import from_json
from typing_extensions import override  # pydantic brings it; `typing` has it from Python 3.12 on

from handrail.adapters.pydantic_ai.arrival_order import leave_queue
from handrail.adapters.pydantic_ai.replies import asked
from handrail.adapters.tool_executor import ToolExecutor
from handrail.prompt import Tool
from handrail.serde import canonical_json

PIPELINE_METADATA_KEY = "handrail"
"""The key in a tool's metadata by which it is known that its calls reach the pipeline by themselves; the value is the
name that the tool has there, whatever a prefix has made of it."""


def reaches_pipeline(definition: ToolDefinition) -> bool:
    """Whether the calls of a tool reach the pipeline by themselves, as those of a `HandrailToolset` do."""
    return PIPELINE_METADATA_KEY in (definition.metadata or {})


class RawArguments(dict[str, Any]):
    """The arguments of a call: decoded, for the hooks that look at them, and as the text that the model wrote.

    Attributes:
        text: what the model wrote.
    """

    def __init__(self, text: str, *, max_length: int) -> None:
        """Decode what can be decoded; text that is no JSON object, or too long, is shown to hooks as no arguments."""
        self.text = text
        self._readable = len(text) <= max_length
        super().__init__(self._decoded())

    def given(self) -> str | dict[str, Any]:
        """The text, or what a hook has made of the arguments."""
        # NaN differs from itself, so the decoded arguments go on where it is among them: they are refused either way.
        return self.text if self == self._decoded() else dict(self)

    def _decoded(self) -> dict[str, Any]:
        try:
            found: object = from_json(self.text) if self._readable else None
        except (ValueError, TypeError):  # the latter for half a character, which is no JSON
            return {}
        return cast("dict[str, Any]", found) if isinstance(found, dict) else {}  # decoded JSON


class AnyArguments:
    """A validator that lets everything through; step 2 of the pipeline is the one that validates."""

    def __init__(self, *, max_length: int) -> None:
        """Show hooks no arguments of more than `max_length` characters."""
        self._max_length = max_length

    def validate_json(self, input: str | bytes | bytearray, **_options: Any) -> RawArguments:  # noqa: ANN401 - PydanticAI's
        """Keep the text."""
        text = input if isinstance(input, str) else input.decode("utf-8", "surrogateescape")
        return RawArguments(text, max_length=self._max_length)

    def validate_python(self, input: Any, **_options: Any) -> dict[str, Any]:  # noqa: ANN401 - PydanticAI's
        """Keep an object as it is; anything else becomes the text of it."""
        if isinstance(input, dict):
            return cast("dict[str, Any]", input)  # decoded JSON
        return self.validate_json(json.dumps(input, default=str))


class HandrailToolset(AbstractToolset[Any]):
    """The tools and the guidance of a prompt, for any PydanticAI agent.

    Calls of names that the agent does not know never reach a toolset: PydanticAI answers the first one itself, and ends
    the run at the second. Use `HandrailCapability`, which brings this toolset along, to have the pipeline answer them.

    Attributes:
        executor: what carries the calls out.
        validator: what the arguments of its tools go through.
    """

    def __init__(self, executor: ToolExecutor, *, id: str | None = None) -> None:
        """Offer the tools of the executor's prompt.

        Args:
            executor: what carries the calls out.
            id: names the toolset among all of an agent; the name of the prompt without.
        """
        rendered = executor.environment.rendered_prompt
        self.executor = executor
        self.validator = AnyArguments(max_length=executor.environment.max_argument_bytes)
        self._id = id or rendered.name
        self._definitions = {tool.name: _definition(tool, self._id) for tool in rendered.tools}

    @property
    @override
    def id(self) -> str:
        """Names the toolset among all of an agent."""
        return self._id

    @override
    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """The tools of the prompt, in the order of their declaration."""
        return {name: self.tool(definition) for name, definition in self._definitions.items()}

    def tool(self, definition: ToolDefinition) -> ToolsetTool[Any]:
        """A tool of this toolset, as PydanticAI keeps it. Nothing of it is retried, so no retries are granted."""
        return ToolsetTool(toolset=self, tool_def=definition, max_retries=0, args_validator=self.validator)

    @override
    async def get_instructions(self, ctx: RunContext[Any]) -> InstructionPart | None:
        """The text of the prompt; it is the same throughout the run, so providers may cache it."""
        text = self.executor.environment.rendered_prompt.text
        return InstructionPart(text) if text else None

    @override
    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> ToolReturn[str]:
        """Carry a call out; see `call`. PydanticAI's tool is of no interest, because the prompt has ours."""
        return await self.call(name, tool_args, ctx)

    async def call(self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any]) -> ToolReturn[str]:
        """Carry a call out, of whatever name; one that has a final record is answered from it.

        Returns:
            The text that the model reads. The metadata, which no model sees, says whether it was `replayed`.

        Raises:
            DeveloperMistake: the program is at fault, or the reply has asked for another call under the same id. A
                `HandrailCapability` holds it until the other calls of the reply have ended; without one it ends them.
            ToolFailed: the call was refused or failed; the message is what the model reads, and the run goes on.
            RunAbortedError: the run is over.
        """
        arguments = tool_args.given() if isinstance(tool_args, RawArguments) else tool_args
        found = asked(ctx, self.executor.environment.session)
        call = found.tool_call(name, arguments)
        await leave_queue()
        message = await self.executor.execute_async(call, reply=found.ref.reply)
        if not message.success:
            raise ToolFailed(message.content)
        return ToolReturn(message.content, metadata={"replayed": message.replayed})


def _definition(tool: Tool[Any, Any], toolset_id: str) -> ToolDefinition:
    return ToolDefinition(
        name=tool.name,
        description=_description(tool),
        parameters_json_schema=tool.parameters_schema,
        metadata={"effect": tool.effect, PIPELINE_METADATA_KEY: tool.name},
        toolset_id=toolset_id,
    )


def _description(tool: Tool[Any, Any]) -> str:
    """What the model is told of the tool: its description, and its examples, for which providers have no field."""
    examples = [
        f"Example ({example.description}): {canonical_json({} if example.input is None else example.input).decode()}"
        for example in tool.examples
    ]
    return "\n".join((tool.description, *examples))
