"""The texts of an agent: those that overrides can replace, and the summaries that stand for closed toolsets.

Overrides replace its instructions, `sections.instructions.body`, and the descriptions of its tools, by the name that
the model calls. The texts of a tool are known when the toolsets of the run are asked for their tools, so overrides are
applied to the definitions that PydanticAI gets, whichever toolset has the tool. The examples of a tool of Handrail
follow its description, and stay.

A toolset that the agent file discloses by a summary has a section with the summary, and without tools: the toolset
brings them when the section is open (`handrail.agents.toolsets.labelled_toolset`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from pydantic_ai import ToolDefinition
from typing_extensions import override  # pydantic brings it; `typing` has it from Python 3.12 on

from handrail.agents.agent_file import AgentFile
from handrail.agents.registry import AgentReference, ResolvedAgent
from handrail.prompt import Section, Tool
from handrail.prompt.overrides import (
    Override,
    PromptText,
    compare_overrides,
    described_schema,
    read_overrides,
    tool_texts,
)
from handrail.prompt.section import plain_text
from handrail.prompt.template import PlacedSection

_INSTRUCTIONS: Final = "sections.instructions.body"

FindOwnTool = Callable[[ToolDefinition], Tool[Any, Any] | None]
"""The tool of Handrail that a definition shows; `None` for any other tool."""


class AgentTexts:
    """The texts of one agent in one run, and the one owner of the state of its overrides.

    Attributes:
        instructions: the instructions that the model gets.
    """

    def __init__(self, file: AgentFile, folder: Path, own_tool: FindOwnTool) -> None:
        """Read the overrides that an agent file names, and apply the one of the instructions; waits for a disk.

        Args:
            file: the agent file.
            folder: the folder of its project.
            own_tool: finds the tool of a definition.

        Raises:
            OverridesError: the file cannot be read, or is not one of overrides.
        """
        self._own_tool = own_tool
        self._file = "" if file.overrides is None else str(folder / file.overrides)
        self._overrides = read_overrides(Path(self._file)) if self._file else None
        self._seen: dict[str, PromptText] = {}
        self._shown: dict[str, tuple[ToolDefinition, ToolDefinition]] = {}
        self._warned: set[str] = set()
        original = PromptText(_INSTRUCTIONS, plain_text(file.instructions))
        self.instructions: str = self._applied({_INSTRUCTIONS: original}).get(_INSTRUCTIONS, file.instructions)

    def definition(self, definition: ToolDefinition) -> ToolDefinition:
        """The definition of a tool that the model gets; the same object if no text of it is replaced.

        Raises:
            OverridesError: an override is of a text that accepts none, or its text is invalid.
        """
        if self._overrides is None:
            return definition
        before = self._shown.get(definition.name)
        if before is not None and before[0] == definition:
            return before[1]
        name, schema, tool = definition.name, definition.parameters_json_schema, self._own_tool(definition)
        whole = definition.description or ""
        # A wrapper may have given the tool another description, of which none is a part.
        own_text = tool.description if tool is not None and whole.startswith(tool.description) else whole
        accepts_overrides = tool is None or tool.accepts_overrides
        texts = tool_texts(name, own_text, schema, accepts_overrides=accepts_overrides)
        applied = self._applied({text.key: text for text in texts})
        description = applied.get(f"tools.{name}.description")
        shown = definition
        if applied:
            shown = replace(
                definition,
                description=definition.description if description is None else description + whole[len(own_text) :],
                parameters_json_schema=described_schema(name, schema, applied),
            )
        self._shown[name] = definition, shown
        return shown

    def new_warnings(self, *, all_seen: bool) -> tuple[str, ...]:
        """A sentence for each override that is not applied, once.

        Args:
            all_seen: whether all tools of the agent have been seen, so that an override of another one is unknown.
        """
        if not self._file:
            return ()
        report = compare_overrides(self._seen, self._overrides, file=self._file)
        warnings = (report if all_seen else replace(report, unknown={})).warnings()
        new = tuple(warning for warning in warnings if warning not in self._warned)
        self._warned.update(new)
        return new

    def _applied(self, texts: Mapping[str, PromptText]) -> Mapping[str, str]:
        """The replacements of these texts by their keys."""
        self._seen |= texts
        overrides: dict[str, Override] = {key: each for key, each in (self._overrides or {}).items() if key in texts}
        return compare_overrides(texts, overrides, file=self._file).applied


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
