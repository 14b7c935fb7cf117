"""The texts of an agent that overrides can replace: its instructions, and the descriptions of its tools.

The instructions are `sections.instructions.body`; a tool has the name by which the model calls it. The texts of a tool
are known when the toolsets of the run are asked for their tools, so overrides are applied to the definitions that
PydanticAI gets, whichever toolset has the tool. The examples of a tool of Handrail follow its description, and stay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from pydantic_ai import ToolDefinition

from handrail.agents.agent_file import AgentFile
from handrail.prompt import Tool
from handrail.prompt.overrides import (
    Override,
    PromptText,
    compare_overrides,
    described_schema,
    read_overrides,
    tool_texts,
)
from handrail.prompt.section import plain_text

_INSTRUCTIONS: Final = "sections.instructions.body"

OwnTool = Callable[[ToolDefinition], Tool[Any, Any] | None]
"""The tool of Handrail that a definition shows; `None` for any other tool."""


class AgentTexts:
    """The texts of one agent in one run, and the one owner of the state of its overrides.

    Attributes:
        instructions: the instructions that the model gets.
    """

    def __init__(self, file: AgentFile, folder: Path, own_tool: OwnTool) -> None:
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
