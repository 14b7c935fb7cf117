"""Text of the file tools: excerpts, limits, exact replacement."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from handrail.contrib.tools import EditFile, FileExcerpt, ReadFile, VfsLimits
from handrail.contrib.tools.vfs.text import EditOutcome, NotText, decode_text, excerpt, replace_exactly, with_lf
from handrail.errors import ToolValidationError
from tests.kit import raises
from tests.wording import Wording

FIVE_LINES = "one\ntwo\nthree\nfour\nfive\n"


def read(text: str, *, offset: int = 1, limit: int | None = None, column: int = 1, **limits: int) -> FileExcerpt:
    """The part of a text that is asked for."""
    return excerpt(text, ReadFile("a.txt", offset, limit, column), VfsLimits(**limits), path="a.txt")


def refusal(text: str, *, offset: int = 1, column: int = 1) -> str:
    """Why reading is refused."""
    with pytest.raises(ToolValidationError) as caught:
        read(text, offset=offset, column=column)
    return str(caught.value)


@pytest.mark.parametrize("name", [field.name for field in fields(VfsLimits)])
def test_limit_below_one_is_refused(name: str, wording: Wording) -> None:
    """A limit of nothing is a mistake; the message names it."""
    with raises(ValueError, wording):
        VfsLimits(**{name: 0})


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"a\0", id="binary"),
        pytest.param(b"\x89PNG\r\n\x1a\n\0\0", id="image"),
        pytest.param(b"caf\xe9", id="another encoding"),
        pytest.param(b"\x1f\x8b", id="gzip"),
    ],
)
def test_what_is_no_text_is_told_in_words(data: bytes, wording: Wording) -> None:
    """What it is, how large, and where it stops being text."""
    assert decode_text(data) == NotText(wording)


def test_line_that_does_not_fit_is_shown_in_parts() -> None:
    """Each part says at which character to go on; the last one leads to the next line."""
    text = "abcdefgh\nnext\n"
    assert read(text, characters=3) == FileExcerpt("a.txt", "abc", 1, 1, 2, 1, 4)
    assert read(text, column=4, characters=3) == FileExcerpt("a.txt", "def", 1, 1, 2, 4, 7)
    assert read(text, column=7, characters=7) == FileExcerpt("a.txt", "gh\nnext", 1, 2, 2, 7, None)


def test_empty_file_has_no_lines() -> None:
    """It can be read from its start."""
    assert read("") == FileExcerpt("a.txt", "", 0, 0, 0)


def test_file_of_one_line_end_has_one_empty_line() -> None:
    """An empty line is a line."""
    assert read("\n") == FileExcerpt("a.txt", "", 1, 1, 1)


@pytest.mark.parametrize(
    "text, line_ends, ends_with_line_end",
    [
        ("a\nb\n", "LF", True),
        ("a\r\nb\r\n", "CRLF", True),
        ("a\r\nb\n", "mixed", True),
        ("a\r\nb", "CRLF", False),
        ("a", "LF", False),
    ],
)
def test_line_ends_are_told_and_shown_as_lf(text: str, line_ends: str, ends_with_line_end: bool) -> None:
    """The model need not reproduce CRLF, but may want to know."""
    shown = read(text)
    assert (shown.line_ends, shown.ends_with_line_end) == (line_ends, ends_with_line_end)
    assert "\r" not in shown.text


def test_line_beyond_the_end_is_refused_with_how_many_there_are(wording: Wording) -> None:
    """The model finds a right number in the message."""
    assert refusal(FIVE_LINES, offset=6) == wording


def test_character_beyond_the_line_is_refused_with_how_many_there_are(wording: Wording) -> None:
    """As for a line."""
    assert refusal(FIVE_LINES, offset=3, column=6) == wording
    assert refusal("\n", column=2) == wording


@given(text=st.text("ab\r\n", max_size=60), lines=st.integers(1, 4), characters=st.integers(1, 9))
def test_going_on_as_told_shows_the_whole_file(text: str, lines: int, characters: int) -> None:
    """Whoever follows the results to the end has seen every character once, within the limits each time."""
    part = read(text, lines=lines, characters=characters)
    seen = part.text
    while part.last_line < part.total_lines or part.next_column is not None:
        within = part.next_column is not None
        part = read(
            text,
            offset=part.last_line if within else part.last_line + 1,
            column=part.next_column or 1,
            lines=lines,
            characters=characters,
        )
        assert len(part.text) <= characters
        assert part.last_line - part.first_line < lines
        seen += part.text if within else f"\n{part.text}"
    end = "\n" if part.total_lines and part.ends_with_line_end else ""
    assert f"{seen}{end}" == with_lf(text)


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


def edit_refusal(text: str, old: str, new: str = "new") -> str:
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
    assert edit_refusal(text, old) == wording


def test_edit_that_would_change_nothing_is_refused(wording: Wording) -> None:
    """Line ends do not count: they are not the edit's to change."""
    assert edit_refusal(SOURCE, "x * 2\n", "x * 2\r\n") == wording


def test_long_lines_are_cut_in_messages(wording: Wording) -> None:
    """A message stays short whatever the file holds."""
    told = edit_refusal(f"{'x' * 1_000}\n", f"{'x' * 999}y")
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
