"""The example of document 004, in the spellings of today, and what it says of errors and disabled sections."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import PromptRenderError, PromptValidationError
from handrail.prompt import MarkdownSection, Prompt, PromptTemplate, RenderedPrompt, ToolsSection
from handrail.runtime import Session, ToolCall
from tests.documents.surroundings import Params, run, tool

pytestmark = pytest.mark.requirement("M-01")


@dataclass(frozen=True, slots=True)
class Guidance:
    primary_tool: str


def test_the_example_renders_its_text_and_offers_its_tool() -> None:
    """The assertion of the block holds; the section of tools gives its description, and lists nothing."""
    names = run("004.01")
    rendered: RenderedPrompt[Any] = names["markdown"]
    assert names["tools"] == (names["lookup_tool"],)
    assert rendered.text == (
        "## 1. Guidance\n\n"
        "Use tools when you need up-to-date context. Prefer lookup_entity for critical lookups.\n\n"
        "### 1.1. Available Tools\n\n"
        "Invoke lookup_entity whenever you need fresh entity context."
    )


def test_the_tool_of_the_example_can_be_called() -> None:
    """A field with a default may be left out."""
    names = run("004.01")
    params = names["GuidanceParams"](primary_tool="lookup_entity")
    executor = ToolExecutor(prompt=Prompt(names["tooling_overview"]).bind(params), session=Session())
    message = executor.execute(ToolCall("call-1", "lookup_entity", '{"entity_id": "abc-123"}'))
    assert message.content.startswith("Fetched entity abc-123.")
    assert message.result.value == names["LookupResult"]("abc-123", "https://example.com")


def test_a_disabled_section_of_tools_gives_neither_text_nor_tools() -> None:
    """It may depend on the section's parameters."""

    @dataclass(frozen=True)
    class Switch:
        on: bool = field(default=False)

    section = ToolsSection[Switch](title="Tools", tools=[tool("find")], enabled=lambda switch: switch.on)
    prompt = Prompt(PromptTemplate(ns="documents", key="switch", sections=[section]))
    assert (prompt.render().text, prompt.render().tools) == ("", ())
    assert [one.name for one in prompt.bind(Switch(on=True)).render().tools] == ["find"]


def test_errors_carry_section_path_tool_and_dataclass() -> None:
    """For a placeholder without a field, for a name given twice, and for parameters that were not bound."""
    with pytest.raises(PromptValidationError, match=r"\$\{tool\}") as unknown:
        ToolsSection[Guidance](title="Tools", description="Prefer ${tool}.")
    assert (unknown.value.section_path, unknown.value.dataclass) == (("tools",), Guidance)
    inner = ToolsSection(title="Inner", tools=[tool("find")])
    outer = MarkdownSection(title="Outer", template="-", tools=[tool("find")], children=[inner])
    with pytest.raises(PromptValidationError) as twice:
        PromptTemplate(ns="documents", key="twice", sections=[outer])
    error = twice.value
    assert (error.section_path, error.tool, error.dataclass) == (("outer", "inner"), "find", Params)
    needy = MarkdownSection[Guidance](title="Needy", template="Prefer ${primary_tool}.")
    with pytest.raises(PromptRenderError) as missing:
        Prompt(PromptTemplate(ns="documents", key="needy", sections=[needy])).render()
    assert (missing.value.section_path, missing.value.dataclass) == (("needy",), Guidance)
