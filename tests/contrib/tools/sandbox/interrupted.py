"""A call that is under way in a sandbox, of this process or of one that is killed.

`python -m tests.contrib.tools.sandbox.interrupted WHERE FOLDER` is the agent that is killed.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from handrail.contrib.tools.sandbox.engine import WORKSPACE
from handrail.programs import running
from handrail.runtime import ToolMessage
from tests.architecture.sources import ROOT
from tests.contrib.tools.sandbox.grounds import Ground, Where

LATE = "echo late >> notes/plan.md"
WORKS_ON = (
    "rm -r notes/old; chmod 777 data.bin; ln -sf x dangling; mkdir new; "
    f"(setsid sh -c 'while :; do {LATE}; sleep 0.02; done' > /dev/null 2>&1 &); sleep 50"
)
"""Changes something of everything, leaves a process that goes on with that, and does not end."""


def agents_kill(where: Where, folder: Path, pause: Callable[[], object] = bool) -> None:
    """Kill an agent by SIGKILL while its command works, after a pause."""
    line, environment = (sys.executable, "-m", __name__, where, folder), {"PYTHONPATH": os.pathsep.join(sys.path)}
    agent = subprocess.Popen(line, cwd=ROOT, stdout=subprocess.PIPE, env={**os.environ, **environment})
    try:
        assert agent.stdout is not None
        assert select.select([agent.stdout], [], [], 50)[0], "no command works"
        assert agent.stdout.readline() == b"under way\n"
        pause()
    finally:
        agent.kill()
        agent.communicate()


@dataclass
class UnderWay:
    """A call of this process that is under way.

    Attributes:
        messages: its message, when it has ended.
    """

    messages: list[ToolMessage] = field(default_factory=list[ToolMessage])


@contextmanager
def under_way(ground: Ground) -> Generator[UnderWay]:
    """A call in a thread, which is waited for at the end of the block."""
    call = UnderWay()
    thread = threading.Thread(target=lambda: call.messages.append(ground.call(WORKS_ON)))
    thread.start()
    try:
        wait_for(lambda: "late" in (ground.root / "notes" / "plan.md").read_text())
        yield call
    finally:
        thread.join()


def wait_for(is_so: Callable[[], object], looks: int = 2000) -> None:
    """Wait until something is so."""
    for _ in range(looks):
        if is_so():
            return
        select.select([], [], [], 0.02)
    raise AssertionError("it is not so yet")


def pids_of(root: Path, program: str, word: str) -> list[int]:
    """The processes of sandboxes over a workspace that were started as a program, with a word in their arguments.

    Other sandboxes of this machine, such as those of another worker, have other workspaces.
    """
    found: list[int] = []
    for process in running():
        line: list[str] = []
        with suppress(OSError):  # it has ended
            line = Path(f"/proc/{process.pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        is_meant = bool(line) and line[0].endswith(program) and any(word in part for part in line[1:])
        if is_meant and (_works_on(process.pid, root) or any(str(root) in part for part in line)):
            found.append(process.pid)
    return found


def _works_on(pid: int, root: Path) -> bool:
    """Whether a process has the workspace as its folder, or as the one of its sandbox."""
    process = Path("/proc", str(pid))
    for path in (process / "cwd", process / "root" / WORKSPACE.strip("/")):
        with suppress(OSError):
            if path.samefile(root):
                return True
    return False


def kill(pids: list[int]) -> None:
    """Kill processes."""
    assert pids
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def _agent(where: Where, folder: Path) -> None:
    with Ground(where, folder) as ground, under_way(ground):
        sys.stdout.write("under way\n")
        sys.stdout.flush()
        threading.Event().wait()


if __name__ == "__main__":
    _agent("podman" if sys.argv[1] == "podman" else "bubblewrap", Path(sys.argv[2]))
