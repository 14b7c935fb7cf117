"""The state of the root's own git dir, as far as a program that runs git changes what a person would notice.

It is read from files, without git: a repository's configuration can name programs that git starts.

==============================  ========================================================================================
looked at                       not looked at
==============================  ========================================================================================
HEAD                            objects, and the references of a repository with the format `reftable`
the references, also the stash  logs, hooks, attributes, remembered remotes and worktrees
the index                       the git dirs of submodules, below `.git/modules`
`config`, as a whole            a repository that the root lies in
a merge, rebase, cherry-pick,   repositories below the root: they are part of snapshots
revert or bisection under way,
and the lock of the index
==============================  ========================================================================================

In a linked worktree `.git` is a file that names the git dir. HEAD and the index are there, the references in the common
dir that it names.
"""

from __future__ import annotations

import json
import os
import stat
from base64 import b64decode, b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from handrail.filesystem.disk import open_to_read
from handrail.filesystem.paths import OWN_GIT

UNDER_WAY: Final = (
    "MERGE_HEAD",
    "CHERRY_PICK_HEAD",
    "REVERT_HEAD",
    "rebase-merge",
    "rebase-apply",
    "BISECT_LOG",
    "index.lock",
)
"""The entries of a git dir that show that an operation is not finished."""

_LINE: Final = b"gitdir: "
_MOST_LINE_BYTES: Final = 8192
_MOST_BYTES: Final = 1 << 26
_DEEPEST: Final = 40


@dataclass(frozen=True, slots=True)
class GitDirState:
    """What is in a git dir at one moment.

    Attributes:
        git_dir: where HEAD and index are.
        common_dir: where references and configuration are.
        head: the content of `HEAD`.
        packed: the content of `packed-refs`.
        loose: the content of each file below `refs`, by the name of the reference.
        index: the content of the index.
        config: the content of `config`.
        under_way: which of `UNDER_WAY` exist.
    """

    git_dir: Path
    common_dir: Path
    head: bytes
    packed: bytes
    loose: dict[str, bytes]
    index: bytes
    config: bytes
    under_way: frozenset[str]

    def to_json(self) -> bytes:
        """The state as it is stored."""
        parts = [b64encode(part).decode() for part in (self.head, self.packed, self.index, self.config)]
        loose = {name: b64encode(content).decode() for name, content in self.loose.items()}
        dirs = (os.fspath(self.git_dir), os.fspath(self.common_dir))
        return json.dumps([*dirs, *parts, loose, sorted(self.under_way)]).encode()

    @staticmethod
    def from_json(data: bytes) -> GitDirState:
        """The state that `to_json` has written."""
        git_dir, common_dir, *parts, loose, under_way = json.loads(data)
        head, packed, index, config = map(b64decode, parts)
        return GitDirState(
            Path(git_dir),
            Path(common_dir),
            head,
            packed,
            {name: b64decode(content) for name, content in loose.items()},
            index,
            config,
            frozenset(under_way),
        )

    def again(self) -> GitDirState | None:
        """The state of the same git dir now; `None` if it is gone."""
        return _state(self.git_dir, self.common_dir)

    @property
    def has_checkout_hook(self) -> bool:
        """Whether `git checkout` may run a program of the repository."""
        return b"hookspath" in self.config.lower() or os.path.lexists(self.common_dir / "hooks" / "post-checkout")

    def has_path(self, name: str) -> bool:
        """Whether the work tree has a file or folder of this name; also if it is not known where the work tree is."""
        return self.git_dir.name != OWN_GIT or os.path.lexists(self.git_dir.parent / name)

    @property
    def references(self) -> dict[str, str]:
        """The object of each reference, by its whole name; or the name of the reference that it is the same as."""
        found: dict[str, str] = {}
        for line in self.packed.splitlines():
            # Comments begin with `#`, and the objects of annotated tags with `^`.
            target, _, name = line.partition(b" ")
            if name and not line.startswith((b"#", b"^")):
                found[os.fsdecode(name)] = os.fsdecode(target)
        # A loose reference precedes the packed one of the same name.
        found.update((name, os.fsdecode(content.strip())) for name, content in self.loose.items() if content.strip())
        return found


def git_dir_state(root: Path) -> GitDirState | None:
    """The state of the git dir of a root; `None` if it has none."""
    own = root / OWN_GIT
    try:
        is_file = stat.S_ISREG(own.lstat().st_mode)
    except OSError:
        return None
    git_dir = own
    if is_file:
        line = _content(own, _MOST_LINE_BYTES)
        if not line.startswith(_LINE):
            return None
        git_dir = root / os.fsdecode(line.removeprefix(_LINE).rstrip(b"\r\n"))
    common = os.fsdecode(_content(git_dir / "commondir", _MOST_LINE_BYTES).rstrip(b"\r\n"))
    return _state(git_dir, git_dir / common if common else git_dir)


def _state(git_dir: Path, common_dir: Path) -> GitDirState | None:
    head = _content(git_dir / "HEAD", _MOST_LINE_BYTES)
    if not head:
        return None
    loose = dict(_references(common_dir / "refs", "refs", _DEEPEST))
    # `refs/bisect`, `refs/worktree` and `refs/rewritten` belong to one worktree.
    if git_dir != common_dir:
        loose.update(_references(git_dir / "refs", "refs", _DEEPEST))
    return GitDirState(
        git_dir,
        common_dir,
        head,
        _content(common_dir / "packed-refs", _MOST_BYTES),
        loose,
        _content(git_dir / "index", _MOST_BYTES),
        _content(common_dir / "config", _MOST_BYTES),
        frozenset(name for name in UNDER_WAY if os.path.lexists(git_dir / name)),
    )


def _references(folder: Path, name: str, depth: int) -> Iterator[tuple[str, bytes]]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except (OSError, ValueError):
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            if depth:
                yield from _references(folder / entry.name, f"{name}/{entry.name}", depth - 1)
        elif not entry.name.endswith(".lock"):
            yield f"{name}/{entry.name}", _content(folder / entry.name, _MOST_LINE_BYTES)


def _content(path: Path, most: int) -> bytes:
    """The content of a file; of a larger one, its size and time. Empty if it is missing or not a regular file."""
    try:
        # Neither follows a link nor waits for the writer of a pipe.
        descriptor = open_to_read(path, at=None)
    except (OSError, ValueError):  # a NUL in the path that a `.git` file names
        return b""
    with open(descriptor, "rb") as file:  # noqa: PTH123 - a descriptor
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return b""
        if status.st_size > most:
            return b"%d %d" % (status.st_size, status.st_mtime_ns)
        return file.read(most)
