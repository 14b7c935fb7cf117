"""Plans and makes the changes on disk that restore a snapshot, below the descriptor of the root.

Each path is opened folder by folder and no link is followed, so that nothing outside the root is read or written, even
if a process that a tool has left running replaces a folder by a link.

Everything that a snapshot needs is determined and checked to exist before anything is changed. Then, in this order:
superfluous entries are removed, folders are made, files and links are made, modes are set, inner ones first. If the
process dies in between, restoring the same snapshot does the rest, since it begins by looking at the present state.

Of the present state only what may be part of the snapshot is read: a file of a path and a size that the snapshot has
too. What a program has added is removed unread, however much it is.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO, NamedTuple, cast

from handrail.errors import FilesystemError, RootMissingError, SnapshotError
from handrail.filesystem.disk import LIST, MAKE, open_folder, open_to_read, set_mode_of
from handrail.filesystem.paths import ROOT, join
from handrail.filesystem.shadow.git import CHUNK, ObjectReader, objects_missing
from handrail.filesystem.shadow.tree import (
    UNREAD,
    Folder,
    TreeEntry,
    TreeScan,
    UnreadFile,
    cannot_snapshot,
    decode_tree,
    load_left_out,
    running_id,
    signature_of,
)

ABOVE = "root"
"""The name of the root in the tree object of a snapshot, so that its mode is stored too."""

LEFT_OUT = "left-out"
"""The name there of the paths that the snapshot leaves out, if there are any."""

_ID = re.compile("[0-9a-f]{40}")

_MADE = frozenset({stat.S_IFREG, stat.S_IFLNK})
"""The kinds of leaves that a restore can make."""

_EMPTY = Folder(0)

# ELOOP: a link is where a file was. EINVAL: `readlink` of what is no longer a link.
_CHANGED = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EINVAL}
"""The errors of reading something that was removed, or is of another kind than it was."""

_TAKEN = {errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR}
"""The errors of moving a folder to a name that something has already."""


@dataclass(slots=True)
class CheckoutPlan:
    """The steps of a restore, in order; folders come before what they hold.

    Attributes:
        surplus: what is removed.
        folders: the folders that are made.
        leaves: the files and links that are made.
        modes: the modes that are set.
        unread: the files that must be read to know whether they are to be made, each with what is wanted there.
    """

    surplus: list[str] = field(default_factory=list[str])
    folders: list[str] = field(default_factory=list[str])
    leaves: list[tuple[str, TreeEntry]] = field(default_factory=list[tuple[str, TreeEntry]])
    modes: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    unread: list[tuple[UnreadFile, TreeEntry]] = field(default_factory=list[tuple[UnreadFile, TreeEntry]])

    @property
    def blobs(self) -> list[str]:
        """The ids of the contents that the restore may need."""
        return [entry.id for _, entry in (*self.leaves, *self.unread)]


class WantedTree(NamedTuple):
    """What a snapshot holds.

    Attributes:
        root: the root.
        left_out: the paths that it leaves out.
    """

    root: TreeEntry
    left_out: frozenset[str]


def wanted_tree(reader: ObjectReader, snapshot: str) -> WantedTree:
    """What a snapshot holds.

    Raises:
        SnapshotError: it is not a snapshot of this repository.
        JournalError: the paths that it leaves out have been lost.
    """
    # Only a whole id: git would also resolve other names, and a line break would end the question.
    content = reader.tree(snapshot) if _ID.fullmatch(snapshot) else None
    entries = {entry.name: entry for entry in decode_tree(content or b"")}
    if ABOVE not in entries or not entries.keys() <= {ABOVE, LEFT_OUT}:
        msg = f"{snapshot!r} is not a snapshot of this shadow repository; restore what its `snapshot` returned"
        raise SnapshotError(msg)
    paths = b"".join(reader.blob(entries[LEFT_OUT].id)) if LEFT_OUT in entries else b""
    return WantedTree(entries[ABOVE], load_left_out(paths))


def plan_checkout(reader: ObjectReader, wanted: TreeEntry, present: Folder) -> CheckoutPlan:
    """The changes from the present to the wanted state; `compare_contents` must follow.

    Raises:
        JournalError: the objects of the snapshot have been lost.
    """
    steps = CheckoutPlan()
    _plan(reader, ROOT, wanted, present, steps)
    return steps


def compare_contents(steps: CheckoutPlan, sizes: Mapping[str, int], disk: DiskTree) -> None:
    """Read the files that may have the wanted content, and plan for those that have another.

    Args:
        steps: the plan.
        sizes: the sizes of its `blobs`, as far as they exist.
        disk: the present state.

    Raises:
        JournalError: a content that is needed has been lost.
    """
    for item, entry in steps.unread:
        if not _holds(item, entry, sizes.get(entry.id), disk):
            steps.leaves.append((item.path, entry))
        elif item.leaf.mode != entry.mode:
            steps.modes.append((item.path, entry.mode))
    lost = [entry.id for _, entry in steps.leaves if entry.id not in sizes]
    if lost:
        raise objects_missing(lost)


def _holds(item: UnreadFile, entry: TreeEntry, size: int | None, disk: DiskTree) -> bool:
    try:
        return size in {None, item.leaf.signature[0]} and disk.read(item, file_digest) == entry.id
    except FilesystemError:  # what cannot be read is replaced
        return False


def apply_checkout(steps: CheckoutPlan, reader: ObjectReader, disk: DiskTree) -> None:
    """Make the planned changes. What cannot be removed does not keep the rest from being restored.

    Raises:
        FilesystemError: the disk does not allow it; the same snapshot can be restored again.
    """
    failures: list[FilesystemError] = []
    for path in steps.surplus:
        try:
            disk.remove(path)
        except FilesystemError as error:
            failures.append(error)
    _make(steps, reader, disk)
    if failures:
        more = f" (and {len(failures) - 1} more)" if failures[1:] else ""
        raise FilesystemError(f"{failures[0]}{more}", path=failures[0].path) from failures[0]


def _make(steps: CheckoutPlan, reader: ObjectReader, disk: DiskTree) -> None:
    for path in steps.folders:
        disk.make_folder(path)
    for path, leaf in steps.leaves:
        content = reader.blob(leaf.id)
        if stat.S_ISLNK(leaf.mode):
            disk.make_link(path, b"".join(content))
        else:
            disk.make_file(path, leaf.mode, content)
    # Inner ones first: the mode of a folder may deny access to what it holds.
    for path, mode in reversed(steps.modes):
        disk.set_mode(path, mode)


def _plan(reader: ObjectReader, path: str, wanted: TreeEntry, present: Folder | None, steps: CheckoutPlan) -> None:
    if present is None:
        steps.folders.append(path)
        present = Folder(stat.S_IFDIR | stat.S_IRWXU)
    if present.mode != wanted.mode:
        steps.modes.append((path, wanted.mode))
    # After the mode, which is stored in the folder above and is not part of the id.
    if present.id == wanted.id:
        return
    content = reader.tree(wanted.id)
    if content is None:
        raise objects_missing([wanted.id])
    entries = list(decode_tree(content))
    names = {entry.name for entry in entries}
    # What is of another kind than wanted is not in here: making the new one removes it.
    surplus = [name for name in (*present.leaves, *present.folders) if name not in names]
    # A folder in which a database was opened since stays.
    steps.surplus += [join(path, name) for name in surplus if not _holds_apart(present.folders.get(name, _EMPTY))]
    for entry in entries:
        if entry.name in present.apart:
            continue
        inner = join(path, entry.name)
        if stat.S_ISDIR(entry.mode):
            _plan(reader, inner, entry, present.folders.get(entry.name), steps)
            continue
        _plan_leaf(inner, entry, present, steps)


def _holds_apart(folder: Folder) -> bool:
    waiting = [folder]  # a program may have nested folders deeper than functions may call each other
    while waiting:
        inner = waiting.pop()
        if inner.apart:
            return True
        waiting += inner.folders.values()
    return False


def _plan_leaf(path: str, wanted: TreeEntry, present: Folder, steps: CheckoutPlan) -> None:
    leaf = present.leaves.get(wanted.name)
    if leaf is not None and stat.S_IFMT(leaf.mode) == stat.S_IFMT(wanted.mode):
        if leaf.id == UNREAD:
            steps.unread.append((UnreadFile(path, present, wanted.name, wanted.id), wanted))
            return
        if leaf.id == wanted.id:
            if leaf.mode != wanted.mode:
                steps.modes.append((path, wanted.mode))
            return
    if stat.S_IFMT(wanted.mode) in _MADE:
        steps.leaves.append((path, wanted))
    elif leaf is not None or wanted.name in present.folders:
        # A socket or fifo is of use only to the processes that have opened it, and a device is made by the system.
        steps.surplus.append(path)


class DiskTree:
    """What is below one root."""

    def __init__(self, root: int) -> None:
        """Work below the folder of this descriptor."""
        self.root = root

    def read(self, item: UnreadFile, how: Callable[[BinaryIO, int], str]) -> str:
        """The result of `how` for a file's content, or a link's target, and its size; `UNREAD` if it has changed.

        Raises:
            FilesystemError: it cannot be read.
        """
        try:
            with self._parent(item.path) as (parent, name):
                # Checked before and after: the content belongs to the status of the scan only if it had this status all
                # the time.
                if not _is_unchanged(item, parent, name):
                    return UNREAD
                with _source(item, parent, name) as source:
                    found = how(source, item.leaf.signature[0])
                return found if _is_unchanged(item, parent, name) else UNREAD
        except BrokenPipeError:
            raise  # git failed, not the disk
        except OSError as error:
            if error.errno in _CHANGED:
                return UNREAD
            raise cannot_snapshot("read", item.path, error) from error

    def remove(self, path: str) -> None:
        """Remove what is at a path, if anything."""
        with self._changing(path) as (parent, name), suppress(FileNotFoundError):
            _remove_entry(name, at=parent)

    def make_folder(self, path: str) -> None:
        """Make an empty folder in place of what is at a path."""
        self.remove(path)
        with self._changing(path) as (parent, name):
            os.mkdir(name, stat.S_IRWXU, dir_fd=parent)

    def make_link(self, path: str, target: bytes) -> None:
        """Make a link in place of what is at a path."""
        self.remove(path)
        with self._changing(path) as (parent, name):
            os.symlink(target, os.fsencode(name), dir_fd=parent)

    def make_file(self, path: str, mode: int, content: Iterable[bytes]) -> None:
        """Make a file in place of what is at a path."""
        self.remove(path)
        with self._changing(path) as (parent, name):
            fd = os.open(name, MAKE, stat.S_IRUSR | stat.S_IWUSR, dir_fd=parent)
            with open(fd, "wb") as file:  # noqa: PTH123 - a descriptor
                file.writelines(content)
                # The mode after the last write: writing to a file clears its set-id bits.
                file.flush()
                os.fchmod(fd, stat.S_IMODE(mode))

    def set_mode(self, path: str, mode: int) -> None:
        """Set the mode of a file or folder."""
        with self._changing(path) as (parent, name):
            if path == ROOT:
                os.fchmod(self.root, stat.S_IMODE(mode))
            else:
                set_mode_of(name, stat.S_IMODE(mode), at=parent)

    @contextmanager
    def _parent(self, path: str) -> Generator[tuple[int, str]]:
        *folders, name = path.split("/")
        with open_folder(self.root, folders) as fd:
            yield fd, name

    @contextmanager
    def _changing(self, path: str) -> Generator[tuple[int, str]]:
        try:
            with self._parent(path) as found:
                yield found
        except OSError as error:
            raise cannot_snapshot("restore", path, error) from error


def file_digest(source: BinaryIO, size: int) -> str:
    """The git id of a file's content."""
    found = running_id(b"blob", size)
    while chunk := source.read(CHUNK):
        found.update(chunk)
    return found.hexdigest()


