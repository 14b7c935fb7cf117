"""What it costs to start a program below the guardian, beside starting it directly, alone and in a call."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.timing import Bound
from handrail.adapters.tool_executor import ToolExecutor
from handrail.clock import SYSTEM_CLOCK, Clock
from handrail.contrib.tools import ShellRule, ShellToolsSection
from handrail.contrib.tools.shell import process
from handrail.contrib.tools.shell.process import Program, ProgramRun, ProgramStart, start_of
from handrail.filesystem import HostFilesystem
from handrail.programs.guardian_client import GUARDIANS, Guardians
from handrail.programs.launch import Launch
from handrail.programs.supervised import SupervisedProgram
from handrail.prompt import Prompt, PromptTemplate
from handrail.runtime import Session, ToolCall

FILES = 20_000
BARE = "a bare subprocess"
GROUP = "a program in a process group"
LATER = "a program below the guardian"
FIRST = "a program that starts the guardian"
CALL = f"shell call that may write, {FILES:,} files"
GROUP_CALL = f"{CALL}, in a process group"
FIRST_CALL = f"{CALL}, with the start of the guardian"

BOUNDS = (Bound(CALL, GROUP_CALL, 1.1), Bound(FIRST_CALL, CALL, 2.0))

_TRUE = ("/bin/true",)
_NUMBERS = count()


@contextmanager
def cases() -> Generator[dict[str, Callable[[], object]]]:
    """What is measured, by name; the tree is there while the block runs."""
    with TemporaryDirectory() as folder, ExitStack() as opened:
        root = Path(folder, "root")
        _plant(root)
        files = opened.enter_context(HostFilesystem(root, journal=Path(folder, "journal"), durability="normal"))
        call = _calling(files)
        call()  # the first tree that is saved is read as a whole
        yield {
            BARE: _bare,
            GROUP: _running(root, start_of("another")),
            LATER: _running(root, start_of("linux")),
            FIRST: _running(root, _First),
            GROUP_CALL: _in_group(call),
            CALL: call,
            FIRST_CALL: _first_calls(call),
        }


def _bare() -> object:
    return subprocess.run(_TRUE, stdin=subprocess.DEVNULL, capture_output=True, check=True)


def _running(folder: Path, start: ProgramStart) -> Callable[[], object]:
    program = Program(line=_TRUE, folder=folder, environment={}, input=b"", seconds=60, max_output_bytes=1000)

    def run() -> object:
        ended = ProgramRun(SYSTEM_CLOCK, f"call-{next(_NUMBERS)}", start=start).carry_out(program)
        assert ended.code == 0
        return ended

    return run


class _First(SupervisedProgram):
    """A program for which a guardian is started."""

    def __init__(self, launch: Launch, clock: Clock) -> None:
        self.guardians = Guardians()
        super().__init__(launch, clock, self.guardians)

    def start(self) -> bool:
        """Start both."""
        try:
            return super().start()
        finally:
            self.guardians.at_exit()


def _calling(files: HostFilesystem) -> Callable[[], object]:
    section = ShellToolsSection(files, allow=[ShellRule(("true",))])
    prompt = Prompt(PromptTemplate(ns="benchmarks", key="programs", sections=[section]))
    executor = ToolExecutor(prompt=prompt, session=Session())

    def call() -> object:
        message = executor.execute(ToolCall(f"call-{next(_NUMBERS)}", "shell_run", {"command": ["true"]}))
        assert message.success, message.content
        return message

    return call


def _in_group(call: Callable[[], object]) -> Callable[[], object]:
    start = process.start_of

    def in_group() -> object:
        process.start_of = lambda platform: start(f"not {platform}")
        try:
            return call()
        finally:
            process.start_of = start

    return in_group


def _first_calls(call: Callable[[], object]) -> Callable[[], object]:
    def first() -> object:
        GUARDIANS.close()
        return call()

    return first


def _plant(root: Path) -> None:
    for number in range(FILES):
        path = root / f"area{number % 20}" / f"part{number % 200}" / f"file{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{number}\n")
    os.sync()
