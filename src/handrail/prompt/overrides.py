"""Overrides: texts of a prompt that are replaced from a JSON file, without a change of the code.

    {"tools.lookup.parameters.number": {"sha256": "77de...", "text": "The number of the order."}}

| key | text |
|---|---|
| `sections.PATH.body` | the template of a `MarkdownSection`, or the description of a `ToolsSection` |
| `sections.PATH.summary` | the summary of a section |
| `tools.NAME.description` | the description of a tool |
| `tools.NAME.parameters.NAME` | the description of a parameter of a tool, which may be empty |

`sha256` is the hash of the text that is replaced; an override of another text is stale, and not applied. A text may be
a list of its lines. Bodies and summaries may have the placeholders of their section.

Overrides are applied once, when a prompt is bound. A tool with another text keeps its validators.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from handrail.errors import OverridesError, PromptValidationError
from handrail.prompt.section import MarkdownSection, Section, ToolsSection, checked_template, plain_text
from handrail.prompt.template import Out, PlacedSection, PromptTemplate
from handrail.prompt.tool_declaration import description_fault
from handrail.prompt.tool_definition import Tool
from handrail.redaction import redacted_logger
from handrail.serde import result_codec
from handrail.serde.json_values import repeated_keys
from handrail.waiting import check_blocking

_log = redacted_logger("handrail.prompt")

T = TypeVar("T")
_Overrides: TypeAlias = Mapping[str, "Override"]


@dataclass(frozen=True, slots=True)
class Override:
    """The text, or its lines, in the place of the text with the hash `sha256`."""

    sha256: str
    text: str | list[str]


@dataclass(frozen=True, slots=True)
class PromptText:
    """A text of a prompt as the code has it.

    Attributes:
        key: identifies it in a file of overrides.
        text: the text; of a section before placeholders are replaced.
        section: the section whose body or summary it is; `None` for any other text.
    """

    key: str
    text: str
    accepts_overrides: bool = True
    section: Section[Any] | None = field(default=None, repr=False, compare=False)

    @property
    def sha256(self) -> str:
        """The SHA-256 of the text in UTF-8, as 64 hexadecimal digits."""
        return hashlib.sha256(self.text.encode(errors="surrogatepass")).hexdigest()

    def text_fault(self, text: str) -> str:
        """The reason why another text cannot take its place, without a period; empty if it can."""
        if self.key.startswith("tools.") and (fault := description_fault(text)):
            return f"the text {fault}"
        try:
            if self.section is not None:
                checked_template(text, self.section.params_type)
        except PromptValidationError as error:
            return str(error)
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OverridesReport:
    """The overrides of a file that are applied, and those that are not; each by its key.

    Attributes:
        is_missing: whether the file does not exist, so that no text is replaced.
        applied: the texts that are replaced, as they are now.
        stale: the overrides that were made for another text, each with the hash of the text that the code has.
        unknown: the keys that name no text of the prompt.
    """

    file: str
    is_missing: bool
    applied: Mapping[str, str]
    stale: Mapping[str, str]
    unknown: tuple[str, ...]

    @property
    def is_current(self) -> bool:
        """Returns whether every override is applied."""
        return not self.stale and not self.unknown

    def warnings(self) -> tuple[str, ...]:
        """A sentence for each override that is not applied, or for the missing file."""
        missing = [f"{self.file}: the file of overrides does not exist"] if self.is_missing else []
        stale = [
            f"{self.file}: {key} is stale and not applied; review it, then write the hash of the text that the code "
            f'has: "sha256": "{sha256}"'
            for key, sha256 in self.stale.items()
        ]
        unknown = [f"{self.file}: {key} is not applied, because there is no such text" for key in self.unknown]
        return (*missing, *stale, *unknown)


def read_overrides(path: Path) -> _Overrides | None:
    """The overrides of a file by their keys; `None` if it does not exist.

    Raises:
        OverridesError: the file cannot be read, or is not one of overrides; the message has all faults.
    """
    check_blocking("reading", path)
    try:
        text = path.read_text(encoding="utf-8")
        overrides = result_codec(dict[str, Override]).parse_json(text)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:  # a `ParseError` is a ValueError, and so is what says that it is not UTF-8
        raise OverridesError(str(error), file=str(path)) from error
    if faults := repeated_keys(text):
        raise OverridesError("\n".join(map(": ".join, faults)), file=str(path))
    return overrides


def compare_overrides(texts: Mapping[str, PromptText], overrides: _Overrides | None, *, file: str) -> OverridesReport:
    """Compares overrides with the texts that there are, by their keys; `None` if their file does not exist."""
    applied: dict[str, str] = {}
    stale: dict[str, str] = {}
    unknown: list[str] = []
    faults: list[str] = []
    for key, override in (overrides or {}).items():
        if (original := texts.get(key)) is None:
            unknown.append(key)
            continue
        text = plain_text("\n".join(override.text) if isinstance(override.text, list) else override.text)
        is_stale = original.sha256 != override.sha256
        if not original.accepts_overrides:
            faults.append(f"{key}: this text accepts no overrides (accepts_overrides=False); remove the override")
        elif is_stale:
            # Its text may have placeholders of former parameters, so it is not checked.
            stale[key] = original.sha256
        elif not text:
            faults.append(f"{key}: the text is empty; remove the override to have the text of the code")
        elif fault := original.text_fault(text):
            faults.append(f"{key}: {fault}")
        else:
            applied[key] = text
    if faults:
        raise OverridesError("\n".join(faults), file=file)
    return OverridesReport(
        file=file, is_missing=overrides is None, applied=applied, stale=stale, unknown=tuple(unknown)
    )


def apply_overrides(template: PromptTemplate[Out], path: Path) -> tuple[PromptTemplate[Out], OverridesReport]:
    """A template with its texts replaced, and a report; overrides that are not applied are logged."""
    texts = {text.key: text for text in template_texts(template)}
    report = compare_overrides(texts, read_overrides(path), file=str(path))
    for warning in report.warnings():
        _log.warning("%s: %s", template.name, warning)
    tree = tuple(_placed_with(placed, report.applied) for placed in template.tree)
    # Not by `dataclasses.replace`: nothing that the declaration checks has changed.
    return _replace_fields(template, tree=tree, sections=tuple(placed.section for placed in tree)), report


def template_texts(template: PromptTemplate[Any]) -> Iterator[PromptText]:
    """All texts of a template, also those that accept no overrides: section by section, with its tools."""
    for placed in template.placed_sections():
        section = placed.section
        for part, text in (("body", _body(section)), ("summary", section.summary)):
            if text is not None:
                key = f"sections.{placed.dotted}.{part}"
                yield PromptText(key, plain_text(text), section.accepts_overrides, section)
        for tool in section.tools:
            schema = tool.parameters_schema
            yield from tool_texts(tool.name, tool.description, schema, accepts_overrides=tool.accepts_overrides)


def tool_texts(
    name: str, description: str, schema: Mapping[str, Any], *, accepts_overrides: bool
) -> Iterator[PromptText]:
    """The texts of a tool: its description, and those of its parameters from its schema."""
    yield PromptText(f"tools.{name}.description", plain_text(description), accepts_overrides)
    for parameter, node in schema.get("properties", {}).items():
        key, text = f"tools.{name}.parameters.{parameter}", plain_text(node.get("description", ""))
        yield PromptText(key, text, accepts_overrides)


def described_schema(name: str, schema: dict[str, Any], texts: Mapping[str, str]) -> dict[str, Any]:
    """The schema of a tool with other descriptions of its parameters; the same object if none is replaced."""
    properties = dict(schema.get("properties", {}))
    replaced = {parameter: texts.get(f"tools.{name}.parameters.{parameter}") for parameter in properties}
    if not any(replaced.values()):
        return schema
    properties |= {item: {**properties[item], "description": text} for item, text in replaced.items() if text}
    return {**schema, "properties": properties}


def _body(section: Section[Any]) -> str | None:
    # A subclass with a `render_body` of its own may use the template or not.
    is_own = type(section).render_body is not Section.render_body
    return None if is_own or not isinstance(section, MarkdownSection | ToolsSection) else section.body_template()


def _placed_with(placed: PlacedSection, texts: Mapping[str, str]) -> PlacedSection:
    section, key = placed.section, f"sections.{placed.dotted}"
    children = tuple(_placed_with(child, texts) for child in placed.children)
    fields: dict[str, Any] = {
        "tools": tuple(_tool_with(tool, texts) for tool in section.tools),
        "children": tuple(child.section for child in children),
    }
    if (body := texts.get(f"{key}.body")) is not None:
        fields["body_text"] = checked_template(body, section.params_type)
    if (summary := texts.get(f"{key}.summary")) is not None:
        fields |= {"summary": summary, "summary_text": checked_template(summary, section.params_type)}
    return placed._replace(section=_replace_fields(section, **fields), children=children)


def _tool_with(tool: Tool[Any, Any], texts: Mapping[str, str]) -> Tool[Any, Any]:
    fields: dict[str, Any] = {}
    if (description := texts.get(f"tools.{tool.name}.description")) is not None:
        fields["description"] = description
    schema = tool.parameters_schema
    described = described_schema(tool.name, schema, texts)
    if described is not schema:
        fields["codec"] = tool.codec.with_schema(described)
    # Where nothing is replaced the tool stays the same object.
    return _replace_fields(tool, **fields) if fields else tool


def _replace_fields(value: T, **fields: object) -> T:
    copy_ = copy.copy(value)
    for name, one in fields.items():
        object.__setattr__(copy_, name, one)
    return copy_
