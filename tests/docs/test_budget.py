"""The docs have a budget: words of all pages, of a page of each kind and of a decision, and columns of code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT, listed
from tests.docs.test_pages import DECISIONS, DOCS

WORDS = 60_000
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]
EACH = {
    "README.md": 900,
    "AGENTS.md": 600,
    "docs/explanation/*.md": 2_500,
    "docs/how-to/*.md": 1_200,
    "docs/tutorial/*.md": 1_200,
    "docs/contributing/*.md": 2_000,
}
"""The most words of a page, by where it is."""
RECORDS = 25
OF_A_RECORD = 180
"""The most words of a decision, without headings; what is given up is a table."""
GIVEN_UP = "0065-what-is-given-up.md"
COLUMNS = 88

_BLOCK = re.compile(r"^```(?:python|yaml|toml|json)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_WORD = re.compile(r"\w")
_HEADING = re.compile(r"^#.*$", re.MULTILINE)


def words(text: str) -> int:
    """The words of a text, those of code and outputs too; the bars of tables and other marks are none."""
    return sum(bool(_WORD.search(word)) for word in text.split())


def words_of(page: Path) -> int:
    """The words of a page."""
    return words(page.read_text(encoding="utf-8"))


def test_all_pages_are_within_the_budget() -> None:
    """What a table of the reference says is not said again in prose."""
    assert sum(map(words_of, PAGES)) <= WORDS


@pytest.mark.parametrize("pattern", EACH)
@pytest.mark.short(len(EACH))
def test_a_page_answers_one_question(pattern: str) -> None:
    """What is longer answers several."""
    counts = {page: words_of(page) for page in ROOT.glob(pattern)}
    over = [f"{page.relative_to(ROOT)}: {count}" for page, count in counts.items() if count > EACH[pattern]]
    assert not over, listed(over)


def test_a_decision_is_half_a_page() -> None:
    """And there are few: one that no longer decides anything is deleted."""
    pages = sorted(DECISIONS.glob("0*.md"))
    counts = {page.name: words(_HEADING.sub("", page.read_text(encoding="utf-8"))) for page in pages}
    long = [f"{name}: {count}" for name, count in counts.items() if count > OF_A_RECORD and name != GIVEN_UP]
    assert not long, listed(long)
    assert len(pages) <= RECORDS


def test_code_on_a_page_is_not_wider_than_a_page() -> None:
    """What commands print is as they print it."""
    wide = [
        f"{page.relative_to(ROOT)}: {line}"
        for page in PAGES
        for block in _BLOCK.findall(page.read_text(encoding="utf-8"))
        for line in block.splitlines()
        if len(line) > COLUMNS
    ]
    assert not wide, listed(wide)
