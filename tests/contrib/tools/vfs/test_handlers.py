"""The tools that find, remove and move files, through the whole pipeline and over every store."""

from __future__ import annotations

from collections.abc import Generator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias
from unicodedata import normalize

import pytest

from handrail.contrib.tools import FileMoved, FileRemoved, GrepFiles, VfsLimits, VfsToolsSection
from handrail.contrib.tools.vfs.section import FileHandlers
from handrail.filesystem import Filesystem, HostFilesystem, InMemoryFilesystem
from handrail.limits import Deadline
from handrail.prompt import ToolContext
from handrail.testing import FakeClock
from tests.contrib.suites import SuiteRun
from tests.filesystem.stores import STORES, tree_of
from tests.wording import Wording

Form: TypeAlias = Literal["NFC", "NFD"]

TREE: dict[str, str | bytes] = {
    "README.md": "# Desk\n\nTODO: say more\n",
    "src/desk.py": "def open_desk():\n    return 1  # TODO\n",
    "src/deep/odd[1].py": "x = 1\n",
    "logo.png": b"\x89PNG\r\n\0",
}


@pytest.fixture(params=list(STORES))
def filesystem(request: pytest.FixtureRequest) -> Generator[Filesystem]:
    """A store of each kind that holds the same tree."""
    with STORES[request.param](TREE) as opened:
        yield opened


@pytest.fixture
def run(filesystem: Filesystem) -> SuiteRun:
    """Calls over the tree, of which nothing needs to be read first."""
    return SuiteRun(VfsToolsSection(filesystem, policies=()))


def test_files_are_found_at_any_depth(run: SuiteRun, wording: Wording) -> None:
    """Paths are whole, and the pattern is relative to the folder."""
    assert run.told("glob_files", pattern="**/*.py") == wording
    assert run.told("glob_files", pattern="*", path="src/deep/") == wording
    assert run.refused("glob_files", pattern="*", path="README.md") == wording
    assert run.told("glob_files", pattern="*.py") == wording


def test_lines_are_found_in_all_text_files(run: SuiteRun, wording: Wording) -> None:
    """What is no text is named."""
    assert run.told("grep_files", pattern="todo", ignore_case=True) == wording


def test_search_is_narrowed_down_by_folder_file_and_pattern(run: SuiteRun, wording: Wording) -> None:
    """Characters of a folder's name that mean something in a pattern mean themselves."""
    assert run.told("grep_files", pattern="TODO", files="**/*.py") == wording
    assert run.told("grep_files", pattern="=", path="src/deep/odd[1].py") == wording
    assert run.told("grep_files", pattern="def", path="src", files="*.py", context=1) == wording
    assert run.refused("grep_files", pattern="a", path="nope") == wording
    assert run.refused("grep_files", pattern="a", context=21) == wording


def test_file_is_removed(run: SuiteRun, filesystem: Filesystem, wording: Wording) -> None:
    """And nothing else."""
    assert run.told("remove_file", path="./src//desk.py") == wording
    assert set(tree_of(filesystem)) == {"README.md", "logo.png", "src", "src/deep", "src/deep/odd[1].py"}
    assert run.session[FileRemoved].latest() == FileRemoved("src/desk.py", "file")


def test_folder_is_removed_with_what_it_holds_only_when_that_is_asked_for(
    run: SuiteRun, filesystem: Filesystem, wording: Wording
) -> None:
    """A folder that holds something is not removed by mistake."""
    assert run.refused("remove_file", path="src") == wording
    assert run.told("remove_file", path="src", recursive=True) == wording
    assert set(tree_of(filesystem)) == {"README.md", "logo.png"}
    assert run.refused("remove_file", path=".", recursive=True) == wording


def test_file_or_folder_is_moved_and_nothing_replaced(run: SuiteRun, filesystem: Filesystem, wording: Wording) -> None:
    """Folders of the new path are made."""
    assert run.told("move_file", path="src/", new_path="lib/./code") == wording
    assert filesystem.read_text("lib/code/desk.py") == TREE["src/desk.py"]
    assert run.refused("move_file", path="README.md", new_path="logo.png") == wording
    assert run.refused("move_file", path="README.md", new_path="lib") == wording
    assert run.session[FileMoved].all() == (FileMoved("src", "lib/code"),)


@pytest.mark.parametrize(
    "tool, arguments, event",
    [
        ("remove_file", {"path": "src", "recursive": True}, FileRemoved),
        ("move_file", {"path": "src", "new_path": "lib/code"}, FileMoved),
    ],
)
def test_change_that_is_undone_leaves_the_tree_as_it_was(
    run: SuiteRun, filesystem: Filesystem, tool: str, arguments: dict[str, object], event: type[object]
) -> None:
    """Files, folders and contents."""
    before = tree_of(filesystem)

    def refuse(_event: object) -> None:
        raise RuntimeError("no")

    run.session.dispatcher.subscribe(event, refuse)
    run.refused(tool, **arguments)
    assert tree_of(filesystem) == before


