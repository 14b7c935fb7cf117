"""What is left of a call whose agent, engine or command is killed: nothing, and the tree as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contrib.tools.sandbox.grounds import SANDBOXES, Ground, Where
from tests.contrib.tools.sandbox.interrupted import LATE, agents_kill, kill, pids_of, under_way, wait_for
from tests.contrib.tools.sandbox.podman_store import containers
from tests.extent import some


@pytest.mark.parametrize("where", SANDBOXES)
def test_agent_is_killed(where: Where, tmp_path: Path) -> None:
    """The next opening ends what is left before it restores the tree; the next sandbox removes the container."""
    with Ground(where, tmp_path) as ground:
        before = ground.picture()
    agents_kill(where, tmp_path)
    with Ground(where, tmp_path) as ground:
        assert not pids_of("sh", LATE)
        assert ground.picture() == before
        assert ground.told("cat notes/plan.md") == "1. look"
    if where == "podman":
        assert not containers()


@pytest.mark.parametrize(
    "program, word",
    some([("podman", "exec"), ("sleep", "50"), ("/bin/sh", "cat <&3"), ("podman", "run")], 2),
)
def test_part_of_podman_is_killed(program: str, word: str, tmp_path: Path) -> None:
    """The client of the command, the command, the first process of the container, or what follows the container."""
    with Ground("podman", tmp_path) as ground:
        before = ground.picture()
        with under_way(ground) as call:
            kill(pids_of(program, word))
        assert not call.messages[0].success
        assert not pids_of("sh", LATE)
        assert ground.picture() == before
        assert ground.told("cat notes/plan.md") == "1. look"
    assert not containers()


def test_bubblewrap_is_killed(tmp_path: Path) -> None:
    """All of its processes end with it."""
    with Ground("bubblewrap", tmp_path) as ground:
        before = ground.picture()
        with under_way(ground) as call:
            kill(pids_of("bwrap", "--disable-userns")[:1])
        assert not call.messages[0].success
        wait_for(lambda: not pids_of("sh", LATE))
        assert ground.picture() == before
