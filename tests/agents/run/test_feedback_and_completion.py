"""Feedback in the messages of a run of an agent, and the check of its answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.toolsets import FunctionToolset

from handrail import tool
from handrail.agents import LoadedAgent, Project, Registry, RunOptions
from handrail.agents.toolsets.builtin import built_ins
from handrail.filesystem import Filesystem, InMemoryFilesystem
from handrail.prompt import FeedbackTrigger, FilesExist, MarkdownSection, StaticFeedback, ToolContext
from handrail.runtime import Session
from handrail.runtime.hooks import FeedbackGiven, SentBack
from handrail.testing import Call, Expect, Outcome, Reply, ScriptedModel
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


def desk() -> MarkdownSection[None]:
    """A section of Handrail."""
    return MarkdownSection(title="Desk", template="Save files.", tools=[save])


def loaded(folder: Path) -> LoadedAgent:
    """An agent with both."""
    registry = Registry.of_python(tools=[], toolsets={"desk": desk(), "money": money()})
    write(folder, {"clerk.agent": "---\nname: clerk\ntoolsets: [desk, money]\n---\nWork.\n"})
    project = Project.load(folder, entries=registry.entries, packages=False)
    return LoadedAgent(project, project.resolve("clerk"))


async def test_a_run_of_an_agent_has_feedback_and_a_check_of_its_answer(tmp_path: Path) -> None:
    """Each toolset has an executor of its own, and all of them have the feedback of the run."""
    session, files = Session(), InMemoryFilesystem()
    advised = {"one": Outcome.ok("Look again."), "two": Outcome.ok("Look again.")}
    replies = [
        Reply(text="Done."),
        Reply(
            calls=[Call("price", {"order": "A-1"}, id="one"), Call("save", {"path": "a.md"}, id="two")],
        ),
        Reply(text="Done now.", expect=Expect(messages=advised)),
    ]
    with ScriptedModel(replies) as model:
        options = RunOptions(
            model=model,
            mode="approve-all",
            session=session,
            resources={Filesystem: files},
            feedback=[StaticFeedback(text="Look again.", trigger=FeedbackTrigger(every_calls=1))],
            completion=FilesExist(["a.md"]),
        )
        result = await loaded(tmp_path).run_async("Do it.", options)
    assert result.output == "Done now."
    assert [each.accepted for each in session[SentBack].all()] == [False, True]
    assert len(session[FeedbackGiven].all()) == 2


async def test_the_files_of_a_built_in_toolset_are_seen(tmp_path: Path, wording: Wording) -> None:
    """By the check of the answer, and by feedback, whichever toolset the call belongs to; excluded paths are not."""
    registry = Registry.of_python(tools=[], toolsets={"money": money()})
    head = "name: clerk\ntoolsets: [money, files]\nexclude: [b.md]"
    write(tmp_path / "project", {"clerk.agent": f"---\n{head}\n---\nWork.\n"})
    root = write(tmp_path / "root", {"b.md": "excluded", "c.md": "there"})
    project = Project.load(tmp_path / "project", built_ins=built_ins(), entries=registry.entries, packages=False)
    replies = [
        Reply(calls=[Call("price", {"order": "A-1"}, id="one")]),
        Reply(text="Done.", expect=Expect(messages={"one": Outcome.ok("A file is there.")})),
        Reply(calls=[Call("write_file", {"path": "a.md", "content": "text"}, id="two")]),
        Reply(text="Done now.", expect=Expect(messages={"two": Outcome.ok("A file is there.")})),
    ]
    session = Session()
    with ScriptedModel(replies) as model:
        options = RunOptions(
            model=model,
            mode="approve-all",
            session=session,
            root=root,
            feedback=[StaticFeedback(text="A file is there.", trigger=FeedbackTrigger(on_file="*.md"))],
            completion=FilesExist(["a.md"]),
        )
        result = await LoadedAgent(project, project.resolve("clerk")).run_async("Do it.", options)
    assert result.output == "Done now."
    assert [each.missing for each in session[SentBack].all()] == [(wording,), ()]
    assert [each.files for each in session[FeedbackGiven].all()] == [("c.md",), ("a.md",)]


async def test_what_is_no_provider_or_checker_is_refused_with_the_options(wording: Wording) -> None:
    """Before a run begins."""
    wrong: Any = ["text"]
    with pytest.raises(ValueError, match="FeedbackProvider"):
        RunOptions(feedback=wrong)
    with pytest.raises(ValueError) as raised:
        RunOptions(completion=wrong[0])
    assert str(raised.value) == wording
