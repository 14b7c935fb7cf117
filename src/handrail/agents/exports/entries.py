"""What a registry holds: tools and toolsets by name, each with where it comes from.

A tool is one of PydanticAI's or of Handrail's; a plain function becomes one of Handrail's. A toolset is one of
PydanticAI's, a section of Handrail's, a factory of either, or an agent. What a program registers is kept as it is, the
very same object, unless it is a function.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic_ai import RunContext
from pydantic_ai import Tool as PydanticTool
from pydantic_ai.toolsets import AbstractToolset

from handrail.prompt import Section, Tool

Kind = Literal["tool", "toolset"]
"""The two namespaces: one name may be in both for different things."""

FactoryProduct = AbstractToolset[Any] | Section[Any] | None
"""What a factory may return; `None` for no tools."""

FactoryFunction = Callable[[RunContext[Any]], FactoryProduct | Awaitable[FactoryProduct]]
"""Makes a toolset when a run begins: takes PydanticAI's run context, plain or `async`."""

ToolDef = PydanticTool[Any] | Tool[Any, Any]
"""What stands behind the name of a tool."""


@dataclass(frozen=True, slots=True)
class ToolsetFactory:
    """A function that makes a toolset, and how often it is asked to. Made by `toolset_factory`.

    Attributes:
        function: takes the run context, and returns a toolset, a section, or `None`; plain or `async`.
        per_run_step: whether it is called at every step of a run; otherwise once for each run.
        known_tools: gives the tools that it makes, by name, before it is called; `None` if only a run shows them. They
            are declared as those of a run will be, and work on nothing.
    """

    function: FactoryFunction
    per_run_step: bool = False
    known_tools: Callable[[], Mapping[str, ToolDef]] | None = None

    @property
    def qualname(self) -> str:
        """The name of the function, for messages."""
        return getattr(self.function, "__qualname__", type(self.function).__qualname__)

    @property
    def is_built_in(self) -> bool:
        """Whether the function is one of Handrail, whose name is not for people."""
        return getattr(self.function, "__module__", "").partition(".")[0] == __name__.partition(".")[0]


def toolset_factory(function: FactoryFunction, *, per_run_step: bool = False) -> ToolsetFactory:
    """Export a factory together with its settings.

    Write `TOOLSETS = {"desk": toolset_factory(make_desk, per_run_step=True)}`. A bare function in `TOOLSETS` is called
    once for each run, where PydanticAI's own default is each step.
    """
    return ToolsetFactory(function, per_run_step)


@dataclass(frozen=True, slots=True)
class AgentReference:
    """An agent as a toolset of one tool, which runs it.

    Attributes:
        name: the agent.
    """

    name: str


ToolsetDef = AbstractToolset[Any] | Section[Any] | ToolsetFactory | AgentReference
"""What stands behind the name of a toolset."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where an entry comes from, for messages.

    Attributes:
        kind: whether Handrail brings it, a module of the project, an installed package, an agent file, or a program.
        where: the file below the project folder, or the package with its entry point; empty for what is built in.
    """

    kind: Literal["built-in", "module", "package", "agent", "program"]
    where: str = ""

    def __str__(self) -> str:
        """In words: `built-in`, `tools.py`, `package shop-tools (entry point refunds)`."""
        if self.kind == "package":
            return f"package {self.where}"
        return self.where or self.kind


BUILT_IN = Origin("built-in")
"""The origin of what Handrail brings."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A registered tool or toolset.

    Attributes:
        name: what agent files call it by.
        kind: the namespace of the name.
        value: the very object that was registered.
        origin: where it comes from.
    """

    name: str
    kind: Kind
    value: ToolDef | ToolsetDef
    origin: Origin

    @property
    def label(self) -> str:
        """In words, for messages: `tool ping (tools.py)`, `toolset files (built-in)`."""
        return f"{self.kind} {self.name} ({self.origin})"
