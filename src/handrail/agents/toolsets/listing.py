"""Which tools a toolset has, as far as it can be said without asking it: for the check of approval rules.

| the toolset | its tools |
|---|---|
| of Handrail's, of functions, of an agent; several of them; one with a prefix, other names, a filter | all of them |
| made by a factory | those of what was made; before that those that the factory says it will make, if it does |
| anything else: an MCP server, a dynamic toolset, a class of the program | those that it lists while it runs |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from pydantic_ai import Tool as PydanticTool
from pydantic_ai import ToolDefinition
from pydantic_ai.toolsets import (
    AbstractToolset,
    ApprovalRequiredToolset,
    CombinedToolset,
    FilteredToolset,
    FunctionToolset,
    IncludeReturnSchemasToolset,
    PrefixedToolset,
    PreparedToolset,
    RenamedToolset,
    SetMetadataToolset,
    WrapperToolset,
)

from handrail.adapters.pydantic_ai import HandrailToolset
from handrail.agents.exports.entries import AgentReference, Entry, ToolDef, ToolsetFactory
from handrail.agents.toolsets.build import AgentToolset, input_schema
from handrail.agents.toolsets.factory_toolset import FactoryToolset
from handrail.agents.toolsets.labelled_toolset import DisclosedToolset
from handrail.agents.toolsets.shared_toolset import SharedToolset
from handrail.prompt import Section, Tool

_SAME_TOOLS: Final = (
    ApprovalRequiredToolset,
    DisclosedToolset,
    FilteredToolset,
    IncludeReturnSchemasToolset,
    SetMetadataToolset,
    SharedToolset,
)

_SCALARS: Final = frozenset({"string", "integer", "number", "boolean"})


def _no_schema() -> None:
    return None


@dataclass(frozen=True, slots=True)
class KnownTool:
    """A tool that a project has, as far as rules can name it.

    Attributes:
        name: what the model calls it by.
        schema: gives the schema of its arguments, which may take a while to make; `None` if it is not known.
    """

    name: str
    schema: Callable[[], Mapping[str, Any] | None] = _no_schema

    def arguments(self) -> frozenset[str] | None:
        """The names of its arguments; `None` if it may take others."""
        schema = self.schema() or {}
        if "properties" not in schema or schema.get("additionalProperties") or "patternProperties" in schema:
            return None
        properties: Mapping[str, Mapping[str, Any]] = schema["properties"]
        # Rules also look within the one argument of a tool, whose fields are not listed here.
        if len(properties) == 1 and next(iter(properties.values())).get("type") not in _SCALARS:
            return None
        return frozenset(properties)


@dataclass(frozen=True, slots=True)
class Listing:
    """The tools of a toolset.

    Attributes:
        tools: those that are known.
        complete: whether it has no others, now or later.
    """

    tools: tuple[KnownTool, ...] = ()
    complete: bool = True

    def with_definitions(self, definitions: Iterable[ToolDefinition]) -> Listing:
        """The same with the tools that the toolset lists while it runs."""
        names = {tool.name for tool in self.tools}
        more = [_of_definition(definition) for definition in definitions if definition.name not in names]
        return replace(self, tools=(*self.tools, *more)) if more else self


_UNKNOWN: Final = Listing(complete=False)


def listing_of_entry(entry: Entry) -> Listing:
    """The tools of an entry of the registry, of which nothing is made or asked."""
    value = entry.value
    if isinstance(value, PydanticTool):
        return Listing((_of_pydantic(value),))
    if isinstance(value, Tool):
        return Listing((_of_own(value),))
    if isinstance(value, AgentReference):
        return Listing((KnownTool(value.name, partial(input_schema, value.input_type)),))
    if isinstance(value, ToolsetFactory):
        return _of_factory(value)
    return listing_of(value)


def listing_of(toolset: AbstractToolset[Any] | Section[Any]) -> Listing:
    """The tools of a toolset, or of a section and those below it, whether or not they are shown at present."""
    if isinstance(toolset, Section):
        below = [listing_of(child) for child in toolset.children]
        return _joined([Listing(tuple(map(_of_own, toolset.tools))), *below])
    if isinstance(toolset, FactoryToolset):
        return _of_made(toolset)
    if isinstance(toolset, WrapperToolset):
        return _of_wrapper(toolset)
    return _of_plain(toolset)


def _of_plain(toolset: AbstractToolset[Any]) -> Listing:
    if isinstance(toolset, HandrailToolset):
        tree = toolset.executor.environment.prompt.template.tree
        sections = [placed.section for root in tree for placed in root.walk()]
        return Listing(tuple(_of_own(tool) for section in sections for tool in section.tools))
    if isinstance(toolset, AgentToolset):
        return Listing((_of_definition(toolset.definition),))
    if isinstance(toolset, FunctionToolset):
        tools = tuple(_of_tool(name, tool) for name, tool in toolset.tools.items())
        return Listing(tools, complete=type(toolset) is FunctionToolset)
    if isinstance(toolset, CombinedToolset):
        joined = _joined(map(listing_of, toolset.toolsets))
        return replace(joined, complete=joined.complete and type(toolset) is CombinedToolset)
    return _UNKNOWN


def _of_wrapper(toolset: WrapperToolset[Any]) -> Listing:
    # By the exact type below: a subclass may override `get_tools` and list others.
    inner, kind = listing_of(toolset.wrapped), type(toolset)
    if isinstance(toolset, PrefixedToolset):
        named = {tool.name: f"{toolset.prefix}_{tool.name}" for tool in inner.tools}
        return replace(_renamed(inner, named), complete=inner.complete and kind is PrefixedToolset)
    if isinstance(toolset, RenamedToolset):
        # The map has new names as keys.
        named = {old: new for new, old in toolset.name_map.items()}
        return replace(_renamed(inner, named), complete=inner.complete and kind is RenamedToolset)
    if kind in _SAME_TOOLS:
        return inner
    if kind is PreparedToolset:  # its function may give a tool other arguments
        return replace(inner, tools=tuple(KnownTool(tool.name) for tool in inner.tools))
    return replace(inner, complete=False)


def _of_made(toolset: FactoryToolset) -> Listing:
    """The tools of what a factory made; before it has, those that it says it will make."""
    if toolset.has_made:
        made = Listing() if toolset.product is None else listing_of(toolset.product)
        # A factory for each step may make other tools at the next one.
        return replace(made, complete=made.complete and not toolset.factory.per_run_step)
    return _of_factory(toolset.factory)


def _of_factory(factory: ToolsetFactory) -> Listing:
    if factory.known_tools is None:
        return _UNKNOWN
    return Listing(tuple(_of_tool(name, tool) for name, tool in factory.known_tools().items()))


def _of_tool(name: str, tool: ToolDef) -> KnownTool:
    return replace(_of_pydantic(tool) if isinstance(tool, PydanticTool) else _of_own(tool), name=name)


def _joined(listings: Iterable[Listing]) -> Listing:
    parts = list(listings)
    return Listing(tuple(tool for part in parts for tool in part.tools), all(part.complete for part in parts))


def _renamed(listing: Listing, named: Mapping[str, str]) -> Listing:
    return replace(listing, tools=tuple(replace(tool, name=named.get(tool.name, tool.name)) for tool in listing.tools))


def _of_pydantic(tool: PydanticTool[Any]) -> KnownTool:
    if tool.prepare is not None:  # it may give the tool other arguments
        return KnownTool(tool.name)
    return KnownTool(tool.name, lambda: tool.function_schema.json_schema)


def _of_own(tool: Tool[Any, Any]) -> KnownTool:
    return KnownTool(tool.name, lambda: tool.parameters_schema)


def _of_definition(definition: ToolDefinition) -> KnownTool:
    return KnownTool(definition.name, lambda: definition.parameters_json_schema)
