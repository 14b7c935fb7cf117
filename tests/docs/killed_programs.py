"""Runs programs of the docs in processes that are really killed just before a line; it imports what they need once.

It reads a request a line from its standard input, and answers a line each on its standard output.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Container, Generator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from tests.crash.forge import answer_of, forked, serving
from tests.extent import SHORT, some

MODULES = (
    *("psycopg", "handrail.adapters.tool_executor", "handrail.store.postgres", "handrail.store.sqlite"),
    *("sqlalchemy.dialects.postgresql.psycopg", "sqlalchemy.dialects.sqlite", "django.db.models"),
    *("django.db.backends.postgresql.base", "django.db.backends.sqlite3.base"),
)


class Killer:
    """The other end of such a process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def dies(self, source: str, folder: Path, line: int, nth: int = 1) -> bool:
        """Run a program in a folder, to be killed the nth time that a line is reached; returns whether it was."""
        return self._order(source, folder, line, nth) is None

    def run(self, source: str, folder: Path) -> tuple[str, dict[int, int]]:
        """Run a program to its end; returns what it printed, and how often it reached each of its lines."""
        output, lines = self._order(source, folder, 0, 0)
        return output, {int(line): times for line, times in lines.items()}

    def _order(self, source: str, folder: Path, line: int, nth: int) -> Any:
        return answer_of(self._process, source, str(folder), line, nth)


@dataclass(frozen=True)
class Trial:
    """A program that is killed and run again.

    Attributes:
        killer: makes the processes.
        source: the program.
        output: what it prints.
        root: has a folder for each kill.
        begin: brings back what is not in the folder.
    """

    killer: Killer
    source: str
    output: str
    root: Path
    begin: Callable[[], object] = bool

    def survives(self, check: Callable[[Path], object], among: Container[int] | None = None) -> None:
        """Kill the program before each line that it reaches, the first and the last time, and run it to its end.

        Args:
            check: finds what a run has left in its folder right, or raises.
            among: the lines before which it is killed; `None` for all.
        """
        whole = self.root / "whole"
        whole.mkdir()
        self.begin()
        printed, lines = self.killer.run(self.source, whole)
        assert printed == self.output
        assert self.killer.run(self.source, whole)[0] == self.output
        check(whole)
        reached = {(line, nth) for line, times in lines.items() for nth in (1, times) if among is None or line in among}
        assert reached
        for line, nth in some(sorted(reached), 4 if SHORT else 7):
            folder = self.root / f"{line}-{nth}"
            folder.mkdir()
            self.begin()
            assert self.killer.dies(self.source, folder, line, nth)
            assert self.killer.run(self.source, folder)[0] == self.output, f"after a kill before line {line}"
            check(folder)


@contextmanager
def running() -> Generator[Killer]:
    """Such a process, while the block runs."""
    with serving("tests.docs.killed_programs") as process:
        yield Killer(process)


def _serve() -> None:
    for name in MODULES:
        importlib.import_module(name)
    for request in sys.stdin:
        sys.stdout.write(json.dumps(forked(partial(_run, *json.loads(request)))) + "\n")
        sys.stdout.flush()


def _run(source: str, folder: str, line: int, nth: int) -> tuple[str, Counter[int]]:
    os.chdir(folder)
    file = str(Path(folder) / "program.py")
    reached: Counter[int] = Counter()

    def inside(frame: FrameType, event: str, _: object) -> Any:
        if event == "line":
            reached[frame.f_lineno] += 1
            if frame.f_lineno == line and reached[line] == nth:
                os.kill(os.getpid(), signal.SIGKILL)
        return inside

    def outside(frame: FrameType, _event: str, _: object) -> Any:
        return inside if frame.f_code.co_filename == file else None

    output = io.StringIO()
    code = compile(source, file, "exec")
    with redirect_stdout(output):
        sys.settrace(outside)
        try:
            exec(code, vars(ModuleType("__main__")))  # noqa: S102 - the program
        finally:
            sys.settrace(None)
    return output.getvalue(), reached


if __name__ == "__main__":
    _serve()
