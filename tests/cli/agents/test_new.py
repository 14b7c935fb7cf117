"""The folder of a new agent."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from handrail.cli.agents import write_agent_folder
from handrail.errors import AgentError
from tests.wording import Wording


@pytest.mark.parametrize("name", ["a", "my-desk", "n" * 64])
def test_the_modules_are_as_ruff_formats_them(tmp_path: Path, name: str) -> None:
    """With its defaults, whatever the name of the agent; so a project that formats its code leaves them alone."""
    folder = write_agent_folder(name, tmp_path)
    command = [sys.executable, "-m", "ruff", "format", "--isolated", "--diff", str(folder)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, "")


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_nothing_is_overwritten(tmp_path: Path, kind: str, wording: Wording) -> None:
    """Not even an empty folder, or a link to nothing."""
    there = tmp_path / "desk"
    if kind == "file":
        there.write_text("mine")
    elif kind == "folder":
        there.mkdir()
    else:
        there.symlink_to(tmp_path / "nowhere")
    with pytest.raises(AgentError) as raised:
        write_agent_folder("desk", tmp_path)
    assert str(raised.value) == wording
    assert list(tmp_path.iterdir()) == [there]


def test_a_place_that_cannot_be_written_to_is_told(tmp_path: Path, wording: Wording) -> None:
    """A file where a folder should be, say."""
    (tmp_path / "file").write_text("mine")
    with pytest.raises(AgentError) as raised:
        write_agent_folder("desk", tmp_path / "file")
    assert str(raised.value) == wording
    assert (tmp_path / "file").read_text() == "mine"
