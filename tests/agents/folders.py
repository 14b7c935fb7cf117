"""Project folders for tests: files from text, and modules imported out of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent
from types import ModuleType

from handrail.agents.modules import ProjectModule, import_modules
from handrail.errors import DiscoveryError

IMPORTS = """
from __future__ import annotations

import functools
from collections.abc import Awaitable, Coroutine
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic_ai import Agent, RunContext, Tool
from pydantic_ai.toolsets import AbstractToolset, DynamicToolset, FunctionToolset

from handrail.agents.registry import AgentReference, FactoryProduct, ToolsetFactory, toolset_factory
from handrail.prompt import Section
from handrail.prompt import Tool as HandrailTool

if TYPE_CHECKING:
    from nowhere import Unknown

T = TypeVar("T")


def ping(text: str) -> str:
    return text


async def later(text: str) -> str:
    return text


def make(ctx: RunContext[Any]) -> FunctionToolset[Any]:
    return FunctionToolset(id="made")
"""


def write(folder: Path, files: Mapping[str, str]) -> Path:
    """Write files of a folder, each by its path from there."""
    for where, text in files.items():
        file = folder / where
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(dedent(text), encoding="utf-8")
    return folder


def imported(folder: Path, *files: str) -> tuple[list[ProjectModule], list[DiscoveryError]]:
    """What comes of importing files of a folder."""
    return import_modules(folder, [Path(file) for file in files])


def module_of(folder: Path, source: str) -> ModuleType:
    """A module `tools.py` of a folder, with a few names imported or defined above what is given."""
    write(folder, {"tools.py": IMPORTS})
    with (folder / "tools.py").open("a", encoding="utf-8") as file:
        file.write(f"\n{dedent(source)}\n")
    (found,) = imported(folder, "tools.py")[0]
    return found.module


def agent(name: str, *, tools: str = "[]", toolsets: str = "[]", front: str = "") -> str:
    """The text of an agent file; `front` has more lines of its front matter."""
    return f"---\nname: {name}\ntools: {tools}\ntoolsets: {toolsets}\n{front}\n---\nYou work at the desk.\n"
