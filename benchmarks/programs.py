"""What it costs to start a program that ends with its call, beside starting it directly, alone and in a call."""

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
from handrail.clock import SYSTEM_CLOCK
from handrail.contrib.tools import ShellRule, ShellToolsSection
from handrail.contrib.tools.shell.process import ProgramRun
from handrail.filesystem import HostFilesystem
from handrail.programs import Program
from handrail.prompt import Prompt, PromptTemplate
from handrail.runtime import Session, ToolCall

FILES = 20_000
BARE = "a bare subprocess"
PROGRAM = "a program of a call"
CALL = f"shell call that may write, {FILES:,} files"

BOUNDS: tuple[Bound, ...] = ()

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
        yield {BARE: _bare, PROGRAM: _running(root), CALL: call}


def _bare() -> object:
    return subprocess.run(_TRUE, stdin=subprocess.DEVNULL, capture_output=True, check=True)


def _running(folder: Path) -> Callable[[], object]:
    program = Program(line=_TRUE, folder=folder, environment={}, input=b"", seconds=60, max_output_bytes=1000)

    def run() -> object:
        ended = ProgramRun(SYSTEM_CLOCK, f"call-{next(_NUMBERS)}").carry_out(program)
        assert ended.code == 0
        return ended

    return run


def _calling(files: HostFilesystem) -> Callable[[], object]:
    section = ShellToolsSection(files, allow=[ShellRule(("true",))])
    prompt = Prompt(PromptTemplate(ns="benchmarks", key="programs", sections=[section]))
    executor = ToolExecutor(prompt=prompt, session=Session())

    def call() -> object:
        message = executor.execute(ToolCall(f"call-{next(_NUMBERS)}", "shell_run", {"command": ["true"]}))
        assert message.success, message.content
        return message

    return call


def _plant(root: Path) -> None:
    for number in range(FILES):
        path = root / f"area{number % 20}" / f"part{number % 200}" / f"file{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{number}\n")
    os.sync()
