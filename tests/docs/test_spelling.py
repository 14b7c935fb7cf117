"""The pages are spelled as codespell knows words; its list of mistakes is part of the package."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from tests.architecture.sources import ROOT
from tests.docs.test_words import PAGES

KNOWN = ("boook", "caf")
"""Parts of pages that look like mistakes: a mistake of a model, and the name of a file in another Unicode form."""


def mistakes(pages: Iterable[Path], folder: Path) -> list[str]:
    """What codespell finds, a line each."""
    command = [sys.executable, "-m", "codespell_lib", "--ignore-words-list", ",".join(KNOWN), *map(str, pages)]
    done = subprocess.run(command, cwd=folder, capture_output=True, encoding="utf-8", check=False)
    assert not done.stderr, done.stderr
    return done.stdout.splitlines()


def test_the_pages_have_no_known_misspelling() -> None:
    """Those of `docs`, of the root, and of the examples."""
    assert mistakes([*PAGES, ROOT / "CHANGELOG.md"], ROOT) == []
