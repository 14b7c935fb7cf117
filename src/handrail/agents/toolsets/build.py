"""An agent as a toolset of one tool: the model of another agent gives it a task, and reads its answer."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic_ai import RunContext, ToolDefinition, ToolsetTool
from pydantic_ai.toolsets import AbstractToolset
from typing_extensions import override  # pydantic brings it; `typing` has it from Python 3.12 on

from handrail.agents.active_run import current_run
from handrail.agents.agent_file import AgentFile

_LONGEST_DESCRIPTION = 1000
"""Characters that a model is told of an agent; providers take 1024."""


class Task(BaseModel):
    """What an agent is asked to do."""

    model_config = ConfigDict(extra="forbid")

    input: str = Field(min_length=1, description="The task, with everything that the agent must know to do it.")


class _TaskValidator:
    """Validates a task, and hands it on as the fields that it has, as PydanticAI expects it."""

    def validate_json(self, input: str | bytes | bytearray, **_options: Any) -> dict[str, Any]:  # noqa: ANN401 - PydanticAI's
        return dict(Task.model_validate_json(input, strict=True))

    def validate_python(self, input: Any, **_options: Any) -> dict[str, Any]:  # noqa: ANN401 - PydanticAI's
        return dict(Task.model_validate(input, strict=True))


class AgentToolset(AbstractToolset[Any]):
    """An agent as a tool of the agents that name it. It runs beside other agents that the same reply calls."""

    def __init__(self, file: AgentFile) -> None:
        """Offer the agent of that file, by its name."""
        text = " ".join((file.description or file.instructions).split())
        self._name = file.name
        self._definition = ToolDefinition(
            name=file.name,
            description=text if len(text) <= _LONGEST_DESCRIPTION else f"{text[: _LONGEST_DESCRIPTION - 1]}…",
            parameters_json_schema=Task.model_json_schema(),
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
        tool = ToolsetTool[Any](toolset=self, tool_def=self._definition, max_retries=0, args_validator=_TaskValidator())
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
        return await current_run().call_agent(self._name, tool_args["input"], ctx)
