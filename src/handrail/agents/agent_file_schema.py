"""The front matter of agent files as JSON Schema, for editors; published as `docs/agent-file.schema.json`.

It takes what `parse_agent_file` takes, but for what JSON Schema cannot say: that a name may not stand twice in one list
when the two differ only in the blanks around them, and that a pattern must fit paths in a folder. What lies outside the
values is for the parser alone: the YAML itself (keys that stand twice, tags, the limits of `handrail.serde.yaml_tree`),
the lines `---`, and the instructions.
"""

from __future__ import annotations

from typing import Any

from handrail.agents.agent_file import NAME_PATTERN

_COMMENT = (
    "For the front matter of Handrail's agent files, without the lines --- around it. Editors with the YAML language "
    "server take it from a first line '# yaml-language-server: $schema=<path or URL of this file>' in the front matter."
)


def agent_file_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of the front matter."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$comment": _COMMENT,
        "title": "Front matter of a Handrail agent file",
        "type": "object",
        "additionalProperties": False,
        "required": ["name"],
        "properties": {
            "name": {
                "description": "Names the agent; other agents list it under `toolsets`. 1 to 64 of A-Z a-z 0-9 _ -",
                "type": "string",
                "pattern": NAME_PATTERN.replace("^", r"^\s*").replace("$", r"\s*$"),
                "examples": ["refund-desk"],
            },
            "description": {
                "description": "What the agent is for. Other agents that may call it read this.",
                "type": "string",
            },
            "model": {
                "description": "The model, as PydanticAI names it; without it, the project or the caller says which.",
                "type": "string",
                "pattern": r"\S",
                "examples": ["openai:gpt-5.2"],
            },
            "tools": _names("tools: what a module of the project lists in TOOLS or __all__"),
            "toolsets": _names("toolsets: what is built in, what a module lists in TOOLSETS, and other agents"),
            "exclude": {
                "description": "Patterns of paths that do not exist for the agent's file tools; one without a slash "
                "fits a name in any folder. `.git` is excluded anyway.",
                "type": "array",
                "items": {"type": "string", "minLength": 1},
                "examples": [[".env", "*.key", "secrets/**"]],
            },
            "show_git": {
                "description": "Whether `.git` exists for the agent's file tools; it does not without this.",
                "type": "boolean",
            },
        },
    }


def _names(what: str) -> dict[str, Any]:
    return {
        "description": f"Names of {what}. Names only; their settings are made in Python.",
        "type": "array",
        "items": {"type": "string", "pattern": r"\S"},
        "uniqueItems": True,
    }
