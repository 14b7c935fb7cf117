"""`docs/reference/developer-mistakes.md` and `agent-errors.md`: their rows, and all other mistakes, are made here."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import handrail.errors
from handrail.errors import AgentError, DeveloperMistake, InvalidArgumentError
from tests.architecture.sources import ROOT
from tests.docs.agent_faults import ACTS, COMMANDS, FOLDERS, SAYS_ITS_CURE, Fault, inspected, raised, typed, written
from tests.docs.developer_mistakes import CALLS, MISTAKES, RUNS, Mistake

MISTAKES_PAGE = ROOT / "docs" / "reference" / "developer-mistakes.md"


SAYS_WHAT_TO_WRITE: Mapping[str, str] = {
    "a function that cannot be a tool": "how: JSON has no complex numbers",
    "a tool without its types": "needs its types, in brackets",
    "one type in the brackets": "write Tool[Params, Result]",
    "parameters that are not a dataclass": "they must be a dataclass",
    "a name with capitals and blanks": "write 'Pay_now'",
    "an empty description": "description has 0 characters",
    "a handler that cannot be called": "which cannot be called",
    "a handler without `context`": "Write: def pay_without_context",
    "a handler of other parameters": "takes params: Client",
    "an unknown effect": "it must be one of 'read', 'state'",
    '`idempotency="auto"`': "write idempotency=True, or IdempotencyConfig(...)",
    "a timeout without its unit": "timeout=timedelta(seconds=30)",
    "an example of another type": "the input of example 1 is",
    '`on_orphan="reconcile"` without `reconcile`': "needs reconcile=...",
    '`reconcile` with `on_orphan="retry"`': "reconcile is never asked",
    '`repeat_unknown="allow"` with a key': "is for a tool without a key",
    "`apply` that takes no result": "Write: def ask(params: Order, result",
    "`apply` of a concurrent tool": "leave concurrent out",
    "a failure that proves nothing": "which may be raised after the effect",
    "a time to live without its unit": "it must be a timedelta",
    "a `key_fn` of two parameters": "missing a required",
    "`concurrent` as text": "concurrent=True or concurrent=False",
    "a description with a lone surrogate": "has a lone surrogate",
    "a copy with a wrong field": "description has 0 characters",
    "a function among the tools": "which is not a Tool",
    "one tool, not a list": "write tools=[...]",
    "a class as a policy": "is not a policy",
    "a policy without `on_result`": "has no method on_result",
    "a policy that is asynchronous": "policies are synchronous",
    "a policy that takes note asynchronously": "on_result is asynchronous",
    "an unknown placeholder": "colour",
    "tools that wait for each other": "a -> b -> a",
    "a text as names": "write the names of one tool or more",
    "a policy on tools out of its reach": "Put the policy on a section that contains them all",
    "two tools of one name": "two tools have this name",
    "one section, not a list": "write sections=[...]",
    "a key with blanks": "key is 'pay now'",
    "a provider of feedback without a trigger": "which is not a FeedbackProvider",
    "a class as a checker": "cannot check an answer",
    "a checker that returns `True`": "it must return what is missing",
    "an answer that is not a dataclass": "the answer is a dataclass, str, or None",
    "an override of a text that accepts none": "accepts no overrides",
    "an override with an unknown placeholder": "colour",
    "parameters that no section takes": "take no parameters",
    "a class as parameters": "the class Order",
    "no parameters": "Order",
    "a resource of another type": "which is not a Client",
    "a name as a type": "Bind it for its class",
    "two bindings of one type": "bound twice",
    "a URL without a scheme": "sqlite:///desk.db",
    "an unknown session": "has no session 'desk'",
    "a text as a slice's class": "decorated with @dataclass",
    "two reducers of one slice and event": "has another reducer for Order",
    "a deadline without a time zone": "has no time zone",
    "a database of SQLite in memory": 'write "memory:"',
}
"""Words of the messages about declarations, which have no row on the page: each message says what to write."""


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


def test_the_page_has_a_row_for_each_mistake_that_shows_in_a_run_and_no_other() -> None:
    """In the same order; all but one have words. The message about a declaration says what to write."""
    with_words = [mistake.does for mistake in MISTAKES if mistake.error is not InvalidArgumentError]
    assert [*SAYS_WHAT_TO_WRITE, *mistake_rows()] == with_words
    assert {*mistake_rows()} <= {mistake.does for mistake in (*RUNS, *CALLS)}
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
        words = SAYS_WHAT_TO_WRITE.get(mistake.does)
        error, words = (mistake.error.__name__, words) if words else mistake_rows()[mistake.does]
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
    found = [(words, kind) for kind, each in SAYS_ITS_CURE.items() for words in each]
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
    assert AGENTS_PAGE.read_text(encoding="utf-8").count("\n| `") == len(words) - sum(map(len, SAYS_ITS_CURE.values()))


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
