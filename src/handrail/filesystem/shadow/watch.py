"""What a rollback does not restore, and what of it a program has changed.

Large files that git ignores are left out of snapshots (`handrail.filesystem.shadow.scope`), and so is the root's own
`.git`; sockets and devices cannot be made again. All are looked at before a program starts. If it fails, they are
looked at again, and what differs is named.

A watched file counts as unchanged if kind, mode, size, time of modification and inode are the same. The time of change
is not compared: a further hard link to the file, which some installers make, changes it.
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from handrail.errors import FilesystemError
from handrail.filesystem.disk import open_folder
from handrail.filesystem.own_git.changes import GitChange, git_changes
from handrail.filesystem.own_git.state import GitDirState, git_dir_state
from handrail.filesystem.root import to_text
from handrail.filesystem.shadow.tree import UNWATCHED, Folder, TreeFile, TreeScan, scan_tree, signature_of
from handrail.redaction import redacted_logger

_MOST_NAMED = 5

_LOGGER = redacted_logger("handrail.filesystem")


@dataclass(frozen=True, slots=True)
class Unrestored:
    """What a program has changed and a rollback does not restore.

    Attributes:
        text: what has changed, as a sentence.
        command: the shell command that takes it back once the files are restored; empty if there is none.
    """

    text: str
    command: str = ""

    @property
    def sentence(self) -> str:
        """Both together."""
        return f"{self.text}; `{self.command}` takes that back" if self.command else self.text


class UnrestoredWatch:
    """What a rollback does not restore, as it was before a program started.

    Attributes:
        root: the tree.
        entries: what is left out of the snapshot and watched, and sockets and devices, by path.
        git: the root's own `.git`; `None` if it has none.
    """

    __slots__ = ("_changes", "entries", "git", "root")

    def __init__(self, root: Path, entries: Mapping[str, TreeFile | Folder], git: GitDirState | None) -> None:
        """Take what was found at the paths that are left out, and in the root's own `.git`."""
        self.root: Path = root
        self.entries: dict[str, TreeFile | Folder] = {
            path: entry for path, entry in entries.items() if entry != UNWATCHED
        }
        self.git: GitDirState | None = git
        self._changes: tuple[Unrestored, ...] | None = None

    def changes(self) -> tuple[Unrestored, ...]:
        """What had changed when this was first called, in words.

        A folder that cannot be read any more counts as changed.
        """
        if self._changes is None:
            with _accessible(self.root):
                self._changes = (*self._changes_left_out(), *self._changes_of_git())
        return self._changes

    def log_changes(self) -> None:
        """Write them to the log, after a rollback."""
        for change in self.changes():
            _LOGGER.warning("a call that was rolled back has changed more than is restored: %s", change.sentence)

    def _changes_left_out(self) -> list[Unrestored]:
        found: list[Unrestored] = []
        for path, before in self.entries.items():
            text = _change_of(path, before, self.root)
            if text:
                found.append(Unrestored(text))
        if len(found) > _MOST_NAMED:
            rest = len(found) - _MOST_NAMED
            found[_MOST_NAMED:] = [Unrestored(f"{rest} more paths were changed and are not restored")]
        return found

    def _changes_of_git(self) -> list[Unrestored]:
        changes = git_changes(self.git, git_dir_state(self.root) if self.git is None else self.git.again())
        if not changes:
            return []
        return [
            Unrestored(
                f"in .git, which is not restored, {'; '.join(change.text for change in changes)}", _joined(changes)
            )
        ]


def _joined(changes: tuple[GitChange, ...]) -> str:
    return " && ".join(change.command for change in changes if change.command)


def _change_of(path: str, before: TreeFile | Folder, root: Path) -> str | None:
    """How a path that is left out has changed, as a sentence; `None` if it has not."""
    named = "/".join(to_text(os.fsencode(part)) for part in path.split("/"))
    *above, name = path.split("/")
    try:
        with _opened(root) as descriptor, open_folder(descriptor, above) as folder:
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if isinstance(before, TreeFile):
                is_same = _is_same(before, TreeFile(status.st_mode, before.id, signature_of(status)))
                return None if is_same else f"{named} was changed and is not restored"
            with open_folder(folder, [name]) as inner:
                count = _count(before, scan_tree(inner, before, TreeScan()))
    except FileNotFoundError:
        return f"{named} was removed and is not restored"
    except (OSError, FilesystemError):
        return f"{named} was changed and is not restored"
    if not count:
        return None
    return (
        f"1 file below {named} was changed and is not restored"
        if count == 1
        else (f"{count:,} files below {named} were changed and are not restored")
    )


@contextmanager
def _accessible(root: Path) -> Generator[None]:
    """Let the owner look into a root whose rights a program has taken away, while the block runs."""
    try:
        mode = stat.S_IMODE(root.stat().st_mode)
    except OSError:  # it was removed
        mode = stat.S_IRWXU
    is_closed = mode & stat.S_IRWXU != stat.S_IRWXU
    with suppress(OSError):
        if is_closed:
            root.chmod(mode | stat.S_IRWXU)
    try:
        yield
    finally:
        with suppress(OSError):
            if is_closed:
                root.chmod(mode)


@contextmanager
def _opened(root: Path) -> Generator[int]:
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _count(before: Folder, now: Folder) -> int:
    """How many files were changed, added or removed; empty folders that were count as files."""
    # An unchanged folder is the same object.
    if now is before:
        return 0
    changed = Counter[bool]()
    for name in before.leaves.keys() | now.leaves.keys():
        one, other = before.leaves.get(name), now.leaves.get(name)
        changed[one is None or other is None or not _is_same(one, other)] += 1
    total = changed[True]
    for name in before.folders.keys() | now.folders.keys():
        inner, other_inner = before.folders.get(name), now.folders.get(name)
        if inner is None or other_inner is None:
            total += _size(inner or other_inner)
        else:
            total += _count(inner, other_inner)
    return total + (before.mode != now.mode)


def _size(folder: Folder | None) -> int:
    if folder is None:  # pragma: no cover - one of the two is a folder
        return 0
    return len(folder.leaves) + sum(_size(inner) for inner in folder.folders.values()) or 1


def _is_same(one: TreeFile, other: TreeFile) -> bool:
    # Size, time of modification, and inode.
    return (one.mode, one.signature[:2], one.signature[3]) == (other.mode, other.signature[:2], other.signature[3])
