"""What the README has a newcomer type works as it is typed, and prints what the README shows."""

from __future__ import annotations

import io
import re
import sys
import tomllib
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT
from tests.docs.kit import comparable, read_commands, typed
from tests.wording import Wording

PAGE = ROOT / "README.md"
README = PAGE.read_text(encoding="utf-8")
COMMANDS = list(read_commands(PAGE))

_SHELL = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINES: list[str] = [line for block in _SHELL.findall(README) for line in block.splitlines()]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to type in, without a key, a store, or anybody to be asked."""
    for name in ("HANDRAIL_STORE", "HANDRAIL_MODEL", "OPENAI_API_KEY", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def command(begin: str, word: str) -> str:
    """The one command line of the README's blocks for a shell that begins so, and has this word."""
    lines = [line for line in _LINES if line.startswith(begin) and word in line]
    assert len(lines) == 1
    return lines[0]


@pytest.mark.usefixtures("place")
def test_the_commands_of_the_readme_print_what_is_shown() -> None:
    """In an empty folder, each after those above it; the first one prints the second."""
    assert [line.split()[1] for line, _ in COMMANDS] == ["new", "run"]
    assert f"  {COMMANDS[1][0]}\n" in COMMANDS[0][1]
    for line, shown in COMMANDS:
        code, printed = typed(line)
        assert (code, comparable(printed)) == (0, comparable(shown)), line


def test_calls_that_change_something_are_denied_in_a_pipe_until_rule_allows_them(place: Path, wording: Wording) -> None:
    """The rule of the README, put below those that are there, is the cure; what only reads needs none."""
    (rule,) = re.findall(r"`(allow: \[.*?\])`", README)
    assert typed(COMMANDS[0][0])[0] == 0
    line = COMMANDS[1][0].removesuffix(" --approve approve-all")
    assert line != COMMANDS[1][0]
    code, printed = typed(line)
    assert code == 1
    assert [shown for shown in printed.splitlines() if "list_notes(" in shown or "add_note(" in shown] == wording
    with (place / "notes" / "approval.yaml").open("a", encoding="utf-8") as rules:
        rules.write(f"{rule}\n")
    code, printed = typed(line)
    assert (code, comparable(printed)) == (0, comparable(COMMANDS[1][1]))


@pytest.mark.usefixtures("place")
def test_a_real_model_needs_what_the_readme_says(wording: Wording) -> None:
    """Its key, and its extra, which is there in a checkout; no model is asked without them."""
    assert typed(COMMANDS[0][0])[0] == 0
    code, printed = typed(command("handrail run notes", "openai"))
    assert (code, printed) == (2, wording)
    assert "`OPENAI_API_KEY`" in README


def test_what_is_installed_brings_the_command_and_agents() -> None:
    """Every extra that the README has installed is one, and it is installed above the first command."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = re.findall(r"pip install '(\w+)\[(.*?)\]'", README)
    assert ("handrail", "agents,cli") in named
    assert {extra for _, extras in named for extra in extras.split(",")} <= set(project["optional-dependencies"])
    assert README.index("pip install 'handrail[agents,cli]'") < README.index("$ handrail")
    assert "handrail" in project["scripts"]
