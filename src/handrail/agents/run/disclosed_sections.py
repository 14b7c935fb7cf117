"""The sections that stand for the toolsets that an agent file discloses by their summaries.

Each has the summary, and no tools of its own: the toolset brings them when the section is open
(`handrail.agents.toolsets.labelled_toolset`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from typing_extensions import override  # pydantic brings it; `typing` has it from Python 3.12 on

from handrail.agents.agent_file import AgentFile
from handrail.agents.exports.entries import AgentReference
from handrail.agents.exports.registry import ResolvedAgent
from handrail.prompt import Section
from handrail.prompt.template import PlacedSection


@dataclass(frozen=True, kw_only=True, eq=False)
class DisclosedSection(Section[None]):
    """A section for a toolset.

    Attributes:
        toolset: the name of the toolset.
    """

    toolset: str

    @property
    @override
    def brings_tools(self) -> bool:
        """True: those of the toolset."""
        return True

    @override
    def render_body(self, params: None) -> str:
        """That it is open; what there is to say of the tools, the toolset says."""
        return "[This section is open: you have its tools.]"


def disclosed_sections(agent: ResolvedAgent, agents: Mapping[str, AgentFile]) -> tuple[DisclosedSection, ...]:
    """The sections for the toolsets that the file of an agent discloses by their summaries, in its order.

    Args:
        agent: the agent.
        agents: all agents that it may name.
    """
    entries = {entry.name: entry.value for entry in agent.toolsets}
    found: dict[str, DisclosedSection] = {}
    for each in agent.file.disclose:
        summary = each.summary or _own_summary(each.toolset, entries.get(each.toolset), agents)
        key = _key(each.toolset)
        while key in found:  # two names that differ in their case
            key = f"{key[:62]}-2"
        # What a person writes in an agent file has no placeholders.
        text = summary.replace("${", "$${")
        found[key] = DisclosedSection(title=each.toolset, key=key, summary=text, toolset=each.toolset)
    return tuple(found.values())


def _own_summary(name: str, value: Any, agents: Mapping[str, AgentFile]) -> str:  # noqa: ANN401 - what a registry holds
    """What a toolset says of itself."""
    if isinstance(value, AgentReference):
        said = agents[value.name].description if value.name in agents else ""
    elif isinstance(value, Section):
        said = value.summary or value.title
    else:
        said = ""
    return said.strip() or f"The toolset {name}."


def _key(name: str) -> str:
    return re.sub(r"^[^a-z0-9]+", "", name.lower()) or "toolset"


def section_path(sections: Iterable[PlacedSection], tool: str) -> str:
    """The dotted path of the section that brings a tool."""
    return next(
        placed.dotted
        for root in sections
        for placed in root.walk()
        if any(mine.name == tool for mine in placed.section.tools)
    )
