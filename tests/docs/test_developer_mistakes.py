"""`docs/reference/developer-mistakes.md` is held to the code: each of its rows is a mistake that is made here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from handrail.errors import DeveloperMistake
from tests.architecture.sources import ROOT
from tests.docs.developer_mistakes import MISTAKES
from tests.docs.mistaken_programs import CALLS, Mistake

PAGE = ROOT / "docs" / "reference" / "developer-mistakes.md"

_ROW = re.compile(r"^\| ([^|]+) \| ([^|]+) \| `(\w+)` \| ([^|]*) \| ([^|]*) \|$", re.MULTILINE)


def row_of(mistake: Mistake) -> list[str]:
    """The row that the page has for a mistake, without the words of its message."""
    attributes = ", ".join(f"`{name}`" for name in mistake.attributes) or "-"
    return [mistake.does, mistake.found_by, mistake.error.__name__, attributes]


def rows() -> list[list[str]]:
    """The rows of the page; the last cell of each has words of the message."""
    return [[cell.strip() for cell in row] for row in _ROW.findall(PAGE.read_text(encoding="utf-8"))]


def test_the_page_has_a_row_for_each_mistake_and_no_other() -> None:
    """In the same order; all but one have words."""
    assert [cells for *cells, _ in rows()] == [row_of(mistake) for mistake in MISTAKES]
    assert [does for does, *_, words in rows() if words == "-"] == ["an identity that stands for another call"]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.does)
def test_a_mistake_raises_what_the_page_says(mistake: Mistake, tmp_path: Path) -> None:
    """The very type, with words and attributes."""
    with pytest.raises(mistake.error) as caught:
        mistake.make(tmp_path)
    assert type(caught.value) is mistake.error
    (words,) = [words for does, *_, words in rows() if does == mistake.does]
    assert words == "-" or (words[0] + words[-1], words[1:-1] in str(caught.value)) == ("``", True)
    assert {name: getattr(caught.value, name) for name in mistake.attributes} == dict(mistake.attributes)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mistake", CALLS, ids=lambda mistake: mistake.does)
def test_what_shows_in_a_call_is_raised_to_the_developer(mistake: Mistake) -> None:
    """It is of the branch that is."""
    assert issubclass(mistake.error, DeveloperMistake)
