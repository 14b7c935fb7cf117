"""Programs that do not want to end: rounds in which one is started by a call, and the call ends or the agent is killed.

The program ignores SIGTERM, forks twice, makes sessions of its own, and goes on writing to the folder. It holds a fifo
open, so that the end of the last process is seen there. A bystander, with another call in its environment, must
survive. When the agent is killed, the program ends at once, and what it has detached at the next opening of the folder.

`python -m chaos.programs FOLDER KIND` is the agent of one round.
"""

from __future__ import annotations

import json
import os
import random
import select
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, get_args

from handrail.adapters.tool_executor import ToolExecutor
from handrail.contrib.tools import ShellRule, ShellToolsSection
from handrail.filesystem import HostFilesystem
from handrail.programs import CALL_VARIABLE
from handrail.prompt import Prompt, PromptTemplate
from handrail.runtime import Session, ToolCall

Kind = Literal["call ends", "agent", "agent, and nothing is detached"]
"""What is killed in a round; nothing where the call ends by itself."""

SECONDS = 2.0
"""After which time nothing of a program may be left."""

_PATIENCE = 30.0
_LONGEST_DELAY = 0.03
_PYTHON = Path(sys.executable)
_FOREVER = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
held = os.open("../fifo", os.O_WRONLY)
ready, left = os.pipe()
def work():
    while True:
        with open("changed.txt", "a") as file:
            file.write("changed")
        time.sleep(0.005)
if sys.argv[1] == "agent, and nothing is detached":
    os.write(held, b"%d\\n" % os.getpid())
    work()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.setsid()
        os.write(held, b"%d\\n" % os.getpid())
        os.write(left, b"x")
        work()
    os._exit(0)
os.read(ready, 1)
if sys.argv[1] == "call ends":
    sys.exit()
work()
"""


@dataclass(frozen=True, slots=True)
class Round:
    """What came of a round.

    Attributes:
        kind: what was killed.
        seconds: how long the last process of the program lived after that.
        faults: what was not as it must be.
    """

    kind: Kind
    seconds: float
    faults: tuple[str, ...]


class Fifo:
    """A fifo that a program, and what it starts, hold open: it is at its end when the last of them has ended."""

    def __init__(self, path: Path) -> None:
        """Make the fifo."""
        os.mkfifo(path)
        self.descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)

    def read(self, seconds: float = _PATIENCE) -> bytes | None:
        """What was written to it next; empty when nobody holds it any more, `None` if there is neither in time."""
        if not select.select([self.descriptor], [], [], seconds)[0]:
            return None
        return os.read(self.descriptor, 100)

    def close(self) -> None:
        """Close it."""
        os.close(self.descriptor)


def play(kind: Kind, folder: Path, pause: Callable[[], object] = bool) -> Round:
    """One round.

    Args:
        kind: what is killed.
        folder: an empty folder.
        pause: waits between the start of the program and the kill.
    """
    root = folder / "root"
    root.mkdir()
    (root / "kept.txt").write_text("kept", encoding="utf-8")
    before, faults = _picture(root), list[str]()
    fifo = Fifo(folder / "fifo")
    try:
        with _bystander() as is_alive, _agent(folder, kind) as agent:
            assert agent.stdout is not None
            daemon = int(fifo.read() or b"0")
            begun = time.monotonic()
            if kind == "call ends":
                agent.stdout.readline()
            else:
                pause()
                agent.kill()
                agent.wait()
                begun = time.monotonic()
                if kind == "agent, and nothing is detached" and fifo.read(_PATIENCE) != b"":
                    faults.append("the program outlives its agent")
                if kind == "agent" and not _runs(daemon):
                    faults.append("nothing was left for the next opening")
                HostFilesystem(root, journal=folder / "journal", wait=timedelta(seconds=20)).close()
                if _picture(root) != before:
                    faults.append("the tree is not as it was")
            if fifo.read(_PATIENCE) != b"":
                faults.append("something of the program still runs")
            seconds = time.monotonic() - begun
            if not is_alive():
                faults.append("a bystander was killed")
    finally:
        fifo.close()
    return Round(kind, seconds, tuple(faults))


def rounds(number: int, dice: random.Random) -> Generator[Round]:
    """Rounds of all kinds, each with a kill at a random moment."""
    kinds: tuple[Kind, ...] = get_args(Kind)
    for at in range(number):
        with TemporaryDirectory(prefix="chaos-programs-") as folder:
            yield play(kinds[at % len(kinds)], Path(folder), lambda: time.sleep(dice.random() * _LONGEST_DELAY))


@contextmanager
def _agent(folder: Path, kind: Kind) -> Generator[subprocess.Popen[str]]:
    """The agent of a round, while the block runs."""
    with subprocess.Popen(  # noqa: S603 - this module
        [sys.executable, "-m", "chaos.programs", str(folder), kind],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        cwd=Path(__file__).parents[1],
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def _bystander() -> Generator[Callable[[], bool]]:
    """A process of another call, in the same group as the agent; says whether it is alive."""
    with subprocess.Popen(  # noqa: S603 - Python, with a line that is written here
        [_PYTHON, "-I", "-S", "-c", "input()"], stdin=subprocess.PIPE, env={CALL_VARIABLE: "another"}
    ) as process:
        try:
            yield lambda: process.poll() is None
        finally:
            process.kill()


def _runs(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def _picture(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def main(folder: Path, kind: str) -> None:
    """Be the agent of a round: run the program in a call, and say when it has ended."""
    rule = ShellRule((_PYTHON.name,), confined=False)
    with HostFilesystem(folder / "root", journal=folder / "journal", durability="normal") as files:
        section = ShellToolsSection(files, allow=[rule], environment={"PATH": str(_PYTHON.parent)})
        prompt = Prompt(PromptTemplate(ns="chaos", key="programs", sections=[section]))
        executor = ToolExecutor(prompt=prompt, session=Session())
        command = [_PYTHON.name, "-I", "-S", "-c", _FOREVER, kind]
        message = executor.execute(ToolCall("call", "shell_run", {"command": command}))
        _say(json.dumps([message.success, message.content]))
        sys.stdin.read()


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
