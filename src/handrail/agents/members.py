"""From the entries that an agent names to the toolsets of its run, each under its label.

What a program registered is handed to PydanticAI as it is. A tool gets a toolset of its own, so that a name that is
taken twice can be told with both origins; nothing is set on it, because `FunctionToolset(tools, requires_approval=...)`
and its like write into the very tool that they are given.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic_ai import RunContext
from pydantic_ai import Tool as PydanticTool
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset

from handrail.agents.active_run import current_run
from handrail.agents.agent_file import AgentFile
from handrail.agents.exports.entries import AgentReference, Entry, ToolsetFactory
from handrail.agents.exports.resolution import ResolvedAgent
from handrail.agents.toolsets.build import AgentToolset
from handrail.agents.toolsets.factory_toolset import MadeToolset
from handrail.agents.toolsets.labelled_toolset import Source
from handrail.prompt import Section, Tool


def members_of(agent: ResolvedAgent, agents: Mapping[str, AgentFile]) -> tuple[Source, ...]:
    """The toolsets of a run, tools first, in the order of the agent file.

    Args:
        agent: the agent, with the entries that it names.
        agents: all agents of the project, by name.
    """
    # The toolset of a single tool has nothing to say beside it, and is not asked at every step.
    return tuple(
        Source(entry.label, _toolset(entry, agents), instructs=entry.kind == "toolset")
        for entry in (*agent.tools, *agent.toolsets)
    )


def _toolset(entry: Entry, agents: Mapping[str, AgentFile]) -> AbstractToolset[Any]:
    value = entry.value
    if isinstance(value, PydanticTool):
        return FunctionToolset[Any]([value], id=entry.name)
    if isinstance(value, AgentReference):
        return AgentToolset(agents[value.name])
    if isinstance(value, AbstractToolset):
        return value
    factory = value if isinstance(value, ToolsetFactory) else ToolsetFactory(_Of(value, entry.name))
    return MadeToolset(factory, name=entry.name, origin=entry.origin, kind=entry.kind)


class _Of:
    """Makes a toolset of one of Handrail's tools or sections, on the session of the run that begins."""

    def __init__(self, value: Tool[Any, Any] | Section[Any], name: str) -> None:
        self._value = value
        self._name = name

    def __call__(self, _ctx: RunContext[Any]) -> AbstractToolset[Any] | Section[Any]:
        """The toolset, for this run."""
        value = self._value
        return current_run().tool_toolset(value, id=self._name) if isinstance(value, Tool) else value