def test_search_ends_with_the_deadline_of_the_run() -> None:
    """Its own time is one bound, that of the run another; time is what the clock of the run says."""

    class Slow(InMemoryFilesystem):
        def read_bytes(self, path: str) -> bytes:
            clock.advance(timedelta(seconds=4))
            return super().read_bytes(path)

    clock = FakeClock()
    slow = Slow({f"{number}.md": "TODO\n" for number in range(9)})

    def searched(deadline: Deadline | None) -> int:
        context = ToolContext.of(resources={Filesystem: slow}, clock=clock, deadline=deadline)
        result = FileHandlers(VfsLimits()).grep_files(GrepFiles("TODO"), context=context)
        assert result.value is not None
        assert result.value.stopped == "time"
        return result.value.matches

    assert searched(None) == 2
    assert searched(Deadline.after(timedelta(seconds=5), clock=clock)) == 1


def test_a_link_does_not_change_how_large_a_file_may_be(tmp_path: Path, wording: Wording) -> None:
    """`VfsLimits.file_bytes` holds for the content that is read, searched or edited, and not for the link to it."""
    root = tmp_path / "root"
    root.mkdir()
    (root / "large.txt").write_text("x" * 101, encoding="utf-8")
    (root / "link").symlink_to("large.txt")
    with HostFilesystem(root, journal=tmp_path / "journal") as filesystem:
        run = SuiteRun(VfsToolsSection(filesystem, limits=VfsLimits(file_bytes=100), policies=()))
        for path in ("large.txt", "link"):
            assert run.told("grep_files", pattern="x", path=path) == wording
            assert run.told("read_file", path=path) == wording
            assert run.refused("edit_file", path=path, old="x", new="y") == wording
        (root / "large.txt").write_text("x" * 100, encoding="utf-8")
        assert run.told("grep_files", pattern="x", path="link") == wording


@pytest.mark.parametrize("forms", [("NFC", "NFD"), ("NFD", "NFC")], ids="".join)
def test_names_and_texts_are_found_in_whatever_unicode_form_they_are_written(forms: tuple[Form, Form]) -> None:
    """Folders on the way, patterns and pieces of text too; nothing is made beside what looks the same."""
    stored, written = (partial(normalize, form) for form in forms)
    path, other = stored("r\u00e9s/\u00e9t\u00e9.md"), written("r\u00e9s/\u00e9t\u00e9.md")
    for open_store in STORES.values():
        with open_store({path: stored("caf\u00e9 1\n")}) as filesystem:
            run = SuiteRun(VfsToolsSection(filesystem))
            assert not run.call("write_file", path=other, content="").success
            assert path in run.told("read_file", path=other)
            assert path in run.told("list_files", path=written("r\u00e9s"))
            assert path in run.told("glob_files", pattern=written("**/\u00e9*"))
            assert path in run.told("grep_files", pattern=written("f\u00e9"))
            run.told("edit_file", path=other, old=written("caf\u00e9"), new=written("th\u00e9"))
            assert filesystem.read_text(path) == stored("th\u00e9 1\n")
            run.told("write_file", path=other, content="")
            run.told("move_file", path=other, new_path=written("r\u00e9s/2"))
            assert [each.path for each in filesystem.glob("**")] == [stored("r\u00e9s"), stored("r\u00e9s/2")]


def test_file_that_is_written_over_keeps_its_line_ends_and_its_mark(filesystem: Filesystem, run: SuiteRun) -> None:
    """Those of most of its lines; the mark is not in what is shown, searched or edited. A new file is as given."""
    filesystem.write_bytes("a.bat", b"\xef\xbb\xbfa\r\nb\r\nc\n")
    assert run.told("read_file", path="a.bat").endswith("\na\nb\nc")
    assert "a.bat:1: a" in run.told("grep_files", pattern="^a$")
    run.told("edit_file", path="a.bat", old="a\nb\n", new="a\n")
    assert filesystem.read_bytes("a.bat") == b"\xef\xbb\xbfa\r\nc\n"
    run.told("write_file", path="a.bat", content="x\n")
    run.told("edit_file", path="a.bat", old="x", new="x\nz")
    run.told("write_file", path="a.bat", content="x\ny\r\n")
    assert filesystem.read_bytes("a.bat") == b"\xef\xbb\xbfx\ny\n"
    run.told("write_file", path="b.bat", content="x\r\ny\n")
    assert filesystem.read_bytes("b.bat") == b"x\r\ny\n"


def test_patterns_know_braces_and_names_with_brackets(filesystem: Filesystem, run: SuiteRun, wording: Wording) -> None:
    """In every tool that takes one; a name that holds what means something matches itself."""
    filesystem.write_text("src/{a,b}.ts", "x = 2\n")
    assert run.told("glob_files", pattern="{src,docs}/{desk,x}.py") == wording
    assert run.told("glob_files", pattern="**/{desk,odd[1]}.{py,ts}") == wording
    assert run.told("grep_files", pattern="x", files="**/*.{ts,md}") == wording
    assert run.told("grep_files", pattern="x", path="src/{a,b}.ts") == wording
    for pattern in ("{src/a,b}.py", "{a,b", "{a,b}" * 7):
        assert run.refused("glob_files", pattern=pattern) == wording
