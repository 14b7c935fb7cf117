"""Pages that a reader follows by typing: files to save, and commands with what they print, from top to bottom.

A long line of a command goes on after a backslash, one of an output after four blanks.
A block below a line that ends with a name and a colon, "Save this as `desk.py`:", is a file. A command line is one of
Python, of `handrail` or of pytest, and may send standard error to a file.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import re
import runpy
import shlex
import subprocess
import sys
import traceback
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from handrail.cli import main
from tests.architecture.sources import ROOT
from tests.crash.forge import answer_of, forked, serving
from tests.docs.kit import comparable, unwrapped

DOCS = ROOT / "docs"

_BLOCK = re.compile(r"^```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_NAME = re.compile(r"`([\w./-]+\.\w+)`[^`]*:$")
_CONTINUED = re.compile(r" \\\n +")
_TOOK = re.compile(r"\bin \d+\.\d+s\b")
_FIXTURES = "handrail.testing.fixtures"
_WHEN = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
_NEEDED = {
    "python": ("handrail.adapters.tool_executor", "handrail.store.sqlite", "handrail.contrib.tools"),
    "approvals": ("handrail.cli.approvals", "handrail.store.sqlite"),
    "ledger": ("handrail.cli.ledger", "handrail.store.sqlite"),
    "sessions": ("handrail.cli.sessions.show", "handrail.store.sqlite"),
    "check": ("handrail.agents",),
    "undo": ("handrail.cli.undo", "handrail.store.sqlite"),
    "replay": ("handrail.cli.replay", "handrail.store.sqlite"),
    "worker": ("handrail.agents", "handrail.cli.worker", "handrail.store.sqlite"),
    "run": ("handrail.agents",),
    "proxy": ("handrail.adapters.mcp.proxy", "handrail.adapters.mcp.settings", "handrail.store.sqlite"),
}
"""What commands import, by a word of their lines: it is imported once, before the process is forked for the command."""

_SETTINGS = ("HANDRAIL_STORE", "HANDRAIL_MODEL", "FORCE_COLOR")
"""Variables that a new reader has not set."""


@dataclass(frozen=True, slots=True)
class File:
    """A file that the reader saves.

    Attributes:
        name: its path in the folder that the reader works in.
        text: what is in it.
    """

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Command:
    """A command that the reader types.

    Attributes:
        line: the line.
        shown: what a terminal shows below it.
    """

    line: str
    shown: str


def read_steps(page: Path) -> list[File | Command]:
    """What the reader of a page saves and types, in the order of the page."""
    return [*_steps(page.read_text(encoding="utf-8"))]


def _steps(text: str) -> Iterator[File | Command]:
    for block in _BLOCK.finditer(text):
        if block["kind"] != "console":
            if named := _NAME.search(text[: block.start()].rstrip().rpartition("\n")[2]):
                yield File(named[1], block["text"])
        else:
            for command in re.split(r"^\$ ", block["text"], flags=re.MULTILINE)[1:]:
                line, _, shown = _CONTINUED.sub(" ", command).partition("\n")
                yield Command(line, unwrapped(shown))


def typed_pages() -> list[Path]:
    """The pages that have a reader save a file and type a command."""
    return [page for page in sorted(DOCS.rglob("*.md")) if {*map(type, read_steps(page))} == {File, Command}]


Typing = Callable[[str, Path], str]
"""Types a command line in a folder, and returns what a terminal shows."""


def follow(page: Path, folder: Path, typing: Typing) -> None:
    """Save and type what a page says, in a folder, and compare what is shown."""
    for step in read_steps(page):
        if isinstance(step, File):
            file = folder / step.name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(step.text, encoding="utf-8")
        else:
            found = typing(step.line, folder)
            assert settled(found, folder) == settled(step.shown, folder), f"{page.name}: {step.line}\n{found}"


def settled(shown: str, folder: Path) -> str:
    """What is shown, without what differs from run to run."""
    text = _WHEN.sub("WHEN", _TOOK.sub("in N s", shown.replace(str(folder), "/srv")))
    return re.sub(" +", " ", unwrapped(comparable(text))).rstrip("\n")


class Terminal:
    """A process that carries out command lines, each in a fork of itself, so that nothing is imported again."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def type(self, line: str, folder: Path) -> str:
        """Carry out a command line in a folder; returns what it prints on both streams."""
        with TemporaryDirectory() as apart:
            screen = Path(apart) / "screen"
            ended = answer_of(self._process, line, str(folder), str(screen))
            return screen.read_text(encoding="utf-8") + ("Killed\n" if ended is None else "")


