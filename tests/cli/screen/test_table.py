"""Tables on terminals of every width."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from handrail.cli.cells import width_of
from handrail.cli.table import Column, lay_out
from tests.cli.screen.test_cells import FIGURES, TEXTS
from tests.cli.screen.test_screen import Output

KEY, AMOUNT, STATE, TEXT = (
    Column("key"),
    Column("amount", right=True),
    Column("state", spare=1),
    Column("text", cut=True),
)
COLUMNS = (KEY, AMOUNT, STATE, TEXT)
ROWS = st.lists(st.tuples(TEXTS, FIGURES, st.sampled_from(["done", "failed"]), TEXTS), min_size=1, max_size=5)


def shown(columns: tuple[Column, ...], rows: list[tuple[str, ...]], width: int) -> list[str]:
    """The lines of a table on a terminal."""
    output = Output(width=width)
    output.screen.table(columns, rows)
    return output.lines


@given(ROWS, st.integers(20, 200))
def test_a_table_fits_and_shows_every_figure_whole(rows: list[tuple[str, str, str, str]], width: int) -> None:
    """Of a figure that a row has, there is all or nothing; those of a column of figures are always there."""
    known = {run for row in rows for cell in row for run in re.findall(r"\d+", cell)}
    assume(all(len(run) < width - 3 for run in known))  # a line has room for it
    lines = shown(COLUMNS, list(rows), width)
    assert max(map(width_of, lines)) <= width
    assert {run for line in lines for run in re.findall(r"\d+", line)} <= known
    text = "\n".join(lines)
    assert [amount for _, amount, *_ in rows if amount not in text] == []


@given(ROWS, st.integers(20, 200))
def test_what_a_table_cuts_has_an_ellipsis(rows: list[tuple[str, str, str, str]], width: int) -> None:
    """A cell that is not whole on its line says so."""
    for row in rows:
        written = "".join("".join(shown((AMOUNT, TEXT), [row[1:4:2]], width)).split())
        assert "".join(row[3].split()) in written or "…" in written


@pytest.mark.parametrize(
    "width, lines",
    [
        (
            40,
            [
                "key             amount  text",
                "a-long-key-of-   4,990  paid 4,990 and…",
                "an-effect",
            ],
        ),
        (
            30,
            [
                "key     a-long-key-of-an-",
                "        effect",
                "amount  4,990",
                "text    paid 4,990 and shipped",
            ],
        ),
        (
            20,
            [
                "key     a-long-key-",
                "        of-an-effect",
                "amount  4,990",
                "text    paid 4,990",
                "        and shipped",
            ],
        ),
        (
            16,
            [
                "key",
                "  a-long-key-of-",
                "  an-effect",
                "amount",
                "  4,990",
                "text",
                "  paid 4,990 and",
                "  shipped",
            ],
        ),
    ],
)
def test_a_row_that_does_not_fit_is_written_as_names_and_values(width: int, lines: list[str]) -> None:
    """First the key continues on the next line; nothing that must be there is left out."""
    assert shown((KEY, AMOUNT, TEXT), [("a-long-key-of-an-effect", "4,990", "paid 4,990 and shipped")], width) == lines


def test_rows_of_names_and_values_have_an_empty_line_between_them() -> None:
    """So that a reader sees where the next one begins."""
    assert shown((KEY, AMOUNT), [("a" * 9, "4,990,000,000"), ("b", "5")], 20) == [
        "key",
        "  aaaaaaaaa",
        "amount",
        "  4,990,000,000",
        "",
        "key     b",
        "amount  5",
    ]


def test_the_widest_column_is_narrowed_first() -> None:
    """Down to what its widest figure takes."""
    columns = (Column("a"), Column("b"), Column("c", right=True))
    rows = [("x" * 500, "y" * 20, "7"), ("2026-01-05 20:00:00 UTC", "y", "7")]
    assert lay_out(columns, rows, 40).widths == (17, 18, 1)
    assert lay_out(columns, rows, 30).widths == (12, 13, 1)
    assert lay_out(columns, rows, 28).widths is None
