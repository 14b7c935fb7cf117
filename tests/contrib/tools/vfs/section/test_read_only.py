"""The file suite as a section that only looks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from inline_snapshot import snapshot

from handrail.contrib.tools import VfsToolsSection
from handrail.errors import PromptValidationError
from handrail.filesystem import InMemoryFilesystem
from handrail.prompt import PolicyDecision, Prompt, PromptTemplate, Tool, ToolContext, ToolResult
from tests.contrib.suites import SuiteRun
from tests.wording import Wording


@dataclass
class NoPlans:
    """A policy of a program's own."""

    name: str = "no_plans"

    def check(self, tool: Tool[Any, Any], params: Any, *, context: ToolContext) -> PolicyDecision:
        return PolicyDecision.deny("no plans") if "plan" in str(params) else PolicyDecision.allow()

    def on_result(self, tool: Tool[Any, Any], params: Any, result: ToolResult[Any], *, context: ToolContext) -> None:
        pass


def files() -> InMemoryFilesystem:
    """A filesystem with a plan and a note in it."""
    return InMemoryFilesystem({"plan.md": "# Plan\n", "note.md": "# Note\n"})


@pytest.mark.requirement("A-36")
def test_there_are_only_the_tools_that_look() -> None:
    """And each of them reads; the others are the same as without the option."""
    section = VfsToolsSection(files(), read_only=True)
    assert [tool.name for tool in section.tools] == snapshot(["list_files", "glob_files", "grep_files", "read_file"])
    assert {tool.effect for tool in section.tools} == {"read"}
    run = SuiteRun(section)
    assert run.told("read_file", path="note.md").endswith("\n# Note")
    for name in {tool.name for tool in VfsToolsSection().tools} - {tool.name for tool in section.tools}:
        assert name in run.refused(name, path="note.md")


def test_policies_of_a_program_stay() -> None:
    """The one that has files read before they are written to goes, for there is nothing that writes."""
    assert VfsToolsSection(read_only=True).policies == ()
    run = SuiteRun(VfsToolsSection(files(), read_only=True, policies=(NoPlans(),)))
    assert "no plans" in run.refused("read_file", path="plan.md")
    run.told("read_file", path="note.md")
    wrong: Any = 5
    with pytest.raises(PromptValidationError):
        VfsToolsSection(read_only=True, policies=wrong)


def test_text_of_the_section_that_only_looks(wording: Wording) -> None:
    """It does not speak of what there is not."""
    template = PromptTemplate(ns="tests", key="files", sections=[VfsToolsSection(read_only=True)])
    assert Prompt(template).render().text == wording
