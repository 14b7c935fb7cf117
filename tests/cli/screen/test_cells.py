"""Cutting and wrapping for columns of a terminal: at every width, with wide characters, emoji and combining marks."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.cli.cells import WordWrap, clusters, cut, cut_middle, figures, pad, width_of, wrap

FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
THUMB = "\U0001f44d\U0001f3fd"
FLAG = "\U0001f1eb\U0001f1ee"
E_ACUTE = "e\u0301"
LATIN = ("paid", "A-1001:", "café", f"caf{E_ACUTE}", "Nguyễn", "Łukasz", "x" * 30)
WIDE = ("京都", "山田", "太郎", "हिन्दी", FAMILY, THUMB, FLAG, "❤\ufe0f", "注文" * 20)
SIGNS = ("{", '"id":', "]", "/", "-", ".", ",", " ", " ", " ", " ", "  ")
WORDS = st.sampled_from((*LATIN, *WIDE, *SIGNS))
FIGURES = st.one_of(
    st.integers(-(10**11), 10**11).map(str),
    st.integers(0, 10**9).map("{:,}".format),
    st.decimals(0, 10**6, places=2).map(lambda amount: f"{amount} EUR"),
    st.floats(0, 999).map("{:.1f} s".format),
    st.dates().map(str),
)
TEXTS = st.lists(st.one_of(WORDS, FIGURES), max_size=30).map("".join)
WIDTHS = st.integers(20, 200)


def digits(text: str) -> list[str]:
    """The runs of digits in a text."""
    return re.findall(r"\d+", text)


@pytest.mark.parametrize(
    "text, width, shown",
    [
        ("wine glasses", 12, "wine glasses"),
        ("wine glasses", 11, "wine glass…"),
        ("wine glasses", 6, "wine…"),
        ("Müller, Zoë, paid 4990 cents, shipped", 20, "Müller, Zoë, paid…"),
        ("Müller, Zoë, paid 4990 cents, shipped", 24, "Müller, Zoë, paid…"),
        ("Müller, Zoë, paid 4990 cents, shipped", 30, "Müller, Zoë, paid 4990 cents,…"),
        ("wrote 11 requests, 588.40 EUR paid", 24, "wrote 11 requests,…"),
        ("took 0.25 s", 10, "took…"),
        ("-1,200.50 of it", 8, "…"),
        ("picture frame, 山田 太郎", 18, "picture frame, 山…"),
        (f"caf{E_ACUTE}s", 4, "caf…"),
        (f"caf{E_ACUTE}s", 5, f"caf{E_ACUTE}s"),
        (f"{E_ACUTE}{E_ACUTE}{E_ACUTE}", 2, f"{E_ACUTE}…"),
        (f"a{THUMB}b", 3, "a…"),
    ],
)
def test_what_is_cut_ends_with_an_ellipsis_and_never_within_a_figure(text: str, width: int, shown: str) -> None:
    """Also not between a figure and its unit, nor between a character and its marks."""
    assert cut(text, width) == shown


@pytest.mark.parametrize(
    "text, width, shown",
    [
        ("invoices/Invoice 2026-015.txt", 29, "invoices/Invoice 2026-015.txt"),
        ("invoices/Invoice 2026-015.txt", 20, "invoices/I….txt"),
        ("invoices/Invoice 2026-015.txt", 28, "invoices/Invoi…2026-015.txt"),
        ("old stuff/京都.md", 14, "old stu…都.md"),
        ("1234567", 5, "…"),
        ("paidpaid0cafe\u0301paidpaid", 20, "paidpaid…paidpaid"),
    ],
)
def test_a_path_is_cut_in_its_middle(text: str, width: int, shown: str) -> None:
    """Its folder and its ending are what a person knows it by."""
    assert cut_middle(text, width) == shown


@given(TEXTS, WIDTHS, st.sampled_from([cut, cut_middle]))
def test_a_cut_text_fits_and_is_made_of_whole_characters_and_figures(
    text: str, width: int, cutting: Callable[[str, int], str]
) -> None:
    """At every width from 20 to 200."""
    shown = cutting(text, width)
    assert width_of(shown) <= width
    if shown == text:
        return
    head, ellipsis, tail = shown.partition("…")
    assert ellipsis
    assert text.startswith(head)
    assert text.endswith(tail)
    whole = list(clusters(text))
    assert list(clusters(head)) == whole[: len(list(clusters(head)))]
    assert list(clusters(tail)) == whole[len(whole) - len(list(clusters(tail))) :]
    assert digits(head) == digits(text)[: len(digits(head))]
    assert digits(tail) == digits(text)[len(digits(text)) - len(digits(tail)) :]


@given(TEXTS, WIDTHS)
def test_a_text_that_fits_is_left_as_it_is(text: str, width: int) -> None:
    """Only what does not fit is cut."""
    fits = width_of(text) <= width
    assert (cut(text, width) == text) is fits or text == cut(text, width)
    assert (wrap(text, width) == [text]) is fits


@given(TEXTS, WIDTHS, WIDTHS)
def test_a_wrapped_text_is_whole(text: str, width: int, first: int) -> None:
    """No line is wider than the terminal, nothing but spaces is lost, and no figure that fits a line is in two."""
    first = min(first, width)
    lines = wrap(text, width, first=first)
    assert [width_of(line) <= width for line in lines] == [True] * len(lines)
    assert width_of(lines[0]) <= first
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    if all(len(run) <= width for run in digits(text)):
        assert [run for line in lines for run in digits(line)] == digits(text)


@pytest.mark.parametrize(
    "text, width, lines",
    [
        ("paid 4990 cents", 11, ["paid", "4990 cents"]),
        ("paid 4990 cents", 9, ["paid", "4990", "cents"]),
        ("one two\nthree", 20, ["one two", "three"]),
        ("  indented text", 12, ["  indented", "text"]),
        ("01a210aa-41b7-7077-998e-7a4d408cc55b", 30, ["01a210aa-41b7-7077-998e-", "7a4d408cc55b"]),
        ("xxxxxxxxxxxx", 5, ["xxxxx", "xxxxx", "xx"]),
        ("123456789", 4, ["1234", "5678", "9"]),
        ("a 1234.5678", 6, ["a", "1234.", "5678"]),
        ("123456 cents", 5, ["12345", "6", "cents"]),
        ("山田太郎", 5, ["山田", "太郎"]),
        ("", 5, [""]),
    ],
)
def test_a_line_ends_at_a_space_or_else_after_punctuation(text: str, width: int, lines: list[str]) -> None:
    """Only a figure that is longer than a line is divided, and its unit before its digits."""
    assert wrap(text, width) == lines


@pytest.mark.parametrize(
    "text, first, lines", [("xxxxxxxx yy", 4, ["", "xxxxxxxx", "yy"]), ("xx yyyyyyy", 4, ["xx", "yyyyyyy"])]
)
def test_a_first_line_may_have_less_room(text: str, first: int, lines: list[str]) -> None:
    """A word that would have to be divided there begins the next line."""
    assert wrap(text, 8, first=first) == lines


@given(TEXTS, WIDTHS, st.lists(st.integers(1, 20)))
def test_a_text_that_comes_in_pieces_is_wrapped_like_a_whole_one(text: str, width: int, sizes: list[int]) -> None:
    """Wherever the pieces end."""
    words, written, rest = WordWrap(), "", text
    for size in sizes:
        written += words.feed(rest[:size], width)
        rest = rest[size:]
    written += words.feed(rest, width) + words.flush()
    whole = WordWrap()
    assert written == whole.feed(text, width) + whole.flush()
    assert all(width_of(line) <= width for line in written.split("\n"))
    assert "".join(written.split()) == "".join(text.split())
    assert digits(written) == digits(text)


def test_a_block_of_code_is_streamed_as_it_is() -> None:
    """A command in it can be copied."""
    text = "Run this, please:\n```sh\nhandrail run notes/notes.agent 'buy milk'\n```\nThen look again at the notes."
    words = WordWrap()
    assert (words.feed(text, 20) + words.flush()).split("\n") == [
        "Run this, please:",
        "```sh",
        "handrail run notes/notes.agent 'buy milk'",
        "```",
        "Then look again at ",
        "the notes.",
    ]


def test_a_tab_counts_to_its_stop() -> None:
    """Terminals have one every eight columns."""
    words = WordWrap()
    assert words.feed("a\tbbbbbbbbbbbb\n", 20) == "a\tbbbbbbbbbbbb\n"
    assert words.feed("a\tbbbbbbbbbbbbb\n", 20) == "a\t\nbbbbbbbbbbbbb\n"


@pytest.mark.parametrize(
    "text, characters",
    [
        (f"a{E_ACUTE}b", ["a", E_ACUTE, "b"]),
        (f"{FAMILY}{THUMB}", [FAMILY, THUMB]),
        (f"{FLAG}{FLAG}x", [FLAG, FLAG, "x"]),
        ("❤\ufe0f!", ["❤\ufe0f", "!"]),
        ("", []),
    ],
)
def test_a_character_is_what_a_person_counts_as_one(text: str, characters: list[str]) -> None:
    """Marks, modifiers and joined emoji belong to the character before them."""
    assert list(clusters(text)) == characters


@given(TEXTS)
def test_the_characters_of_a_text_are_the_text(text: str) -> None:
    """None begins with a combining mark, and their widths add up."""
    assert "".join(clusters(text)) == text
    assert sum(map(width_of, clusters(text))) == width_of(text)
    assert not any(unicodedata.combining(character[0]) for character in list(clusters(text))[1:])


@pytest.mark.parametrize(
    "text, found",
    [
        ("paid 4990 cents, 0.2 s", ["4990 cents", "0.2 s"]),
        ("2026-01-05 20:00:00 UTC", ["2026-01-05", "20:00:00 UTC"]),
        ("-5 % of € 1,200.50", ["-5 %", "1,200.50"]),
        ("rf-003 in 5min, 20ms", ["003", "5min", "20ms"]),
        ("no figure", []),
    ],
)
def test_a_figure_has_its_sign_its_separators_and_its_unit(text: str, found: list[str]) -> None:
    """All of it is shown, or none of it."""
    assert [text[start:stop] for start, stop in figures(text)] == found


@pytest.mark.parametrize("right, padded", [(False, "山  "), (True, "  山")])
def test_padding_counts_cells(right: bool, padded: str) -> None:
    """A wide character takes two."""
    assert pad("山", 4, right=right) == padded
