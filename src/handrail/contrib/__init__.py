"""Suites of tools that ship with Handrail, and what their sections share: tools by examples, checks of options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from os import pathsep
from pathlib import Path
from typing import Any, Unpack, cast

from handrail.prompt import Tool, ToolExample
from handrail.prompt.section import ResourceDeclaration, section_registry
from handrail.prompt.tool_definition import PlainOptions
from handrail.resources import ResourceRegistry


def suite_tool(
    handler: Callable[..., Any],
    description: str,
    *examples: ToolExample[Any, Any],
    name: str = "",
    **options: Unpack[PlainOptions],
) -> Tool[Any, Any]:
    """A tool with the types of its first example; without a name it has that of its handler."""
    kind = cast("Any", Tool)[type(examples[0].input), type(examples[0].output)]
    name = name or handler.__name__
    tool: Tool[Any, Any] = kind(name=name, description=description, handler=handler, examples=examples, **options)
    return tool


def about(text: str, **bounds: int) -> dict[str, object]:
    """The metadata of a field: the description that the model reads, and bounds."""
    return {"description": text, **bounds}


def example(description: str, input: object, output: object) -> ToolExample[Any, Any]:
    """An example of a call."""
    return ToolExample(description=description, input=input, output=output)


def timeout_faults(value: object, *, usual: int, name: str = "timeout") -> list[str]:
    """The fault of a timeout; nothing if it is a positive span."""
    if isinstance(value, timedelta) and value > timedelta(0):
        return []
    return [f"{name} is {value!r}; give a positive timedelta: timedelta(seconds={usual})"]


def limit_faults(name: str, value: object, *, unit: str, least: int = 1) -> list[str]:
    """The fault of a limit; nothing if it is a whole number from `least` on."""
    # `bool` is a subclass of `int`, so `True` would be a limit of one byte.
    if isinstance(value, int) and not isinstance(value, bool) and value >= least:
        return []
    return [f"{name} is {value!r}; give a number of {unit}, at least {least:,}"]


def also_bound(resources: ResourceDeclaration, own: Mapping[type[Any], object]) -> ResourceRegistry:
    """The resources that were given to a section, and its own.

    Raises:
        DuplicateBindingError: one type is in both.
    """
    # `of` and not `merge`, so that a second binding of a type is an error.
    return ResourceRegistry.of(*section_registry(resources), *ResourceRegistry.build(own))


def environment_faults(environment: object) -> list[str]:
    """The faults of an environment for programs, each as a clause."""
    if not isinstance(environment, Mapping):
        return [f"environment is of type {type(environment).__name__}; write environment={{'HOME': '/tmp'}}"]
    faults: list[str] = []
    for name, value in cast("Mapping[object, object]", environment).items():
        if not isinstance(name, str) or not name or set(name) & {"=", "\0"}:
            faults.append(f"environment holds the invalid name {name!r}")
        elif not isinstance(value, str) or "\0" in value:
            faults.append(f"environment[{name!r}] is {value!r}; give a string without NUL")
        # A relative folder of `PATH` is searched relative to where the program starts, which the model can write to.
        elif name == "PATH" and not all(Path(part).is_absolute() for part in value.split(pathsep)):
            faults.append(
                f"environment['PATH'] is {value!r}; give absolute folders, so that a program cannot be planted"
            )
    return faults
