"""The parameters of a tool's function, beside what a prompt binds.

A prompt must not bind a type that one of its tools takes as a parameter from the model. Such a parameter was meant to
be injected, and its type is one that JSON can say too, such as a dataclass: the model would make a value of its own,
and the resource would never be used.

The other way round a run has to bind each type that a tool has injected. One that is not bound may be a resource only
because its class cannot be read, by mistake.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any, get_args, get_origin

from handrail.errors import PromptValidationError, UnboundResourceError
from handrail.prompt.function_signature import InjectedParameter
from handrail.prompt.function_tools import FunctionTool
from handrail.prompt.tool_definition import Tool
from handrail.resources import ResourceRegistry
from handrail.serde.annotations import is_union, strip_annotated
from handrail.serde.formatting import type_name

PlacedTool = tuple[Tool[Any, Any], tuple[str, ...]]
"""A tool, and the path of its section."""

PlacedRegistry = tuple[ResourceRegistry, str]
"""Bindings, and where they stand, in words."""


def check_parameter_types(tools: Iterable[PlacedTool], registries: Sequence[PlacedRegistry]) -> None:
    """Refuse a prompt that binds a type which the function of one of its tools takes as a parameter.

    Args:
        tools: the tools of the prompt.
        registries: everything that the prompt binds.

    Raises:
        PromptValidationError: it does; the message names both places.
    """
    bound = {binding.kind: where for registry, where in registries for binding in registry}
    if not bound:
        return
    for tool, path in tools:
        for parameter, kind in _parameters_of(tool):
            if kind in bound:
                name = type_name(kind)
                raise PromptValidationError(
                    f"its parameter {parameter} is a {name}, which the model would write, and {bound[kind]} binds "
                    f"{name} as a resource. Write {parameter}: Annotated[{name}, Resource] to have it injected, or "
                    "remove the binding.",
                    section_path=path,
                    tool=tool.name,
                    dataclass=kind,
                )


def check_injected(tools: Iterable[Tool[Any, Any]], bound: Container[object]) -> None:
    """Refuse tools whose function has a resource injected that nothing binds.

    Args:
        tools: the tools that a run offers.
        bound: the types that are bound for its calls.

    Raises:
        UnboundResourceError: nothing is bound for the type of a parameter that must have one; its notes name every such
            parameter.
    """
    unbound = [*unbound_parameters(tools, bound)]
    if not unbound:
        return
    error = UnboundResourceError(unbound[0][1].kind)
    for name, parameter in unbound:
        error.add_note(f"Tool {name}: {parameter.origin}.")
    raise error


def unbound_parameters(
    tools: Iterable[Tool[Any, Any]], bound: Container[object]
) -> Iterator[tuple[str, InjectedParameter]]:
    """The parameters that must have a resource where nothing is bound, each with the name of its tool."""
    for tool in tools:
        for parameter in tool.injected:
            if parameter.must_be_bound and parameter.kind not in bound:
                yield tool.name, parameter


def _parameters_of(tool: Tool[Any, Any]) -> Iterator[tuple[str, type[Any]]]:
    """The classes of the parameters that the model fills, with the names of these."""
    if isinstance(tool, FunctionTool):
        for field in tool.signature.fields:
            yield from ((field.name, cls) for cls in _classes_in(field.kind))


def _classes_in(kind: object) -> Iterator[type[Any]]:
    inner = strip_annotated(kind)
    if is_union(inner):
        for member in get_args(inner):
            yield from _classes_in(member)
    elif isinstance(cls := get_origin(inner) or inner, type):
        yield cls
