"""From the entries that an agent names to the toolsets of its run, each under its label.

An agent is a toolset of one tool: the model of another agent gives it a task, and reads its answer.

What a program registered is handed to PydanticAI as it is. A tool gets a toolset of its own, so that a name that is
taken twice can be reported with both origins; nothing is set on it, because `FunctionToolset(tools,
requires_approval=...)` and its like write into the very tool that they are given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, cast

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter
from pydantic_ai import RunContext, ToolDefinition, ToolsetTool
from pydantic_ai import Tool as PydanticTool
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset
from pydantic_core import to_json
from typing_extensions import override  # pydantic brings it; `typing` has it from Python 3.12 on

from handrail.agents.active_run import current_run
from handrail.agents.agent_file import AgentFile
from handrail.agents.exports.entries import AgentReference, Entry, ToolsetFactory
from handrail.agents.exports.registry import ResolvedAgent
from handrail.agents.toolsets.labelled_toolset import DisclosedToolset, LabelledSource
from handrail.agents.toolsets.lifetimes import FactoryToolset
from handrail.prompt import Section, Tool
from handrail.serde import canonical_json, codec

_LONGEST_DESCRIPTION = 1000
"""Characters that a model reads of an agent; providers take 1024."""


def build_toolsets(
    agent: ResolvedAgent, agents: Mapping[str, AgentFile], is_open: Callable[[str], bool] = lambda _name: True
) -> tuple[LabelledSource, ...]:
    """The toolsets of a run, tools first, in the order of the agent file.

    Args:
        agent: the agent, with the entries that it names.
        agents: all agents of the project, by name.
        is_open: whether a toolset that the file discloses by its summary is open now, by name.
    """
    disclosed = {each.toolset for each in agent.file.disclose}

    def made(entry: Entry) -> AbstractToolset[Any]:
        toolset = _toolset(entry, agents)
        is_disclosed = entry.kind == "toolset" and entry.name in disclosed
        return DisclosedToolset(toolset, entry.name, is_open) if is_disclosed else toolset

    # The toolset of a single tool has nothing to say beside it, and is not asked at every step.
    return tuple(
        LabelledSource(entry.label, made(entry), instructs=entry.kind == "toolset")
        for entry in (*agent.tools, *agent.toolsets)
    )


def _toolset(entry: Entry, agents: Mapping[str, AgentFile]) -> AbstractToolset[Any]:
    value = entry.value
    if isinstance(value, PydanticTool):
        return FunctionToolset[Any]([value], id=entry.name)
    if isinstance(value, AgentReference):
        return AgentToolset(agents[value.name], value.input_type)
    if isinstance(value, AbstractToolset):
        return value
    # Tools and sections of Handrail are made for each run too, because their calls run on the session of the run.
    if isinstance(value, Tool):
        factory = ToolsetFactory(lambda _ctx: current_run().tool_toolset(value, id=entry.name))
    else:
        factory = ToolsetFactory(lambda _ctx: value) if isinstance(value, Section) else value
    return FactoryToolset(factory, name=entry.name, origin=entry.origin, kind=entry.kind)


class Task(BaseModel):
    """What an agent is asked to do."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    input: str = Field(min_length=1, description="The task, with everything that the agent must know to do it.")


class _InputValidator:
    """Validates the input of an agent, and hands it on as the fields that it has in JSON, as PydanticAI expects it."""

    def __init__(self, kind: type[Any]) -> None:
        self._adapter = TypeAdapter[Any](kind)

    def validate_python(self, input: Any, **_options: Any) -> dict[str, Any]:  # noqa: ANN401 - PydanticAI's
        # Strict, as the arguments of all calls are: a number is not a text.
        text = input if isinstance(input, str | bytes | bytearray) else to_json(input)
        value = self._adapter.validate_json(text, strict=True, extra="forbid")
        return cast("dict[str, Any]", self._adapter.dump_python(value, mode="json", by_alias=True))

    validate_json = validate_python


def input_schema(kind: type[Any] | None) -> dict[str, Any]:
    """The JSON Schema of what an agent is asked; `kind` is the type of its input."""
    return Task.model_json_schema() if kind is None else codec(kind).schema


class AgentToolset(AbstractToolset[Any]):
    """An agent as a tool of the agents that name it. It runs beside other agents that the same reply calls."""

    def __init__(self, file: AgentFile, input_type: type[Any] | None = None) -> None:
        """Offer the agent of that file, by its name; its input is a text, or of a type."""
        # An agent without a description still needs one: the model chooses a tool by it.
        text = " ".join((file.description or file.instructions).split())
        self._name = file.name
        self._is_text = input_type is None
        self._validator = _InputValidator(input_type or Task)
        self.definition: ToolDefinition = ToolDefinition(
            name=file.name,
            description=text if len(text) <= _LONGEST_DESCRIPTION else f"{text[: _LONGEST_DESCRIPTION - 1]}…",
            parameters_json_schema=input_schema(input_type),
            # What the agent itself does is asked about when it does it.
            metadata={"effect": "state", "concurrent": True, "approval": "allow"},
        )

    @property
    @override
    def id(self) -> str:
        """The name of the agent."""
        return self._name

    @override
    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """The one tool."""
        tool = ToolsetTool[Any](toolset=self, tool_def=self.definition, max_retries=0, args_validator=self._validator)
        return {self._name: tool}

    @override
    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> str:
        """Run the agent on a session of its own, and return its answer.

        Raises:
            AgentDepthError: it would be too deep.
            CallPostponed: one of its calls waits for an approval.
        """
        task = tool_args["input"] if self._is_text else canonical_json(tool_args).decode()
        return await current_run().call_agent(self._name, task, ctx)