@contextmanager
def disk_at(root: Path, come_upon: TreeScan) -> Generator[DiskTree]:
    """The tree at a root, which is made accessible first if the scan may do so.

    Raises:
        RootMissingError: there is no folder.
        FilesystemError: it cannot be opened.
    """
    try:
        come_upon.open_up(ROOT, root.stat().st_mode, os.fspath(root), None)
        fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError) as error:
        msg = f"the folder {os.fspath(root)!r} no longer exists; make it again, then try again"
        raise RootMissingError(msg, path=ROOT) from error
    except OSError as error:
        raise cannot_snapshot("open", ROOT, error) from error
    try:
        yield DiskTree(fd)
    finally:
        os.close(fd)


def _is_unchanged(item: UnreadFile, parent: int, name: str) -> bool:
    status = os.stat(name, dir_fd=parent, follow_symlinks=False)
    return (status.st_mode, signature_of(status)) == (item.leaf.mode, item.leaf.signature)


def _source(item: UnreadFile, parent: int, name: str) -> BinaryIO:
    if stat.S_ISLNK(item.leaf.mode):
        target = TemporaryFile()  # noqa: SIM115 - git reads from descriptors
        target.write(os.fsencode(os.readlink(name, dir_fd=parent)))
        target.seek(0)
        return cast("BinaryIO", target)  # declared as the class that it wraps
    return open(open_to_read(name, at=parent), "rb")  # noqa: PTH123 - a descriptor


