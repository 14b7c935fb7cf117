"""A process that has children of it killed at every step of a snapshot or a restore, and mends what they leave.

Arguments: `snapshot` or `restore`, and a folder to work in. Prints how many were killed. A step is whatever
Python audits: a file that is opened, removed or made, a mode that is set, a process that is started.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from itertools import count
from pathlib import Path

from handrail.filesystem.shadow.repository import ShadowRepository
from tests.filesystem.shadow_trees import fill, picture

STEPS = frozenset(
    {"open", "os.chmod", "os.mkdir", "os.remove", "os.rmdir", "os.scandir", "os.symlink", "shutil.rmtree", "os.utime"}
    | {"subprocess.Popen"}
)


def spoil(root: Path, number: int) -> None:
    """Do damage of each kind."""
    (root / "src" / "main.py").write_text(f"spoilt {number}")
    shutil.rmtree(root / "empty", ignore_errors=True)
    (root / "secret").unlink(missing_ok=True)
    (root / "secret").mkdir()
    (root / "secret" / "more").write_text(f"more {number}")
    (root / "link").unlink()
    (root / "link").symlink_to(f"elsewhere-{number}")
    (root / "surplus" / "a" / "b").mkdir(parents=True, exist_ok=True)
    (root / "src" / "deep" / "deeper").chmod(0o700)
    (root / "nothing").chmod(0o444)


def was_killed(what: str, root: Path, git_dir: Path, snapshot: str, step: int) -> bool:
    """Whether a child that does it comes to its step of this number, and dies there."""
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        assert status in {0, signal.SIGKILL}, status
        return status != 0
    repository = ShadowRepository(root, git_dir)
    left = step

    def die(event: str, _: object) -> None:
        nonlocal left
        if event in STEPS:
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(die)
    if what == "snapshot":
        repository.snapshot()
    else:
        repository.restore(snapshot)
    os._exit(0)


def main(what: str, scratch: Path) -> int:
    """Kill, mend and compare, until a child gets through."""
    root = scratch / "tree"
    root.mkdir()
    git_dir = scratch / "git"
    snapshot = ShadowRepository(fill(root), git_dir).snapshot()
    expected = picture(root)
    for step in count():
        spoil(root, step)
        if what == "snapshot" and not step % 7:
            shutil.rmtree(git_dir)  # so that the git dir is made anew, too
            ShadowRepository(root, scratch / "other.git").snapshot()
            spoilt = picture(root)
            killed = was_killed(what, root, git_dir, snapshot, step)
            assert picture(root) == spoilt, step
            ShadowRepository(root, git_dir).snapshot()
            shutil.rmtree(root)
            snapshot = ShadowRepository(_again(root), git_dir).snapshot()
        else:
            killed = was_killed(what, root, git_dir, snapshot, step)
            ShadowRepository(root, git_dir).restore(snapshot)
        assert picture(root) == expected, step
        if not killed:
            return step
    raise AssertionError


def _again(root: Path) -> Path:
    root.mkdir()
    return fill(root)


if __name__ == "__main__":
    sys.stdout.write(f"{main(sys.argv[1], Path(sys.argv[2]))}\n")
