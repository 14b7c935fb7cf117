"""What a program exports: a tool, a toolset, a factory of toolsets, or nothing of the kind.

What is certain is told from the object itself, or from what a function is annotated to return. A function of which
neither is certain, such as `def search(ctx):`, is either; then it counts where it is exported.

| object | is |
|---|---|
| a `Tool` of PydanticAI or of Handrail | a tool |
| a toolset of PydanticAI, a section, a factory with its settings, an agent by its name | a toolset |
| a function that is annotated to return a toolset or a section, also `None` or awaited | a factory |
| a function that is annotated to return something else | a tool |
| a function that cannot be called with one argument | a tool |
| any other function, or object that can be called | either |
| a class, a module, an agent of PydanticAI, what cannot be called | neither |
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import ModuleType, NoneType, UnionType
from typing import Any, Literal, Union, cast, get_args, get_origin

from pydantic_ai import RunContext
from pydantic_ai import Tool as PydanticTool
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.toolsets import AbstractToolset

from handrail.agents.exports.entries import AgentReference, ToolsetFactory
from handrail.prompt import Section, Tool
from handrail.prompt.signature import calling_fault, returned_type

What = Literal["tool", "toolset", "factory", "either", "neither"]
"""What an object is."""

_Verdict = Literal["tool", "factory", "either"]

AnyFunction = Callable[..., object]
"""A function, of which it is not known what it takes."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What an object is, as far as that can be known without calling it.

    Attributes:
        what: the kind of thing.
        words: the same for a message: `a toolset (FunctionToolset)`, `a class`, `a constant of type int`.
        cure: what to export instead; empty if that depends on where it is exported.
    """

    what: What
    words: str
    cure: str = ""


_INSTANCES: tuple[tuple[type[Any] | tuple[type[Any], ...], What, str, str], ...] = (
    ((PydanticTool, Tool), "tool", "a tool", ""),
    (AbstractToolset, "toolset", "a toolset", ""),
    (Section, "toolset", "a section, which is a toolset", ""),
    (ToolsetFactory, "toolset", "a factory of toolsets", ""),
    (AgentReference, "toolset", "an agent, which is a toolset", ""),
    (AbstractAgent, "neither", "an agent", "export its functions, or write an agent file and name it in `toolsets:`"),
    (ModuleType, "neither", "a module", "export what is in it"),
)


def evidence(value: object) -> Evidence:
    """What an object is. It is neither called nor changed."""
    if isinstance(value, type):
        return _class(value)
    for kind, what, words, cure in _INSTANCES:
        if isinstance(value, kind):
            return Evidence(what, f"{words} ({type(value).__name__})", cure)
    if value is None:
        return Evidence("neither", "None")
    if not callable(value):
        return Evidence("neither", f"a constant of type {type(value).__name__}")
    return _function(value)


def factory_fault(function: AnyFunction) -> str | None:
    """What keeps a function from being called as a factory, with the cure; `None` if nothing does."""
    fault = _calling_fault(function)
    if fault is None and _verdict(_returned(function)) == "tool":
        fault = f"is annotated to return {_annotation_name(_returned(function))}, which is no toolset"
    if fault is None:
        return None
    name = getattr(function, "__name__", "")
    shown = name if isinstance(name, str) and name.isidentifier() else "make"
    return f"{fault}; a factory takes the run context and returns a toolset: write def {shown}(ctx): ..."


def _class(kind: type[Any]) -> Evidence:
    if issubclass(kind, AbstractToolset | Section):
        return Evidence("neither", f"a class of toolsets ({kind.__name__})", "export an instance, or a factory")
    if issubclass(kind, PydanticTool | Tool):
        return Evidence("neither", f"a class of tools ({kind.__name__})", "export an instance")
    return Evidence("neither", f"a class ({kind.__name__})", "export an instance, or a function")


def _function(function: AnyFunction) -> Evidence:
    verdict = _verdict(_returned(function))
    if verdict == "factory":
        return Evidence("factory", "a factory of toolsets, by its annotation")
    described = "a function"
    if not inspect.isroutine(function):
        described = f"an object that can be called ({type(cast('object', function)).__name__})"
    return Evidence("either" if verdict == "either" and _calling_fault(function) is None else "tool", described)


def _calling_fault(function: AnyFunction) -> str | None:
    try:
        return calling_fault(function, (RunContext,), {})
    except Exception:  # noqa: BLE001 - annotations are the program's own expressions, and may raise anything
        return None


def _returned(function: AnyFunction) -> object:
    try:
        return returned_type(function)
    except Exception:  # noqa: BLE001 - as above
        return Any


def _verdict(annotation: object) -> _Verdict:
    """What a function is that returns what is annotated so."""
    arguments = get_args(annotation)
    kind = get_origin(annotation) or annotation
    if kind is Union or kind is UnionType:
        verdicts: set[_Verdict] = {_verdict(member) for member in arguments if member is not NoneType}
        return verdicts.pop() if len(verdicts) == 1 else "either"
    if kind is Any or kind is object or not isinstance(kind, type):
        return "either"
    if issubclass(kind, Awaitable):
        return _verdict(arguments[-1]) if arguments else "either"
    return "factory" if issubclass(kind, AbstractToolset | Section) else "tool"


def _annotation_name(annotation: object) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)
