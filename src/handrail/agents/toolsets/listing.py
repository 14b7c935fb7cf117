"""Which tools a toolset has, as far as it can be said without asking it: for the check of approval rules.

| the toolset | its tools |
|---|---|
| of Handrail's, of functions, of an agent; several of them; one with a prefix, other names, a filter | all of them |
| made by a factory | those of what was made; before that those that the factory says it will make, if it does |
| anything else: an MCP server, a dynamic toolset, a class of the program | those that it lists while it runs |

The arguments of a Python tool may go by other names than those in its schema. The schema has the name that a model
writes. What runs may have another one: of the parameter, of a field that has an alias, of a parameter that PydanticAI
leaves out because it is the only one. Approval rules look at both.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, cast, get_type_hints

from pydantic import PydanticUserError, TypeAdapter
from pydantic_ai import RunContext, ToolDefinition
from pydantic_ai import Tool as PydanticTool
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
from handrail.agents.approval.unmatched_rules import KnownTool
from handrail.agents.exports.entries import AgentReference, Entry, ToolDef, ToolsetFactory
from handrail.agents.toolsets.build import AgentToolset, Task
from handrail.agents.toolsets.disclosed_toolset import DisclosedToolset
from handrail.agents.toolsets.factory_toolset import FactoryToolset
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

_WITH_FIELDS: Final = frozenset({"model", "model-fields", "dataclass", "dataclass-args", "typed-dict"})

_RENAMING: Final = frozenset({"function-before", "function-wrap", "function-plain"})

_ALIASES: Final = ("alias", "validation_alias", "serialization_alias")


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
        # A tool that is known statically has its names in Python too, which a definition lacks.
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
        return Listing((KnownTool(value.name, Task.model_json_schema, frozenset),))
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
        return Listing((KnownTool(toolset.id, Task.model_json_schema, frozenset),))
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
        return replace(inner, tools=tuple(KnownTool(tool.name, tool.parameters) for tool in inner.tools))
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
    def parameters() -> Mapping[str, Any]:
        return tool.function_schema.json_schema

    if tool.prepare is not None:  # it may give the tool other arguments
        return KnownTool(tool.name, parameters)
    return KnownTool(tool.name, parameters, partial(names_of_parameters, tool.function))


def _of_own(tool: Tool[Any, Any]) -> KnownTool:
    def parameters() -> Mapping[str, Any]:
        return tool.parameters_schema

    if tool.params_type is None:
        return KnownTool(tool.name, parameters, frozenset)
    return KnownTool(tool.name, parameters, partial(names_of_fields, tool.params_type))


def _of_definition(definition: ToolDefinition) -> KnownTool:
    return KnownTool(definition.name, lambda: definition.parameters_json_schema)


def names_of_parameters(function: Callable[..., Any]) -> frozenset[str] | None:
    """The names of a function's parameters, and of all fields in them; `None` if they cannot be known."""
    try:
        parameters = inspect.signature(function).parameters
        hints = get_type_hints(function, include_extras=True)
    # An annotation that cannot be resolved makes the names unknown, which is a warning and not an error.
    except (TypeError, ValueError, NameError, AttributeError):
        return None
    names = set(parameters)
    for name in parameters:
        hint: object = hints.get(name, Any)
        # The run context is not an argument that a model writes.
        if hint is RunContext or getattr(hint, "__origin__", None) is RunContext:
            continue
        found = names_of_fields(hint)
        if found is None:
            return None
        names |= found
    return frozenset(names)


def names_of_fields(kind: Any) -> frozenset[str] | None:  # noqa: ANN401 - any type
    """The names and aliases of all fields in a type; `None` if a validator of its own may take others."""
    try:
        schema: object = TypeAdapter(kind).core_schema
    # As above: a type without a schema may take any name.
    except (PydanticUserError, TypeError, NameError):
        return None
    # `None` among the names means that some names are not known, and then no name may be refused.
    found = list(_names(schema))
    return None if None in found else frozenset(name for name in found if name is not None)


def _names(schema: object) -> Iterator[str | None]:
    """The names in a core schema; `None` where a validator may rename what is in a model."""
    # Without recursion, because core schemas may be nested deeply.
    to_visit = [schema]
    while to_visit:
        part = to_visit.pop()
        if isinstance(part, list | tuple):
            to_visit.extend(cast("list[object]", part))
            continue
        if not isinstance(part, Mapping):
            continue
        node = cast("Mapping[str, Any]", part)  # a core schema is made of dicts with keys of text
        if node.get("type") in _RENAMING and _type_of(node.get("schema")) in _WITH_FIELDS:
            yield None
        fields: object = node.get("fields")
        if isinstance(fields, Mapping):
            yield from map(str, cast("Mapping[object, object]", fields))
        if isinstance(node.get("name"), str) and "schema" in node:
            yield str(node["name"])
        for key in _ALIASES:
            yield from _aliases(node.get(key))
        # These keys have classes and texts of the program, which are not schemas.
        to_visit.extend(value for key, value in node.items() if key not in {"cls", "metadata", "ref"})


def _type_of(schema: object) -> object:
    return cast("Mapping[str, object]", schema).get("type") if isinstance(schema, Mapping) else None


def _aliases(alias: object) -> Iterator[str]:
    """The names in an alias: a text, a path, or a list of paths."""
    if isinstance(alias, str):
        yield alias
    elif isinstance(alias, list | tuple):
        for part in cast("list[object]", alias):
            yield from _aliases(part)
