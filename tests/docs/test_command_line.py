"""The commands on `docs/command-line.md` run in the order of the page, and print what it shows."""

from __future__ import annotations

import io
import re
import shlex
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from handrail.cli import main
from handrail.cli.entry import application
from tests.architecture.sources import ROOT
from tests.docs.evening import fill

PAGE = ROOT / "docs" / "command-line.md"

_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"\d+ (s|min|h|d) ago")
_SECONDS = re.compile(r"\d+\.\d s\b")
_EXIT_CODE = "echo $?"


def commands_of(page: Path) -> Iterator[tuple[str, str]]:
    """Each command of a page, with what is shown below it."""
    for block in _BLOCK.findall(page.read_text(encoding="utf-8")):
        for command in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            line, _, shown = command.partition("\n")
            yield line, shown


def _comparable(text: str) -> str:
    """A text without what the time of day makes of it: how long ago something was or took, and how wide that is."""
    return re.sub(" {2,}", "  ", _SECONDS.sub("N s", _SPAN.sub("N ago", text)))


def test_commands_print_what_the_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over one store, each after those above it; `echo $?` shows the exit code of the one before."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    fill("sqlite:///desk.db")
    monkeypatch.setenv("HANDRAIL_STORE", "sqlite:///desk.db")
    code = 0
    for line, shown in commands_of(PAGE):
        screen = io.StringIO()  # both streams, as a terminal shows them
        if line == _EXIT_CODE:
            screen.write(f"{code}\n")
        else:
            name, *argv = shlex.split(line)
            assert name == "handrail"
            with redirect_stdout(screen), redirect_stderr(screen):
                code = main(argv)
        printed = screen.getvalue().replace(str(tmp_path), "/srv")
        assert _comparable(printed) == _comparable(shown), line


def test_every_command_has_an_example() -> None:
    """A command that is added is shown on the page."""
    shown = {tuple(line.split()[1:3]) for line, _ in commands_of(PAGE)}
    groups = {group: application()[group] for group in ("sessions", "ledger")}
    there = {(group, name) for group, app in groups.items() for name in app if not name.startswith("-")}
    assert there <= shown
    assert {"new", "check", "run"} <= {first for first, *_ in shown}
