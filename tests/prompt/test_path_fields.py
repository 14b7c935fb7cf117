"""Which tools `ReadBeforeWritePolicy` can judge by the fields of their parameters, and paths of `pathlib`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, make_dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Generic, Literal, NewType, TypeVar

import pytest
from typing_extensions import TypeAliasType

from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import InvalidReturnError, PromptValidationError
from handrail.filesystem import Filesystem, InMemoryFilesystem
from handrail.prompt import Prompt, PromptTemplate, ReadBeforeWritePolicy, Section, Tool, ToolContext, ToolResult
from handrail.prompt.policies.read_before_write import fault_of_path_field
from handrail.runtime import Session, ToolCall
from tests.wording import Wording

Name = NewType("Name", str)
T = TypeVar("T")
Alias = TypeAliasType("Alias", str)


@dataclass(frozen=True)
class Position:
    """Not a path."""

    line: int


PATHS = [
    *(str, Path, PurePosixPath, Name, Path | None, Annotated[str, "a path"], Literal["a.md"], list[str]),
    *(Sequence[Path], tuple[Path, ...], frozenset[str], list[str] | str, Any, int | str, Alias),
]
OTHERS = [int, Position, dict[str, str], list[int], int | None, Literal[1, 2], tuple[int, ...], Annotated[int, "x"]]


@pytest.mark.parametrize("kind", PATHS, ids=repr)
def test_a_field_that_may_hold_a_path_passes(kind: object) -> None:
    """Text, a path of `pathlib`, several, or what cannot be known."""
    assert fault_of_path_field("path", kind) is None


@pytest.mark.parametrize("kind", OTHERS, ids=repr)
def test_a_field_that_certainly_holds_no_path_is_named(kind: object, wording: Wording) -> None:
    """With the type that it has."""
    fault = fault_of_path_field("path", kind)
    assert fault is not None
    assert fault == wording


def test_a_move_has_one_target() -> None:
    """`new_path` is one path, not several."""
    assert fault_of_path_field("new_path", Path) is None
    assert fault_of_path_field("new_path", list[str]) is not None


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


def odd(name: str, **fields: Any) -> Tool[Any, Any]:
    """A tool without a handler over these fields."""
    kind = make_dataclass("Odd", list(fields.items()), frozen=True)
    return Tool[kind, None](name=name, description="Odd.")  # type: ignore[valid-type]


@pytest.mark.parametrize(
    "tool",
    [
        odd("write_file", path=int),
        odd("read_file", path=Position),
        odd("edit_file", file_path=list[int]),
        odd("move_file", path=str, new_path=int),
    ],
    ids=lambda tool: tool.name,
)
def test_a_prompt_refuses_a_tool_whose_path_is_none(tool: Tool[Any, Any], wording: Wording) -> None:
    """When it is made; the message names the tool, the policy, the field and the cure."""
    tools = [tool] if tool.name == "read_file" else [READ, tool]
    with pytest.raises(PromptValidationError) as caught:
        door(*tools)
    assert (caught.value.tool, caught.value.section_path) == (tool.name, ("files",))
    assert str(caught.value) == wording


def test_path_of_lifts_it_and_other_tools_are_not_looked_at() -> None:
    """Who says where the path is need not name a field for it; without one each call is refused, not the tool."""
    policy = ReadBeforeWritePolicy(path_of=lambda params: f"{params.path}.md")
    door(READ, odd("write_file", path=int), policy=policy)
    door(READ, odd("read_file_info", path=int))
    door(READ, odd("write_file", target=str))
    door(READ, Tool[None, None](name="write_file", description="Writes."))


@dataclass(frozen=True)
class Of(Generic[T]):
    """Parameters of some type."""

    path: T


def test_the_types_of_generic_parameters_are_known(wording: Wording) -> None:
    """By what stands in their brackets."""
    door(READ, Tool[Of[str], None](name="write_file", description="Writes."))
    with pytest.raises(PromptValidationError) as raised:
        door(READ, Tool[Of[int], None](name="write_file", description="Writes."))
    assert str(raised.value) == wording


@pytest.mark.parametrize("returned", [7, [7], object()], ids=["number", "list", "object"])
def test_a_path_of_that_returns_no_path_is_a_mistake_of_the_developer(returned: Any, wording: Wording) -> None:
    """The model is not told of it."""
    executor = door(READ, WRITE, policy=ReadBeforeWritePolicy(path_of=lambda _: returned))
    with pytest.raises(InvalidReturnError) as raised:
        executor.execute(ToolCall("c", "write_file", {"path": "a.md"}))
    assert re.sub(" at 0x[0-9a-f]+", "", str(raised.value)) == wording
