"""The file suite through the whole pipeline: what the model reads, and what becomes of the files."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from handrail.contrib.tools import FileEdited, FileExcerpt, FileWritten, VfsLimits, VfsToolsSection
from handrail.errors import DuplicateBindingError, FilesystemError, ProviderError
from handrail.filesystem import Filesystem, InMemoryFilesystem
from handrail.prompt import Prompt, PromptTemplate
from handrail.resources import ResourceRegistry
from tests.contrib.suites import SuiteRun

PLAN = "# Plan\n- buy milk\n- sell bread\n"


def files(**contents: str | bytes) -> InMemoryFilesystem:
    """A filesystem with a plan in it, and these files; `a_md` stands for `a.md`."""
    filesystem = InMemoryFilesystem()
    filesystem.write_text("notes/plan.md", PLAN)
    for name, content in contents.items():
        data = content.encode() if isinstance(content, str) else content
        filesystem.write_bytes(name.replace("_", "."), data)
    return filesystem


def free(filesystem: Filesystem, limits: VfsLimits | None = None) -> SuiteRun:
    """A run in which nothing needs to be read first."""
    return SuiteRun(VfsToolsSection(filesystem, policies=(), limits=limits or VfsLimits()))


def rendered(section: VfsToolsSection) -> str:
    """What the model is told by the section."""
    return Prompt(PromptTemplate(ns="tests", key="files", sections=[section])).render().text


def test_section_brings_the_four_tools_with_their_effects() -> None:
    """Listing and reading are reads; every tool has an example; descriptions are fixed by default."""
    section = VfsToolsSection()
    assert {tool.name: tool.effect for tool in section.tools} == {
        "list_files": "read",
        "read_file": "read",
        "write_file": "state",
        "edit_file": "state",
    }
    assert all(tool.examples for tool in section.tools)
    assert not any(tool.accepts_overrides for tool in section.tools)
    assert all(tool.accepts_overrides for tool in VfsToolsSection(accepts_overrides=True).tools)


def test_text_of_the_section() -> None:
    """What a model sees."""
    assert rendered(VfsToolsSection()) == snapshot("""\
## 1. Files

Work on files with these tools. A path is relative to the root of the filesystem, with forward slashes, such as
`notes/plan.md`; `.` is the root.

**Tools**

- `list_files` shows what a folder holds; with a `pattern` such as `**/*.md`, what fits it at any depth.
- `read_file` shows the text of a file. The first line of the result says which part of the file follows and how to go
  on; it is not in the file. Everything below that line is the file's text, exactly.
- `write_file` makes a file, or replaces all that is in it.
- `edit_file` replaces one piece of text and leaves the rest of the file as it is. To change a part of a file, prefer it
  to `write_file`.

**Rules**

- Read a file before you write to it, and again if it has changed since. A new file you may write at once, and what
  you have written yourself you need not read.
- Copy `old` exactly from what `read_file` shows, with its spaces and line breaks, and take enough of it
  that it occurs only once in the file. To change every occurrence, set `replace_all`.
- Line ends are shown as LF. `edit_file` keeps those that the file has.
- A call that fails has changed nothing. Its message says what to do instead.\
""")


def test_text_speaks_of_reading_first_only_where_a_policy_asks_for_it() -> None:
    """The guidance says what holds."""
    assert "Read a file before you write to it" in rendered(VfsToolsSection())
    assert "Read a file before you write to it" not in rendered(VfsToolsSection(policies=()))


def test_without_a_filesystem_the_model_is_told_what_to_bind() -> None:
    """The section alone has no files; neither reads nor writes fail in another way."""
    run = SuiteRun(VfsToolsSection(policies=()))
    told = run.refused("list_files")
    assert told == snapshot(
        "there are no files here: the program binds no Filesystem. It can do so by VfsToolsSection(filesystem) or "
        "by prompt.bind(resources={Filesystem: filesystem}). Do without the file tools."
    )
    assert run.refused("write_file", path="a.txt", content="a") == told


def test_section_works_on_what_the_prompt_binds() -> None:
    """Without a filesystem of its own, and with one: what `bind` binds takes precedence."""
    bound = files(a_md="bound")
    own = SuiteRun(VfsToolsSection(files(a_md="own")))
    assert own.told("read_file", path="a.md").endswith("\nown")
    for section in (VfsToolsSection(), VfsToolsSection(files(a_md="own"))):
        run = SuiteRun(section, resources={Filesystem: bound})
        assert run.told("read_file", path="a.md").endswith("\nbound")


def test_section_keeps_the_resources_it_is_given() -> None:
    """The filesystem is bound beside them; two filesystems in one section are a mistake."""
    given_resources: list[ResourceRegistry | dict[type[object], object]] = [
        {InMemoryFilesystem: files()},
        ResourceRegistry.build({InMemoryFilesystem: files()}),
    ]
    for resources in given_resources:
        registry = VfsToolsSection(files(), resources=resources).registry
        assert InMemoryFilesystem in registry
        assert Filesystem in registry
    with pytest.raises(DuplicateBindingError):
        VfsToolsSection(files(), resources={Filesystem: files()})


def test_what_is_no_filesystem_is_refused() -> None:
    """Where the section is made, not where a call first needs it."""
    no_filesystem: Any = "notes"
    with pytest.raises(ProviderError, match="no Filesystem"):
        VfsToolsSection(no_filesystem)


def test_folder_is_listed() -> None:
    """The root by default, one level."""
    assert free(files(a_md="a")).told("list_files") == snapshot("""\
