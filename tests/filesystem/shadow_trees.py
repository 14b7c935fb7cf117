"""Trees on disk to take snapshots of: what is in one, to the byte and to the mode, and one with everything in it."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

from handrail.filesystem.shadow.repository import ShadowRepository

Picture = dict[bytes, tuple[int, bytes]]


def picture(root: Path) -> Picture:
    """Every path below a root, and the root, with its whole mode and what it holds, but for the root's own `.git`."""
    found: Picture = {}
    top = os.fsencode(root)
    waiting = [top]
    while waiting:
        path = waiting.pop()
        status = os.lstat(path)
        found[os.path.relpath(path, top)] = (status.st_mode, _content(path, status.st_mode))
        if stat.S_ISDIR(status.st_mode):
            waiting += [os.path.join(path, name) for name in os.listdir(path) if (path, name) != (top, b".git")]  # noqa: PTH118, PTH208 - bytes
    return found


def _content(path: bytes, mode: int) -> bytes:
    if stat.S_ISLNK(mode):
        return os.readlink(path)  # noqa: PTH115 - bytes
    return Path(os.fsdecode(path)).read_bytes() if stat.S_ISREG(mode) else b""


def fill(root: Path) -> Path:
    """Put one of everything into a root."""
    (root / "src" / "deep" / "deeper").mkdir(parents=True)
    (root / "src" / "main.py").write_text("print('main')\n")
    (root / "src" / "deep" / "deeper" / "data.bin").write_bytes(bytes(range(256)))
    (root / "empty" / "inside").mkdir(parents=True)
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    (root / "secret").write_text("s3cret")
    (root / "secret").chmod(0o600)
    (root / "locked").mkdir()
    (root / "locked" / "file").write_text("locked")
    (root / "locked").chmod(0o550)
    (root / "link").symlink_to("src/main.py")
    (root / "dangling").symlink_to("/nowhere/at/all")
    (root / "src" / "up").symlink_to("..")
    (root / os.fsdecode(b"caf\xe9 \xff.txt")).write_text("latin")
    (root / '"quoted\n\t\\name').write_text("odd")
    (root / "-rf").write_text("dash")
    (root / ".gitignore").write_text("*.tmp\n")
    (root / "other").mkdir()
    (root / "other" / "log").write_text("of another folder")
    (root / ".gitattributes").write_text("* text eol=crlf ident working-tree-encoding=UTF-16 filter=lfs\n")
    (root / "mixed.txt").write_bytes(b"one\r\ntwo\nthree\r$Id$\n")
    (root / "nothing").touch()
    return root


def git(folder: Path, *arguments: str) -> None:
    """Do something in somebody's own repository."""
    who = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}
    nothing = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    subprocess.run(["git", *arguments], cwd=folder, env=os.environ | who | nothing, check=True, capture_output=True)


class SavedTree:
    """A tree and its shadow, with a snapshot from the beginning.

    Attributes:
        root: the tree.
        shadow: saves it.
        before: the tree as it was.
        snapshot: what was saved then.
    """

    def __init__(self, root: Path, shadow: ShadowRepository) -> None:
        self.root, self.shadow = root, shadow
        self.before, self.snapshot = picture(root), shadow.snapshot().id

    def restore(self) -> None:
        """Restore the tree, and check that it is as it was."""
        self.shadow.restore(self.snapshot)
        assert picture(self.root) == self.before
