"""What is left of a call whose agent, engine or command is killed: nothing, and the tree as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.sandboxes import TARGETS, play
from tests.extent import FULL

_SHORT = "agent over podman", "agent over bubblewrap", "podman exec"


@pytest.mark.parametrize("name", TARGETS if FULL else _SHORT)
@pytest.mark.short(1)
def test_call_that_is_killed_is_undone_and_the_next_one_works(name: str, tmp_path: Path) -> None:
    """The agent, a part of the sandbox, or the command: nothing of it runs on, and no container is left."""
    assert play(name, tmp_path).faults == ()
