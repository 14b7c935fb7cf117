"""How the results of searching files read."""

from __future__ import annotations

from handrail.contrib.tools import FilesFound, GrepFiles, LinesFound
from handrail.contrib.tools.vfs.files import LeftOut
from handrail.contrib.tools.vfs.search import Unsearched
from handrail.filesystem import FileStat
from tests.wording import Wording

FILES = tuple(FileStat(f"notes/{name}.md", "file", 12) for name in "abc")


def test_files_read_as_one_line_each(wording: Wording) -> None:
    """Below a line that says how many they are."""
    assert FilesFound("*.md", "notes", FILES, 3).render() == wording


def test_list_that_is_not_whole_says_how_much_of_it_there_is(wording: Wording) -> None:
    """And how to find less."""
    assert FilesFound("*.md", "notes", FILES[:1], 9).render() == wording


def test_no_file_is_told_with_how_to_look_deeper(wording: Wording) -> None:
    """`*.py` is often meant to be anywhere."""
    assert FilesFound("*.py", ".", (), 0).render() == wording
    assert FilesFound("src/*.py", ".", (), 0).render() == wording
    assert FilesFound("**", ".", (), 0).render() == wording


def test_entries_that_were_left_out_are_not_said_not_to_fit(wording: Wording) -> None:
    """They may fit."""
    assert FilesFound("**", ".", (), 0, left_out=LeftOut(ignored=1)).render() == wording


def test_lines_read_below_what_is_said_of_them(wording: Wording) -> None:
    """First how many there are, then how to go on, then what was left out."""
    found = LinesFound(
        GrepFiles("TODO", "src"),
        ("src/a.py:1: # TODO",),
        matches=1_200,
        files=2,
        searched=30,
        left=1,
        stopped="time",
        cut=2,
        unsearched=(Unsearched("not text", ("src/a.bin",), 1), Unsearched("cannot be read", ("src/b", "src/c"), 4)),
    )
    assert found.render() == wording
