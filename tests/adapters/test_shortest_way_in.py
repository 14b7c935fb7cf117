"""An executor over a plain list of tools, and a session that its store opens."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from handrail import ToolExecutor, store, tool
from handrail.errors.developer import InvalidArgumentError
from handrail.filesystem import Filesystem, InMemoryFilesystem
from handrail.prompt import Prompt, PromptTemplate, ToolsSection
from handrail.runtime import Session, ToolCall
from tests.wording import Wording


@tool(effect="external")
def pay(order: str) -> str:
    """Pay an order."""
    return f"{order} is paid"


@tool
def note(order: str, files: Filesystem) -> str:
    """Note an order."""
    files.write_text("orders.txt", order)
    return "noted"


CALL = ToolCall("1", "pay", {"order": "A-1"})


def test_a_list_of_tools_is_a_prompt_with_one_section(tmp_path: Path) -> None:
    """The session is recorded in the store, and knows the call again."""
    for is_repeat in (False, True):
        with store.open(f"sqlite:///{tmp_path}/desk.db") as db, db.session("desk") as session:
            desk = ToolExecutor([pay], session=session)
            message = desk.execute(CALL, reply="r")
        assert (message.content, message.replayed) == ("A-1 is paid", is_repeat)
        assert "Tools" in desk.text
        assert [each.name for each in desk.tools] == ["pay"]


def test_resources_are_bound_to_the_list_or_to_the_prompt() -> None:
    """As `Prompt.bind` does."""
    section = ToolsSection(title="Desk", tools=[note])
    prompt = Prompt(PromptTemplate(ns="tests", key="desk", sections=[section]))
    for given in cast("tuple[dict[str, Any], ...]", ({"tools": [note]}, {"prompt": prompt})):
        files = InMemoryFilesystem()
        desk = ToolExecutor(session=Session(), resources={Filesystem: files}, **given)
        assert desk.execute(ToolCall("1", "note", {"order": "A-1"})).success
        assert files.read_text("orders.txt") == "A-1"


@pytest.mark.parametrize(
    "given",
    [{}, {"tools": [pay], "prompt": Prompt.from_tools([pay])}, {"tools": pay}],
    ids=["neither", "both", "a tool that is in no list"],
)
def test_an_executor_has_tools_or_a_prompt(given: dict[str, object], wording: Wording) -> None:
    """The message says how each is given."""
    with pytest.raises(InvalidArgumentError) as refused:
        ToolExecutor(session=Session(), **given)  # type: ignore[arg-type]  # what is refused
    assert str(refused.value) == wording
