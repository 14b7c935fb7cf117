"""A tool, and the types of a section, for the tests of this folder."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from handrail.prompt import Tool, ToolContext, ToolResult


@dataclass(frozen=True)
class Lookup:
    """What to look up."""

    entity_id: str = field(metadata={"description": "ID to fetch"})
    limit: int = 5


@dataclass(frozen=True)
class Found:
    """What was found."""

    url: str

    def render(self) -> str:
        return f"found at {self.url}"


@dataclass(frozen=True)
class Guidance:
    """The parameters of a section."""

    tool: str
    audience: str = "beginners"


def look_up(params: Lookup, *, context: ToolContext) -> ToolResult[Found]:
    """The handler."""
    return ToolResult.ok(Found(f"https://example.com/{params.entity_id}"), "Fetched")


def lookup_tool(**changes: object) -> Tool[Lookup, Found]:
    """A tool that is declared well, but for the changes."""
    declared: dict[str, Any] = {"name": "lookup", "description": "Looks an entity up.", "handler": look_up}
    declared.update(changes)
    return Tool[Lookup, Found](**declared)


def named_tool(name: str) -> Tool[None, None]:
    """A tool of that name that takes nothing and gives nothing."""
    return Tool[None, None](name=name, description=f"Does {name}.")
