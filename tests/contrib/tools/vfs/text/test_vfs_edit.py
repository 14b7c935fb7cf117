"""Replacing a piece of a text exactly."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from handrail.contrib.tools import EditFile
from handrail.contrib.tools.vfs.text import EditOutcome, replace_exactly, with_lf
from handrail.errors import ToolValidationError
from tests.wording import Wording

SOURCE = """\
def double(x):
    return x * 2


def triple(x):
    return x * 3
"""

SNIPPETS = st.text("ab \r\n", max_size=12)


def edit(text: str, old: str, new: str, *, replace_all: bool = False) -> EditOutcome:
    """The text after an edit."""
    return replace_exactly(text, EditFile("a.py", old, new, replace_all), path="a.py")


def said(after: EditOutcome) -> tuple[str, int, tuple[int, ...]]:
    """The text after an edit, how many replacements there were, and the lines that are told."""
    return after.text, after.replacements, after.lines


def refusal(text: str, old: str, new: str = "new") -> str:
    """Why an edit is refused."""
    with pytest.raises(ToolValidationError) as caught:
        edit(text, old, new)
    return str(caught.value)


def test_piece_that_occurs_once_is_replaced() -> None:
    """The rest of the text stays, and the line is told."""
    assert said(edit(SOURCE, "x * 3", "3 * x")) == (SOURCE.replace("x * 3", "3 * x"), 1, (6,))


def test_piece_may_reach_over_lines_and_be_deleted() -> None:
    """`new` may be empty."""
    assert edit(SOURCE, "\n\ndef triple(x):\n    return x * 3\n", "").text == "def double(x):\n    return x * 2\n"


def test_all_occurrences_are_replaced_when_asked_for() -> None:
    """The lines are those of the new text."""
    assert said(edit("a\nb\na\n", "a", "x\ny", replace_all=True)) == ("x\ny\nb\nx\ny\n", 2, (1, 4))


def test_lines_of_the_first_replacements_are_told() -> None:
    """A result stays short however many there are."""
    assert said(edit("a\n" * 12, "a", "b", replace_all=True)) == ("b\n" * 12, 12, tuple(range(1, 11)))


REFUSED = {
    "more than once, with the lines": (SOURCE, "return x"),
    "many times, of which ten are listed": ("a\n" * 12, "a"),
    "overlapping": ("a\n\n\nb\n", "\n\n"),
    "empty, with how to insert": (SOURCE, ""),
    "missing, with the nearest lines": (SOURCE, "\treturn x*4"),
    "another indentation": (SOURCE, "\treturn x*2"),
    "other blanks": (SOURCE, "def  triple(x):\n    return x * 3\n"),
    "another indentation below blank lines": (SOURCE, "\n\n\n\tdef triple(x):\n"),
    "line ends too many": ("a\nb c\n", "\n\nb c"),
    "wrong in its second line": (SOURCE, "def triple(x):\n  return x * 3\n"),
    "wrong below blank lines": (SOURCE, "\n\ndef triple(x):\n    return 3 * x\n"),
    "beyond the end": (SOURCE, "    return x * 3\n\n"),
    "blank lines that agree": ("a\n\n\nb\nreturn value\n", "\n\nreturn values\n"),
    "like nothing": (SOURCE, "zzzzzzzz"),
    "white space": (SOURCE, "  \t"),
}


@pytest.mark.parametrize("text, old", REFUSED.values(), ids=REFUSED)
def test_piece_that_cannot_be_replaced_is_told_with_the_cure(text: str, old: str, wording: Wording) -> None:
    """An edit is exact or refused: which place is meant, only the model knows."""
    assert refusal(text, old) == wording


def test_edit_that_would_change_nothing_is_refused(wording: Wording) -> None:
    """Line ends do not count: they are not the edit's to change."""
    assert refusal(SOURCE, "x * 2\n", "x * 2\r\n") == wording


def test_long_lines_are_cut_in_messages(wording: Wording) -> None:
    """A message stays short whatever the file holds."""
    told = refusal(f"{'x' * 1_000}\n", f"{'x' * 999}y")
    assert len(told) < 500
    assert told == wording


def test_crlf_is_kept_and_given_to_new_lines() -> None:
    """The model has seen LF, writes LF, and the file keeps its CRLF."""
    assert edit("a\r\nb\r\nc", "a\nb", "A\nB\nC").text == "A\r\nB\r\nC\r\nc"
    assert edit("a\r\nb", "b", "b\n").text == "a\r\nb\r\n"


def test_each_line_of_a_mixed_file_keeps_its_own_end() -> None:
    """New lines end as the line in which they begin."""
    assert edit("a\nb\r\nc\nd\r\n", "c", "C\nC").text == "a\nb\r\nC\nC\nd\r\n"
    assert edit("a\nb\r\nc\nd\r\n", "b", "B\nB").text == "a\nB\r\nB\r\nc\nd\r\n"


def test_piece_with_crlf_is_found_in_a_file_with_lf() -> None:
    """How the model writes line ends makes no difference."""
    assert edit("a\nb\n", "a\r\nb", "A\r\nB").text == "A\nB\n"


@pytest.mark.parametrize("text", ["a\nb", "a\nb\n", "a\r\nb", "a\r\nb\r\n"])
def test_end_of_the_file_stays_as_it_is(text: str) -> None:
    """Whether the last line has a line end is not an edit's affair unless it names it."""
    assert edit(text, "a", "x").text == text.replace("a", "x")


@given(before=SNIPPETS, old=SNIPPETS, after=SNIPPETS, new=SNIPPETS)
def test_edit_replaces_the_piece_and_keeps_the_bytes_around_it(before: str, old: str, after: str, new: str) -> None:
    """Seen with LF the piece is replaced; what stands before and after it is the same to the byte."""
    text = f"{before}{old}{after}"
    assume(old and with_lf(old) != with_lf(new))
    assume(not before.endswith("\r") and not after.startswith("\n") and not old.endswith("\r"))
    assume(len(re.findall(f"(?={re.escape(with_lf(old))})", with_lf(text))) == 1)
    result = edit(text, old, new).text
    assert result.startswith(before)
    assert result.endswith(after)
    assert with_lf(result[len(before) : len(result) - len(after)]).count("\n") >= with_lf(new).count("\n")
    if "\r" not in f"{text}{new}":
        assert result == f"{before}{new}{after}"


@given(lines=st.lists(st.text("ab ", max_size=3), min_size=2, max_size=6), old=st.text("ab \n", min_size=1, max_size=5))
def test_file_with_one_kind_of_line_end_has_one_after_any_edit(lines: list[str], old: str) -> None:
    """No edit mixes line ends."""
    seen = "\n".join(lines)
    assume(old in seen)
    result = edit("\r\n".join(lines), old, "x\ny", replace_all=True).text
    assert with_lf(result) == seen.replace(old, "x\ny")
    assert result.count("\n") == result.count("\r\n")