.: 2 entries.
a.md (1 byte)
notes/\
""")


def test_pattern_is_relative_to_the_folder() -> None:
    """Characters of a folder's name that mean something in a pattern mean themselves."""
    filesystem = files()
    filesystem.write_text("odd[1]*/deep/a.py", "")
    filesystem.write_text("odd1/b.py", "")
    run = free(filesystem)
    assert run.told("list_files", pattern="**/*.py") == snapshot("""\
**/*.py in .: 2 entries.
odd1/b.py (0 bytes)
odd[1]*/deep/a.py (0 bytes)\
""")
    assert run.told("list_files", path="./odd[1]*/", pattern="**/*.py") == snapshot("""\
**/*.py in odd[1]*: 1 entry.
odd[1]*/deep/a.py (0 bytes)\
""")


def test_long_list_is_shown_in_parts() -> None:
    """By number, and by how much text it is; whoever goes on as told sees all of it."""
    filesystem = InMemoryFilesystem()
    for number in range(5):
        filesystem.write_text(f"{number}{'x' * 50}.md", "")
    run = free(filesystem, VfsLimits(entries=2))
    assert run.told("list_files").startswith(".: entries 1 to 2 of 5. Go on with offset=3,")
    assert run.told("list_files", offset=5).startswith(".: entry 5 of 5.\n4xxx")
    short = free(filesystem, VfsLimits(characters=150))
    assert short.told("list_files").startswith(".: entries 1 to 2 of 5.")
    assert free(filesystem, VfsLimits(characters=1)).told("list_files").startswith(".: entry 1 of 5.")


def test_entry_beyond_the_end_is_refused_with_how_many_there_are() -> None:
    """An empty folder may be listed from its start."""
    run = free(InMemoryFilesystem())
    assert run.told("list_files") == ".: the folder is empty."
    assert run.refused("list_files", offset=2) == "$.offset: there are 0 entries, so there is none at 2."


def test_file_is_read_exactly() -> None:
    """One line about the file, then the file."""
    assert (
        free(files()).told("read_file", path="./notes//plan.md") == f"notes/plan.md: all of it, 3 lines.\n{PLAN[:-1]}"
    )


def test_value_of_a_read_is_the_part_that_was_shown() -> None:
    """What is recorded is no larger than what the model reads."""
    run = free(files(a_md="a\n" * 100), VfsLimits(lines=2))
    run.told("read_file", path="a.md")
    assert run.session[FileExcerpt].latest() == FileExcerpt("a.md", "a\na", 1, 2, 100)


@pytest.mark.parametrize("tool, arguments", [("read_file", {}), ("edit_file", {"old": "a", "new": "b"})])
def test_what_is_no_text_is_refused_by_reading_and_editing(tool: str, arguments: dict[str, object]) -> None:
    """Binary files, other encodings, and files that are too large; nothing is changed."""
    filesystem = files(logo_png=b"a\0", menu_txt=b"a\xe9", large_md="a" * 101)
    run = free(filesystem, VfsLimits(file_bytes=100))
    assert "is binary" in run.refused(tool, path="logo.png", **arguments)
    assert "is not UTF-8 text" in run.refused(tool, path="menu.txt", **arguments)
    assert run.refused(tool, path="large.md", **arguments) == snapshot(
        "large.md has 101 bytes, and the file tools take files of at most 100. Leave this file alone."
    )


