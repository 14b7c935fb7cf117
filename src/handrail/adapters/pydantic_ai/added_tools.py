"""The tools that a session adds while it runs, in a PydanticAI agent: offered once, and never in the place of others.

`Environment.added_tools` decides which these are, and asks the session; here they are put beside the tools of an agent.
PydanticAI refuses two tools of one name in an agent, so that a tool that appears in the middle of a run could end it.

The tools that open, close and read sections are there from the first step, and the text of the prompt names them: an
agent with a tool of such a name is refused, because no section could be opened.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, cast

from pydantic_ai import RunContext, ToolsetTool
from pydantic_ai.toolsets import AbstractToolset, WrapperToolset
from typing_extensions import override  # a dependency of pydantic; in `typing` since Python 3.12

from handrail.adapters.pydantic_ai.pipeline_reach import refuse_lost_marks
from handrail.errors import ToolConflictError
from handrail.waiting import asynchronous_entry

SECTION_TOOLS = "the sections and toolsets with a summary"
"""Where the tools come from that open, close and read sections, in words."""

MOST_RUNS = 1_000
"""The most runs of which it is remembered which bare toolset adds tools: more than run at the same time."""


class AddingToolsets:
    """Which bare toolset offers the added tools in each run: the first one that has any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Weak, so that a run that has ended keeps no toolset.
        self._by_run: OrderedDict[str, weakref.ref[AbstractToolset[Any]]] = OrderedDict()

    def first(self, run_id: str | None, toolset: AbstractToolset[Any]) -> AbstractToolset[Any] | None:
        """The toolset that offers them in a run: the given one, if there is none yet; `None` if it is gone."""
        with self._lock:
            first = self._by_run.setdefault(run_id or "", weakref.ref(toolset))
            if len(self._by_run) > MOST_RUNS:
                self._by_run.popitem(last=False)
            return first()

    def is_first(self, run_id: str | None, toolset: AbstractToolset[Any]) -> bool:
        """Whether a toolset is the one that offers them in a run."""
        return self.first(run_id, toolset) is toolset


ADDING_TOOLSETS = AddingToolsets()
"""Of the process: the toolsets of one run of PydanticAI may have been made apart, and its id is all that they share."""


@dataclass(kw_only=True)
class AddedTool(ToolsetTool[Any]):
    """A tool that the session adds.

    Attributes:
        opens: whether it opens, closes or reads sections.
    """

    opens: bool = False


class AddingToolset(Protocol):
    """What makes the calls of the tools that it adds. `HandrailToolset` is one."""

    def added_tools(self) -> Mapping[str, AddedTool]:
        """The tools that the session adds now, by name."""
        ...

    async def call(self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any]) -> Any:  # noqa: ANN401 - PydanticAI's
        """Make a call."""
        ...


@dataclass
class WithAddedTools(WrapperToolset[Any]):
    """All toolsets of an agent, with the tools that the session adds.

    A tool of the agent with such a name stays, unless it would hide one that opens sections.

    Attributes:
        wrapped: the toolsets.
        adding: adds tools, and makes their calls.
        used: the capability that brings them, in words.
    """

    adding: AddingToolset
    used: str

    @override
    @asynchronous_entry
    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """The tools of all toolsets, and those that are added.

        Raises:
            ToolConflictError: a tool of the agent has the name of one that opens, closes or reads sections.
            PromptValidationError: a tool is marked as untrusted, and its calls do not reach the pipeline.
        """
        tools = await super().get_tools(ctx)
        refuse_lost_marks(tools, ctx, used=self.used)
        added = self.adding.added_tools()
        # Those of another capability of the agent are not the agent's.
        hidden = [name for name in added if name in tools and not isinstance(tools[name], AddedTool)]
        if taken := [name for name in hidden if added[name].opens]:
            places = "".join(f"\n  {name}: {tools[name].toolset.label}, {SECTION_TOOLS}" for name in taken)
            raise ToolConflictError(
                f"the tools of an agent need different names, and these are taken more than once:{places}\nRename the "
                "tool of the agent: a tool with such a name opens, closes or reads the sections of the prompt that "
                "have a summary.",
                tools=taken,
            )
        return tools | {name: tool for name, tool in added.items() if name not in tools}

    @override
    @asynchronous_entry
    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Make a call."""
        # The tool of another capability of the agent is left to that one.
        if isinstance(tool, AddedTool) and cast("object", tool.toolset) is self.adding:
            return await self.adding.call(name, tool_args, ctx)
        return await self.wrapped.call_tool(name, tool_args, ctx, tool)
