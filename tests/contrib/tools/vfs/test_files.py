"""How the results of the file tools read."""

from __future__ import annotations

import pytest
from inline_snapshot import snapshot

from handrail.contrib.tools import FileEdited, FileExcerpt, FileList, FileMoved, FileRemoved, FileWritten
from handrail.contrib.tools.vfs.files import LeftOut
from handrail.filesystem import FileStat

NOTES = (
    FileStat("notes/archive", "folder", 0),
    FileStat("notes/link", "symlink", 0),
    FileStat("notes/plan.md", "file", 1_234),
)


def test_folder_reads_as_one_line_for_each_entry() -> None:
    """Folders end with a slash; paths are whole, as the other tools take them."""
    assert FileList("notes", None, NOTES, 1, 3).render() == snapshot("""\
notes: 3 entries.
notes/archive/
notes/link (symlink)
notes/plan.md (1,234 bytes)\
""")


def test_part_of_a_folder_says_how_to_go_on() -> None:
    """The first line is where the model looks."""
    assert FileList("notes", None, NOTES[1:2], 2, 3).render() == snapshot("""\
notes: entry 2 of 3. Continue with offset=3, or narrow it down with pattern.
notes/link (symlink)\
""")
    assert FileList("notes", "**/*", NOTES[2:], 3, 3).render() == snapshot("""\
**/* in notes: entry 3 of 3.
notes/plan.md (1,234 bytes)\
""")


@pytest.mark.parametrize(
    "pattern, text", [(None, "notes: the folder is empty."), ("*.py", "*.py in notes: nothing fits.")]
)
def test_nothing_is_told_in_words(pattern: str | None, text: str) -> None:
    """An empty answer would leave the model in doubt."""
    assert FileList("notes", pattern, (), 1, 0).render() == text


def test_entries_that_were_left_out_are_not_said_not_to_fit() -> None:
    """They may fit; of one folder and of several the sentence is right."""
    assert FileList("notes", "*.py", (), 1, 0, LeftOut(too_deep=1)).render() == snapshot(
        "*.py in notes: nothing to show. 1 folder lies 128 levels deep and was not looked into."
    )
    assert LeftOut(too_deep=2).notes() == snapshot(["2 folders lie 128 levels deep and were not looked into."])


@pytest.mark.parametrize(
    "excerpt, first_line",
    [
        (FileExcerpt("a.txt", "one", 1, 1, 1), "all of it, 1 line."),
        (FileExcerpt("a.txt", "one", 1, 1, 3), "line 1 of 3. Continue with offset=2."),
        (FileExcerpt("a.txt", "one", 1, 2, 3), "lines 1 to 2 of 3. Continue with offset=3."),
        (FileExcerpt("a.txt", "one", 2, 3, 3), "lines 2 to 3 of 3."),
        (
            FileExcerpt("a.txt", "one", 2, 2, 3, 1, 4),
            "characters 1 to 3 of line 2 (of 3). Continue with offset=2, column=4.",
        ),
        (FileExcerpt("a.txt", "one", 1, 1, 3, 4), "characters 4 to 6 of line 1 (of 3). Continue with offset=2."),
        (FileExcerpt("a.txt", "one", 1, 3, 3, 4), "lines 1 (from character 4) to 3 of 3."),
    ],
)
def test_first_line_of_an_excerpt_says_what_is_shown(excerpt: FileExcerpt, first_line: str) -> None:
    """And how to go on, if there is more; the text follows exactly."""
    assert excerpt.render() == f"a.txt: {first_line}\none"


def test_line_ends_that_are_out_of_the_ordinary_are_told() -> None:
    """The model cannot see them in the text."""
    assert FileExcerpt("a.txt", "a\nb", 1, 2, 2, line_ends="CRLF", ends_with_line_end=False).render() == snapshot("""\
a.txt: all of it, 2 lines. Its line ends are CRLF, shown as LF; edit_file keeps them. Its last line has no line end.
a
b\
""")


def test_empty_file_is_told_in_words() -> None:
    """An empty answer would leave the model in doubt."""
    assert FileExcerpt("a.txt", "", 0, 0, 0).render() == snapshot("a.txt: the file is empty.")


def test_write_says_whether_the_file_is_new() -> None:
    """A model that meant to make a file learns that there was one."""
    assert FileWritten("a.txt", created=True, size=1).render() == snapshot("Created a.txt, 1 byte.")
    assert FileWritten("a.txt", created=False, size=12_345).render() == snapshot("Replaced a.txt, 12,345 bytes.")


def test_edit_says_where() -> None:
    """Line numbers that `read_file` takes; not all of them if there are many; a line with two only once."""
    assert FileEdited("a.txt", 1, (7,)).render() == snapshot("Edited a.txt: 1 replacement, at line 7.")
    assert FileEdited("a.txt", 3, (7, 7, 9)).render() == snapshot("Edited a.txt: 3 replacements, at lines 7, 9.")
    assert FileEdited("a.txt", 1_200, (1, 2, 3)).render() == snapshot(
        "Edited a.txt: 1,200 replacements, at lines 1, 2, 3 and more."
    )


def test_file_of_which_nothing_is_shown_is_described() -> None:
    """There is no text below the line."""
    assert FileExcerpt("a.png", "", 0, 0, 0, not_shown="is binary (2 bytes), not text").render() == snapshot(
        "a.png is binary (2 bytes), not text. Nothing of it is shown."
    )


def test_removal_says_what_is_gone() -> None:
    """A folder with how much it held; of a link only the link."""
    assert FileRemoved("a.txt", "file").render() == snapshot("Removed a.txt.")
    assert FileRemoved("a", "folder", 1).render() == snapshot("Removed the folder a with 1 entry in it.")
    assert FileRemoved("a", "symlink").render() == snapshot("Removed a (the link, not what it leads to).")


def test_move_says_from_where_to_where() -> None:
    """Both paths whole."""
    assert FileMoved("a.txt", "b/c.txt").render() == snapshot("Moved a.txt to b/c.txt.")
