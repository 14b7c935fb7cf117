"""A process that names itself, for tests; of a folder, or `-` for the kernel's word.

It says its name on a line. For a line `fork` it forks a process that does the same and stays; that one ends when it is
killed. It ends when its input does, or when it is killed, and then removes nothing.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from handrail.store.processes import KernelProcesses, Processes
from handrail.store.sqlite.process_locks import ProcessLocks
from tests.crash.forks import Fork, start

KERNEL = "-"
"""In place of a folder: the processes of the kernel."""


class Child:
    """The other end of such a process.

    Attributes:
        name: its name, as the store names it.
        pid: its process id.
    """

    def __init__(self, process: Fork) -> None:
        self._process = process
        self._forked: list[int] = []
        self.pid = process.pid
        self.name = self._line()

    def kill(self, *, reaped: bool = True) -> None:
        """Kill it; without `reaped` it stays a zombie."""
        self._process.kill()
        self._process.watch(os.WEXITED)
        if reaped:
            self._process.wait()

    def stop(self) -> None:
        """Stop it, as Ctrl-Z does; returns when it has stopped."""
        os.kill(self.pid, signal.SIGSTOP)
        self._process.watch(os.WSTOPPED)

    def fork(self) -> str:
        """Have it fork a process that goes on after its end; returns the name of that."""
        self._process.stdin.write("fork\n")
        self._process.stdin.flush()
        self._forked.append(int(self._line()))
        return self._line()

    def end(self) -> None:
        """Kill what it has forked, if that is still there."""
        for pid in self._forked:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _line(self) -> str:
        return self._process.stdout.readline().rstrip("\n")


@contextmanager
def child(folder: Path | str = KERNEL) -> Generator[Child]:
    """A process that has named itself, and taken its lock in the folder."""
    with start("tests.store.process_child", str(folder)) as process:
        started = Child(process)
        try:
            yield started
        finally:
            started.end()


def main(folder: str) -> None:
    """Name the process, and fork when asked to."""
    processes: Processes = KernelProcesses() if folder == KERNEL else ProcessLocks(Path(folder), store="sqlite:///desk")
    _say(processes.own(list))
    for _ in sys.stdin:
        if os.fork() == 0:
            _say(str(os.getpid()), processes.own(list))
            signal.pause()


def _say(*lines: str) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()
