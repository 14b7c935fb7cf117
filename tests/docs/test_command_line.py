"""The commands on `docs/reference/command-line.md` run in the order of the page, and print what it shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from handrail.cli.application import application
from tests.architecture.sources import ROOT
from tests.docs import command_options
from tests.docs.console import commands_of, comparable, typed
from tests.docs.evening import fill

PAGE = ROOT / "docs" / "reference" / "command-line.md"

_EXIT_CODE = "echo $?"


def test_commands_print_what_the_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over one store, each after those above it; `echo $?` shows the exit code of the one before."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    fill("sqlite:///desk.db")
    monkeypatch.setenv("HANDRAIL_STORE", "sqlite:///desk.db")
    code = 0
    for line, shown in commands_of(PAGE):
        if line == _EXIT_CODE:
            printed = f"{code}\n"
        else:
            code, printed = typed(line)
        assert comparable(printed.replace(str(tmp_path), "/srv")) == comparable(shown), line


def test_every_command_has_an_example() -> None:
    """A command that is added is shown on the page."""
    shown = {tuple(line.split()[1:3]) for line, _ in commands_of(PAGE)}
    groups = {group: application()[group] for group in ("sessions", "approvals", "ledger")}
    there = {(group, name) for group, app in groups.items() for name in app if not name.startswith("-")}
    assert there <= shown
    assert {"new", "check", "run", "docs"} <= {first for first, *_ in shown}


def test_every_command_has_its_options_on_the_page() -> None:
    """A section each, and a row for each argument."""
    text = command_options.page()
    found = list(command_options.commands(application(), ()))
    assert text.count("\n## handrail ") == len(found) > 10
    for words, app in found:
        section = text.partition(f"\n## handrail {' '.join(words)}\n")[2].partition("\n## ")[0]
        assert section.count("\n| `") == len(command_options.arguments(app)) > 0
