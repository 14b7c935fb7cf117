"""What a snapshot of a tree of 10,000 files costs when one has changed, beside the git commands it might have been."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Generator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.timing import Bound, measure, ratios
from handrail.filesystem.shadow.repository import ShadowRepository

FILES = 10_000
ROUNDS = 15

BOUNDS = (Bound("shadow snapshot, one file changed", "bare git add and write-tree", 1.5),)

_SETTINGS = {
    "core.fsync": "none",
    "core.untrackedCache": "true",
    "feature.manyFiles": "true",
    "gc.auto": "0",
}


@contextmanager
def cases() -> Generator[dict[str, Callable[[], object]]]:
    """What is measured, by name; the trees are there while the block runs. Each call takes tens of milliseconds."""
    with TemporaryDirectory() as folder:
        scratch = Path(folder)
        yield {
            "bare git add and write-tree": _floor(_tree(scratch / "floor"), scratch / "floor.git"),
            "shadow snapshot, one file changed": _snapshot(_tree(scratch / "tree"), scratch / "tree.git"),
            "shadow snapshot and restore, one file changed": _cycle(_tree(scratch / "undone"), scratch / "undone.git"),
        }


def shadow(*, rounds: int = ROUNDS) -> dict[str, float]:
    """Microseconds of each case, the median of `rounds`."""
    with cases() as measured:
        return measure(measured, rounds=rounds, calls=1)


def _tree(root: Path) -> Path:
    for number in range(FILES):
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
        return repository.snapshot()

    snapshot()
    return snapshot


def _cycle(root: Path, git_dir: Path) -> Callable[[], object]:
    repository = ShadowRepository(root, git_dir)
    change = _changing(root)

    def cycle() -> None:
        first = repository.snapshot()
        change()
        repository.restore(first)

    cycle()
    return cycle


def main() -> None:
    """Measure and print, without the other benchmarks."""
    times = shadow()
    for name, taken in times.items():
        print(f"{name:<50}{taken / 1000:>10.1f} ms")
    for ratio in ratios(times, BOUNDS):
        print(f"{ratio.bound.case} / {ratio.bound.floor}: at most {ratio.bound.factor}, measured {ratio.measured:.2f}")


if __name__ == "__main__":
    main()
