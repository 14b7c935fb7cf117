"""The texts of a prompt that overrides can replace, each with its key and the hash of what it says.

| key | text |
|---|---|
| section, body | the template of a `MarkdownSection` or the description of a `ToolsSection`, with its placeholders |
| section, summary | the summary of a section |
| tool, description | the description of a tool |
| tool, parameter, `$.address.street` | the description of a parameter, which may be empty |
| tool, example, `1` | the description of an example |

The text of a section of any other class comes from its code, and cannot be overridden.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from handrail.prompt.overrides.parameter_descriptions import parameter_descriptions
from handrail.prompt.section import MarkdownSection, PlaceholderText, Section, ToolsSection, plain_text
from handrail.prompt.template import PromptTemplate
from handrail.prompt.tool_definition import Tool

TextKind = Literal["body", "summary", "description", "parameter", "example"]
"""Which text of a section or of a tool."""


@dataclass(frozen=True, slots=True)
class TextKey:
    """Identifies a text of a prompt.

    Attributes:
        owner: whether it is a text of a section or of a tool.
        name: the dotted path of the section, or the name of the tool.
        part: which of its texts.
        place: the path of the parameter, or the number of the example from 1; empty for other texts.
    """

    owner: Literal["section", "tool"]
    name: str
    part: TextKind
    place: str = ""

    def __str__(self) -> str:
        return f"{self.owner} {self.name}, {self.part}{f' {self.place}' if self.place else ''}"


@dataclass(frozen=True, slots=True)
class PromptText:
    """A text of a prompt as the code has it.

    Attributes:
        key: identifies it.
        text: the text; of a section before placeholders are replaced.
        accepts_overrides: whether it may be overridden.
    """

    key: TextKey
    text: str
    accepts_overrides: bool

    @property
    def sha256(self) -> str:
        """The hash of the text."""
        return text_hash(self.text)


def text_hash(text: str) -> str:
    """The SHA-256 of a text in UTF-8, as 64 hexadecimal digits."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def texts_of(template: PromptTemplate[Any]) -> Iterator[PromptText]:
    """All texts of a template, also those that accept no overrides: section by section, the tools of each after it."""
    for placed in template.placed_sections():
        yield from section_texts(placed.section, placed.dotted)
        for tool in placed.section.tools:
            yield from tool_texts(tool)


def section_texts(section: Section[Any], path: str) -> Iterator[PromptText]:
    """The texts of a section, without those of its tools; `path` is its dotted path."""
    body = body_source(section)
    if body is not None:
        yield PromptText(TextKey("section", path, "body"), plain_text(body), section.accepts_overrides)
    if section.summary is not None:
        summary = plain_text(section.summary)
        yield PromptText(TextKey("section", path, "summary"), summary, section.accepts_overrides)


def body_source(section: Section[Any]) -> str | None:
    """The template of the body of a section; `None` if its class makes the body."""
    # A subclass with a `render_body` of its own may use the template or not.
    render = type(section).render_body
    if isinstance(section, MarkdownSection) and render is MarkdownSection.render_body:
        return section.template
    if isinstance(section, ToolsSection) and render is ToolsSection.render_body:
        return section.description or ""
    return None


def tool_texts(tool: Tool[Any, Any]) -> Iterator[PromptText]:
    """The texts of a tool."""
    accepts = tool.accepts_overrides
    yield PromptText(TextKey("tool", tool.name, "description"), tool.description, accepts)
    for path, text in parameter_descriptions(tool.parameters_schema).items():
        yield PromptText(TextKey("tool", tool.name, "parameter", path), text, accepts)
    for number, example in enumerate(tool.examples, 1):
        yield PromptText(TextKey("tool", tool.name, "example", str(number)), example.description, accepts)


def placeholder_text(text: str, section: Section[Any]) -> PlaceholderText:
    """The text of a section, parsed.

    Raises:
        PromptValidationError: a placeholder is not a field of the section's parameters.
    """
    return PlaceholderText.parse(text, section.params_type, section=section.key)
