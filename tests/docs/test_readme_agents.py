"""The agent of the README is the one of the examples, and its command prints what the README shows."""

from __future__ import annotations

import re
import shlex

import pytest

from handrail.cli import main
from tests.architecture.sources import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_agent_file_of_the_readme_is_that_of_the_example() -> None:
    """Word by word."""
    (where,) = re.findall(r"\[analyst\.agent\]\((.*?)\)", README)
    (block,) = re.findall(r"^```yaml\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    assert block == (ROOT / where).read_text(encoding="utf-8")


def test_the_command_of_the_readme_prints_what_is_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a checkout; what the agents do goes to standard error."""
    monkeypatch.chdir(ROOT)
    monkeypatch.delenv("HANDRAIL_STORE", raising=False)
    (block,) = re.findall(r"^```console\n\$ handrail (.*?)^```$", README, re.MULTILINE | re.DOTALL)
    typed, _, shown = block.partition("\n")
    assert main(shlex.split(typed)) == 0
    assert capsys.readouterr().out.rstrip("\n") == shown.rstrip("\n")
