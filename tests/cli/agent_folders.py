"""Agents that the tests of the command run: their folders, their scripts, and the command over them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from textwrap import dedent
from typing import Any

AGENT = """\
---
name: desk
description: Keeps notes.
tools: [look, note]
---
You keep notes.
"""

TOOLS = """\
from pydantic_ai import Tool


def _look() -> str:
    "Looks at the notes."
    return "no notes"


def note(text: str) -> str:
    "Notes something."
    if text == "boom":
        raise RuntimeError("the pen is broken")
    return f"noted {text}"


TOOLS = [Tool(_look, name="look", metadata={"effect": "read"}), note]
"""

PRINTING_AGENT = """\
---
name: desk
tools: [say]
toolsets: [more]
---
You speak.
"""

PRINTING = """\
from pydantic_ai import FunctionToolset
print("the module speaks")
def say() -> str:
    "Speaks."
    print("the tool speaks")
    return "said"
def more(ctx):
    print("the factory speaks")
    return FunctionToolset()
TOOLS = [say]
TOOLSETS = {"more": more}
"""


def write(folder: Path, **files: str) -> Path:
    """Write files below a folder, `__` in their names standing for a dot; give the agent file."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in {"desk__agent": AGENT, "tools__py": TOOLS, **files}.items():
        (folder / name.replace("__", ".")).write_text(dedent(text), encoding="utf-8")
    return folder / "desk.agent"


def script(folder: Path, *replies: dict[str, Any], name: str = "script.yaml") -> str:
    """Write a script, and give the name of the model that plays it."""
    path = folder / name
    path.write_text(json.dumps({"replies": replies}), encoding="utf-8")
    return f"script:{path}"


def call(tool: str, call_id: str = "one", **arguments: object) -> dict[str, Any]:
    """A call of a reply."""
    return {"name": tool, "id": call_id, "arguments": arguments}


def events(out: str) -> Sequence[dict[str, Any]]:
    """What was printed for programs."""
    return [json.loads(line) for line in out.splitlines()]


def noting(folder: Path, *texts: str) -> str:
    """The model that notes texts in one reply, and is done then."""
    calls = [call("note", f"call-{number}", text=text) for number, text in enumerate(texts, 1)]
    return script(folder, {"calls": calls}, {"text": "Done."})
