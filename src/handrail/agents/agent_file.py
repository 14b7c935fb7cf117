"""Agent files: YAML front matter that names model, tools and toolsets, and the instructions as body."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFile:
    """What an agent file says.

    Attributes:
        name: names the agent, as a toolset for others too: `^[A-Za-z0-9_-]{1,64}$`.
        description: what the agent is for; empty if the file does not say.
        model: the name of the model, e.g. `openai:gpt-5.2`; `None` if the file leaves it open.
        tools: names of tools, in the order of the file.
        toolsets: names of toolsets, in the order of the file.
        instructions: the body.
        path: the file; `None` for an agent that was made without one.
    """

    name: str
    instructions: str
    description: str = ""
    model: str | None = None
    tools: tuple[str, ...] = ()
    toolsets: tuple[str, ...] = ()
    path: Path | None = None
