"""A process that imports the SDKs once, and forks one that runs a program, and may be killed in it, for each request.

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
import threading
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, nullcontext, redirect_stdout
from dataclasses import asdict, astuple, dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType, MappingProxyType
from typing import Any, NamedTuple

from chaos.worker import wait_for_threads
from handrail import store
from handrail.crash_points import arm
from handrail.runtime import Session, ToolInvoked
from tests.architecture.sources import ROOT
from tests.crash.forge import forked
from tests.providers.programs import PROVIDERS, Program, program_of

Environment = Mapping[str, str]


class Kill(NamedTuple):
    """Where a process is killed.

    Attributes:
        place: a line of the program, just before it runs, or one of `handrail.crash_points.POINTS`.
        nth: at which time it is reached.
    """

    place: int | str
    nth: int = 1


@dataclass(frozen=True)
class Run:
    """What a process has done that came to its end.

    Attributes:
        output: what it printed.
        messages: the conversation.
        payments: the orders of the payments that have a record, in order, each with whether the payment succeeded.
        notes: the texts of the notes in the session.
        still_open: the states of the calls that are open.
        lines: how often it came to each line.
        points: how often it came to each point.
    """

    output: str
    messages: list[dict[str, Any]]
    payments: list[list[Any]]
    notes: list[str]
    still_open: list[str]
    lines: dict[str, int] = field(compare=False)
    points: dict[str, int] = field(compare=False)


class Forge:
    """The other end of such a process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def dies(self, program: Program, folder: Path, kill: Kill, environment: Environment = MappingProxyType({})) -> bool:
        """Run a program in a folder, in a process that is to be killed; returns whether it was."""
        return self._order(program, folder, kill, environment) is None

    def run(self, program: Program, folder: Path, environment: Environment = MappingProxyType({})) -> Run:
        """Run a program in a folder to its end."""
        return Run(**self._order(program, folder, None, environment))

    def _order(self, program: Program, folder: Path, kill: Kill | None, environment: Environment) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([astuple(program), str(folder), kill, {**environment}]) + "\n")
        self._process.stdin.flush()
        found = json.loads(self._process.stdout.readline())
        assert "fault" not in found, found["fault"]
        return found["came"]


@contextmanager
def running(environment: dict[str, str]) -> Generator[Forge]:
    """A forge, while the block runs, whose programs find the providers by environment variables."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.providers.forge"],
        cwd=ROOT,
        env={**os.environ, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    ) as process:
        yield Forge(process)
        assert process.stdin is not None
        process.stdin.close()


def _serve() -> None:
    importlib.import_module("handrail.store.postgres")
    for provider in PROVIDERS:  # what is made once is not made in each fork
        with TemporaryDirectory() as folder:
            _run(program_of(provider), folder, None, warm=True)
        wait_for_threads()
    for line in sys.stdin:
        program, folder, kill, environment = json.loads(line)
        act = partial(_run, Program(*program), folder, kill and Kill(*kill), environment=environment)
        sys.stdout.write(json.dumps(forked(act)) + "\n")
        sys.stdout.flush()


def _run(
    program: Program,
    folder: str,
    kill: Kill | None,
    *,
    environment: Environment = MappingProxyType({}),
    warm: bool = False,
) -> dict[str, Any]:
    os.chdir(folder)
    os.environ.update(environment)
    reached: Counter[int | str] = Counter()

    def reach(place: int | str) -> None:
        reached[place] += 1
        if kill is not None and kill.place == place and kill.nth == reached[place]:
            os.kill(os.getpid(), signal.SIGKILL)

    names: dict[str, Any] = {"__name__": "__main__"}
    output = io.StringIO()
    file = str(Path(folder) / "program.py")
    code = compile(program.source, file, "exec")
    arm(reach)
    with redirect_stdout(output), nullcontext() if warm else _traced(file, reach):
        exec(code, names)  # noqa: S102 - the program
    arm(None)
    lines = {str(place): times for place, times in reached.items() if isinstance(place, int)}
    points = {place: times for place, times in reached.items() if isinstance(place, str)}
    found = _found(program, names, output.getvalue(), lines, points)
    names.clear()  # the types that are stored live on, and their methods refer to the store, whose thread ends with it
    return asdict(found)


def _found(program: Program, names: dict[str, Any], output: str, lines: dict[str, int], points: dict[str, int]) -> Run:
    with store.open(program.url) as kept_in, Session.open(kept_in, program.session) as session:
        return Run(
            output=output,
            messages=session.conversation.messages,
            payments=[[event.params.number, event.success] for event in session[ToolInvoked] if event.name == "pay"],
            notes=[each.text for each in session[names["Note"]].all()],
            still_open=[each.state for each in session.open_calls],
            lines=lines,
            points=points,
        )


@contextmanager
def _traced(file: str, reach: Callable[[int], None]) -> Generator[None]:
    """Have each line of a file reported before it runs, in every thread."""

    def inside(frame: FrameType, event: str, arg: object) -> Any:
        if event == "line":
            reach(frame.f_lineno)
        return inside

    def outside(frame: FrameType, event: str, arg: object) -> Any:
        return inside if frame.f_code.co_filename == file else None

    threading.settrace(outside)
    sys.settrace(outside)
    try:
        yield
    finally:
        sys.settrace(None)
        threading.settrace(None)


if __name__ == "__main__":
    _serve()