def _remove_entry(name: str, *, at: int) -> None:
    if stat.S_ISDIR(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode):
        _remove_folder(name, at=at)
    else:
        os.unlink(name, dir_fd=at)


# However deep folders are nested: a folder that holds folders is taken apart from above. Those in it are moved to the
# outermost one, and it is removed. So two descriptors are enough for any depth, no path is longer than a name, and each
# folder is moved once at most. No link is followed, also if something replaces a folder by a link meanwhile.
def _remove_folder(name: str, *, at: int) -> None:
    outermost = _opened(name, at=at)
    try:
        # Numbers that are not used twice; a name that the program has given to something is skipped.
        free = map(str, count())
        waiting = _emptied(outermost)
        while waiting:
            inner_name = waiting.pop()
            inner = _opened(inner_name, at=outermost)
            try:
                waiting += [_moved(each, inner, outermost, free) for each in _emptied(inner)]
            finally:
                os.close(inner)
            os.rmdir(inner_name, dir_fd=outermost)
    finally:
        os.close(outermost)
    os.rmdir(name, dir_fd=at)


def _opened(name: str, *, at: int) -> int:
    _make_accessible(name, at=at)
    return os.open(name, LIST, dir_fd=at)


def _make_accessible(name: str, *, at: int) -> None:
    if os.stat(name, dir_fd=at, follow_symlinks=False).st_mode & stat.S_IRWXU != stat.S_IRWXU:
        with suppress(PermissionError):  # of another owner; it may be accessible all the same
            set_mode_of(name, stat.S_IRWXU, at=at)


def _emptied(folder: int) -> list[str]:
    """Remove the files of a folder; returns the names of its folders."""
    # Without trying `rmdir` first: of a folder that is not empty it takes Linux a walk through all that is known of it.
    with os.scandir(folder) as entries:
        found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_folder in found:
        if not is_folder:
            os.unlink(name, dir_fd=folder)
    return [name for name, is_folder in found if is_folder]


def _moved(name: str, source: int, target: int, free: Iterator[str]) -> str:
    """Move a folder to another one; returns its new name."""
    # A folder that may not be written to may not be moved either: its entry `..` changes.
    _make_accessible(name, at=source)
    for new in free:
        try:
            os.rename(name, new, src_dir_fd=source, dst_dir_fd=target)
        except OSError as error:
            if error.errno not in _TAKEN:
                raise
        else:
            return new
    raise AssertionError  # pragma: no cover - the numbers do not end
