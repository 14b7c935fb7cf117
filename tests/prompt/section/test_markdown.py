"""Sections with a text."""

from __future__ import annotations

from typing import Any

import pytest
from inline_snapshot import snapshot

from handrail.errors import PromptValidationError
from handrail.prompt import MarkdownSection, Prompt, PromptTemplate, ToolsSection
from tests.prompt.samples import Guidance, lookup_tool
from tests.wording import Wording

UNCHECKED: Any = MarkdownSection


def test_a_placeholder_without_a_field_is_refused_when_the_section_is_made(wording: Wording) -> None:
    """The error names the section, the placeholder, the fields and the dataclass."""
    with pytest.raises(PromptValidationError) as caught:
        MarkdownSection[Guidance](title="Guidance", template="Prefer ${tools}.")
    assert str(caught.value) == wording
    assert caught.value.dataclass is Guidance
    with pytest.raises(PromptValidationError) as caught:
        MarkdownSection(title="Guidance", template="Prefer ${tool}.")
    assert str(caught.value) == wording


def test_a_template_is_text(wording: Wording) -> None:
    """Anything else is refused."""
    with pytest.raises(PromptValidationError) as raised:
        UNCHECKED(title="A", template=None)
    assert str(raised.value) == wording


def test_a_tools_section_shows_no_tools() -> None:
    """Heading and description only: adapters tell the model of tools, with their schemas."""
    section = ToolsSection[Guidance](
        title="Available Tools", tools=[lookup_tool()], description="Invoke ${tool} whenever you need fresh context."
    )
    rendered = Prompt(PromptTemplate(ns="t", key="t", sections=[section])).bind(Guidance("lookup")).render()
    assert rendered.text == snapshot("""\
## 1. Available Tools

Invoke lookup whenever you need fresh context.\
""")
    assert [tool.name for tool in rendered.tools] == ["lookup"]


def test_the_description_is_held_to_the_parameters(wording: Wording) -> None:
    """As a template is."""
    with pytest.raises(PromptValidationError) as raised:
        ToolsSection[Guidance](title="Tools", tools=[], description="${name}")
    assert str(raised.value) == wording
