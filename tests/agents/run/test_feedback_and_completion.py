"""Feedback in the messages of a run of an agent, and the check of its answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.toolsets import FunctionToolset

from handrail import tool
from handrail.adapters.hooks import FeedbackGiven, SentBack
from handrail.filesystem import Filesystem, InMemoryFilesystem
from handrail.prompt import FeedbackTrigger, FilesExist, MarkdownSection, StaticFeedback, ToolContext
from handrail.runtime import Session
from handrail.testing import Call, Expect, Outcome, Reply
from tests.agents.desks import desk, play
from tests.agents.folders import write
from tests.wording import Wording

pytestmark = pytest.mark.anyio


@tool
def save(path: str, *, context: ToolContext) -> str:
    """Save a file."""
    context.resources.get(Filesystem).write_text(path, "text")
    return f"saved {path}"


def money() -> FunctionToolset[Any]:
    """A toolset of PydanticAI with one tool."""
    toolset = FunctionToolset[Any]()

    @toolset.tool_plain(metadata={"effect": "read"})
    def price(order: str) -> str:
        """The price of an order."""
        return f"{order} costs 64"

    return toolset


SECTION = MarkdownSection[None](title="Desk", template="Save files.", tools=[save])


def advice(text: str, **trigger: Any) -> StaticFeedback:
    """Feedback with that text."""
    return StaticFeedback(text=text, trigger=FeedbackTrigger(**trigger))


async def test_a_run_of_an_agent_has_feedback_and_a_check_of_its_answer(tmp_path: Path) -> None:
    """Each toolset has an executor of its own, and all of them have the feedback of the run."""
    session, files = Session(), InMemoryFilesystem()
    advised = {"one": Outcome.ok("Look again."), "two": Outcome.ok("Look again.")}
    calls = [Call("price", {"order": "A-1"}, id="one"), Call("save", {"path": "a.md"}, id="two")]
    replies = [Reply(text="Done."), Reply(calls=calls), Reply(text="Done now.", expect=Expect(messages=advised))]
    result = await play(
        desk(tmp_path, toolsets={"own": SECTION, "money": money()}),
        replies,
        session=session,
        resources={Filesystem: files},
        feedback=[advice("Look again.", every_calls=1)],
        completion=FilesExist(["a.md"]),
    )
    assert result.output == "Done now."
    assert [each.accepted for each in session[SentBack].all()] == [False, True]
    assert len(session[FeedbackGiven].all()) == 2


async def test_the_files_of_a_built_in_toolset_are_seen(tmp_path: Path, wording: Wording) -> None:
    """By the check of the answer, and by feedback, whichever toolset the call belongs to; excluded paths are not."""
    root = write(tmp_path / "root", {"b.md": "excluded", "c.md": "there"})
    agent = desk(tmp_path / "project", toolsets={"money": money()}, also=["files"], front="exclude: [b.md]")
    replies = [
        Reply(calls=[Call("price", {"order": "A-1"}, id="one")]),
        Reply(text="Done.", expect=Expect(messages={"one": Outcome.ok("A file is there.")})),
        Reply(calls=[Call("write_file", {"path": "a.md", "content": "text"}, id="two")]),
        Reply(text="Done now.", expect=Expect(messages={"two": Outcome.ok("A file is there.")})),
    ]
    session = Session()
    result = await play(
        agent,
        replies,
        session=session,
        root=root,
        feedback=[advice("A file is there.", on_file="*.md")],
        completion=FilesExist(["a.md"]),
    )
    assert result.output == "Done now."
    assert [each.missing for each in session[SentBack].all()] == [(wording,), ()]
    assert [each.files for each in session[FeedbackGiven].all()] == [("c.md",), ("a.md",)]
