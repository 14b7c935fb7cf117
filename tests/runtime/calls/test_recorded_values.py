"""A call that is answered from its record has a value of its declared type."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from handrail import store
from handrail.prompt import Tool, ToolContext, ToolResult
from handrail.runtime import Session, ToolCall, ToolMessage
from tests.kit import Note, executor


@dataclass(frozen=True)
class Approve:
    """An answer."""

    why: str


@dataclass(frozen=True)
class Reject:
    """The other one."""

    reason: str


def returns(kind: Any, value: Any) -> Tool[Any, Any]:
    """A tool that returns a value of a type."""

    def handler(params: Note, *, context: ToolContext) -> ToolResult[Any]:
        return ToolResult.ok(value)

    made: Any = Tool[Note, kind]
    returned: Tool[Any, Any] = made(name="look", description="Looks.", handler=handler)
    return returned


def answered(folder: Path, *tools: Tool[Any, Any]) -> ToolMessage:
    """The same call, made of these tools; each in a session that has been opened anew."""
    message = None
    for each in tools:
        with store.open(f"sqlite:///{folder}/s.db") as opened, Session.open(opened, "s") as session:
            message = executor(each, session=session).execute(ToolCall("c", "look", '{"text": "a"}'), reply="r")
    assert message is not None
    return message


VALUES: dict[str, tuple[Any, Any]] = {
    "dataclasses": (list[Approve], [Approve("a")]),
    "by name": (dict[str, Approve | Reject], {"x": Reject("a")}),
    "a set": (set[int], {1, 2}),
    "a tuple": (tuple[int, ...], (1, 2)),
    "bytes": (bytes, b"hi"),
    "moments": (list[datetime], [datetime.fromisoformat("2026-01-31T12:00:00+00:00")]),
    "a text": (str, "a"),
    "a dataclass of two": (Approve | Reject, Reject("a")),
    "keys that are numbers": (dict[int, str], {1: "a"}),
    "nothing in it": (list[Approve], []),
    "nothing": (None, None),
}


@pytest.mark.parametrize("kind, value", VALUES.values(), ids=VALUES)
def test_a_value_comes_back_as_its_declared_type(kind: Any, value: Any, tmp_path: Path) -> None:
    """After the first answer, and after a record that was read and stored again; the model reads the same."""
    looking = returns(kind, value)
    first = answered(tmp_path, looking)
    again = answered(tmp_path, looking, looking)
    assert (first.replayed, again.replayed) == (False, True)
    assert again.result.value == value
    assert type(again.result.value) is type(value)
    assert (again.content, again.success) == (first.content, True)


def test_a_value_that_no_longer_fits_is_given_as_json(tmp_path: Path) -> None:
    """The record stands, whatever has become of the tool."""
    message = answered(tmp_path, returns(list[Approve], [Approve("a")]), returns(set[int], {1}))
    assert (message.replayed, message.result.value) == (True, [{"why": "a"}])
