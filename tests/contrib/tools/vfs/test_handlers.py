"""The file tools over every store: finding, searching, removing and moving, and how their results read."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias
from unicodedata import normalize

import pytest

from handrail.contrib.tools import (
    FileEdited,
    FileExcerpt,
    FileMoved,
    FileRemoved,
    GrepFiles,
    LinesFound,
    VfsLimits,
    VfsToolsSection,
)
from handrail.contrib.tools.vfs.search import NOTHING_LEFT_OUT, LeftOut, Search, matcher, path_in_line
from handrail.contrib.tools.vfs.section import FileHandlers
from handrail.errors import ToolValidationError
from handrail.filesystem import FileStat, Filesystem, HostFilesystem, InMemoryFilesystem
from handrail.limits import Deadline
from handrail.prompt import ToolContext
from handrail.testing import FakeClock
from tests.contrib.suites import SuiteRun
from tests.filesystem.kit import STORES, tree_of
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


POEM = "a rose\nis\na ROSE\nis\na rose\n"


def never() -> bool:
    """Time without end."""
    return False


def search(
    files: Mapping[str, str | bytes], asked: GrepFiles, is_over: Callable[[], bool] = never, **limits: int
) -> LinesFound:
    """What is found in all of these files."""
    filesystem = InMemoryFilesystem(files)
    return Search(asked, VfsLimits(**limits), is_over).run(filesystem, filesystem.glob("**"), NOTHING_LEFT_OUT)


def after(times: int) -> Callable[[], bool]:
    """Time that is over once it has been asked for so often."""
    left = iter(range(times))
    return lambda: next(left, None) is None


def refusal(pattern: str) -> str:
    """Why a pattern is refused."""
    with pytest.raises(ToolValidationError) as caught:
        matcher(pattern, ignore_case=False)
    return str(caught.value)


def test_lines_that_match_are_shown_with_file_and_number(wording: Wording) -> None:
    """As `path:line: text`."""
    assert search({"b.txt": "is\n", "a.txt": POEM}, GrepFiles("is$")).render() == wording


def test_case_counts_unless_told_otherwise() -> None:
    """Also in an alternative."""
    assert search({"a.txt": POEM}, GrepFiles("rose")).matches == 2
    assert search({"a.txt": POEM}, GrepFiles("x|rose", ignore_case=True)).matches == 3


def test_lines_around_a_match_are_shown_when_asked_for(wording: Wording) -> None:
    """Marked by `-`; groups that do not touch are kept apart, files too; no line is shown twice."""
    found = search({"a.txt": POEM, "b.txt": "x\na ROSE\n"}, GrepFiles("ROSE", context=1))
    assert found.render() == wording
    apart = search({"a.txt": "1\n2\nx\n4\n5\n6\nx\nx\n"}, GrepFiles("x", context=1))
    assert apart.lines == wording


def test_line_ends_belong_to_no_line() -> None:
    """`$` stands before LF and before CRLF; the empty line after the last line end is none."""
    found = search({"a.txt": "one\r\ntwo\r\n", "b.txt": "one"}, GrepFiles("(one|^)$"))
    assert found.lines == ("a.txt:1: one", "b.txt:1: one")


@pytest.mark.parametrize("pattern, lines", [(r"(a+)+$", 0), (r"(a|aa)+$", 0), (r"(.*a){20}$", 0), (r"(\w+\s?)*$", 20)])
def test_no_pattern_makes_the_search_hang(pattern: str, lines: int) -> None:
    """Patterns that take others for ever take as long as the line is long."""
    assert search({"a.txt": f"{'a' * 5_000}!\n" * 20}, GrepFiles(pattern)).matches == lines


def test_a_pattern_that_cannot_be_searched_for_is_refused_with_the_reason(wording: Wording) -> None:
    """And with how to look for the text itself."""
    assert refusal("main(") == wording
    assert refusal(r"(?=x)x") == wording
    assert refusal(r"(a)\1") == wording
    assert refusal("(a{1000}){1000}") == wording
    assert refusal("") == wording
    assert refusal("a\nb") == wording


def test_a_text_that_is_escaped_as_told_is_found() -> None:
    """The cure that a refusal names works."""
    pattern = "if (a - b) > c: # x~y&z"
    told = re.split(r"(?<!\\) ", refusal(f"{pattern}("))[-1]
    assert matcher(told, ignore_case=False)(f"{pattern}(")


def test_files_that_cannot_be_searched_are_named(wording: Wording) -> None:
    """By the reason; the others are searched all the same."""

    class Locked(InMemoryFilesystem):
        def read_bytes(self, path: str) -> bytes:
            if path == "locked.txt":
                return super().read_bytes("gone.txt")
            return super().read_bytes(path)

    files = {f"{number}.bin": b"x\0" for number in range(5)} | {"big.txt": b"x" * 101}
    filesystem = Locked({**files, "a.txt": "x\n", "locked.txt": "x"})
    found = Search(GrepFiles("x"), VfsLimits(file_bytes=100), never).run(
        filesystem, filesystem.glob("**"), NOTHING_LEFT_OUT
    )
    assert found.render() == wording


def test_long_lines_are_cut_where_they_are_shown_and_searched_in_part(wording: Wording) -> None:
    """A line of any length costs no more than a long one."""
    found = search({"a.txt": f"{'x' * 20_000}y\nxy\n"}, GrepFiles("x"), line_characters=5)
    assert found.render() == wording
    assert search({"a.txt": f"{'x' * 20_000}y\n"}, GrepFiles("y")).render() == wording


def test_a_search_stops_when_its_time_is_over(wording: Wording) -> None:
    """Between lines; what was found until then is shown."""
    files = {"a.txt": POEM, "b.txt": POEM, "c.txt": POEM}
    assert search(files, GrepFiles("ROSE"), after(7)).render() == wording
    assert search({"a.txt": POEM}, GrepFiles("ROSE"), after(4)).render() == wording


def test_a_search_stops_when_it_has_found_as_much_as_it_may(wording: Wording) -> None:
    """The first line is always there; how many lines match is told as far as it was searched."""
    files = {"a.txt": "x\n" * 50, "b.txt": "x\n"}
    found = search(files, GrepFiles("x"), search_characters=50)
    assert found.render() == wording
    assert sum(len(line) + 1 for line in found.lines) <= 50
    assert search({"a.txt": "x\n"}, GrepFiles("x"), search_characters=1).lines == ("a.txt:1: x",)


def test_nothing_found_is_told_with_what_may_be_the_reason(wording: Wording) -> None:
    """An empty answer would leave the model in doubt."""
    assert search({"a.txt": POEM}, GrepFiles("lily")).render() == wording
    assert search({"a.txt": POEM}, GrepFiles(r"rose\nis")).render() == wording
    for files in ("*.py", "src/**", "**"):
        nothing = Search(GrepFiles("lily", files=files), VfsLimits(), never).run(
            InMemoryFilesystem(), (), NOTHING_LEFT_OUT
        )
        assert nothing.render() == wording


def test_a_link_to_a_folder_is_not_searched(tmp_path: Path, wording: Wording) -> None:
    """The refusal says what it is; a link to a file is searched, and one that leads nowhere is told as such."""
    (tmp_path / "root/d").mkdir(parents=True)
    (tmp_path / "root/d/a.txt").write_text("lily\n")
    for name, target in (("folder", "d"), ("file", "d/a.txt"), ("nowhere", "x")):
        (tmp_path / "root" / name).symlink_to(target)
    with HostFilesystem(tmp_path / "root", journal=tmp_path / "journal") as filesystem:
        run = SuiteRun(VfsToolsSection(filesystem))
        assert run.refused("grep_files", pattern="lily", path="folder") == wording
        assert "file:1: lily" in run.told("grep_files", pattern="lily", path="file")
        assert run.refused("grep_files", pattern="lily", path="nowhere") == wording


def test_a_file_that_has_grown_since_it_was_listed_is_not_searched() -> None:
    """What counts is the size of the content that is read."""
    listed = FileStat("log.txt", "file", 1)
    filesystem = InMemoryFilesystem({"log.txt": "x" * 101})
    found = Search(GrepFiles("x"), VfsLimits(file_bytes=100), never).run(filesystem, (listed,), NOTHING_LEFT_OUT)
    assert (found.unsearched, found.unsearched_total) == (("log.txt",), 1)
    assert not found.lines


@pytest.mark.parametrize(
    "excerpt",
    [
        pytest.param(FileExcerpt("a.txt", "one", 1, 1, 1), id="all lines"),
        pytest.param(FileExcerpt("a.txt", "one", 1, 1, 3), id="first line"),
        pytest.param(FileExcerpt("a.txt", "one", 1, 2, 3), id="first lines"),
        pytest.param(FileExcerpt("a.txt", "one", 2, 3, 3), id="last lines"),
        pytest.param(FileExcerpt("a.txt", "one", 2, 2, 3, 1, 4), id="start of a line"),
        pytest.param(FileExcerpt("a.txt", "one", 1, 1, 3, 4), id="end of a line"),
        pytest.param(FileExcerpt("a.txt", "one", 1, 3, 3, 4), id="end of a line and more lines"),
    ],
)
def test_first_line_of_an_excerpt_says_what_is_shown(excerpt: FileExcerpt, wording: Wording) -> None:
    """And how to go on, if there is more; the text follows exactly."""
    assert excerpt.render() == wording


def test_line_ends_that_are_out_of_the_ordinary_are_told(wording: Wording) -> None:
    """The model cannot see them in the text."""
    assert FileExcerpt("a.txt", "a\nb", 1, 2, 2, line_ends="CRLF", ends_with_line_end=False).render() == wording
    assert FileExcerpt("a.txt", "a\rb\r", 1, 1, 1, ends_with_line_end=False).render() == wording


def test_edit_says_where(wording: Wording) -> None:
    """Line numbers that `read_file` takes; not all of them if there are many; a line with two only once."""
    assert FileEdited("a.txt", 1, (7,)).render() == wording
    assert FileEdited("a.txt", 3, (7, 7, 9)).render() == wording
    assert FileEdited("a.txt", 1_200, (1, 2, 3)).render() == wording


def test_what_a_walk_left_out_and_odd_names_are_told(wording: Wording) -> None:
    """No name breaks a line."""
    assert LeftOut(too_deep=2).notes() == wording
    assert path_in_line("a\n\x85b") == r'"a\n\u0085b"'


def test_removal_says_what_is_gone(wording: Wording) -> None:
    """A folder with how much it held; of a link only the link."""
    assert FileRemoved("a.txt", "file").render() == wording
    assert FileRemoved("a", "folder", 1).render() == wording
    assert FileRemoved("a", "symlink").render() == wording
