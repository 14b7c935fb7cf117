"""How the results of the file tools read."""

from __future__ import annotations

import pytest

from handrail.contrib.tools import FileEdited, FileExcerpt, FileRemoved
from handrail.contrib.tools.vfs.search import LeftOut, path_in_line
from tests.wording import Wording


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
