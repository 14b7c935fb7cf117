"""What an error of a program's own code says, and where it was raised."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic_ai import Tool

from handrail.agents.modules import error_location
from handrail.prompt import Tool as HandrailTool
from handrail.prompt import ToolContext, ToolResult
from handrail.testing import Call, Outcome
from tests.agents.desks import CallLog, called, desk, play
from tests.agents.folders import agent, imported, write
from tests.wording import Wording

HERE = Path(__file__).resolve()


def raised(act: Callable[[], object]) -> Exception:
    """What an act raises."""
    try:
        act()
    except Exception as error:  # noqa: BLE001 - whatever it is
        return error
    raise AssertionError("nothing was raised")


def test_the_place_is_the_innermost_line_of_the_program(tmp_path: Path) -> None:
    """Not that of the library that it called; from the folder of the project, if it lies there."""
    error = raised(lambda: json.loads("{"))
    assert error_location(error, HERE.parent).startswith("test_error_text.py:")
    assert error_location(error, tmp_path).startswith(f"{HERE}:")


def test_a_line_of_the_project_counts_before_others(tmp_path: Path) -> None:
    """Though code of the program that lies elsewhere was called by it."""
    write(tmp_path, {"tools.py": "def act(other):\n    return other()\n"})
    (found,) = imported(tmp_path, "tools.py")[0]
    error = raised(lambda: found.module.act(lambda: json.loads("{")))
    assert error_location(error, tmp_path) == "tools.py:2"


def breaks(text: str) -> str:
    """Break."""
    return str(json.loads(text))


def ours(params: None, *, context: ToolContext) -> ToolResult[str]:
    """Break, as a tool of Handrail's does."""
    raise OSError("no ink")


@pytest.mark.anyio
async def test_people_are_told_where_a_tool_raised_and_the_model_is_not(tmp_path: Path, wording: Wording) -> None:
    """For plain functions and for Handrail's tools, also of an agent that was called; not for what succeeded."""
    log = CallLog()
    tools = [
        Tool(breaks, metadata={"effect": "external"}),
        HandrailTool[None, str](name="ours", description="Breaks.", handler=ours),
    ]
    loaded = desk(tmp_path, tools=tools, also=["clerk"], others={"clerk.agent": agent("clerk", tools="[ours]")})
    first, last = called(
        Call("breaks", {"text": "{"}), Call("breaks", {"text": "1"}), Call("ours"), c1=Outcome.failed("JSONDecodeError")
    )
    await play(loaded, [first, last], listener=log)
    places = {event.call_id: event.raised_at for event in log.ended}
    lines = {name: line for line, name in _lines("return str(json", "raise OSError").items()}
    assert places == {"c1": wording, "c2": "", "c3": f"{HERE}:{lines['raise OSError']}"}
    assert not any(HERE.name in event.content for event in log.ended)


def _lines(*texts: str) -> dict[int, str]:
    """The lines of this file that hold a statement which begins so."""
    numbered = enumerate(HERE.read_text(encoding="utf-8").splitlines(), 1)
    return {number: text for number, line in numbered for text in texts if line.strip().startswith(text)}
