"""Paths of `pathlib` in the parameters of tools, and what is not a path."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import InvalidReturnError
from handrail.filesystem import Filesystem, InMemoryFilesystem
from handrail.prompt import Prompt, PromptTemplate, ReadBeforeWritePolicy, Section, Tool, ToolContext, ToolResult
from handrail.runtime import Session, ToolCall
from tests.wording import Wording


@dataclass(frozen=True)
class At:
    """Parameters with a path."""

    path: Path


@dataclass(frozen=True)
class FromTo:
    """Parameters of a move."""

    path: Path
    new_path: Path


def read(params: At, *, context: ToolContext) -> ToolResult[str]:
    """Read."""
    return ToolResult.ok(context.resources.get(Filesystem).read_text(params.path.as_posix()))


def write(params: At, *, context: ToolContext) -> ToolResult[None]:
    """Write."""
    context.resources.get(Filesystem).write_text(params.path.as_posix(), "new")
    return ToolResult.ok(None, "written")


def move(params: FromTo, *, context: ToolContext) -> ToolResult[None]:
    """Move."""
    context.resources.get(Filesystem).move(params.path.as_posix(), params.new_path.as_posix())
    return ToolResult.ok(None, "moved")


READ = Tool[At, str](name="read_file", description="Reads.", handler=read, effect="read")
WRITE = Tool[At, None](name="write_file", description="Writes.", handler=write)
MOVE = Tool[FromTo, None](name="move_file", description="Moves.", handler=move)


def door(*tools: Tool[Any, Any], policy: ReadBeforeWritePolicy | None = None) -> ToolExecutor:
    """An executor over one file."""
    policies = [policy or ReadBeforeWritePolicy()]
    section = Section(title="Files", tools=tools, policies=policies)
    prompt = Prompt(PromptTemplate(ns="t", key="t", sections=[section]))
    files = InMemoryFilesystem({"a.md": "old"})
    return ToolExecutor(prompt=prompt.bind(resources={Filesystem: files}), session=Session())


def test_paths_of_pathlib_are_held_back_read_and_moved(wording: Wording) -> None:
    """The call failed with an `AttributeError` of the policy before."""
    executor = door(READ, WRITE, MOVE)

    def call(name: str, **arguments: str) -> str:
        return executor.execute(ToolCall("c", name, arguments)).content

    assert call("write_file", path="a.md") == wording
    assert call("read_file", path="./a.md") == "old"
    assert call("move_file", path="a.md", new_path="b.md") == "moved"
    assert call("write_file", path="b.md") == "written"


@pytest.mark.parametrize("returned", [7, [7], object()], ids=["number", "list", "object"])
def test_a_path_of_that_returns_no_path_is_a_mistake_of_the_developer(returned: Any, wording: Wording) -> None:
    """The model is not told of it."""
    executor = door(READ, WRITE, policy=ReadBeforeWritePolicy(find_paths=lambda _: returned))
    with pytest.raises(InvalidReturnError) as raised:
        executor.execute(ToolCall("c", "write_file", {"path": "a.md"}))
    assert re.sub(" at 0x[0-9a-f]+", "", str(raised.value)) == wording
