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
    "docs/contributing/*.md": 1_200,
}
"""The most words of a page, by where it is."""
RECORDS = 25
OF_A_RECORD = 180
"""The most words of a decision, without headings and marks; what is given up is a table."""
COLUMNS = 88

_BLOCK = re.compile(r"^```(?:python|yaml|toml|json)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#.*$", re.MULTILINE)


def words(page: Path) -> int:
    """The words of a page, as `wc -w` counts them: code, outputs and the bars of tables too."""
    return len(page.read_text(encoding="utf-8").split())


def test_all_pages_are_within_the_budget() -> None:
    """What a table of the reference says is not said again in prose."""
    assert sum(map(words, PAGES)) <= WORDS


@pytest.mark.parametrize("pattern", EACH)
@pytest.mark.short(len(EACH))
def test_a_page_answers_one_question(pattern: str) -> None:
    """What is longer answers several."""
    over = [f"{page.relative_to(ROOT)}: {words(page)}" for page in ROOT.glob(pattern) if words(page) > EACH[pattern]]
    assert not over, listed(over)


def test_a_decision_is_half_a_page() -> None:
    """And there are few: one that no longer decides anything is deleted."""
    pages = sorted(DECISIONS.glob("0*.md"))
    texts = {page: _HEADING.sub("", page.read_text(encoding="utf-8")).split() for page in pages}
    long = [
        f"{page.name}: {count}"
        for page, text in texts.items()
        if (count := sum(bool(re.search(r"\w", word)) for word in text)) > OF_A_RECORD
        and page.name != "0065-what-is-given-up.md"
    ]
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
