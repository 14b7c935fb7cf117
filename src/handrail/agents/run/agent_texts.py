"""The texts of an agent that overrides can replace: its instructions, and the descriptions of its tools.

The overrides of an agent are those of a prompt with the namespace `agents` and the name of the agent as its key. The
instructions are the body of a section `instructions`; a tool has the name by which the model calls it. What a tool says
is known when the toolsets of the run are asked for their tools, so overrides are applied to the definitions that
PydanticAI gets, whichever toolset has the tool.

| text | its tool |
|---|---|
| the description of a tool, with those of its examples | of Handrail; examples are part of a definition's description |
| the description of a tool as a whole | any other |
| the description of a parameter | any |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from pydantic_ai import ToolDefinition

from handrail.adapters.pydantic_ai.toolset import tool_description
from handrail.agents.agent_file import AgentFile
from handrail.agents.overrides_config import OverridesConfig
from handrail.agents.project import Project
from handrail.prompt import Tool
from handrail.prompt.overrides import Override, OverrideFiles, OverridesReport, PromptOverrides, PromptText, TextKey
from handrail.prompt.overrides.apply import changed_texts, examine, tool_with_texts
from handrail.prompt.overrides.parameter_descriptions import parameter_descriptions, with_descriptions
from handrail.prompt.overrides.texts import described_texts, example_texts, surrogate_fault
from handrail.prompt.section import plain_text

NAMESPACE: Final = "agents"
"""The namespace of the overrides of agents."""

INSTRUCTIONS: Final = TextKey("section", "instructions", "body")
"""The instructions of an agent."""

OwnTool = Callable[[ToolDefinition], Tool[Any, Any] | None]
"""The tool of Handrail that a definition shows; `None` for any other tool."""


@dataclass(frozen=True, slots=True)
class OverridesPlace:
    """Where the overrides of an agent are.

    Attributes:
        files: the folder with the files.
        tag: which of them.
        is_used: whether runs of the agent apply them.
        is_named: whether the file of the agent names the tag.
    """

    files: OverrideFiles
    tag: str
    is_used: bool
    is_named: bool = False

    @staticmethod
    def of(project: Project, file: AgentFile) -> OverridesPlace:
        """Of an agent of a project. Agents that other agents make have none."""
        config = project.config.overrides
        named = OverridesConfig() if config is None else config
        is_named = file.path is not None and file.overrides is not None
        is_used = is_named or (file.path is not None and config is not None)
        files = OverrideFiles(project.folder / named.folder)
        return OverridesPlace(files, file.overrides or named.tag, is_used, is_named)

    def find(self, agent: str) -> FoundOverrides:
        """The overrides of an agent whose runs apply them, or that they are missing; waits for a disk.

        Raises:
            OverridesError: the file cannot be read, or is not one of overrides.
        """
        found = self.files.read(NAMESPACE, agent, self.tag)
        return FoundOverrides(found, self._missing(agent) if found is None else "")

    def _missing(self, agent: str) -> str:
        """In words, that there are none where the agent or its project says that there are; else empty.

        Most agents of a project have no overrides, so an agent that names no tag needs no file.
        """
        if self.is_named and not self.files.path(NAMESPACE, agent, self.tag).exists():
            folder, tag = self.files.folder, self.tag
            return f"overrides: the agent names the tag {tag!r}, and {folder}/{NAMESPACE}/{agent} has no {tag}.json"
        if not self.files.folder.is_dir():
            return f"overrides: the folder {self.files.folder} of [tool.handrail.overrides] does not exist"
        return ""


@dataclass(frozen=True, slots=True)
class FoundOverrides:
    """The overrides that a run applies.

    Attributes:
        overrides: the overrides; `None` if there are none.
        missing: in words, that there are none where they are said to be; else empty.
    """

    overrides: PromptOverrides | None = None
    missing: str = ""


NO_OVERRIDES: Final = FoundOverrides()
"""Of an agent whose runs apply none."""


class AgentTexts:
    """The texts of one agent in one run, and the one owner of the state of its overrides.

    Attributes:
        instructions: the instructions that the model gets.
        known: the texts of the code that have been seen: the instructions, and those of tools that have overrides.
        collects: whether the texts of all other tools are noted too; for a run that is inspected.
        missing: in words, that there are no overrides where they are said to be; else empty.
    """

    def __init__(self, file: AgentFile, found: FoundOverrides, own_tool: OwnTool) -> None:
        """Apply the override of the instructions.

        Raises:
            OverridesError: its text is invalid.
        """
        self._overrides = overrides = found.overrides
        self._own_tool = own_tool
        self.missing: str = found.missing
        self._has_warned = False
        original = PromptText(INSTRUCTIONS, plain_text(file.instructions), surrogate_fault)
        self.known: dict[TextKey, PromptText] = {INSTRUCTIONS: original}
        self.collects: bool = False
        self._by_tool: dict[str, list[Override]] = {}
        beside: list[Override] = []
        for each in () if overrides is None else overrides.overrides:
            (self._by_tool.setdefault(each.key.name, []) if each.key.owner == "tool" else beside).append(each)
        self._reports: dict[str, OverridesReport] = {}
        self._shown: dict[str, tuple[ToolDefinition, ToolDefinition]] = {}
        self._warned: set[TextKey] = set()
        self.instructions: str = self._changed("", beside, self.known).get(INSTRUCTIONS, file.instructions)

    def definition(self, definition: ToolDefinition) -> ToolDefinition:
        """What the model gets of a tool; the same object if no text of it is replaced.

        Raises:
            OverridesError: an override is of a text that accepts none, or its text is invalid.
        """
        overrides = self._by_tool.get(definition.name, [])
        if not overrides and not self.collects:
            return definition
        before = self._shown.get(definition.name)
        if before is not None and before[0] == definition:
            return before[1]
        tool = self._own_tool(definition)
        # A wrapper may have given the tool another description; its examples are a part of that one.
        if tool is not None and tool_description(tool) != definition.description:
            tool = None
        texts = {text.key: text for text in _texts_of(definition, tool)}
        self.known |= texts
        changed = self._changed(definition.name, overrides, texts)
        shown = _with_texts(definition, tool, changed) if changed else definition
        self._shown[definition.name] = definition, shown
        return shown

    @property
    def report(self) -> OverridesReport | None:
        """Which overrides have been applied so far; those of tools that were not seen are unknown."""
        if self._overrides is None:
            return None
        keys = [each.key for each in self._overrides.overrides]
        applied = {key for report in self._reports.values() for key in report.applied}
        stale = {key for report in self._reports.values() for key in report.stale}
        return OverridesReport(
            tag=self._overrides.tag,
            file=self._overrides.file,
            applied=tuple(key for key in keys if key in applied),
            stale=tuple(key for key in keys if key in stale),
            unknown=tuple(key for key in keys if key not in applied | stale),
        )

    def new_warnings(self, *, all_seen: bool) -> tuple[str, ...]:
        """In words, which overrides are not applied or missing, each once.

        Args:
            all_seen: whether all tools of the agent have been seen, so that an override of another one is unknown.
        """
        report, has_warned, self._has_warned = self.report, self._has_warned, True
        if report is None:
            return (self.missing,) if self.missing and not has_warned else ()
        stale = tuple(key for key in report.stale if key not in self._warned)
        unknown = tuple(key for key in report.unknown if key not in self._warned) if all_seen else ()
        self._warned |= {*stale, *unknown}
        return replace(report, stale=stale, unknown=unknown).warnings()

    def _changed(
        self, tool: str, overrides: Sequence[Override], texts: Mapping[TextKey, PromptText]
    ) -> dict[TextKey, str]:
        """The texts of overrides that are applied and differ from the originals; `tool` is whose they are."""
        if self._overrides is None or not overrides:
            return {}
        self._reports[tool], current = examine(texts, replace(self._overrides, overrides=tuple(overrides)))
        return changed_texts(texts, current)


def _texts_of(definition: ToolDefinition, tool: Tool[Any, Any] | None) -> Iterator[PromptText]:
    """The texts of a tool by the name that the model calls it by; `tool` is Handrail's, if it is one."""
    name = definition.name
    parameters = parameter_descriptions(definition.parameters_json_schema)
    if tool is None:
        yield from described_texts(name, (definition.description or "").strip(), parameters)
        return
    examples = [example.description for example in tool.examples]
    for text in (*described_texts(name, tool.description, parameters), *example_texts(name, examples)):
        yield text if tool.accepts_overrides else replace(text, accepts_overrides=False)


def _with_texts(
    definition: ToolDefinition, tool: Tool[Any, Any] | None, texts: Mapping[TextKey, str]
) -> ToolDefinition:
    of_parameters = {key.place: text for key, text in texts.items() if key.part == "parameter"}
    others = {key: text for key, text in texts.items() if key.part != "parameter"}
    description = definition.description
    if others:
        # The definition of a tool of Handrail has the description and all examples in one text.
        description = next(iter(others.values())) if tool is None else tool_description(tool_with_texts(tool, others))
    schema = definition.parameters_json_schema
    if of_parameters:
        schema = with_descriptions(schema, of_parameters)
    return replace(definition, description=description, parameters_json_schema=schema)
