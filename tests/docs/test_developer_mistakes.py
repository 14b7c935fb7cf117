"""`docs/reference/developer-mistakes.md` is held to the code: each of its rows is a mistake that is made here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from handrail.errors import DeveloperMistake, InvalidArgumentError
from tests.architecture.sources import ROOT
from tests.docs.developer_mistakes import MISTAKES
from tests.docs.mistaken_programs import CALLS, Mistake

PAGE = ROOT / "docs" / "reference" / "developer-mistakes.md"

_SECTION = re.compile(r"^## ", re.MULTILINE)
_DEFAULT = re.compile(r"The error is `(\w+)`, unless a row names another")
_ROW = re.compile(r"^\| ([^|]+) \| (?:`(\w+)`: )?(-|`[^|]+`) \|$", re.MULTILINE)


def rows() -> dict[str, tuple[str, str]]:
    """Each mistake of the page, with the name of its error and the words of its message."""
    found: dict[str, tuple[str, str]] = {}
    for section in _SECTION.split(PAGE.read_text(encoding="utf-8"))[1:]:
        (default,) = _DEFAULT.findall(section)
        for does, own, words in _ROW.findall(section):
            assert does not in found
            found[does] = (own or default, words.strip("`"))
    return found


def test_the_page_has_a_row_for_each_mistake_and_no_other() -> None:
    """In the same order; all but one have words. Arguments of the wrong kind are a sentence of the page."""
    assert [*rows()] == [mistake.does for mistake in MISTAKES if mistake.error is not InvalidArgumentError]
    assert [does for does, (_, words) in rows().items() if words == "-"] == ["an identity that stands for another call"]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.does)
def test_a_mistake_raises_what_the_page_says(mistake: Mistake, tmp_path: Path) -> None:
    """The very type, with words and attributes."""
    with pytest.raises(mistake.error) as caught:
        mistake.make(tmp_path)
    assert type(caught.value) is mistake.error
    if isinstance(caught.value, InvalidArgumentError):
        assert str(caught.value).startswith(f"{caught.value.function}: ")
        assert f"; it must be {caught.value.expected}" in str(caught.value)
    else:
        error, words = rows()[mistake.does]
        assert error == mistake.error.__name__
        assert words == "-" or words in str(caught.value)
    assert {name: getattr(caught.value, name) for name in mistake.attributes} == dict(mistake.attributes)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mistake", CALLS, ids=lambda mistake: mistake.does)
def test_what_shows_in_a_call_is_raised_to_the_developer(mistake: Mistake) -> None:
    """It is of the branch that is."""
    assert issubclass(mistake.error, DeveloperMistake)
