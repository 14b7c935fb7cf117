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
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import contextmanager, nullcontext, redirect_stdout
from dataclasses import asdict, astuple, dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType, MappingProxyType, ModuleType
from typing import Any, NamedTuple

from chaos.worker import wait_for_threads
from handrail import store
from handrail.crash_points import arm
from handrail.runtime import Session, ToolInvoked
from handrail.session.conversation import ConversationPart
from handrail.threads import THREADS
from tests.architecture.sources import ROOT
from tests.crash.forge import forked
from tests.providers.programs import ADAPTERS, PROVIDERS, Program, end_kept_loop, program_of

Environment = Mapping[str, str]


class Kill(NamedTuple):
    """Where a process is killed.

    Attributes:
        place: a line of the program, just before it runs, or of a file of the library, such as `adapter.py:7`; or one
            of `handrail.crash_points.POINTS`.
        nth: at which time it is reached.
    """

    place: int | str
    nth: int = 1


@dataclass(frozen=True)
class Run:
    """What a process has done that came to its end.

    Attributes:
        output: what it printed.
        messages: the conversation, without times and ids of the run.
        payments: the orders of the payments that have a record, in order, each with whether the payment succeeded, and
            what the model read.
        notes: the texts of the notes in the session.
        still_open: the states of the calls that are open.
        lines: how often it came to each line of the program.
        library: how often it came to each line of the library, as in `Kill`.
        points: how often it came to each point.
    """

    output: str
    messages: list[dict[str, Any]]
    payments: list[list[Any]]
    notes: list[str]
    still_open: list[str]
    lines: dict[str, int] = field(compare=False, default_factory=dict[str, int])
    library: dict[str, int] = field(compare=False, default_factory=dict[str, int])
    points: dict[str, int] = field(compare=False, default_factory=dict[str, int])


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
    line, env = [sys.executable, "-m", "tests.providers.forge"], {**os.environ, **environment}
    pipe = subprocess.PIPE
    with subprocess.Popen(line, cwd=ROOT, env=env, stdin=pipe, stdout=pipe, text=True, encoding="utf-8") as process:
        yield Forge(process)
        assert process.stdin is not None
        process.stdin.close()


def _serve() -> None:
    importlib.import_module("handrail.store.postgres")
    for name in (*PROVIDERS, *ADAPTERS):  # what is made once is not made in each fork
        with TemporaryDirectory() as folder:
            _run(program_of(name), folder, None, warm=True)
        end_kept_loop()
        THREADS.retire()
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

    names = vars(ModuleType("__main__"))
    output = io.StringIO()
    file = str(Path(folder) / "program.py")
    code = compile(program.source, file, "exec")
    arm(reach)
    with redirect_stdout(output), nullcontext() if warm else _traced(file, program.library, reach):
        exec(code, names)  # noqa: S102 - the program
    arm(None)
    found = _found(program, names, output.getvalue())
    lines = {str(place): times for place, times in reached.items() if isinstance(place, int)}
    points = {place: times for place, times in reached.items() if isinstance(place, str)}
    library = {place: points.pop(place) for place in list(points) if ":" in place}
    found = replace(found, lines=lines, library=library, points=points)
    names.clear()  # the types that are stored live on, and their methods refer to the store, whose thread ends with it
    return asdict(found)


def _found(program: Program, names: dict[str, Any], output: str) -> Run:
    with store.open(program.url) as kept_in, Session.open(kept_in, program.session) as session:
        parts = session[ConversationPart].all()
        paid = [event for event in session[ToolInvoked] if event.name == "pay"]
        start = max((place for place, part in enumerate(parts) if part.restarts), default=0)
        return Run(
            output=output,
            messages=[_comparable(message) for part in parts[start:] for message in part.messages],
            payments=[[each.params["number"], each.success, each.result.message] for each in paid],
            notes=[item.text for item in session[names["Note"]].all()],
            still_open=[item.state for item in session.open_calls],
        )


_OF_THE_RUN = {"conversation_id", "metadata", "run_id", "timestamp"}
"""The fields of PydanticAI's messages, and of their parts, that differ from run to run."""


def _comparable(message: dict[str, Any]) -> dict[str, Any]:
    """A message without what differs from run to run."""
    if "kind" not in message:
        return message
    plain = {name: value for name, value in message.items() if name not in _OF_THE_RUN}
    parts = [{name: value for name, value in part.items() if name not in _OF_THE_RUN} for part in message["parts"]]
    return {**plain, "parts": parts}


@contextmanager
def _traced(file: str, library: Collection[str], reach: Callable[[int | str], None]) -> Generator[None]:
    """Have each line of the program, and of some files of the library, reported before it runs, in every thread."""

    def inside(frame: FrameType, event: str, arg: object) -> Any:
        if event == "line":
            own, path = frame.f_lineno, frame.f_code.co_filename
            reach(own if path == file else f"{Path(path).name}:{own}")
        return inside

    def outside(frame: FrameType, event: str, arg: object) -> Any:
        return inside if frame.f_code.co_filename in (file, *library) else None

    threading.settrace(outside)
    sys.settrace(outside)
    try:
        yield
    finally:
        sys.settrace(None)
        threading.settrace(None)


if __name__ == "__main__":
    _serve()
