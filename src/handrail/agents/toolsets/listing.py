"""Which tools a toolset has, as far as it can be said without asking it: for the check of approval rules, and of names.

| the toolset | its tools |
|---|---|
| of Handrail's, of functions, of an agent; several of them; one with a prefix, other names, a filter | all of them |
| made by a factory | those of what was made; before that those that the factory says it will make, if it does |
| anything else: an MCP server, a dynamic toolset, a class of the program | those that it lists while it runs |

Some conflicts of names are certain before an agent runs. Certain are the names of tools that nothing can hide or
rename: a `prepare` function may, and so may a filter, a wrapper that is not known here, a factory, a section that is
enabled by a function. What is not certain is left to the check at each step (`LabelledToolset`), which says the same.
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
from handrail.agents.registry import AgentReference, Entry, ResolvedAgent, ToolDef, ToolsetFactory
from handrail.agents.toolsets.labelled_toolset import AgentToolset, DisclosedToolset, input_schema, name_conflict
from handrail.agents.toolsets.lifetimes import FactoryToolset, SharedToolset
from handrail.errors import ToolConflictError
from handrail.prompt import Section, Tool

Schema = Mapping[str, Any]
"""The JSON Schema of the arguments of a tool."""

_SAME_TOOLS: Final = (ApprovalRequiredToolset, IncludeReturnSchemasToolset, SetMetadataToolset, SharedToolset)
_MAY_HIDE: Final = (DisclosedToolset, FilteredToolset)
_SCALARS: Final = frozenset({"string", "integer", "number", "boolean"})


@dataclass(frozen=True, slots=True)
class KnownTool:
    """A tool that a project has, as far as rules can name it.

    Attributes:
        name: what the model calls it by.
        schema: gives the schema of its arguments, which may take a while to make; `None` if it is not known.
        is_certain: whether its toolset has it under this name at every step.
    """

    name: str
    schema: Callable[[], Schema] | None = None
    is_certain: bool = True

    def arguments(self) -> frozenset[str] | None:
        """The names of its arguments; `None` if it may take others."""
        return None if self.schema is None else argument_names(self.schema())


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


def argument_names(schema: Schema) -> frozenset[str] | None:
    """The names of the arguments that a schema allows; `None` if it allows others."""
    if "properties" not in schema or schema.get("additionalProperties") or "patternProperties" in schema:
        return None
    properties: Mapping[str, Schema] = schema["properties"]
    # Rules also look within the one argument of a tool, whose fields are not listed here.
    if len(properties) == 1 and next(iter(properties.values())).get("type") not in _SCALARS:
        return None
    return frozenset(properties)


def static_conflicts(agent: ResolvedAgent) -> ToolConflictError | None:
    """The error about tool names that several entries of an agent certainly have; `None` if there are none."""
    entries = (*agent.tools, *agent.toolsets)
    return name_conflict(((each.label, static_names(each)) for each in entries), {}, agent=f"agent {agent.file.name}")


def static_names(entry: Entry) -> tuple[str, ...]:
    """The names of the tools that an entry certainly has at every step."""
    tools = () if isinstance(entry.value, ToolsetFactory) else listing_of_entry(entry).tools
    return tuple(dict.fromkeys(tool.name for tool in tools if tool.is_certain))


def listing_of_entry(entry: Entry) -> Listing:
    """The tools of an entry of the registry, of which nothing is made or asked."""
    value = entry.value
    if isinstance(value, PydanticTool | Tool):
        return Listing((_of_tool(value),))
    if isinstance(value, AgentReference):
        return Listing((KnownTool(value.name, partial(input_schema, value.input_type)),))
    return _of_factory(value) if isinstance(value, ToolsetFactory) else listing_of(value)


def listing_of(toolset: AbstractToolset[Any] | Section[Any]) -> Listing:
    """The tools of a toolset, or of a section and those below it, whether or not they are shown at present."""
    if isinstance(toolset, Section):
        found = _joined([Listing(tuple(map(_of_tool, toolset.tools))), *map(listing_of, toolset.children)])
        # A function decides at each rendering, so nothing is certain.
        return found if toolset.enabled is True else _changed(found, is_certain=False)
    if isinstance(toolset, HandrailToolset):
        return _joined(listing_of(root.section) for root in toolset.executor.environment.prompt.template.tree)
    if isinstance(toolset, FactoryToolset):
        if not toolset.has_made:
            return _of_factory(toolset.factory)
        made = listing_of(toolset.wrapped)
        # A factory for each step may make other tools at the next one.
        return replace(made, complete=made.complete and not toolset.factory.per_run_step)
    if isinstance(toolset, AgentToolset):
        return Listing((_of_definition(toolset.definition),))
    return _of_pydantic(toolset)


def _of_pydantic(toolset: AbstractToolset[Any]) -> Listing:
    # By the exact type: a subclass may override `get_tools`, and list others.
    kind = type(toolset)
    if isinstance(toolset, FunctionToolset):
        tools = tuple(replace(_of_tool(tool), name=name) for name, tool in toolset.tools.items())
        return _as_known(Listing(tools), is_known=kind is FunctionToolset)
    if isinstance(toolset, CombinedToolset):
        return _as_known(_joined(map(listing_of, toolset.toolsets)), is_known=kind is CombinedToolset)
    return _of_wrapper(toolset) if isinstance(toolset, WrapperToolset) else Listing(complete=False)


def _of_wrapper(toolset: WrapperToolset[Any]) -> Listing:
    inner, kind = listing_of(toolset.wrapped), type(toolset)
    if isinstance(toolset, PrefixedToolset):
        named = {tool.name: f"{toolset.prefix}_{tool.name}" for tool in inner.tools}
        return _as_known(_renamed(inner, named), is_known=kind is PrefixedToolset)
    if isinstance(toolset, RenamedToolset):
        # The map has new names as keys.
        named = {old: new for new, old in toolset.name_map.items()}
        return _as_known(_renamed(inner, named), is_known=kind is RenamedToolset)
    if kind is PreparedToolset:  # its function may give a tool other arguments
        return _changed(inner, schema=None, is_certain=False)
    if kind in _MAY_HIDE:
        return _changed(inner, is_certain=False)
    return _as_known(inner, is_known=kind in _SAME_TOOLS)


def _of_factory(factory: ToolsetFactory) -> Listing:
    if factory.known_tools is None:
        return Listing(complete=False)
    return Listing(tuple(replace(_of_tool(tool), name=name) for name, tool in factory.known_tools().items()))


def _joined(listings: Iterable[Listing]) -> Listing:
    parts = list(listings)
    return Listing(tuple(tool for part in parts for tool in part.tools), all(part.complete for part in parts))


def _changed(listing: Listing, **changes: Any) -> Listing:  # noqa: ANN401 - fields of `KnownTool`
    return replace(listing, tools=tuple(replace(tool, **changes) for tool in listing.tools))


def _as_known(listing: Listing, *, is_known: bool) -> Listing:
    """The same; of a class that is not known here it is neither certain nor complete."""
    return listing if is_known else replace(_changed(listing, is_certain=False), complete=False)


def _renamed(listing: Listing, named: Mapping[str, str]) -> Listing:
    return replace(listing, tools=tuple(replace(tool, name=named.get(tool.name, tool.name)) for tool in listing.tools))


def _of_tool(tool: ToolDef) -> KnownTool:
    if isinstance(tool, Tool):
        return KnownTool(tool.name, lambda: tool.parameters_schema)
    if tool.prepare is not None:  # it may hide the tool, and give it another name or other arguments
        return KnownTool(tool.name, is_certain=False)
    return KnownTool(tool.name, lambda: tool.function_schema.json_schema)


def _of_definition(definition: ToolDefinition) -> KnownTool:
    return KnownTool(definition.name, lambda: definition.parameters_json_schema)
