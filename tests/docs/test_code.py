"""The code in the README and in the docs runs, and prints what they show.

A block's output stands below it, as a block of `text`; a block without one prints nothing.
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

from tests.architecture.sources import ROOT

README = ROOT / "README.md"

_SHOWN = re.compile(r"\s*```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def with_code() -> dict[Path, list[CodeExample]]:
    """The pages that hold code, each with its blocks in their order."""
    pages = [README, *sorted((ROOT / "docs").rglob("*.md"))]
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


@pytest.mark.parametrize("page", with_code(), ids=lambda page: str(page.relative_to(ROOT)))
@pytest.mark.usefixtures("_as_it_was")
def test_the_code_of_a_page_runs_from_top_to_bottom_and_prints_what_is_shown(
    page: Path, eval_example: EvalExample, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each block sees the names of those above it."""
    names: dict[str, Any] = {}
    for example in with_code()[page]:
        names = eval_example.run(example, module_globals=names)
        assert capsys.readouterr().out == shown_below(example), str(example)


def test_the_readme_runs_as_it_is_typed() -> None:
    """In a new interpreter, it prints what is shown; the log of the failure goes to standard error."""
    (example,) = with_code()[README]
    done = subprocess.run(
        [sys.executable, "-c", example.source], capture_output=True, check=True, cwd=ROOT / "src", encoding="utf-8"
    )
    assert done.stdout == shown_below(example) != ""
    assert done.stderr.startswith("ship failed with ConnectionError\nTraceback")
