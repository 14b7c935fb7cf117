"""Name conflicts that are certain before an agent runs.

Certain are the names of tools that nothing can hide or rename: a `prepare` function may, and so may a wrapper that is
not known here, a factory, a section that is enabled by a function. What is not certain is left to the check at each
step (`handrail.agents.toolsets.labelled_toolset`), which says the same of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from pydantic_ai import Tool as PydanticTool
from pydantic_ai.toolsets import AbstractToolset, CombinedToolset, FunctionToolset, PrefixedToolset

from handrail.agents.exports.entries import AgentReference, Entry, ToolsetFactory
from handrail.agents.toolsets.labelled_toolset import name_conflict
from handrail.agents.toolsets.shared_toolset import SharedToolset
from handrail.errors import ToolConflictError
from handrail.prompt import Section, Tool

_NOTHING: Mapping[str, str] = MappingProxyType({})


def static_conflicts(entries: Sequence[Entry], *, reserved: Mapping[str, str] = _NOTHING) -> ToolConflictError | None:
    """What is to be said of tool names that several entries of one agent certainly have; `None` if there are none.

    Args:
        entries: the tools and toolsets that the agent names.
        reserved: names that are taken by others, each with what has it, in words.
    """
    return name_conflict(((entry.label, static_names(entry)) for entry in entries), reserved)


def static_names(entry: Entry) -> tuple[str, ...]:
    """The names of the tools that an entry certainly has at every step."""
    value = entry.value
    if isinstance(value, PydanticTool):
        return () if value.prepare is not None else (value.name,)
    if isinstance(value, (Tool, AgentReference)):
        return (value.name,)
    if isinstance(value, ToolsetFactory):
        return ()
    return tuple(dict.fromkeys(_of_section(value) if isinstance(value, Section) else _of_toolset(value)))


def _of_section(section: Section[Any]) -> Iterator[str]:
    if section.enabled is True:
        yield from (tool.name for tool in section.tools)
        for child in section.children:
            yield from _of_section(child)


def _of_toolset(toolset: AbstractToolset[Any]) -> Iterator[str]:
    """The names that a toolset certainly has. Of a subclass of PydanticAI's nothing is certain: it may list others."""
    kind = type(toolset)
    if isinstance(toolset, FunctionToolset) and kind is FunctionToolset:
        yield from (name for name, tool in toolset.tools.items() if tool.prepare is None)
    elif isinstance(toolset, PrefixedToolset) and kind is PrefixedToolset:
        yield from (f"{toolset.prefix}_{name}" for name in _of_toolset(toolset.wrapped))
    elif isinstance(toolset, CombinedToolset) and kind is CombinedToolset:
        for member in toolset.toolsets:
            yield from _of_toolset(member)
    elif isinstance(toolset, SharedToolset):
        yield from _of_toolset(toolset.wrapped)
