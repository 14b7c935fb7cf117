"""What is known of the tools and agents of a project: the names that approval rules can mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from handrail.agents.approval.declared_arguments import Declares, declares
from handrail.agents.approval.matching import Segment

Takes = Literal["yes", "any", "unsure", "no"]
"""Whether a tool takes an argument: it is declared; any is let through; Python may have another name for one; no."""

Parameters = Callable[[], Mapping[str, Any] | None]
"""Gives the JSON Schema of a tool's arguments; `None` if it is not known."""

OtherNames = Callable[[], frozenset[str] | None]
"""Gives the names that arguments may have beside those in the schema: those of parameters, fields and aliases in
Python; `None` if that cannot be known."""


def _nothing() -> None:
    return None


@dataclass(frozen=True, slots=True)
class KnownTool:
    """A tool that a project has, as far as rules can name it.

    Attributes:
        name: what the model calls it by.
        parameters: gives the schema of its arguments. It is called once, because making a schema takes a while.
        other_names: gives other names of them. It is called once, too.
    """

    name: str
    parameters: Parameters = _nothing
    other_names: OtherNames = _nothing

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", cache(self.parameters))
        object.__setattr__(self, "other_names", cache(self.other_names))

    def declares(self, place: tuple[Segment, ...]) -> Declares:
        """Whether the schema of the tool declares an argument in a place; `None` if it may be there all the same."""
        schema = self.parameters()
        return None if schema is None else declares(schema, place)

    def takes(self, place: tuple[Segment, ...]) -> Takes:
        """Whether the tool takes an argument in a place, by whatever name."""
        found = self.declares(place)
        if found is not False:
            return "yes" if found else "any"
        return self.takes_undeclared(place)

    def takes_undeclared(self, place: tuple[Segment, ...]) -> Takes:
        """Whether the tool takes an argument in a place that its schema does not declare."""
        others = self.other_names()
        if others is None:
            return "unsure"
        return "yes" if all(step in others for step in place if isinstance(step, str)) else "no"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownNames:
    """All that is known of a project when its rules are checked.

    Attributes:
        tools: its tools, built-in ones included, and whether or not an agent has them.
        running: the toolsets of its agents whose tools are known only while they run, in words.
        agents: its agents, each with the agents that it can call.
        makes_agents: whether an agent can make others, whose names are known only while it runs.
    """

    tools: tuple[KnownTool, ...] = ()
    running: tuple[str, ...] = ()
    agents: Mapping[str, tuple[str, ...]]
    makes_agents: bool = False
