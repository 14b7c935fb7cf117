"""A result that is not a dataclass is checked inside: a wrong item is the handler's failure, before the commit."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from handrail import store
from handrail.prompt import Tool, ToolContext, ToolResult
from handrail.runtime import Session
from tests.kit import Note, call, executor
from tests.wording import Wording


@dataclass(frozen=True)
class Point:
    x: int = 0


@dataclass(frozen=True)
class Label:
    y: str = ""


def returning(kind: Any, value: Any, **options: Any) -> Tool[Any, Any]:
    """A tool that returns a value, and has written a note."""

    def handler(params: Note, *, context: ToolContext) -> ToolResult[Any]:
        context.session[Note].append(params)
        return ToolResult.ok(value)

    made: Any = Tool[Note, kind]
    tool: Tool[Any, Any] = made(name="list", description="Lists.", handler=handler, **options)
    return tool


@pytest.fixture
def stored(tmp_path: Path) -> Generator[Session]:
    """A stored session."""
    with store.open(f"sqlite:///{tmp_path}/s.db") as opened, Session.open(opened, "s") as session:
        yield session


WRONG = (
    pytest.param(list[Point], [Label()], id="class"),
    pytest.param(list[int], [1, "a"], id="number"),
    pytest.param(list[Literal["a"]], ["a", "b"], id="literal"),
    pytest.param(dict[str, int], {1: 1}, id="key"),
    pytest.param(tuple[int, str], (1, 2), id="text"),
)


@pytest.mark.parametrize("kind, value", WRONG)
@pytest.mark.parametrize("where", ["memory", "store"])
def test_a_wrong_item_fails_the_call(kind: Any, value: Any, where: str, stored: Session, wording: Wording) -> None:
    """Where it is, and what would be right; the changes are undone."""
    session = stored if where == "store" else Session()
    message = executor(returning(kind, value), session=session).execute(call("list"), reply="r")
    assert not message.success
    assert message.content == wording
    assert not session[Note].all()


def test_an_infinite_number_fails_the_call_where_it_would_be_stored(stored: Session, wording: Wording) -> None:
    """In memory nothing is stored, so nothing is refused."""
    tool = returning(list[float], [float("inf")])
    assert executor(tool, session=stored).execute(call("list"), reply="r").content == wording
    assert executor(tool, session=Session()).execute(call("list")).success


def test_a_wrong_item_is_not_answered_from_the_record_as_right(stored: Session) -> None:
    """The same call fails again, as one whose value is of another class."""
    door = executor(returning(list[Point], [Label()]), session=stored)
    assert [door.execute(call("list"), reply="r").success for _ in range(2)] == [False, False]
