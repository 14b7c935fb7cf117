"""Searching files for lines: what matches, what is shown, and what bounds the search."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from handrail.contrib.tools import GrepFiles, LinesFound, VfsLimits, VfsToolsSection
from handrail.contrib.tools.vfs.search import NOTHING_LEFT_OUT, Search, matcher
from handrail.errors import ToolValidationError
from handrail.filesystem import FileStat, HostFilesystem, InMemoryFilesystem
from tests.contrib.suites import SuiteRun
from tests.wording import Wording

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
