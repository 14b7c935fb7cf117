"""The tools of the agents whose unfinished run lies in the stores beside this folder."""

from __future__ import annotations

from pathlib import Path

from pydantic_ai import Tool

from handrail.adapters.pydantic_ai import tool_context
from tests.store.version_1.desk import Note

WORLD = Path(__file__).parent / "world"
"""The orders that were charged or paid, a line each, as often as it was done."""


def note(text: str) -> str:
    """Take a note."""
    context = tool_context()
    assert context is not None
    context.session[Note].append(Note(text))
    return f"noted {text}"


def charge(order: str) -> str:
    """Charge an order."""
    with WORLD.open("a", encoding="utf-8") as world:
        world.write(f"{order}\n")
    return f"charged {order}"


TOOLS = [
    Tool(note, metadata={"approval": "allow"}),
    Tool(note, name="stamp", metadata={"approval": "ask"}),
    Tool(charge, metadata={"effect": "external"}),
    Tool(charge, name="pay", metadata={"effect": "external", "approval": "ask"}),
]
