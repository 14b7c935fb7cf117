"""The file suite under its default policy: what must be read before it is written to."""

from __future__ import annotations

import pytest

from handrail.contrib.tools import VfsToolsSection
from handrail.filesystem import InMemoryFilesystem
from handrail.prompt import ReadBeforeWritePolicy
from handrail.runtime import ToolCall
from tests.contrib.suites import SuiteRun


def files() -> InMemoryFilesystem:
    """A filesystem with a plan in it."""
    filesystem = InMemoryFilesystem()
    filesystem.write_text("notes/plan.md", "# Plan\n- buy milk\n- sell bread\n")
    return filesystem


def test_policy_of_the_section_agrees_with_its_tools() -> None:
    """The tools that the policy speaks of by default are those of the section."""
    policy = ReadBeforeWritePolicy()
    names = {tool.name for tool in VfsToolsSection().tools}
    assert {*policy.read_tools, *policy.write_tools, *policy.move_tools} < names


def test_existing_file_must_be_read_before_it_is_written_to() -> None:
    """Refused, read, allowed."""
    run = SuiteRun(VfsToolsSection(files()))
    edit = {"path": "notes/plan.md", "old": "milk", "new": "oat milk"}
    assert run.refused("edit_file", **edit).startswith("policy read_before_write denies edit_file")
    assert run.refused("write_file", path="./notes/plan.md", content="").startswith("policy read_before_write denies")
    run.told("read_file", path="notes/plan.md", limit=1)
    run.told("edit_file", **edit)


def test_file_that_has_changed_since_must_be_read_again() -> None:
    """What the model knows of it is no longer true."""
    filesystem = files()
    run = SuiteRun(VfsToolsSection(filesystem))
    edit = {"path": "notes/plan.md", "old": "milk", "new": "oat milk"}
    run.told("read_file", path="notes/plan.md")
    filesystem.write_text("notes/plan.md", "# Plan\n- milk the cow\n")
    assert "has changed since it was read" in run.refused("edit_file", **edit)
    run.told("read_file", path="notes/plan.md")
    run.told("edit_file", **edit)


def test_what_the_model_has_written_itself_it_need_not_read() -> None:
    """A new file is free; edits may follow each other and the write that made the file."""
    filesystem = files()
    run = SuiteRun(VfsToolsSection(filesystem))
    run.told("write_file", path="a.md", content="one two\n")
    run.told("edit_file", path="a.md", old="one", new="1")
    run.told("edit_file", path="a.md", old="two", new="2")
    run.told("write_file", path="a.md", content="done\n")
    assert filesystem.read_text("a.md") == "done\n"


def test_file_must_be_read_before_it_is_removed() -> None:
    """What is gone cannot be looked at any more; what is no text is known once it has been described."""
    filesystem = files()
    filesystem.write_bytes("logo.png", b"a\0")
    run = SuiteRun(VfsToolsSection(filesystem))
    for path in ("notes/plan.md", "logo.png"):
        assert "has not been read yet" in run.refused("remove_file", path=path)
        run.told("read_file", path=path)
        run.told("remove_file", path=path)
        assert not filesystem.exists(path)


def test_lines_that_a_search_has_shown_are_no_read() -> None:
    """They are not the file."""
    run = SuiteRun(VfsToolsSection(files()))
    run.told("grep_files", pattern="milk")
    assert "has not been read yet" in run.refused("remove_file", path="notes/plan.md")


def test_folder_is_removed_when_it_is_said_that_all_of_it_is_meant() -> None:
    """`recursive` is the word for it; nobody reads a thousand files to clear a folder."""
    filesystem = files()
    run = SuiteRun(VfsToolsSection(filesystem))
    assert "is not empty" in run.refused("remove_file", path="notes")
    run.told("remove_file", path="notes", recursive=True)
    assert not filesystem.exists("notes")


def test_file_may_be_moved_unread_and_is_no_better_known_then() -> None:
    """Moving replaces nothing; what is known goes along, and what is not stays unknown."""
    run = SuiteRun(VfsToolsSection(files()))
    run.told("move_file", path="notes/plan.md", new_path="plan.md")
    assert "has not been read yet" in run.refused("write_file", path="plan.md", content="")
    run.told("read_file", path="plan.md")
    run.told("move_file", path="plan.md", new_path="notes/plan.md")
    run.told("edit_file", path="notes/plan.md", old="milk", new="oat milk")
    run.told("move_file", path="notes", new_path="old/notes")
    run.told("write_file", path="old/notes/plan.md", content="")


def test_failed_read_is_no_read() -> None:
    """A part that is not there has shown nothing of the file."""
    run = SuiteRun(VfsToolsSection(files()))
    run.refused("read_file", path="notes/plan.md", offset=9)
    assert "has not been read yet" in run.refused("write_file", path="notes/plan.md", content="")


def test_section_may_do_without_the_policy() -> None:
    """Then files are overwritten unseen."""
    run = SuiteRun(VfsToolsSection(files(), policies=()))
    assert run.told("write_file", path="notes/plan.md", content="") == "Replaced notes/plan.md, 0 bytes."


@pytest.mark.anyio
async def test_write_after_read_in_one_reply_is_judged_after_the_read() -> None:
    """A model may ask for both at once."""
    filesystem = files()
    run = SuiteRun(VfsToolsSection(filesystem))
    calls = [
        ToolCall("1", "read_file", {"path": "notes/plan.md"}),
        ToolCall("2", "edit_file", {"path": "notes/plan.md", "old": "milk", "new": "oat milk"}),
        ToolCall("3", "read_file", {"path": "notes/plan.md"}),
        ToolCall("4", "edit_file", {"path": "notes/plan.md", "old": "milk\n", "new": "milk, bread\n"}),
    ]
    messages = await run.executor.execute_all_async(calls)
    assert [message.success for message in messages] == [True] * 4
    assert "- buy oat milk\n" in messages[2].content
    assert "- buy oat milk, bread\n" in filesystem.read_text("notes/plan.md")
