"""A toolset that an agent file discloses by a summary: while it is closed, it shows neither tools nor instructions.

The summary stands in the text of the run, in a section of its own (`handrail.agents.run.disclosed_sections`). The
toolset is made and entered with the run, whether or not it is open: its tools are known, so that names that are taken
twice are found when the run begins, and a call of one of them is answered with the section to open.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic_ai import RunContext, ToolsetTool
from pydantic_ai.messages import InstructionPart
from pydantic_ai.toolsets import AbstractToolset, WrapperToolset
from typing_extensions import override  # pydantic brings it; `typing` has it from Python 3.12 on


@dataclass
class DisclosedToolset(WrapperToolset[Any]):
    """A toolset that is open or closed.

    Attributes:
        wrapped: the toolset.
        name: what the agent file calls it.
        is_open: whether a toolset of a name is open now.
        hidden: the tools that it had at the last step, if it was closed then.
    """

    wrapped: AbstractToolset[Any]
    name: str
    is_open: Callable[[str], bool]
    hidden: dict[str, ToolsetTool[Any]] = field(init=False, default_factory=dict[str, ToolsetTool[Any]])

    @override
    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """Its tools, if it is open."""
        tools = await super().get_tools(ctx)
        is_open = self.is_open(self.name)
        self.hidden = {} if is_open else tools
        return tools if is_open else {}

    @override
    async def get_instructions(
        self, ctx: RunContext[Any]
    ) -> str | InstructionPart | Sequence[str | InstructionPart] | None:
        """Its instructions, if it is open."""
        return await super().get_instructions(ctx) if self.is_open(self.name) else None
