"""`docs/reference/agent-errors.md` is held to the code: each of its rows is an error that can be provoked."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import handrail.errors
from handrail.errors import AgentError
from tests.architecture.sources import ROOT
from tests.docs.agent_faults import FOLDERS
from tests.docs.agent_run_faults import ACTS, COMMANDS, Fault, inspected, raised, typed, written

PAGE = ROOT / "docs" / "reference" / "agent-errors.md"

_SECTION = re.compile(r"^## ", re.MULTILINE)
_DEFAULT = re.compile(r"The error is ([^,]+), unless a row names another")
_ROW = re.compile(r"^\| `([^|]+)` \| ([^|]+) \|$", re.MULTILINE)
_KIND = re.compile(r"(`\w+`|a failed call|exit code \d): ")


def rows() -> list[tuple[str, str]]:
    """The words that the message of each error has, and the kind of the error: that of its section, or its own."""
    found: list[tuple[str, str]] = []
    for section in _SECTION.split(PAGE.read_text(encoding="utf-8"))[1:]:
        (default,) = _DEFAULT.findall(section)
        for words, cure in _ROW.findall(section):
            own = _KIND.match(cure)
            found.append((words, (own[1] if own else default).strip("`")))
    return found


def provoked(words: str, folder: Path) -> Fault:
    """The error of a row."""
    if words in COMMANDS:
        return typed(folder, COMMANDS[words])
    if words in ACTS:
        return ACTS[words](folder)
    agent_file = written(folder, {"within/.keep": "", **FOLDERS[words]})
    return raised(lambda: inspected(agent_file))


@pytest.fixture
def _nothing_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing comes from the environment or from standard input."""
    monkeypatch.delenv("HANDRAIL_MODEL", raising=False)
    monkeypatch.delenv("HANDRAIL_STORE", raising=False)
    monkeypatch.setattr(sys, "stdin", io.StringIO())


@pytest.mark.usefixtures("_nothing_outside")
@pytest.mark.parametrize("words, kind", rows(), ids=lambda value: str(value)[:40])
def test_an_error_of_the_page_can_be_provoked(words: str, kind: str, tmp_path: Path) -> None:
    """It is of the kind that the page says, and its message has the words."""
    found, message = provoked(words, tmp_path)
    assert (found, words in message) == (kind, True), message


def test_every_row_of_the_page_is_provoked_and_nothing_else() -> None:
    """Each has words of its own."""
    words = [words for words, _ in rows()]
    assert sorted(words) == sorted({*FOLDERS, *ACTS, *COMMANDS})
    assert PAGE.read_text(encoding="utf-8").count("\n| `") == len(words)


def test_every_kind_of_agent_error_has_a_row() -> None:
    """Whoever catches one finds it on the page, or a kind of it."""
    kinds = {kind for _, kind in rows()}
    assert {error.__name__ for error in _family(AgentError)} <= kinds


def test_every_error_of_the_page_can_be_imported() -> None:
    """From `handrail.errors`, unless Python has it."""
    named = {kind for _, kind in rows() if kind.isidentifier()}
    assert all(hasattr(handrail.errors, name) or name == "ValueError" for name in named)


def _family(kind: type[AgentError]) -> Iterator[type[AgentError]]:
    yield kind
    for below in kind.__subclasses__():
        if below.__module__.startswith("handrail."):
            yield from _family(below)
