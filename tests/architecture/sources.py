"""The repository's own files, for the tests that read them."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

__all__ = ["ROOT", "Source", "listed", "python_sources", "text_files"]

ROOT = Path(__file__).resolve().parents[2]

_PYTHON_FOLDERS = ("src", "tests", "examples", "benchmarks", "chaos", "proof", "scripts")
_HIDDEN_BUT_OURS = {".agents", ".ci", ".github", ".gitignore", ".importlinter"}
_MADE = {"build", "dist", "htmlcov", "node_modules", "__pycache__"}


@dataclass(frozen=True)
class Source:
    """A Python file: its path from the root, its text and its syntax tree."""

    path: Path
    text: str
    tree: ast.Module

    @property
    def module(self) -> str:
        """The dotted name by which the file is imported, for a file under `src`."""
        parts = self.path.with_suffix("").parts[1:]
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @cached_property
    def nodes(self) -> Sequence[ast.AST]:
        """All nodes of the tree; to walk through it takes longer than to make it."""
        return tuple(ast.walk(self.tree))


@cache
def python_sources(*folders: str) -> tuple[Source, ...]:
    """Every Python file under the folders, or under all that hold any; whether git knows it or not."""
    paths = [path for folder in folders or _PYTHON_FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    gc.disable()  # the trees are many objects, and none of them is ever garbage
    try:
        return tuple(map(_source, paths))
    finally:
        gc.freeze()
        gc.enable()


@cache
def _source(path: Path) -> Source:
    text = path.read_text(encoding="utf-8")
    return Source(path.relative_to(ROOT), text, ast.parse(text))


def listed(faults: list[str]) -> str:
    """All faults, one a line, as the message of a failed assertion."""
    return "\n".join(["", *faults])


def text_files() -> Iterator[tuple[Path, str]]:
    """Every text file of the repository with its path from the root; what tools have made is left out."""
    for path in _ours(ROOT):
        data = path.read_bytes()
        if b"\0" not in data[:8192]:
            yield path.relative_to(ROOT), data.decode("utf-8", errors="replace")


def _ours(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.name in _MADE or (path.name.startswith(".") and path.name not in _HIDDEN_BUT_OURS):
            continue
        if path.is_dir():
            yield from _ours(path)
        elif path.is_file():
            yield path
