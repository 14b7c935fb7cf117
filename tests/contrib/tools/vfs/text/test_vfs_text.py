"""What is text, and what part of it fits in one result."""

from __future__ import annotations

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.contrib.tools import FileExcerpt, ReadFile, VfsLimits
from handrail.contrib.tools.vfs.text import NotText, decode_text, excerpt, with_lf
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
