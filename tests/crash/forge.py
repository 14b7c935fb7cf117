"""A process that makes others: it imports everything once, and forks one that is really killed for each cell.

It reads a request a line from its standard input, and answers a line each on its standard output.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any

from chaos import service
from chaos.worker import wait_for_threads
from tests.architecture.sources import ROOT
from tests.crash.cells import Cell, Left, Told, ask, look, overrun


class Forge:
    """The other end of such a process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def dies(self, cell: Cell, at: str, nth: int = 1) -> bool:
        """Ask the call in a process that is to die at a point; returns whether it did."""
        return self._order("ask", cell, at, nth) is None

    def dies_late(self, cell: Cell, at: str | None) -> bool:
        """Ask the call with a handler that overruns, in a process that is to die at a point; returns whether it did."""
        return self._order("overrun", cell, at, 1) is None

    def look(self, cell: Cell, *, asks: int = 0) -> tuple[list[Left], list[Told]]:
        """See what is left, ask the call again, see what is left, and so on; what was found, and what was told."""
        lefts, tolds = self._order("look", cell, None, asks)
        return [Left(**left) for left in lefts], [Told(**told) for told in tolds]

    def _order(self, verb: str, cell: Cell, at: str | None, how: int) -> Any:
        return answer_of(self._process, verb, cell, at, how)


def answer_of(process: subprocess.Popen[str], *request: object) -> Any:
    """What a process that serves requests answers to one."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(request) + "\n")
    process.stdin.flush()
    found = json.loads(process.stdout.readline())
    assert "fault" not in found, found["fault"]
    return found["came"]


@contextmanager
def serving(module: str) -> Generator[subprocess.Popen[str]]:
    """A process that serves requests by a module, while the block runs."""
    command, pipe = [sys.executable, "-m", module], subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True, encoding="utf-8") as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


@contextmanager
def running() -> Generator[Forge]:
    """A forge, while the block runs."""
    with serving("tests.crash.forge") as process:
        yield Forge(process)


def _serve() -> None:
    importlib.import_module("handrail.store.postgres")
    with service.running() as address, TemporaryDirectory() as folder:  # what is made once is not made in each fork
        ask(Cell("external", "unknown", False, "warm", "memory:", folder, address), None, 1)
    wait_for_threads()
    for line in sys.stdin:
        verb, cell, at, how = json.loads(line)
        act = partial(_VERBS[verb], Cell(*cell), at, how)
        sys.stdout.write(json.dumps(forked(act)) + "\n")
        sys.stdout.flush()


def _look(cell: Cell, _at: None, asks: int) -> Any:
    lefts, tolds = [asdict(look(cell))], list[Any]()
    for _ in range(asks):
        tolds.append(asdict(ask(cell, None, 1)))
        lefts.append(asdict(look(cell)))
    return lefts, tolds


_VERBS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "ask": lambda cell, at, how: asdict(ask(cell, at, how)),
    "overrun": lambda cell, at, _: asdict(overrun(cell, at)),
    "look": _look,
}


def forked(act: Callable[[], Any]) -> dict[str, Any]:
    """What a process comes to that does one thing; nothing, if it was killed."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        try:
            os.write(writing, json.dumps(_done(act)).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as told:
        answer = told.read()
    _, status = os.waitpid(pid, 0)
    if os.waitstatus_to_exitcode(status) == -signal.SIGKILL:
        return {"came": None}
    known: dict[str, Any] = json.loads(answer)
    return known


def _done(act: Callable[[], Any]) -> dict[str, Any]:
    try:
        return {"came": act()}
    except BaseException:  # noqa: BLE001 - told to the test, which fails with it
        return {"fault": traceback.format_exc()}


if __name__ == "__main__":
    _serve()
