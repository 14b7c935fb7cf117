"""A process that has a store open and has taken its lock, for tests.

It says the name of its store on a line. For a line `fork` it forks a process that opens the store anew, says its name
and stays; that one ends when it is killed. It ends when its input does, or when it is killed, and then removes nothing.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress

import handrail.store
from tests.crash.forks import Fork, start


class Child:
    """The other end of such a process.

    Attributes:
        name: the name of its store.
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
        """Have it fork a process that goes on after its end; returns the name of the store of that."""
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
def child(url: str) -> Generator[Child]:
    """A process that has the store open and has taken its lock."""
    with start("tests.store.process_child", url) as process:
        started = Child(process)
        try:
            yield started
        finally:
            started.end()


def main(url: str) -> None:
    """Open the store, name it, and fork when asked to."""
    store = handrail.store.open(url)
    _say(store.process())
    for _ in sys.stdin:
        if os.fork() == 0:
            store = handrail.store.open(url)
            _say(str(os.getpid()), store.process())
            signal.pause()


def _say(*lines: str) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()
