"""Text on its way to a terminal."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.cli.screen import (
    clean,
    clean_lines,
    format_duration,
    format_when,
)


@pytest.mark.parametrize(
    "text, shown",
    [
        ("Zürich 東京 🙂", "Zürich 東京 🙂"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\nb\tc\rd", "a\\nb\\tc\\rd"),
        ("\x9b2J", "\\x9b2J"),
        ("abc\u202efed", "abc\\u202efed"),
        ("\udcff", "\\udcff"),
    ],
)
def test_what_a_terminal_would_obey_is_shown_as_an_escape(text: str, shown: str) -> None:
    """A model writes keys and messages; none of them steers the terminal of who looks at it."""
    assert clean(text) == shown


@given(st.text())
def test_clean_text_is_one_line_that_every_terminal_can_write(text: str) -> None:
    """Whatever the text, the result is printable or a blank, and UTF-8."""
    cleaned = clean(text)
    assert len(cleaned.splitlines()) <= 1
    assert "\x1b" not in cleaned
    cleaned.encode()


def test_lines_stay_lines_where_there_is_room_for_them() -> None:
    """A message of several lines keeps them, and each is clean."""
    assert clean_lines("one\ntwo\x07") == "one\ntwo\\x07"


def test_a_moment_is_in_utc() -> None:
    """People compare times of machines in several zones."""
    berlin = timezone(timedelta(hours=1))
    assert format_when(datetime(2026, 1, 2, 0, 30, 59, tzinfo=berlin)) == "2026-01-01 23:30:59 UTC"
    assert format_when(None) == ""


@pytest.mark.parametrize(
    "seconds, told",
    [(0, "0 s"), (-40, "40 s"), (119, "119 s"), (120, "2 min"), (7_199, "120 min"), (7_200, "2 h"), (400_000, "5 d")],
)
def test_a_span_is_told_in_its_largest_unit(seconds: int, told: str) -> None:
    """One number is enough to compare."""
    assert format_duration(timedelta(seconds=seconds)) == told
