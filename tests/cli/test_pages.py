"""`handrail docs`: the pages in the terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from handrail.cli.pages import installed_pages
from tests.architecture.sources import ROOT
from tests.cli.desk import Command, Terminal

DOCS = ROOT / "docs"


def test_without_a_name_the_index_lists_all_pages(handrail: Command) -> None:
    """It is the page that lists them, which links to each."""
    ran = handrail("docs")
    assert (ran.code, ran.out) == (0, (DOCS / "README.md").read_text(encoding="utf-8"))
    names = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    assert {path for path in names if f"]({path})" not in ran.out} <= {
        name for name in names if name == "README.md" or name.startswith("contributing/decisions/0")
    }


@pytest.mark.parametrize(
    "word, page",
    [
        ("how-to/write-a-tool", "how-to/write-a-tool.md"),
        ("docs/../Write-A-Tool.md", ""),
        ("Write-A-Tool.md", "how-to/write-a-tool.md"),
        ("operate", "how-to/operate-a-store.md"),
        ("how-to/operate", "how-to/operate-a-store.md"),
        ("0039", "contributing/decisions/0039-a-tool-is-a-function.md"),
        ("decisions", "contributing/decisions/README.md"),
        ("readme", "../README.md"),
        ("security-policy", "../SECURITY.md"),
        ("../README", ""),
    ],
)
def test_a_page_is_named_by_its_path_its_last_part_or_a_beginning(handrail: Command, word: str, page: str) -> None:
    """In a pipe it is the file, byte for byte; no word leads out of the folder."""
    ran = handrail("docs", word)
    assert ran.code == (0 if page else 1)
    assert ran.out == ((DOCS / page).read_text(encoding="utf-8") if page else "")


def test_a_terminal_is_shown_the_page_in_its_width(terminal: Terminal) -> None:
    """As rich lays it out."""
    assert terminal.run("docs", "locks", width=70) == 0
    assert terminal.lines[0].strip() == "Locks"
    assert max(map(len, terminal.lines)) <= 70


def test_pages_that_are_not_installed_are_missed(
    handrail: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The command says where they are; those of a package are found in it."""
    package = tmp_path / "handrail"
    monkeypatch.setattr("handrail.__file__", str(package / "__init__.py"))
    assert installed_pages() == {}
    assert handrail("docs").code == 1
    (package / "docs").mkdir(parents=True)
    (package / "docs" / "README.md").write_text("# Docs\n", encoding="utf-8")
    assert installed_pages()["index"] == package / "docs" / "README.md"