@pytest.mark.parametrize("path", ["nope.md", "../secret", "/etc/passwd", "a\\b", ""])
@pytest.mark.parametrize(
    "tool, arguments", [("read_file", {}), ("edit_file", {"old": "a", "new": "b"}), ("list_files", {})]
)
def test_path_that_leads_nowhere_is_told_in_the_words_of_the_filesystem(
    tool: str, arguments: dict[str, object], path: str
) -> None:
    """Without the name of an exception, and with what to give instead."""
    filesystem = files()
    with pytest.raises(FilesystemError) as caught:
        filesystem.read_text(path)
    assert free(filesystem).refused(tool, path=path, **arguments) == str(caught.value)


def test_folder_in_place_of_a_file_is_told() -> None:
    """And the other way round."""
    run = free(files())
    assert run.refused("read_file", path="notes").startswith("'notes' is a folder")
    assert run.refused("write_file", path="notes", content="a").startswith("'notes' is a folder")
    assert run.refused("list_files", path="notes/plan.md").startswith("'notes/plan.md' is a file")


def test_write_makes_or_replaces_a_file_with_exactly_the_content() -> None:
    """Line ends are as they are given, and folders are made."""
    filesystem = files()
    run = free(filesystem)
    assert run.told("write_file", path="a/b/c.txt", content="one\r\ntwo") == "Created a/b/c.txt, 8 bytes."
    assert filesystem.read_bytes("a/b/c.txt") == b"one\r\ntwo"
    assert run.told("write_file", path="a/b/c.txt", content="") == "Replaced a/b/c.txt, 0 bytes."
    assert run.session[FileWritten].all() == (FileWritten("a/b/c.txt", True, 8), FileWritten("a/b/c.txt", False, 0))


def test_edit_changes_one_piece_and_keeps_line_ends_and_the_end_of_the_file() -> None:
    """CRLF stays CRLF, and a file without a last line end stays without."""
    filesystem = files(a_md="one\r\ntwo\r\nthree")
    assert free(filesystem).told("edit_file", path="a.md", old="two\nthree", new="2\n2\n3") == snapshot(
        "Edited a.md: 1 replacement, at line 2."
    )
    assert filesystem.read_bytes("a.md") == b"one\r\n2\r\n2\r\n3"


def test_edit_that_is_refused_leaves_the_file_as_it_is() -> None:
    """The message comes from the text; the file is not touched."""
    filesystem = files()
    told = free(filesystem).refused("edit_file", path="notes/plan.md", old="- buy bread", new="- bake bread")
    assert told == snapshot("""\
$.old does not occur in notes/plan.md. The nearest lines are:
3: "- sell bread"
Copy old exactly from what read_file shows, with every space.\
""")
    assert filesystem.read_text("notes/plan.md") == PLAN


def test_edit_that_is_undone_leaves_the_file_as_it_was() -> None:
    """A call that fails after its handler has written is rolled back, and so is what the policy remembers."""
    filesystem = files()
    run = SuiteRun(VfsToolsSection(filesystem))
    run.told("read_file", path="notes/plan.md")

    def refuse(_event: object) -> None:
        raise RuntimeError("the disk is watched")

    subscription = run.session.dispatcher.subscribe(FileEdited, refuse)
    edit = {"path": "notes/plan.md", "old": "milk", "new": "oat milk"}
    assert "the disk is watched" in run.refused("edit_file", **edit)
    assert filesystem.read_text("notes/plan.md") == PLAN
    subscription.close()
    run.told("edit_file", **edit)
    assert filesystem.read_text("notes/plan.md") == PLAN.replace("milk", "oat milk")


def test_write_that_is_undone_leaves_no_file_and_no_folder() -> None:
    """Folders that were made for the file go with it."""
    filesystem = files()
    run = SuiteRun(VfsToolsSection(filesystem))

    def refuse(_event: object) -> None:
        raise RuntimeError("no")

    run.session.dispatcher.subscribe(FileWritten, refuse)
    run.refused("write_file", path="new/folder/a.txt", content="a")
    assert not filesystem.exists("new")


@given(content=st.text(st.characters(exclude_characters="\0\r", exclude_categories=["Cs"]), max_size=80))
def test_what_is_written_reads_the_same(content: str) -> None:
    """Text goes through write and read unchanged, but for the last line end, of which the result tells."""
    run = free(InMemoryFilesystem())
    run.told("write_file", path="a.txt", content=content)
    told = run.told("read_file", path="a.txt")
    head, _, text = told.partition("\n")
    end = "" if "no line end" in head or not content else "\n"
    assert f"{text}{end}" == content
