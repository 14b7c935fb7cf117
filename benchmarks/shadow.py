"""What a snapshot of a tree of 10,000 files costs when one has changed, beside the git commands it might have been.

So does a call of the shell suite over 20,000 files that changes one, beside the snapshot that it takes, and the first
snapshot of a process, which reads every file, beside a later one.
"""

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
from handrail.contrib.tools import ShellRule, ShellToolsSection
from handrail.filesystem import HostFilesystem
from handrail.filesystem.shadow.repository import ShadowRepository
from handrail.prompt import Prompt, PromptTemplate
from handrail.runtime import Session, ToolCall

FILES = 10_000
MANY = 20_000

BOUNDS = (
    Bound("shadow snapshot, one file changed", "bare git add and write-tree", 1.5),
    Bound("first snapshot of a process", "shadow snapshot, one file changed", 10.0),
    Bound(f"shell call, {MANY:,} files", f"shadow snapshot, {MANY:,} files", 1.5),
)

_SETTINGS = {"core.fsync": "none", "core.untrackedCache": "true", "feature.manyFiles": "true", "gc.auto": "0"}


@contextmanager
def cases() -> Generator[dict[str, Callable[[], object]]]:
    """What is measured, by name; the trees are there while the block runs. Each call takes tens of milliseconds."""
    with TemporaryDirectory() as folder, ExitStack() as opened:
        scratch = Path(folder)
        many = tree(scratch / "many", MANY)
        files = opened.enter_context(HostFilesystem(many, journal=scratch / "journal", durability="normal"))
        yield {
            "bare git add and write-tree": _floor(tree(scratch / "floor"), scratch / "floor.git"),
            "shadow snapshot, one file changed": _snapshot(tree(scratch / "tree"), scratch / "tree.git"),
            "shadow snapshot and restore, one file changed": _cycle(tree(scratch / "undone"), scratch / "undone.git"),
            "first snapshot of a process": _first(tree(scratch / "first"), scratch / "first.git"),
            f"shadow snapshot, {MANY:,} files": _snapshot(many, scratch / "many.git"),
            f"shell call, {MANY:,} files": _shell(files),
        }


def tree(root: Path, files: int = FILES) -> Path:
    """A folder with so many small files in a hundred folders; returns it."""
    for number in range(files):
        path = root / f"area{number % 10}" / f"part{number % 100}" / f"file{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{number}\n" * 20)
    return root


def _changing(root: Path) -> Callable[[], None]:
    numbers = count()
    return lambda: _write(root / "area7" / "part77" / "file77.txt", f"change {next(numbers)}")


def _write(path: Path, text: str) -> None:
    path.write_text(text)


def _floor(root: Path, git_dir: Path) -> Callable[[], object]:
    """Every file, ignored or not, as the snapshot has them."""
    settings = [part for key, value in _SETTINGS.items() for part in ("-c", f"{key}={value}")]
    nothing = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull, "GIT_OPTIONAL_LOCKS": "0"}
    environment = os.environ | nothing | {"GIT_DIR": str(git_dir), "GIT_WORK_TREE": str(root)}
    change = _changing(root)

    def git(*arguments: str) -> bytes:
        line = ["git", *settings, *arguments]
        return subprocess.run(line, cwd=root, env=environment, capture_output=True, check=True).stdout

    git("init", "--quiet", "--template=")

    def snapshot() -> object:
        change()
        git("add", "--all", "--force")
        return git("write-tree")

    snapshot()
    return snapshot


def _snapshot(root: Path, git_dir: Path) -> Callable[[], object]:
    repository = ShadowRepository(root, git_dir)
    change = _changing(root)

    def snapshot() -> object:
        change()
        return repository.snapshot().id

    snapshot()
    return snapshot


def _first(root: Path, git_dir: Path) -> Callable[[], object]:
    ShadowRepository(root, git_dir).snapshot()
    change = _changing(root)

    def snapshot() -> object:
        change()
        return ShadowRepository(root, git_dir).snapshot().id

    return snapshot


def _shell(files: HostFilesystem) -> Callable[[], object]:
    section = ShellToolsSection(files, allow=[ShellRule(("sh", "-c"), confined=False)])
    template = PromptTemplate(ns="benchmarks", key="shell", sections=[section])
    executor = ToolExecutor(prompt=Prompt(template), session=Session())
    numbers = count()

    def call() -> object:
        number = next(numbers)
        command = ["sh", "-c", f"echo change {number} > area7/part77/file77.txt"]
        message = executor.execute(ToolCall(f"call-{number}", "shell_run", {"command": command}))
        assert message.success
        return message

    call()
    return call


def _cycle(root: Path, git_dir: Path) -> Callable[[], object]:
    repository = ShadowRepository(root, git_dir)
    change = _changing(root)

    def cycle() -> None:
        first = repository.snapshot().id
        change()
        repository.restore(first)

    cycle()
    return cycle
