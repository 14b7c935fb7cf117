"""The file suite as a section: its tools, its text, and the filesystems that it works on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from handrail import tool
from handrail.adapters.tool_executor import ToolExecutor
from handrail.contrib.tools import VfsLimits, VfsToolsSection
from handrail.errors import ProviderError, UnboundResourceError
from handrail.filesystem import Filesystem, HostFilesystem, InMemoryFilesystem
from handrail.prompt import Prompt, PromptTemplate, ReadBeforeWritePolicy, ToolsSection
from handrail.runtime import Session, ToolCall
from tests.contrib.suites import SuiteRun
from tests.kit import raises
from tests.wording import Wording


def files(**contents: str) -> InMemoryFilesystem:
    """A filesystem with a plan in it, and these files; `a_md` stands for `a.md`."""
    return InMemoryFilesystem(
        {"notes/plan.md": "# Plan\n"} | {name.replace("_", "."): content for name, content in contents.items()}
    )


def rendered(section: VfsToolsSection) -> str:
    """What the model is told by the section."""
    return Prompt(PromptTemplate(ns="tests", key="files", sections=[section])).render().text


def test_section_brings_the_tools_with_their_effects() -> None:
    """Looking is reading; every tool has an example; descriptions are fixed by default."""
    section = VfsToolsSection()
    looking = ["list_files", "glob_files", "grep_files", "read_file"]
    assert [tool.name for tool in section.tools] == [*looking, "write_file", "edit_file", "remove_file", "move_file"]
    assert [tool.effect for tool in section.tools] == ["read"] * 4 + ["state"] * 4
    assert all(tool.examples for tool in section.tools)
    assert not any(tool.accepts_overrides for tool in section.tools)
    assert all(tool.accepts_overrides for tool in VfsToolsSection(accepts_overrides=True).tools)


def test_text_of_the_section(wording: Wording) -> None:
    """What a model sees."""
    assert rendered(VfsToolsSection()) == wording


def test_text_speaks_of_reading_first_only_where_a_policy_asks_for_it(wording: Wording) -> None:
    """The guidance says what holds."""
    asked, free = (rendered(section).split("\n") for section in (VfsToolsSection(), VfsToolsSection(policies=())))
    assert [line for line in asked if line not in free] == wording
    assert [line for line in asked if line in free] == free


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


def test_file_tools_and_their_policy_are_refused_without_files_when_the_executor_is_made(wording: Wording) -> None:
    """By the name of the tool, also where the tools stand in another section than the one that brings files."""

    @tool
    def put(path: str) -> str:
        """Puts."""
        raise AssertionError(path)

    policy = ReadBeforeWritePolicy(read_tools=("look",), write_tools=("put",))
    look = replace(put, name="look")
    for section in (
        ToolsSection(title="T", tools=VfsToolsSection().tools[-1:]),
        ToolsSection(title="T", tools=[put, look], policies=[policy]),
    ):
        with raises(UnboundResourceError, wording) as caught:
            SuiteRun(section)
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


def test_what_is_no_filesystem_is_refused(wording: Wording) -> None:
    """Where the section is made, not where a call first needs it."""
    no_filesystem: Any = "notes"
    with raises(ProviderError, wording):
        VfsToolsSection(no_filesystem)


def test_a_folder_on_disk_is_seen_as_its_patterns_say(tmp_path: Path, wording: Wording) -> None:
    """The model works on the files on disk, and what is excluded is not there for it."""
    root = tmp_path / "project"
    root.mkdir()
    (root / "a.py").write_text("TODO = 1\n")
    (root / "secret.key").write_text("TODO\n")
    with HostFilesystem(root, exclude=("*.key",), journal=tmp_path / "journal", durability="normal") as source:
        run = SuiteRun(VfsToolsSection(source))
        assert run.told("grep_files", pattern="TODO") == wording
        run.told("read_file", path="a.py")
        run.told("edit_file", path="a.py", old="TODO", new="DONE")
        assert "secret.key" not in run.told("list_files")
        assert not run.call("remove_file", path="secret.key").success
    assert (root / "a.py").read_text() == "DONE = 1\n"
    assert (root / "secret.key").exists()


def test_what_the_limits_of_the_section_allow_is_not_cut_in_the_message() -> None:
    """A policy is told that the file was shown, so all of it must be."""
    text = "some words in a line\n" * 2_000
    run = SuiteRun(VfsToolsSection(files(long_txt=text), limits=VfsLimits(characters=50_000, lines=10_000)))
    message = run.call("read_file", path="long.txt")
    assert not message.is_cut
    assert message.content.endswith(text.rstrip())
