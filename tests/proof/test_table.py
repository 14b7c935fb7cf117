"""The table by failure: its cells, its rows, and the rules for those who are in it."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from proof.__main__ import PAGE, PLAYS, TITLES, main
from proof.cells import Cost, play
from proof.columns import COLUMNS, Column, choose_columns
from proof.judge import Count
from proof.lives import ROOT, Lives
from proof.rows import ROWS, Row
from proof.table import BEGIN, END, RIGHT, VOID, make_lines, write_counts, write_json, write_markdown, write_page
from scripts.size import count_lines

MOST_LINES = 60
PROGRAMS = sorted((ROOT / "proof" / "contenders").glob("*.py"))


@pytest.mark.parametrize(
    "counts, text",
    [
        ([Count(of=9)], RIGHT),
        ([Count(void=3)], VOID),
        ([Count(of=9, twice=2, unknown=3, unmade=1)], "2 twice, 3 unknown, 1 not made"),
        ([Count(of=9, refused=1)], "1 wanted, not made"),
        ([Count(of=3, wrong=1, lost=1, stopped=1, void=2)], "1 lost, 1 wrong, 1 stopped (2 void)"),
        (
            [Count(of=9, twice=7, lost=1), Count(of=9, twice=4, lost=1), Count(of=9, twice=5, lost=1)],
            "4-7 twice, 1 lost",
        ),
        ([Count(of=9), Count(of=9, twice=1)], "0-1 twice"),
    ],
)
def test_a_cell_says_what_was_not_right(counts: Sequence[Count], text: str) -> None:
    """A fault that has not landed is not a success; of several plays it says the least and the most."""
    assert write_counts(counts) == text


def test_an_outcome_that_is_said_to_be_unknown_breaks_no_promise() -> None:
    """All that is worse does, and so does a fault that has not landed."""
    assert Count(of=9, unknown=3, unmade=2, refused=1).is_right
    worse = Count(of=9, wrong=1), Count(of=9, twice=1), Count(of=9, lost=1), Count(of=9, stopped=1), Count(of=9, void=1)
    assert not any(count.is_right for count in (*worse, Count(void=3)))


def test_the_table_has_counts_and_costs_of_each_column() -> None:
    """A row says of how many; a cell that was not played is empty."""
    counts = {("killed", "plain"): [Count(of=9, twice=6)], ("killed", "handrail"): [Count(of=9, unknown=3)]}
    costs = {"plain": Cost(1.0, 0.0, 23), "dbos": Cost(60.0, 7.4, 74, 30.0)}
    lines = make_lines({"killed": "killed"}, counts, costs, ["plain", "handrail", "dbos"])
    assert write_markdown(["A", "B", "C"], lines).splitlines() == [
        "| | A | B | C |",
        "|---|---|---|---|",
        "| killed (9) | 6 twice | 3 unknown |  |",
        "| time a call, in plain calls | 1.0 |  | 60; 30 |",
        "| kB on disk a call | 0.0 |  | 7.4 |",
        "| lines of program | 23 |  | 74 |",
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
    broken = [row for row in table[2:-3] for at in columns if re.search("wrong|twice|lost|stopped|void", row[at])]
    assert broken == []
    assert write_page(page, "new").partition(BEGIN)[2].partition(END)[0].strip() == "new"


@pytest.mark.parametrize(
    "name, columns",
    [
        ("langgraph", ["langgraph-async", "langgraph-sync"]),
        ("handrail", [column.name for column in COLUMNS if column.has_handrail]),
        ("plain", ["plain"]),
    ],
)
def test_a_name_chooses_its_column_or_those_that_begin_with_it(name: str, columns: list[str]) -> None:
    """A column's own name is not the beginning of others."""
    assert [column.name for column in choose_columns(name)] == columns


@pytest.mark.parametrize(
    "arguments",
    [
        ("--page", "--row", "killed"),
        ("--page", "--column", "plain"),
        ("--every", "0"),
        ("--json", "no/such/folder.json"),
    ],
    ids=" ".join,
)
def test_what_would_lose_the_page_or_the_work_is_refused_before_it(arguments: tuple[str, ...]) -> None:
    """A part of the table is not the table, and a file that cannot be written is found out first."""
    page = PAGE.read_bytes()
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert PAGE.read_bytes() == page


def test_a_cell_is_played_once_however_often_it_is_named(tmp_path: Path) -> None:
    """And as often as a race needs; the file has each play."""
    path = tmp_path / "cells.json"
    twice = ("--column", "plain", "--row", "killed", "--row", "disk-full") * 2
    assert main(["--here", "--json", str(path), *twice]) == 0
    rows = [cell["row"] for cell in json.loads(path.read_text())["cells"]]
    assert rows == ["killed", *["disk-full"] * PLAYS]


def test_an_interrupt_leaves_the_finished_cells(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a table, with the exit code of a program that was interrupted."""

    def play_one(row: Row, lives: Lives) -> Count:
        if row.name == "repeated":
            raise KeyboardInterrupt
        return play(row, lives)

    monkeypatch.setattr("proof.__main__.play", play_one)
    assert main(["--here", "--column", "plain", "--row", "killed", "--row", "repeated"]) == 130
    titles = [line for line in capsys.readouterr().out.splitlines() if line.startswith(tuple(TITLES.values()))]
    assert titles == [f"{TITLES['killed']} (9)"]


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
