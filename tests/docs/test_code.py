"""The code in the README and in the docs runs, and prints what they show.

A block's output stands below it, as a block of `text`; a block without one prints nothing. What the reader of a page
saves and starts is run by `test_typed_pages.py`.
"""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pytest_examples import CodeExample, EvalExample, find_examples

import handrail.prompt
from handrail import tool
from tests.architecture.sources import ROOT
from tests.docs.console import unwrapped
from tests.docs.typed_pages import typed_pages
from tests.providers.chat import Chat
from tests.providers.messages import Messages
from tests.providers.programs import OWN_LOOP, PYDANTIC_AI, end_kept_loop
from tests.providers.responses import Responses
from tests.providers.wire import serving
from tests.wording import Wording

README = ROOT / "README.md"

YOUR_OWN_DATABASE = ROOT / "docs" / "how-to" / "your-own-database.md"
"""Its programs need a server: `test_your_own_database.py` runs them."""

_SHOWN = re.compile(r"\s*```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def with_code() -> dict[Path, list[CodeExample]]:
    """The pages that hold code, each with its blocks in their order."""
    pages = [README, *sorted({*(ROOT / "docs").rglob("*.md")} - {YOUR_OWN_DATABASE, *typed_pages()})]
    examples = {page: list(find_examples(page)) for page in pages}
    return {page: found for page, found in examples.items() if found}


def shown_below(example: CodeExample) -> str:
    """What a page says that a block prints."""
    lines = example.path.read_text(encoding="utf-8").splitlines(keepends=True)
    match = _SHOWN.match("".join(lines[example.end_line :]))
    return match[1] if match else ""


@pytest.fixture
def _as_it_was(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Code of the docs is a program: it becomes `__main__`, and may turn the log off."""
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    disabled = logging.root.manager.disable
    yield
    logging.disable(disabled)


@pytest.fixture
def _providers(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder of their own for the programs of a page, and for those that ask a model a server in its place."""
    monkeypatch.chdir(tmp_path)
    if page not in {OWN_LOOP, PYDANTIC_AI}:
        yield
        return
    with serving(Chat(), Responses(), Messages()) as provider:
        for name, value in provider.environment().items():
            monkeypatch.setenv(name, value)
        yield
    end_kept_loop()


@pytest.mark.parametrize("page", with_code(), ids=lambda page: str(page.relative_to(ROOT)))
@pytest.mark.usefixtures("_as_it_was", "_providers")
def test_the_code_of_a_page_runs_from_top_to_bottom_and_prints_what_is_shown(
    page: Path, eval_example: EvalExample, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each block sees the names of those above it."""
    names: dict[str, Any] = {}
    for example in with_code()[page]:
        names = eval_example.run(example, module_globals=names)
        assert unwrapped(capsys.readouterr().out) == unwrapped(shown_below(example)), str(example)


def test_a_decorator_that_a_sentence_names_can_be_written() -> None:
    """`@tool(...)` in a text is accepted as it stands there, unless it leaves something out."""
    pages = [README, *(ROOT / "docs").rglob("*.md")]
    named = {span for page in pages for span in re.findall(r"`@(tool\([^`]*\))`", page.read_text(encoding="utf-8"))}
    whole = {span for span in named if "..." not in span}
    assert whole

    def act(order: str) -> str:
        """Act on an order."""
        return order

    for span in whole:
        decorate = eval(span, {"tool": tool, **vars(handrail.prompt)})  # noqa: S307 - texts of the docs
        assert decorate(act).name == "act", span


def test_the_readme_runs_as_it_is_typed(wording: Wording) -> None:
    """In a new interpreter, it prints what is shown; the log of the failure goes to standard error."""
    (example,) = with_code()[README]
    done = subprocess.run(
        [sys.executable, "-c", example.source], capture_output=True, check=True, cwd=ROOT / "src", encoding="utf-8"
    )
    assert done.stdout == shown_below(example) != ""
    logged, traceback, *_ = done.stderr.splitlines()
    assert (logged, traceback.partition(" ")[0]) == (wording, "Traceback")


def test_the_example_of_the_readme_has_at_most_25_lines() -> None:
    """With its imports."""
    (example,) = with_code()[README]
    assert len(example.source.splitlines()) <= 25
