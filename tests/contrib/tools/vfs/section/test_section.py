"""The file suite through the whole pipeline: what the model reads, and what becomes of the files."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.contrib.tools import FileEdited, FileExcerpt, FileWritten, VfsLimits, VfsToolsSection
from handrail.errors import FilesystemError
from handrail.filesystem import Filesystem, InMemoryFilesystem
from handrail.runtime import ToolCall
from tests.contrib.suites import SuiteRun
from tests.wording import Wording

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


def test_folder_is_listed(wording: Wording) -> None:
    """The root by default, one level."""
    assert free(files(a_md="a")).told("list_files") == wording


def test_pattern_is_relative_to_the_folder(wording: Wording) -> None:
    """Characters of a folder's name that mean something in a pattern mean themselves."""
    filesystem = files()
    filesystem.write_text("odd[1]*/deep/a.py", "")
    filesystem.write_text("odd1/b.py", "")
    run = free(filesystem)
    assert run.told("glob_files", pattern="**/*.py") == wording
    assert run.told("glob_files", path="./odd[1]*/", pattern="**/*.py") == wording


def test_long_list_is_cut(wording: Wording) -> None:
    """By how much text it is; at least one entry is shown."""
    filesystem = InMemoryFilesystem()
    for number in range(5):
        filesystem.write_text(f"{number}{'x' * 50}.md", "")
    assert free(filesystem, VfsLimits(search_characters=150)).told("list_files") == wording
    assert free(filesystem, VfsLimits(search_characters=1)).told("list_files") == wording


@pytest.mark.parametrize("tool, arguments", [("grep_files", {"pattern": "TODO"}), ("glob_files", {"pattern": "**"})])
def test_long_search_is_cut_and_read_on_as_any_long_result(
    tool: str, arguments: dict[str, object], wording: Wording
) -> None:
    """The record has all that was found; the message says how the rest is read."""
    run = free(InMemoryFilesystem({f"{n:03}.md": "TODO\n" for n in range(200)}), VfsLimits(characters=1_000))
    message = run.executor.execute(ToolCall("call-1", tool, arguments), reply="reply-1")
    assert len(message.content) <= 1_000
    assert "100.md" not in message.content
    assert message.content.splitlines()[0] == wording
    assert message.content.splitlines()[-1] == wording
    assert "100.md" in run.told("read_result", call="reply-1/call-1", find="100.md")


def test_search_finds_so_much_and_no_more(wording: Wording) -> None:
    """What it says of the rest is how to find less."""
    run = free(InMemoryFilesystem({f"{n:03}.md": "TODO\n" for n in range(200)}), VfsLimits(search_characters=60))
    assert run.told("glob_files", pattern="**") == wording
    assert run.told("grep_files", pattern="TODO") == wording


def test_file_is_read_exactly(wording: Wording) -> None:
    """One line about the file, then the file."""
    assert free(files()).told("read_file", path="./notes//plan.md") == wording


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
def test_path_that_leads_nowhere_is_told_in_the_words_of_the_filesystem(
    tool: str, arguments: dict[str, object], path: str
) -> None:
    """Without the name of an exception, and with what to give instead."""
    filesystem = files()
    with pytest.raises(FilesystemError) as caught:
        filesystem.read_text(path)
    assert free(filesystem).refused(tool, path=path, **arguments) == str(caught.value)


def test_folder_in_place_of_a_file_is_told(wording: Wording) -> None:
    """And the other way round."""
    run = free(files())
    assert run.refused("read_file", path="notes") == wording
    assert run.refused("write_file", path="notes", content="a") == wording
    assert run.refused("list_files", path="notes/plan.md") == wording


def test_write_makes_or_replaces_a_file_with_exactly_the_content(wording: Wording) -> None:
    """Line ends are as they are given, and folders are made."""
    filesystem = files()
    run = free(filesystem)
    assert run.told("write_file", path="a/b/c.txt", content="one\r\ntwo") == wording
    assert filesystem.read_bytes("a/b/c.txt") == b"one\r\ntwo"
    assert run.told("write_file", path="a/b/c.txt", content="") == wording
    assert run.session[FileWritten].all() == (FileWritten("a/b/c.txt", True, 8), FileWritten("a/b/c.txt", False, 0))


def test_edit_changes_one_piece_and_keeps_line_ends_and_the_end_of_the_file(wording: Wording) -> None:
    """CRLF stays CRLF, and a file without a last line end stays without."""
    filesystem = files(a_md="one\r\ntwo\r\nthree")
    assert free(filesystem).told("edit_file", path="a.md", old="two\nthree", new="2\n2\n3") == wording
    assert filesystem.read_bytes("a.md") == b"one\r\n2\r\n2\r\n3"


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
