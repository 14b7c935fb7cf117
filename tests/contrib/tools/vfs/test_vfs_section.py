"""The file suite as a section: its text, its tools, and the filesystems that it works on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from handrail import tool
from handrail.adapters.tool_executor import ToolExecutor
from handrail.contrib.tools import FileEdited, FileExcerpt, VfsLimits, VfsToolsSection
from handrail.errors import FilesystemError, PromptValidationError, UnboundResourceError
from handrail.filesystem import Filesystem, HostFilesystem, InMemoryFilesystem
from handrail.prompt import PolicyDecision, Prompt, PromptTemplate, ReadBeforeWritePolicy, ToolsSection
from handrail.runtime import Session, ToolCall
from tests.contrib.suites import SuiteRun, rendered
from tests.kit import Decides, raises
from tests.wording import Wording

PLAN = "# Plan\n- buy milk\n- sell bread\n"


def files(**contents: str | bytes) -> InMemoryFilesystem:
    """A filesystem with a plan in it, and these files; `a_md` stands for `a.md`."""
    return InMemoryFilesystem({"notes/plan.md": PLAN, **{name.replace("_", "."): contents[name] for name in contents}})


def free(filesystem: Filesystem, limits: VfsLimits | None = None) -> SuiteRun:
    """A run in which nothing needs to be read first."""
    return SuiteRun(VfsToolsSection(filesystem, policies=(), limits=limits or VfsLimits()))


def test_long_lists_and_searches_are_cut(wording: Wording) -> None:
    """By how much text it is; at least one entry is shown, and what is said of the rest is how to find less."""
    filesystem = InMemoryFilesystem({f"{n:03}.md": "TODO\n" for n in range(200)})
    for most in (60, 1):
        run = free(filesystem, VfsLimits(search_characters=most))
        assert run.told("list_files") == wording
        assert run.told("glob_files", pattern="**") == wording
        assert run.told("grep_files", pattern="TODO") == wording


@pytest.mark.parametrize("tool, arguments", [("grep_files", {"pattern": "TODO"}), ("glob_files", {"pattern": "**"})])
def test_long_search_is_cut_and_read_on(tool: str, arguments: dict[str, object], wording: Wording) -> None:
    """The record has all that was found; the message says how the rest is read."""
    run = free(InMemoryFilesystem({f"{n:03}.md": "TODO\n" for n in range(200)}), VfsLimits(characters=1_000))
    message = run.executor.execute(ToolCall("call-1", tool, arguments), reply="reply-1")
    assert len(message.content) <= 1_000
    assert "100.md" not in message.content
    assert message.content.splitlines()[0] == wording
    assert message.content.splitlines()[-1] == wording
    assert "100.md" in run.told("read_result", call="reply-1/call-1", find="100.md")


def test_what_is_no_text_is_described_by_reading_and_refused_by_editing(wording: Wording) -> None:
    """Binary files, other encodings, and files that are too large."""
    filesystem = files(logo_png=b"a\0", menu_txt=b"a\xe9", large_md="a" * 101)
    run = free(filesystem, VfsLimits(file_bytes=100))
    assert run.told("read_file", path="logo.png") == wording
    assert run.told("read_file", path="menu.txt") == wording
    assert run.told("read_file", path="large.md") == wording
    assert run.refused("edit_file", path="logo.png", old="a", new="b") == wording
    assert run.refused("edit_file", path="large.md", old="a", new="b") == wording
    assert run.session[FileExcerpt].latest() == FileExcerpt("large.md", "", 0, 0, 0, not_shown=wording)


@pytest.mark.parametrize("path", ["nope.md", "../secret", "/etc/passwd", "a\\b", ""])
@pytest.mark.parametrize(
    "tool, arguments", [("read_file", {}), ("edit_file", {"old": "a", "new": "b"}), ("list_files", {})]
)
def test_path_that_leads_nowhere_is_told_as_by_filesystems(tool: str, arguments: dict[str, object], path: str) -> None:
    """Without the name of an exception, and with what to give instead."""
    filesystem = files()
    with pytest.raises(FilesystemError) as caught:
        filesystem.read_text(path)
    assert free(filesystem).refused(tool, path=path, **arguments) == str(caught.value)


def test_edit_that_is_undone_leaves_the_file_as_it_was(wording: Wording) -> None:
    """A call that fails after its handler has written is rolled back, and so is what the policy remembers."""
    filesystem = files()
    run = SuiteRun(VfsToolsSection(filesystem))
    run.told("read_file", path="notes/plan.md")

    def refuse(_event: object) -> None:
        raise RuntimeError("the disk is watched")

    subscription = run.session.dispatcher.subscribe(FileEdited, refuse)
    edit = {"path": "notes/plan.md", "old": "milk", "new": "oat milk"}
    assert run.refused("edit_file", **edit) == wording
    assert filesystem.read_text("notes/plan.md") == PLAN
    subscription.close()
    run.told("edit_file", **edit)
    assert filesystem.read_text("notes/plan.md") == PLAN.replace("milk", "oat milk")


@given(content=st.text(st.characters(exclude_characters="\0\r", exclude_categories=["Cs"]), max_size=80))
def test_what_is_written_reads_the_same(content: str) -> None:
    """Text goes through write and read unchanged, but for the last line end, of which the result tells."""
    run = free(InMemoryFilesystem())
    run.told("write_file", path="a.txt", content=content)
    _, _, text = run.told("read_file", path="a.txt").partition("\n")
    shown = run.session[FileExcerpt].latest()
    assert shown is not None
    end = "\n" if content and shown.ends_with_line_end else ""
    assert f"{text}{end}" == content


def test_text_of_the_section(wording: Wording) -> None:
    """What a model sees; it does not speak of what there is not."""
    for section in (VfsToolsSection(), VfsToolsSection(policies=()), VfsToolsSection(read_only=True)):
        assert rendered(section) == wording


def test_section_alone_brings_files_that_each_prompt_has_for_itself() -> None:
    """They are in memory, are rolled back with a call, and give way to whatever the prompt or its template binds."""
    section = VfsToolsSection(exclude=("*.key",))
    run = SuiteRun(section)
    run.told("write_file", path="a.md", content="a")
    assert not run.call("write_file", path="a.key", content="a").success
    assert run.told("read_file", path="a.md").endswith("\na")
    assert "a.md" not in SuiteRun(section).told("list_files")
    template = PromptTemplate(ns="tests", key="t", sections=[VfsToolsSection()], resources={Filesystem: files(b="b")})
    executor = ToolExecutor(prompt=Prompt(template), session=Session())
    assert "b" in executor.execute(ToolCall("1", "list_files", {})).content.split()


@tool
def put(path: str) -> str:
    """Puts."""
    raise AssertionError(path)


def test_file_tools_and_their_policy_are_refused_without_files(wording: Wording) -> None:
    """When the executor is made, also where the tools stand in another section than the one that brings files."""
    policy = ReadBeforeWritePolicy(read_tools=("look",), write_tools=("put",))
    rows: list[Any] = [(VfsToolsSection().tools[-1:], ()), ([put, replace(put, name="look")], [policy])]
    for tools, policies in rows:
        with raises(UnboundResourceError, wording) as caught:
            SuiteRun(ToolsSection(title="T", tools=tools, policies=policies))
        assert caught.value.__notes__ == [wording]


def test_absolute_path_below_the_root_is_that_path_in_every_tool(tmp_path: Path, wording: Wording) -> None:
    """Also through a link to the root, and for the root itself; outside of it nothing is proposed."""
    root, link = tmp_path / "project", tmp_path / "link"
    root.mkdir()
    link.symlink_to(root)
    with HostFilesystem(link, journal=tmp_path / "journal", durability="normal") as source:
        run = SuiteRun(VfsToolsSection(source))
        run.told("write_file", path=f"{root}/notes/a.md", content="one\n")
        run.told("edit_file", path=f"{link}/notes/../notes/a.md", old="one", new="two")
        run.told("move_file", path=f"{root}/notes/a.md", new_path=f"{root}/b.md")
        run.told("write_file", path="b.md", content="three\n")  # known by what was moved
        for path in (root, link, f"{root}/"):
            assert "b.md (6 bytes)" in run.told("list_files", path=str(path))
        assert "b.md:1:" in run.told("grep_files", pattern="three", path=f"{root}/b.md")
        assert "b.md:1:" in run.told("grep_files", pattern="three", files=f"{root}/*.md")
        assert "b.md (6 bytes)" in run.told("glob_files", pattern=f"{root}/**/b*", path=str(root))
        for path in (f"{root}x/b.md", f"{root}/../b.md", "/", "../b.md"):
            assert run.refused("read_file", path=path) == wording
        run.told("remove_file", path=f"{root}/b.md")


def test_section_works_on_what_the_prompt_binds() -> None:
    """Without a filesystem of its own, and with one: what `bind` binds takes precedence."""
    bound = files(a_md="bound")
    own = SuiteRun(VfsToolsSection(files(a_md="own")))
    assert own.told("read_file", path="a.md").endswith("\nown")
    for section in (VfsToolsSection(), VfsToolsSection(files(a_md="own"))):
        run = SuiteRun(section, resources={Filesystem: bound})
        assert run.told("read_file", path="a.md").endswith("\nbound")


def test_what_the_limits_of_the_section_allow_is_not_cut_in_the_message() -> None:
    """A policy is told that the file was shown, so all of it must be."""
    text = "some words in a line\n" * 2_000
    run = SuiteRun(VfsToolsSection(files(long_txt=text), limits=VfsLimits(characters=50_000, lines=10_000)))
    message = run.call("read_file", path="long.txt")
    assert not message.is_cut
    assert message.content.endswith(text.rstrip())


@pytest.mark.requirement("A-36")
def test_there_are_only_the_tools_that_look() -> None:
    """And each of them reads; the others are the same as without the option."""
    section = VfsToolsSection(files(note_md="# Note\n"), read_only=True)
    assert [tool.name for tool in section.tools] == snapshot(["list_files", "glob_files", "grep_files", "read_file"])
    assert {tool.effect for tool in section.tools} == {"read"}
    run = SuiteRun(section)
    assert run.told("read_file", path="note.md").endswith("\n# Note")
    for name in {entry.name for entry in VfsToolsSection().tools} - {entry.name for entry in section.tools}:
        assert name in run.refused(name, path="note.md")


def test_policies_of_a_program_stay() -> None:
    """The one that has files read before they are written to goes, for there is nothing that writes."""
    assert VfsToolsSection(read_only=True).policies == ()
    no_plans = Decides(
        lambda _, params: PolicyDecision.deny("no plans") if "plan" in str(params) else PolicyDecision.allow()
    )
    run = SuiteRun(VfsToolsSection(files(note_md="# Note\n"), read_only=True, policies=(no_plans,)))
    assert "no plans" in run.refused("read_file", path="notes/plan.md")
    run.told("read_file", path="note.md")
    wrong: Any = 5
    with pytest.raises(PromptValidationError):
        VfsToolsSection(read_only=True, policies=wrong)
