"""Sections in their places: paths, reach of policies, and what must not clash across a whole prompt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from handrail.errors import PromptValidationError
from handrail.prompt.policies.policy import ChecksReach, ChecksTools, ToolPolicy
from handrail.prompt.section import Section


@dataclass(frozen=True, slots=True)
class PlacedSection:
    """A section where it stands in a prompt.

    Attributes:
        section: the section.
        path: keys from the root section to this one.
        policies: what judges the calls of its tools: policies of the prompt, of its ancestors, its own.
        children: the sections below it, in their places.
    """

    section: Section[Any]
    path: tuple[str, ...]
    policies: tuple[ToolPolicy, ...]
    children: tuple[PlacedSection, ...]

    @property
    def dotted(self) -> str:
        """The path as people write it."""
        return ".".join(self.path)

    def walk(self) -> Iterator[PlacedSection]:
        """This section and all below it, depth first."""
        yield self
        for child in self.children:
            yield from child.walk()


def place(
    sections: Sequence[Section[Any]], policies: tuple[ToolPolicy, ...], path: tuple[str, ...] = ()
) -> tuple[PlacedSection, ...]:
    """Put sections in their places, below `path` and under `policies`.

    Raises:
        PromptValidationError: two of these sections have one key.
    """
    placed: dict[str, PlacedSection] = {}
    for section in sections:
        here = (*path, section.key)
        if section.key in placed:
            raise PromptValidationError(
                f"two sections beside each other have the key {section.key!r}: {placed[section.key].section.title!r} "
                f"and {section.title!r}. Give one of them another key=.",
                section_path=here,
            )
        reach = (*policies, *section.policies)
        placed[section.key] = PlacedSection(section, here, reach, place(section.children, reach, here))
    return tuple(placed.values())


def check_tree(tree: tuple[PlacedSection, ...], policies: tuple[ToolPolicy, ...]) -> None:
    """Refuse what clashes across the prompt: sections that stand in it twice, tools or policies of one name.

    Args:
        tree: the root sections, in their places.
        policies: the policies of the prompt itself.

    Raises:
        PromptValidationError: what clashes, and both sections in which it stands.
    """
    places = [placed for root in tree for placed in root.walk()]
    _check_sections(places)
    _check_tools(places)
    for placed in places:
        if placed.section.tools:
            _check_policy_names(placed, places, policies)
            _check_tools_of_policies(placed)
    everything = frozenset(tool.name for placed in places for tool in placed.section.tools)
    for policy in policies:
        _check_reach(policy, everything, ())
    for placed in places:
        below = frozenset(tool.name for under in placed.walk() for tool in under.section.tools)
        for policy in placed.section.policies:
            _check_reach(policy, below, placed.path)


def _check_sections(places: list[PlacedSection]) -> None:
    seen: dict[int, PlacedSection] = {}
    for placed in places:
        other = seen.setdefault(id(placed.section), placed)
        if other is not placed:
            raise PromptValidationError(
                f"the same section stands in the prompt twice, at {other.dotted} and at {placed.dotted}. "
                "Make a section of its own for each place.",
                section_path=placed.path,
            )


def _check_tools(places: list[PlacedSection]) -> None:
    declared: dict[str, PlacedSection] = {}
    for placed in places:
        for tool in placed.section.tools:
            other = declared.get(tool.name)
            if other is not None:
                where = f"in section {other.dotted} and in section {placed.dotted}"
                raise PromptValidationError(
                    f"two tools have this name: {f'both in section {placed.dotted}' if other is placed else where}. "
                    "The model calls tools by name, so rename one of them.",
                    section_path=placed.path,
                    tool=tool.name,
                    dataclass=tool.params_type,
                )
            declared[tool.name] = placed


def _check_policy_names(placed: PlacedSection, places: list[PlacedSection], of_prompt: tuple[ToolPolicy, ...]) -> None:
    names = [policy.name for policy in placed.policies]
    for name in names:
        if names.count(name) > 1:
            carriers = ["the prompt itself" for policy in of_prompt if policy.name == name]
            carriers += [
                f"section {other.dotted}"
                for other in places
                if other.path == placed.path[: len(other.path)]
                for policy in other.section.policies
                if policy.name == name
            ]
            raise PromptValidationError(
                f"two policies in reach of this tool have the name {name!r}: on {' and on '.join(carriers[:2])}. "
                "Keep one of them, or give one another name=.",
                section_path=placed.path,
                tool=placed.section.tools[0].name,
            )


def _check_tools_of_policies(placed: PlacedSection) -> None:
    for policy in placed.policies:
        if not isinstance(policy, ChecksTools):
            continue
        for tool in placed.section.tools:
            fault = policy.fault_of_tool(tool)
            if fault is not None:
                raise PromptValidationError(
                    f"policy {policy.name} cannot judge its calls: {fault}",
                    section_path=placed.path,
                    tool=tool.name,
                    dataclass=tool.params_type,
                )


def _check_reach(policy: ToolPolicy, tool_names: frozenset[str], path: tuple[str, ...]) -> None:
    fault = policy.fault_of_reach(tool_names) if isinstance(policy, ChecksReach) else None
    if fault is not None:
        raise PromptValidationError(f"policy {policy.name}: {fault}", section_path=path)