@contextmanager
def terminal() -> Generator[Terminal]:
    """Such a process, while the block runs."""
    with serving("tests.docs.typed_pages") as process:
        yield Terminal(process)


def split(line: str) -> tuple[list[str], str | None]:
    """The words of a command line, and the file that standard error goes to."""
    words = shlex.split(line)
    return (words[:-2], words[-1]) if "2>" in words[:-1] else (words, None)


def _serve() -> None:
    for request in sys.stdin:
        line, *rest = json.loads(request)
        for name in (name for word in line.split()[:2] for name in _NEEDED.get(word, ())):
            importlib.import_module(name)
        sys.stdout.write(json.dumps(forked(partial(_type, line, *rest))) + "\n")
        sys.stdout.flush()


def _type(line: str, folder: str, screen: str) -> int:
    """Become the process of a command line; its exit code."""
    os.chdir(folder)
    for name in _SETTINGS:
        os.environ.pop(name, None)
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # for servers of MCP
    words, errors = split(line)
    _lead(1, screen)
    _lead(2, errors or screen)
    _lead(0, os.devnull, os.O_RDONLY)
    # A terminal shows each line as it is written, also of a process that is killed afterwards.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)
    try:
        code = _carry_out(words)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
        if isinstance(ended.code, str):
            sys.stderr.write(f"{ended.code}\n")
    except Exception:  # noqa: BLE001 - as Python shows what a program raises
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def _lead(descriptor: int, path: str, flags: int = os.O_WRONLY | os.O_CREAT | os.O_APPEND) -> None:
    opened = os.open(path, flags, 0o600)
    os.dup2(opened, descriptor)
    os.close(opened)


def _carry_out(words: list[str]) -> int:
    match words:
        case ["python", file, *_] if not file.startswith("-"):
            setattr(subprocess, "run", partial(_run, subprocess.run))  # noqa: B010 - type checkers differ about `=`
            sys.argv = words[1:]
            sys.path.insert(0, str(Path.cwd()))
            runpy.run_path(file, run_name="__main__")
            return 0
        case ["handrail", *arguments]:
            return main(arguments)
        case [program, *arguments]:
            python = {"python": [sys.executable], "pytest": [sys.executable, "-m", "pytest", "-p", _FIXTURES]}
            # A reader has pytest and Handrail alone; other plugins of this project add lines, the more of them in CI.
            environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
            return subprocess.run(
                [*python.get(program, [program]), *arguments], env=environment, check=False
            ).returncode
        case _:
            raise ValueError(words)


def _run(other: Callable[..., Any], command: Sequence[str], **options: Any) -> Any:
    """Carry out a `handrail` command of a program in a fork, too; what else it runs is run by `other`."""
    if [*command[:3]] != [sys.executable, "-m", "handrail"]:
        return other(command, **options)
    with TemporaryDirectory() as apart:
        screen, errors = Path(apart) / "screen", Path(apart) / "errors"
        line = shlex.join(["handrail", *command[3:], "2>", str(errors)])
        code = forked(partial(_type, line, str(Path.cwd()), str(screen)))["came"]
        ended = subprocess.CompletedProcess(command, code, screen.read_text(), errors.read_text())
    if options.get("check"):
        ended.check_returncode()
    return ended


if __name__ == "__main__":
    _serve()
