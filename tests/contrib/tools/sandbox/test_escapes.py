"""Commands that try to get out of a sandbox, or to use up the machine: none succeeds, and the next call works."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.contrib.tools.sandbox.escapes import ATTEMPTS, BOMBS, COUNTED
from tests.contrib.tools.sandbox.grounds import PRIVATE, SANDBOXES, Ground, Where, is_superuser, short_limits
from tests.extent import FULL, some

_ABOUT = "fork bomb", "memory", "deep folders", "every process"
"""The attacks of the short form."""


def bounded(where: Where, name: str) -> bool:
    """Whether a sandbox bounds that for the user of the tests."""
    return where == "podman" or name not in COUNTED or not is_superuser()


@pytest.fixture(scope="module", params=SANDBOXES)
def ground(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Generator[Ground]:
    """A workspace with a repository of git, and narrow limits."""
    where: Where = request.param
    outside = tmp_path_factory.mktemp(where)
    os.environ["HANDRAIL_TEST_PRIVATE"] = PRIVATE
    with Ground(where, outside, short_limits(3.0)) as ground:
        subprocess.run(("git", "init", "--quiet", ground.root), check=True)
        yield ground
    del os.environ["HANDRAIL_TEST_PRIVATE"]


@pytest.fixture(scope="module")
def port() -> Generator[int]:
    """The port of a server of the host."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def attempted(ground: Ground, port: int, *names: str) -> list[str]:
    """The attempts that have succeeded."""
    lines = [f"OUTSIDE={ground.outside}; AGENT={os.getpid()}; PORT={port}; export OUTSIDE AGENT PORT"]
    for number, name in enumerate(names):
        (ground.root / f"try{number}.sh").write_text(f"cd /tmp; {ATTEMPTS[name]}\n")
        lines.append(f"busybox sh /workspace/try{number}.sh > /tmp/out 2>&1 < /dev/null && echo 'escaped: {number}'")
    try:
        text = ground.call("; ".join([*lines, "echo all"])).content
    finally:
        for number in range(len(names)):
            (ground.root / f"try{number}.sh").unlink()
    assert "all" in text, text
    return [names[int(line.rpartition(" ")[2])] for line in text.splitlines() if line.startswith("escaped: ")]


def test_no_attempt_succeeds(ground: Ground, port: int) -> None:
    """Nothing of the host can be read, written, signalled or reached."""
    assert len(ATTEMPTS) + len(BOMBS) >= 50
    before = ground.picture()
    names, found = [name for name in ATTEMPTS if bounded(ground.where, name)], list[str]()
    for start in range(0, len(names), 12):
        found += attempted(ground, port, *names[start : start + 12])
    assert found == []
    ground.told("rm -f /workspace/[dloh]")
    assert ground.picture() == before
    assert (ground.outside / "private").read_text() == PRIVATE


@pytest.mark.parametrize(
    "ground, name",
    [(where, name) for where in SANDBOXES for name in (BOMBS if FULL else _ABOUT) if bounded(where, name)],
    indirect=["ground"],
)
@pytest.mark.short(2)
def test_attack_on_the_machine_is_bounded(ground: Ground, name: str) -> None:
    """The call ends soon, the workspace is as before it, nothing is left running, and the next call works."""
    before = ground.picture()
    message = ground.call(BOMBS[name])
    assert not message.success or name in {"temporary files", "memory", "large file"}, message.content
    if not message.success:
        assert ground.picture() == before
    assert ground.told("rm -f f; echo next") == "next\n"
    assert ground.picture() == before
    processes = ground.told("set -- /proc/[0-9]*; echo $#")
    assert int(processes) < 8, message.content


def test_attempts_would_succeed_without_a_sandbox(tmp_path: Path) -> None:
    """So that an attempt that can never succeed shows: these do on the host."""
    with Ground("host", tmp_path) as ground:
        line = f"AGENT={os.getpid()}; OUTSIDE={tmp_path}; {{ %s; }} > /dev/null 2>&1"
        for name in some(["signal the agent", "read beside the workspace", "read through a link"], 3):
            ground.told(line % ATTEMPTS[name].replace("/workspace", str(ground.root)))
