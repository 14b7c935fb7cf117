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
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Literal

from handrail.errors import InvalidArgumentError, PromptValidationError
from handrail.prompt.overrides.parameter_descriptions import parameter_descriptions
from handrail.prompt.section import MarkdownSection, PlaceholderText, Section, ToolsSection, plain_text
from handrail.prompt.template import PromptTemplate
from handrail.prompt.tool_definition import Tool
from handrail.prompt.tool_texts import description_fault
from handrail.serde.json_values import escape_surrogates

TextKind = Literal["body", "summary", "description", "parameter", "example"]
"""Which text of a section or of a tool."""

_PARTS: Final[Mapping[str, tuple[TextKind, ...]]] = {
    "section": ("body", "summary"),
    "tool": ("description", "parameter", "example"),
}


@dataclass(frozen=True, slots=True)
class TextKey:
    """Identifies a text of a prompt.

    Attributes:
        owner: whether it is a text of a section or of a tool.
        name: the dotted path of the section, or the name of the tool.
        part: which of its texts.
        place: the path of the parameter, or the number of the example from 1; empty for other texts.

    Raises:
        InvalidArgumentError: an owner of that kind has no such text.
    """

    owner: Literal["section", "tool"]
    name: str
    part: TextKind
    place: str = ""

    def __post_init__(self) -> None:
        parts = _PARTS.get(self.owner)
        for argument, given, known in (("owner", self.owner, _PARTS), ("part", self.part, parts or ())):
            if given not in known:
                expected = f"one of {', '.join(map(repr, known))}"
                raise InvalidArgumentError(function="TextKey", argument=argument, given=given, expected=expected)

    def __str__(self) -> str:
        return f"{self.owner} {self.name}, {self.part}{f' {self.place}' if self.place else ''}"


@dataclass(frozen=True, slots=True)
class PromptText:
    """A text of a prompt as the code has it.

    Attributes:
        key: identifies it.
        text: the text; of a section before placeholders are replaced.
        fault_of: why another text cannot take its place, as a sentence without its period; empty if it can.
        accepts_overrides: whether it may be overridden.
    """

    key: TextKey
    text: str
    fault_of: Callable[[str], str] = field(repr=False, compare=False)
    accepts_overrides: bool = True

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
    body, accepts, fault_of = body_source(section), section.accepts_overrides, partial(_placeholder_fault, section)
    if body is not None:
        yield PromptText(TextKey("section", path, "body"), plain_text(body), fault_of, accepts)
    if section.summary is not None:
        yield PromptText(TextKey("section", path, "summary"), plain_text(section.summary), fault_of, accepts)


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
    texts = described_texts(tool.name, tool.description, parameter_descriptions(tool.parameters_schema))
    for text in (*texts, *example_texts(tool.name, [example.description for example in tool.examples])):
        yield text if tool.accepts_overrides else replace(text, accepts_overrides=False)


def described_texts(tool: str, description: str, parameters: Mapping[str, str]) -> Iterator[PromptText]:
    """The description of a tool, and those of its parameters by their paths; all accept overrides."""
    yield PromptText(TextKey("tool", tool, "description"), description, _description_fault)
    for path, text in parameters.items():
        yield PromptText(TextKey("tool", tool, "parameter", path), text, _description_fault)


def example_texts(tool: str, descriptions: Iterable[str]) -> Iterator[PromptText]:
    """The descriptions of the examples of a tool; all accept overrides."""
    for number, text in enumerate(descriptions, 1):
        yield PromptText(TextKey("tool", tool, "example", str(number)), text, _description_fault)


def placeholder_text(text: str, section: Section[Any]) -> PlaceholderText:
    """The text of a section, parsed.

    Raises:
        PromptValidationError: a placeholder is not a field of the section's parameters.
    """
    return PlaceholderText.parse(text, section.params_type, section=section.key)


def surrogate_fault(text: str) -> str:
    """Why a text cannot be a part of a prompt: it has what is not Unicode; empty if it can."""
    is_text = escape_surrogates(text) is text
    return "" if is_text else "the text has a lone surrogate, which is not Unicode; leave it out"


def _placeholder_fault(section: Section[Any], text: str) -> str:
    fault = surrogate_fault(text)
    if fault:
        return fault
    try:
        placeholder_text(text, section)
    except PromptValidationError as error:
        return str(error)
    return ""


def _description_fault(text: str) -> str:
    fault = description_fault(text)
    return f"the text {fault}" if fault else ""
