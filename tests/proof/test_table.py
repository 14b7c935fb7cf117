"""The table by failure: its cells, its rows, and the rules for those who are in it."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

from proof.__main__ import PAGE, TITLES
from proof.cells import Cost
from proof.columns import COLUMNS, Column, choose_columns
from proof.judge import Count
from proof.lives import ROOT
from proof.rows import ROWS
from proof.table import BEGIN, END, RIGHT, VOID, make_lines, write_count, write_json, write_markdown, write_page
from scripts.size import count_lines

MOST_LINES = 60
PROGRAMS = sorted((ROOT / "proof" / "contenders").glob("*.py"))


@pytest.mark.parametrize(
    "count, text",
    [
        (Count(of=9), RIGHT),
        (Count(void=3), VOID),
        (Count(of=9, twice=2, unknown=3), "2 twice, 3 unknown"),
        (Count(of=3, wrong=1, lost=1, stopped=1, void=2), "1 wrong, 1 lost, 1 stopped (2 void)"),
    ],
)
def test_a_cell_says_what_was_not_right(count: Count, text: str) -> None:
    """A fault that has not landed is not a success."""
    assert write_count(count) == text


def test_only_wrong_twice_and_lost_break_a_promise() -> None:
    """An outcome that is unknown, and said to be, breaks none."""
    assert Count(of=9, unknown=3, stopped=1).is_right
    assert not any(count.is_right for count in (Count(wrong=1), Count(twice=1), Count(lost=1)))


def test_the_table_has_counts_and_costs_of_each_column() -> None:
    """A row says of how many; a cell that was not played is empty."""
    counts = {("killed", "plain"): Count(of=9, twice=6), ("killed", "handrail"): Count(of=9, unknown=3)}
    lines = make_lines({"killed": "killed"}, counts, {"plain": Cost(1.0, 0.0, 23)}, ["plain", "handrail", "dbos"])
    assert write_markdown(["A", "B", "C"], lines).splitlines() == [
        "| | A | B | C |",
        "|---|---|---|---|",
        "| killed (9) | 6 twice | 3 unknown |  |",
        "| ms a call | 1.0 |  |  |",
        "| kB on disk a call | 0.0 |  |  |",
        "| lines of program | 23 |  |  |",
    ]
    cells = json.loads(write_json(counts, {}))["cells"]
    assert [(cell["row"], cell["column"], cell["of"]) for cell in cells] == [(*key, 9) for key in counts]


def test_the_page_has_each_row_and_column_and_breaks_no_promise() -> None:
    """What `make proof` writes there, with a place for the next one."""
    page = PAGE.read_text(encoding="utf-8")
    table = [
        line.strip("| ").split(" | ") for line in page.partition(BEGIN)[2].partition(END)[0].splitlines() if "|" in line
    ]
    assert table[0] == [column.title for column in COLUMNS]
    assert [row[0].rpartition(" (")[0] for row in table[2:-3]] == [*TITLES.values()]
    columns = [at for at, column in enumerate(COLUMNS, 1) if column.has_handrail]
    broken = [row for row in table[2:-3] for at in columns if re.search("wrong|twice|lost|stopped", row[at])]
    assert broken == []
    assert write_page(page, "new").partition(BEGIN)[2].partition(END)[0].strip() == "new"


@pytest.mark.parametrize(
    "name, columns", [("langgraph", ["langgraph-async", "langgraph-sync"]), ("handrail", ["handrail"])]
)
def test_a_name_chooses_its_column_or_those_that_begin_with_it(name: str, columns: list[str]) -> None:
    """A column's own name is not the beginning of others."""
    assert [column.name for column in choose_columns(name)] == columns


def test_every_row_and_column_has_a_name_of_its_own() -> None:
    """By which `--row` and `--column` take it."""
    for names in ([row.name for row in ROWS], [column.name for column in COLUMNS]):
        assert len(names) == len(set(names))


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_each_program_is_at_most_a_page(path: Path) -> None:
    """Lines of code, so that a reader can check that it is fair."""
    assert count_lines(path.read_text(encoding="utf-8"))[0] <= MOST_LINES


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: column.name)
def test_a_program_imports_handrail_if_its_column_says_so(column: Column) -> None:
    """Neither does what the others import here."""
    assert any(name.startswith("handrail") for name in _imports(column.program)) == column.has_handrail


def _imports(program: str) -> set[str]:
    tree = ast.parse((ROOT / "proof" / "contenders" / f"{program}.py").read_text(encoding="utf-8"))
    names = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    names |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    here = [name.rpartition(".")[2] for name in names if name.startswith("proof.contenders.")]
    return names.union(*map(_imports, here))
