"""`docs/reference/errors.md` lists each exception once, under what it is a subclass of."""

from __future__ import annotations

import re

import pytest

import handrail.errors
from handrail.errors import AgentError, DeveloperMistake, HandrailError, ModelVisibleError, RunAbortedError
from tests.architecture.sources import ROOT

TEXT = (ROOT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
ROOTS = {
    "Read by the model": ModelVisibleError,
    "End the run": RunAbortedError,
    "Mistakes of the developer": DeveloperMistake,
    "Agents": AgentError,
}
BRANCHES = {HandrailError, ModelVisibleError, RunAbortedError, DeveloperMistake, handrail.errors.CallPostponed}


def rows(section: str = "") -> list[str]:
    """The names in the first cells of the tables of a section, or of all of them."""
    parts = re.split(r"^## ", TEXT, flags=re.MULTILINE)[2:]
    chosen = [part for part in parts if not section or part.startswith(f"{section}\n")]
    return [name for part in chosen for name in re.findall(r"^\| `(\w+)` \|", part, re.MULTILINE)]


def test_each_exception_has_one_row() -> None:
    """Those that are only branches are named in the text."""
    every = [getattr(handrail.errors, name) for name in handrail.errors.__all__]
    kinds = {kind.__name__ for kind in every if isinstance(kind, type) and issubclass(kind, BaseException)}
    assert sorted(rows()) == sorted(kinds - {kind.__name__ for kind in BRANCHES})


@pytest.mark.parametrize("section", ROOTS)
def test_a_section_has_the_subclasses_of_its_branch(section: str) -> None:
    """All of them, and no others."""
    root = ROOTS[section]
    found = {name for name in rows() if issubclass(getattr(handrail.errors, name), root)}
    assert set(rows(section)) == found
