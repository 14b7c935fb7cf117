"""`docs/reference/developer-mistakes.md` and `agent-errors.md`: each of their rows is an error that is made here."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import handrail.errors
from handrail.errors import AgentError, DeveloperMistake, InvalidArgumentError
from tests.architecture.sources import ROOT
from tests.docs.agent_faults import ACTS, COMMANDS, FOLDERS, Fault, inspected, raised, typed, written
from tests.docs.developer_mistakes import CALLS, MISTAKES, Mistake

MISTAKES_PAGE = ROOT / "docs" / "reference" / "developer-mistakes.md"


_SECTION = re.compile(r"^## ", re.MULTILINE)


_MISTAKE_DEFAULT = re.compile(r"The error is `(\w+)`, unless a row names another")


_MISTAKE_ROW = re.compile(r"^\| ([^|]+) \| (?:`(\w+)`: )?(-|`[^|]+`) \|$", re.MULTILINE)


def mistake_rows() -> dict[str, tuple[str, str]]:
    """Each mistake of the page, with the name of its error and the words of its message."""
    found: dict[str, tuple[str, str]] = {}
    for section in _SECTION.split(MISTAKES_PAGE.read_text(encoding="utf-8"))[1:]:
        (default,) = _MISTAKE_DEFAULT.findall(section)
        for does, own, words in _MISTAKE_ROW.findall(section):
            assert does not in found
            found[does] = (own or default, words.strip("`"))
    return found


def test_the_page_has_a_row_for_each_mistake_and_no_other() -> None:
    """In the same order; all but one have words. Arguments of the wrong kind are a sentence of the page."""
    assert [*mistake_rows()] == [mistake.does for mistake in MISTAKES if mistake.error is not InvalidArgumentError]
    assert [does for does, (_, words) in mistake_rows().items() if words == "-"] == [
        "an identity that stands for another call"
    ]


@pytest.mark.parametrize("mistake", MISTAKES, ids=[f"{at} {mistake.does}" for at, mistake in enumerate(MISTAKES)])
def test_a_mistake_raises_what_the_page_says(mistake: Mistake, tmp_path: Path) -> None:
    """The very type, with words and attributes."""
    with pytest.raises(mistake.error) as caught:
        mistake.make(tmp_path)
    assert type(caught.value) is mistake.error
    if isinstance(caught.value, InvalidArgumentError):
        assert str(caught.value).startswith(f"{caught.value.function}: ")
        assert f"; it must be {caught.value.expected}" in str(caught.value)
    else:
        error, words = mistake_rows()[mistake.does]
        assert error == mistake.error.__name__
        assert words == "-" or words in str(caught.value)
    assert {name: getattr(caught.value, name) for name in mistake.attributes} == dict(mistake.attributes)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mistake", CALLS, ids=lambda mistake: mistake.does)
def test_what_shows_in_a_call_is_raised_to_the_developer(mistake: Mistake) -> None:
    """It is of the branch that is."""
    assert issubclass(mistake.error, DeveloperMistake)


AGENTS_PAGE = ROOT / "docs" / "reference" / "agent-errors.md"


_DEFAULT = re.compile(r"The error is ([^,]+), unless a row names another")


_ROW = re.compile(r"^\| `([^|]+)` \| ([^|]+) \|$", re.MULTILINE)


_KIND = re.compile(r"(`\w+`|a failed call|exit code \d): ")


def agent_rows() -> list[tuple[str, str]]:
    """The words that the message of each error has, and the kind of the error: that of its section, or its own."""
    found: list[tuple[str, str]] = []
    for section in _SECTION.split(AGENTS_PAGE.read_text(encoding="utf-8"))[1:]:
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
@pytest.mark.parametrize("words, kind", agent_rows(), ids=lambda value: str(value)[:40])
@pytest.mark.short(len(agent_rows()))  # the page goes stale otherwise
def test_an_error_of_the_page_can_be_provoked(words: str, kind: str, tmp_path: Path) -> None:
    """It is of the kind that the page says, and its message has the words."""
    found, message = provoked(words, tmp_path)
    assert (found, words in message) == (kind, True), message


def test_every_row_of_the_page_is_provoked_and_nothing_else() -> None:
    """Each has words of its own."""
    words = [words for words, _ in agent_rows()]
    assert sorted(words) == sorted({*FOLDERS, *ACTS, *COMMANDS})
    assert AGENTS_PAGE.read_text(encoding="utf-8").count("\n| `") == len(words)


def test_every_kind_of_agent_error_has_a_row() -> None:
    """Whoever catches one finds it on the page, or a kind of it."""
    kinds = {kind for _, kind in agent_rows()}
    assert {error.__name__ for error in _family(AgentError)} <= kinds


def test_every_error_of_the_page_can_be_imported() -> None:
    """From `handrail.errors`, unless Python has it."""
    named = {kind for _, kind in agent_rows() if kind.isidentifier()}
    assert all(hasattr(handrail.errors, name) or name == "ValueError" for name in named)


def _family(kind: type[AgentError]) -> Iterator[type[AgentError]]:
    yield kind
    for below in kind.__subclasses__():
        if below.__module__.startswith("handrail."):
            yield from _family(below)
