"""How the results of the file tools read."""

from __future__ import annotations

import pytest

from handrail.contrib.tools import FileEdited, FileExcerpt, FileList, FileMoved, FileRemoved, FileWritten
from handrail.contrib.tools.vfs.files import LeftOut
from handrail.filesystem import FileStat
from tests.wording import Wording

NOTES = (
    FileStat("notes/archive", "folder", 0),
    FileStat("notes/link", "symlink", 0),
    FileStat("notes/plan.md", "file", 1_234),
)


def test_folder_reads_as_one_line_for_each_entry(wording: Wording) -> None:
    """Folders end with a slash; paths are whole, as the other tools take them."""
    assert FileList("notes", None, NOTES, 1, 3).render() == wording


def test_part_of_a_folder_says_how_to_go_on(wording: Wording) -> None:
    """The first line is where the model looks."""
    assert FileList("notes", None, NOTES[1:2], 2, 3).render() == wording
    assert FileList("notes", "**/*", NOTES[2:], 3, 3).render() == wording


@pytest.mark.parametrize("pattern", [None, "*.py"], ids=["no pattern", "a pattern"])
def test_nothing_is_told_in_words(pattern: str | None, wording: Wording) -> None:
    """An empty answer would leave the model in doubt."""
    assert FileList("notes", pattern, (), 1, 0).render() == wording


def test_entries_that_were_left_out_are_not_said_not_to_fit(wording: Wording) -> None:
    """They may fit; of one folder and of several the sentence is right."""
    assert FileList("notes", "*.py", (), 1, 0, LeftOut(too_deep=1)).render() == wording
    assert LeftOut(too_deep=2).notes() == [wording]


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


def test_empty_file_is_told_in_words(wording: Wording) -> None:
    """An empty answer would leave the model in doubt."""
    assert FileExcerpt("a.txt", "", 0, 0, 0).render() == wording


def test_write_says_whether_the_file_is_new(wording: Wording) -> None:
    """A model that meant to make a file learns that there was one."""
    assert FileWritten("a.txt", created=True, size=1).render() == wording
    assert FileWritten("a.txt", created=False, size=12_345).render() == wording


def test_edit_says_where(wording: Wording) -> None:
    """Line numbers that `read_file` takes; not all of them if there are many; a line with two only once."""
    assert FileEdited("a.txt", 1, (7,)).render() == wording
    assert FileEdited("a.txt", 3, (7, 7, 9)).render() == wording
    assert FileEdited("a.txt", 1_200, (1, 2, 3)).render() == wording


def test_file_of_which_nothing_is_shown_is_described(wording: Wording) -> None:
    """There is no text below the line."""
    assert FileExcerpt("a.png", "", 0, 0, 0, not_shown="is binary (2 bytes), not text").render() == wording


def test_removal_says_what_is_gone(wording: Wording) -> None:
    """A folder with how much it held; of a link only the link."""
    assert FileRemoved("a.txt", "file").render() == wording
    assert FileRemoved("a", "folder", 1).render() == wording
    assert FileRemoved("a", "symlink").render() == wording


def test_move_says_from_where_to_where(wording: Wording) -> None:
    """Both paths whole."""
    assert FileMoved("a.txt", "b/c.txt").render() == wording
