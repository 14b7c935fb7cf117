"""Overrides, applied to a template: a copy of it in which texts are replaced.

It is done once, when a prompt is made: a rendering costs the same with overrides and without. Sections and tools that
have no override are those of the template; a tool that has one keeps its validators.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from handrail.errors import OverridesError
from handrail.prompt.overrides.override_file import Override, PromptOverrides, raise_all
from handrail.prompt.overrides.parameter_descriptions import with_descriptions
from handrail.prompt.overrides.texts import PromptText, TextKey, placeholder_text, section_texts, text_hash, tool_texts
from handrail.prompt.section import Section, plain_text
from handrail.prompt.template import Out, PlacedSection, PromptTemplate
from handrail.prompt.tool_definition import Tool
from handrail.redaction import redacted_logger

_log = redacted_logger("handrail.prompt")

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class OverridesReport:
    """Which overrides of a prompt were applied, and which were not.

    Attributes:
        tag: their tag.
        file: the file that they come from; `None` if there is none, so that the prompt is that of the code.
        applied: the texts that were replaced.
        stale: those whose override was made for another text of the code, and was not applied; one whose text was
            never edited is not stale.
        unknown: those that the prompt does not have.
    """

    tag: str
    file: str | None = None
    applied: tuple[TextKey, ...] = ()
    stale: tuple[TextKey, ...] = ()
    unknown: tuple[TextKey, ...] = ()

    @property
    def is_current(self) -> bool:
        """Whether every override was applied."""
        return not self.stale and not self.unknown

    def warnings(self) -> tuple[str, ...]:
        """In words, which overrides were not applied; empty if all were."""
        faults = ((self.stale, "stale: the code has another text now"), (self.unknown, "of no text there"))
        return tuple(f"overrides not applied, {fault}: {'; '.join(map(str, keys))}" for keys, fault in faults if keys)


def originals(template: PromptTemplate[Any], keys: Iterable[TextKey]) -> Mapping[TextKey, PromptText]:
    """The texts of a template that keys name, and the other texts of the same sections and tools."""
    wanted = {(key.owner, key.name) for key in keys}
    places = {placed.dotted: placed.section for placed in template.placed_sections()}
    tools = {tool.name: tool for section in places.values() for tool in section.tools}
    texts: dict[TextKey, PromptText] = {}
    for owner, name in wanted:
        found: Iterable[PromptText] = ()
        if owner == "section" and name in places:
            found = section_texts(places[name], name)
        elif owner == "tool" and name in tools:
            found = tool_texts(tools[name])
        texts.update((text.key, text) for text in found)
    return texts


def apply_overrides(
    template: PromptTemplate[Out], overrides: PromptOverrides
) -> tuple[PromptTemplate[Out], OverridesReport]:
    """A template with its texts replaced, and a report. What is stale or unknown is logged as a warning.

    Raises:
        OverridesError: an override is of a text that accepts none, or its text is invalid; the message has all faults.
    """
    texts = originals(template, (each.key for each in overrides.overrides))
    report, current = examine(texts, overrides)
    for warning in report.warnings():
        _log.warning("%s, tag %s: %s", template.name, overrides.tag, warning)
    changed = changed_texts(texts, current)
    return (_with_texts(template, changed) if changed else template), report


def examine(
    texts: Mapping[TextKey, PromptText], overrides: PromptOverrides
) -> tuple[OverridesReport, tuple[Override, ...]]:
    """What would become of overrides, and those that would be applied, with their texts as they would be shown.

    Args:
        texts: the texts that there are, at least those that the overrides name.
        overrides: the overrides.

    Raises:
        OverridesError: as for `apply_overrides`.
    """
    faults: list[OverridesError] = []
    stale: list[TextKey] = []
    unknown: list[TextKey] = []
    current: list[Override] = []
    for each in overrides.overrides:
        original = texts.get(each.key)
        if original is None:
            unknown.append(each.key)
            continue
        # A text that was seeded and never edited replaces nothing, whatever text the code has now.
        shown = replace(each, text=_normal(each) if is_edited(each) else original.text)
        fault = _fault(shown, original)
        if fault:
            message = f"{each.key}: {fault}"
            faults.append(OverridesError(message, file=overrides.file, line=each.line, column=each.column))
        elif original.sha256 != each.sha256 and is_edited(each):
            stale.append(each.key)
        else:
            current.append(shown)
    raise_all(faults, overrides.file)
    report = OverridesReport(
        tag=overrides.tag,
        file=overrides.file,
        applied=tuple(each.key for each in current),
        stale=tuple(stale),
        unknown=tuple(unknown),
    )
    return report, tuple(current)


def changed_texts(texts: Mapping[TextKey, PromptText], current: Iterable[Override]) -> dict[TextKey, str]:
    """The texts of overrides that are applied and differ from the originals."""
    return {each.key: each.text for each in current if each.text != texts[each.key].text}


def current_overrides(ns: str, key: str, tag: str, texts: Iterable[PromptText]) -> PromptOverrides:
    """Overrides of a prompt that say what its texts say already; of those that accept overrides."""
    found = tuple(Override(each.key, text_hash(each.text), each.text) for each in texts if each.accepts_overrides)
    return PromptOverrides(ns=ns, key=key, tag=tag, overrides=found)


def is_edited(override: Override) -> bool:
    """Whether an override has another text than the one that it replaces; one that was only seeded has not."""
    return text_hash(_normal(override)) != override.sha256


def _normal(override: Override) -> str:
    return plain_text(override.text) if override.key.owner == "section" else override.text.strip()


def _fault(override: Override, original: PromptText) -> str:
    """Why a text cannot take the place of the original; empty if it can."""
    if not original.accepts_overrides:
        return f"this {override.key.owner} accepts no overrides (accepts_overrides=False); remove the override"
    if override.text == original.text:
        return ""
    if not override.text:
        return "the text is empty; remove the override to have the text of the code"
    # A stale text is not applied, and may have placeholders of former parameters.
    if override.key.owner == "section" and original.sha256 != override.sha256:
        return ""
    return original.fault_of(override.text)


def _with_texts(template: PromptTemplate[Out], texts: Mapping[TextKey, str]) -> PromptTemplate[Out]:
    by_owner: dict[tuple[str, str], dict[TextKey, str]] = {}
    for key, text in texts.items():
        by_owner.setdefault((key.owner, key.name), {})[key] = text

    def placed_with_texts(placed: PlacedSection) -> PlacedSection:
        children = _mapped(placed.children, placed_with_texts)
        own = by_owner.get(("section", placed.dotted), {})
        tools = _mapped(placed.section.tools, lambda tool: tool_with_texts(tool, by_owner.get(("tool", tool.name), {})))
        if children is placed.children and tools is placed.section.tools and not own:
            return placed
        section = _section_with_texts(placed.section, own, tools, tuple(each.section for each in children))
        return replace(placed, section=section, children=children)

    tree = _mapped(template.tree, placed_with_texts)
    # Not by `dataclasses.replace`: nothing that the declaration checks has changed.
    return _copied(template, tree=tree, sections=tuple(placed.section for placed in tree))


def _mapped(items: Iterable[T], change: Callable[[T], T]) -> tuple[T, ...]:
    """What `change` makes of the items; the same tuple if it leaves all as they are."""
    before = tuple(items)
    after = tuple(change(item) for item in before)
    return before if all(one is other for one, other in zip(before, after, strict=True)) else after


def _section_with_texts(
    section: Section[Any],
    texts: Mapping[TextKey, str],
    tools: tuple[Tool[Any, Any], ...],
    children: tuple[Section[Any], ...],
) -> Section[Any]:
    fields: dict[str, Any] = {"tools": tools, "children": children}
    for key, text in texts.items():
        parsed = placeholder_text(text, section)
        if key.part == "summary":
            fields |= {"summary": text, "summary_text": parsed}
        else:
            fields["text"] = parsed
    return _copied(section, **fields)


def tool_with_texts(tool: Tool[Any, Any], texts: Mapping[TextKey, str]) -> Tool[Any, Any]:
    """A tool with other texts, which are all its own; the same tool if there are none."""
    if not texts:
        return tool
    fields: dict[str, Any] = {}
    examples = list(tool.examples)
    descriptions: dict[str, str] = {}
    for key, text in texts.items():
        if key.part == "description":
            fields["description"] = text
        elif key.part == "example":
            place = int(key.place) - 1
            examples[place] = replace(examples[place], description=text)
        else:
            descriptions[key.place] = text
    if descriptions:
        fields["codec"] = tool.codec.with_schema(with_descriptions(tool.parameters_schema, descriptions))
    return _copied(tool, **fields, examples=tuple(examples))


def _copied(value: T, **fields: object) -> T:
    """A shallow copy of a frozen value with other fields; its `__post_init__` is not called."""
    made = copy.copy(value)
    for name, field in fields.items():
        object.__setattr__(made, name, field)
    return made
