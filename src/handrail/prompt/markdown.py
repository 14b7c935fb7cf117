"""Sections whose text is a Markdown template."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from handrail.errors import PromptValidationError
from handrail.prompt.placeholders import PlaceholderText
from handrail.prompt.section import ParamsT, Section


@dataclass(frozen=True, kw_only=True, eq=False)
class MarkdownSection(Section[ParamsT]):
    """A section with a text. `MarkdownSection[Params](...)` if the text has placeholders.

    Attributes:
        template: Markdown, dedented; `${name}` stands for a field of the parameters, `$${` for a plain `${`.
        text: the same, read once.

    Raises:
        PromptValidationError: a placeholder names no field of the parameters.
    """

    template: str
    text: PlaceholderText = field(init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "text", parsed(self, "template", self.template))

    def render_body(self, params: ParamsT) -> str:
        """The template with the values of the parameters in place of its placeholders."""
        return self.text.fill(params)


def parsed(section: Section[Any], name: str, template: object) -> PlaceholderText:
    """The template of a section, its placeholders checked; `name` is what the template is called there.

    Raises:
        PromptValidationError: the template is no text, or a placeholder names no field of the parameters.
    """
    if not isinstance(template, str):
        raise PromptValidationError(
            f"the {name} is a {type(template).__name__}; it must be a string.", section_path=(section.key,)
        )
    return PlaceholderText.parse(template, section.params_type, section=section.key)


@dataclass(frozen=True, kw_only=True, eq=False)
class ToolsSection(Section[ParamsT]):
    """A section that is there for its tools: a heading, and a description if there is one. It lists no tools.

    The model is told of the tools by the adapter, with their schemas, so listing them in the text would say it twice.

    Attributes:
        description: Markdown with placeholders, as the template of a `MarkdownSection`; `None` for none.
        text: the same, read once.
    """

    description: str | None = None
    text: PlaceholderText = field(init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "text", parsed(self, "description", self.description or ""))

    def render_body(self, params: ParamsT) -> str:
        """The description with the values of the parameters in place of its placeholders."""
        return self.text.fill(params)
