"""The state of a tree on disk: what is in each folder, its file status, its git tree objects; and changes to it.

A tree object has the form of git's. Here it stores the whole mode of a file or folder, not only the executable bit, and
empty folders.

A scan reads no unchanged file. A file is unchanged if kind, mode, size, both times and inode are the same; but not if
it was changed so shortly before it was read that another write could have left all of these equal. Such a file is read
again the next time. An unchanged folder is the same object as before, so a scan needs memory only for what has changed.

What a snapshot *leaves out* is not part of the tree objects: only its name is in `Folder.apart`, and it is not looked
at. It is neither saved nor changed nor removed by a restore: files and folders that git ignores. The rules are those of
`handrail.filesystem.walks`, without `.ignore` files; whether git tracks a file does not matter. The `.git` of a
repository below the root is not ignored. The snapshot itself says which paths it leaves out, so a program that changes
the rules changes nothing about that.

Each path is opened folder by folder and no link is followed, so that nothing outside the root is read or written, even
if a process that a tool has left running replaces a folder by a link.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, NamedTuple

from handrail.errors import FilesystemError, RootMissingError
from handrail.filesystem.disk import LIST, MAKE, change_mode, open_folder, open_to_read, read_file, translate_os_errors
from handrail.filesystem.paths import GIT_FOLDER, ROOT, join, parent_folder, to_text
from handrail.filesystem.shadow.objects import UNREAD, object_id
from handrail.filesystem.walks import MOST_RULE_BYTES, IgnoreRules
from handrail.process import is_protected

MAX_TREE_DEPTH = 500
"""How deep folders may be nested: each needs a file descriptor and a Python stack frame while it is read."""

Signature = tuple[int, int, int, int]
"""Size, time of modification and of change in nanoseconds, inode."""

UNSETTLED: Signature = (-1, -1, -1, -1)
"""The signature of a file that must be read again, whatever its status."""

SPECIAL = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
"""The id of a socket, fifo or device: that of a blob without content. The mode in the tree object says what it is."""


class TreeFile(NamedTuple):
    """A file or a link, and its status when it was read; or a socket, fifo or device, which is not read."""

    mode: int
    id: str
    signature: Signature


NO_NAMES: frozenset[str] = frozenset()
"""No names."""

_GITIGNORE = ".gitignore"


@dataclass(slots=True, eq=False)
class Folder:
    """The content of a folder. Immutable once it has an id.

    Attributes:
        mode: its whole mode.
        leaves: its files, links and what is `SPECIAL`.
        folders: the folders in it.
        id: the id of its tree object.
        apart: the names that are left out of the tree object.
    """

    mode: int
    leaves: dict[str, TreeFile] = field(default_factory=dict[str, TreeFile])
    folders: dict[str, Folder] = field(default_factory=dict[str, "Folder"])
    id: str = UNREAD
    apart: set[str] = field(default_factory=set[str])


class UnreadFile(NamedTuple):
    """A file or link that must be read."""

    path: str
    folder: Folder
    name: str

    @property
    def leaf(self) -> TreeFile:
        """The file with its status."""
        return self.folder.leaves[self.name]

    def record_id(self, blob_id: str, *, settled_before: int) -> None:
        """Records its id; to be read again if it was changed at `settled_before` (nanoseconds) or later."""
        mode, _, signature = self.leaf
        # The time of change counts too: a program can set the time of modification back.
        is_settled = max(signature[1:3]) < settled_before
        self.folder.leaves[self.name] = TreeFile(mode, blob_id, signature if is_settled else UNSETTLED)


class FolderRules:
    """Which entries of one folder git ignores, while it is scanned."""

    __slots__ = ("_rules",)

    def __init__(self, descriptor: int, above: IgnoreRules | None = None) -> None:
        present = {_GITIGNORE}
        with suppress(OSError):
            os.stat(GIT_FOLDER, dir_fd=descriptor, follow_symlinks=False)
            present.add(GIT_FOLDER)
        # Of a link or a pipe in place of a rule file nothing is read.
        self._rules = (above or IgnoreRules()).with_files(
            present, lambda name: _read_inside(descriptor, *name.split("/"))
        )

    def enter(self, name: str, descriptor: int) -> FolderRules:
        """The rules for the folder `name` in this one."""
        return FolderRules(descriptor, self._rules.enter(_spelled_name(name)))

    def hides(self, name: str, *, is_folder: bool) -> bool:
        """Returns whether git ignores the entry `name` of this folder."""
        return name != GIT_FOLDER and self._rules.hides(_spelled_name(name), is_folder=is_folder)


def _read_inside(descriptor: int, *parts: str) -> bytes | None:
    with suppress(OSError), open_folder(descriptor, parts[:-1]) as folder:
        return read_file(parts[-1], at=folder, most_bytes=MOST_RULE_BYTES)
    return None


def _spelled_name(name: str) -> str:
    return name if name.isascii() else to_text(os.fsencode(name))


@dataclass(slots=True)
class TreeScan:
    """The options of a scan, and its findings.

    Attributes:
        left_out: the names that are left out, by the path of their folder.
        rules: the rules of the root by which git ignores files; `None` if they do not matter.
        unread: the files and links that must be read.
        ignored: the paths that are left out by the rules.
        is_restoring: whether the tree is scanned to be restored, and not to be saved; folders are made accessible then.
    """

    left_out: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    rules: FolderRules | None = None
    unread: list[UnreadFile] = field(default_factory=list[UnreadFile])
    ignored: list[str] = field(default_factory=list[str])
    is_restoring: bool = False

    def open_up(self, mode: int, name: str, parent: int | None) -> None:
        """Makes a folder accessible to its owner, if the tree is to be restored."""
        if self.is_restoring and mode & stat.S_IRWXU != stat.S_IRWXU:
            # Another owner's matters only if something in it has changed. What was removed or replaced by a link
            # meanwhile cannot be opened as a folder, which is an error then.
            with suppress(OSError):
                change_mode(name, stat.S_IMODE(mode) | stat.S_IRWXU, at=parent)


def scan_tree(root: int, previous: Folder | None, scan: TreeScan) -> Folder:
    """The content of a folder now; unchanged parts are those of the `previous` scan."""
    return _scan_folder(root, ROOT, previous, scan, scan.rules)


def _scan_folder(fd: int, path: str, previous: Folder | None, scan: TreeScan, rules: FolderRules | None) -> Folder:
    if path.count("/") >= MAX_TREE_DEPTH:
        msg = f"folders are nested more than {MAX_TREE_DEPTH} deep, beginning with {path[:80]!r}; remove them"
        raise FilesystemError(msg, path=path)
    # After `open_up`: a restore sets the mode of a folder that was made accessible.
    folder = Folder(os.fstat(fd).st_mode)
    known_folders = {} if previous is None else previous.folders
    # After the loop, because `scandir` holds a second descriptor of the folder until it ends.
    for name, mode in _scan_entries(fd, path, previous, folder, scan, rules):
        inner = join(path, name)
        scan.open_up(mode, name, fd)
        with _folder(name, fd, inner) as inner_fd:
            inner_rules = None if rules is None else rules.enter(name, inner_fd)
            folder.folders[name] = _scan_folder(inner_fd, inner, known_folders.get(name), scan, inner_rules)
    # Folders are compared by identity: an unchanged inner folder is the same object.
    if previous is not None and _parts(previous) == _parts(folder):
        return previous
    return folder


def _scan_entries(  # noqa: PLR0913, PLR0917 - the state of a walk
    fd: int, path: str, previous: Folder | None, folder: Folder, scan: TreeScan, rules: FolderRules | None
) -> list[tuple[str, int]]:
    apart = scan.left_out.get(path, NO_NAMES)
    known_leaves = {} if previous is None else previous.leaves
    leaves = folder.leaves
    inner_folders: list[tuple[str, int]] = []
    for name, status in statuses(fd, path):  # the costly loop in a large tree
        mode = status.st_mode
        is_folder = stat.S_ISDIR(mode)
        if name in apart:
            folder.apart.add(name)
            continue
        if rules is not None and rules.hides(name, is_folder=is_folder):
            folder.apart.add(name)
            scan.ignored.append(join(path, name))
            continue
        signature = (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
        leaf = known_leaves.get(name)
        # Never true of a file with the signature `UNSETTLED`: no size is negative.
        if leaf is not None and leaf.signature == signature and leaf.mode == mode:
            leaves[name] = leaf
        elif is_folder:
            inner_folders.append((name, mode))
        elif is_protected(status):
            folder.apart.add(name)
        elif not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
            leaves[name] = TreeFile(mode, SPECIAL, signature)
        else:
            leaves[name] = TreeFile(mode, UNREAD, signature)
            scan.unread.append(UnreadFile(join(path, name), folder, name))
    return inner_folders


def _parts(folder: Folder) -> tuple[object, ...]:
    return (folder.mode, folder.leaves, folder.folders, folder.apart)


def statuses(fd: int, path: str) -> Iterator[tuple[str, os.stat_result]]:
    """The entries of a folder by name, except those removed meanwhile and the root's own git dir."""
    outside = GIT_FOLDER if path == ROOT else None
    with translate_os_errors(f"read {path!r}", path), os.scandir(fd) as entries:
        for entry in entries:
            name = entry.name
            if name != outside:
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:  # removed a moment ago
                    continue
                yield name, status


@contextmanager
def _folder(name: str, parent: int, path: str) -> Generator[int]:
    with translate_os_errors(f"read {path!r}", path):
        fd = os.open(name, LIST, dir_fd=parent)
    try:
        yield fd
    finally:
        os.close(fd)


def identify(folder: Folder) -> list[tuple[str, bytes]]:
    """Sets missing ids, as far as everything in a folder has been read; returns the new ones with their objects."""
    objects: list[tuple[str, bytes]] = []
    for inner in folder.folders.values():
        if inner.id == UNREAD:
            objects += identify(inner)
    if UNREAD not in {entry.id for entry in _entries(folder).values()}:
        content = _encode(folder)
        folder.id = object_id(b"tree", len(content), [content])
        objects.append((folder.id, content))
    return objects


def _entries(folder: Folder) -> dict[str, TreeFile | Folder]:
    return {**folder.leaves, **folder.folders}


def _encode(folder: Folder) -> bytes:
    rows = sorted((os.fsencode(name), entry) for name, entry in _entries(folder).items())
    return b"".join(b"%o %s\0%s" % (entry.mode, name, bytes.fromhex(entry.id)) for name, entry in rows)


def cannot_snapshot(what: str, path: str, error: OSError) -> FilesystemError:
    """The error for a path that cannot be read or restored on disk."""
    return FilesystemError(f"cannot {what} {path!r}: {error.strerror}", path=path)


def names_by_folder(paths: Iterable[str]) -> dict[str, frozenset[str]]:
    """Paths as the names in each folder."""
    names: dict[str, set[str]] = {}
    for path in paths:
        names.setdefault(parent_folder(path), set()).add(path.rpartition("/")[2])
    return {folder: frozenset(inner) for folder, inner in names.items()}


def spell_paths(paths: Iterable[str]) -> frozenset[str]:
    """Paths of a scan as the filesystem spells them."""
    return frozenset("/".join(to_text(os.fsencode(part)) for part in path.split("/")) for path in paths)


# ELOOP: a link is where a file was. EINVAL: `readlink` of what is no longer a link.
_CHANGED = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EINVAL}
"""The errors of reading something that was removed, or is of another kind than it was."""


class DiskTree:
    """The tree below the folder of a descriptor; its methods raise `FilesystemError` if the disk fails.

    The folder of the last path stays open: the paths of a snapshot come folder by folder.
    """

    def __init__(self, root: int) -> None:
        self.root = root
        self._open_path: str = ROOT
        self._open_folder = root

    def close(self) -> None:
        """Closes the folder that is still open, but for the root."""
        if self._open_folder != self.root:
            os.close(self._open_folder)
        self._open_path, self._open_folder = ROOT, self.root

    def read(self, item: UnreadFile, how: Callable[[BinaryIO, int], str]) -> str:
        """The result of `how` for a file's content, or a link's target, and its size; `UNREAD` if it has changed."""
        try:
            parent, name = self._parent(item.path)
            # Checked before and after: the content belongs to the status of the scan only if it had this status all
            # the time.
            if not _is_unchanged(item, parent, name):
                return UNREAD
            with _source(item, parent, name) as source:
                result = how(source, item.leaf.signature[0])
            return result if _is_unchanged(item, parent, name) else UNREAD
        except OSError as error:
            if error.errno in _CHANGED:
                return UNREAD
            raise cannot_snapshot("read", item.path, error) from error

    def remove(self, path: str) -> None:
        """Removes what is at a path, if anything."""
        with self._replacing(path):
            pass

    def make_folder(self, path: str) -> None:
        """Makes an empty folder in place of what is at a path."""
        with self._replacing(path) as (parent, name):
            os.mkdir(name, stat.S_IRWXU, dir_fd=parent)

    def make_link(self, path: str, target: bytes) -> None:
        """Makes a link in place of what is at a path."""
        with self._replacing(path) as (parent, name):
            os.symlink(target, os.fsencode(name), dir_fd=parent)

    def make_file(self, path: str, mode: int, content: Iterable[bytes]) -> None:
        """Makes a file in place of what is at a path."""
        with self._replacing(path) as (parent, name):
            fd = os.open(name, MAKE, stat.S_IRUSR | stat.S_IWUSR, dir_fd=parent)
            with open(fd, "wb") as file:  # noqa: PTH123 - a descriptor
                file.writelines(content)
                # The mode after the last write: writing to a file clears its set-id bits.
                file.flush()
                os.fchmod(fd, stat.S_IMODE(mode))

    def set_mode(self, path: str, mode: int) -> None:
        """Sets the mode of a file or folder."""
        with self._changing(path) as (parent, name):
            if path == ROOT:
                os.fchmod(self.root, stat.S_IMODE(mode))
            else:
                change_mode(name, stat.S_IMODE(mode), at=parent)

    def _parent(self, path: str) -> tuple[int, str]:
        folder, _, name = path.rpartition("/")
        folder = folder or ROOT
        if folder != self._open_path:
            self.close()
            if folder != ROOT:
                with open_folder(self.root, folder.split("/")) as fd:
                    self._open_folder = os.dup(fd)
                self._open_path = folder
        return self._open_folder, name

    @contextmanager
    def _changing(self, path: str) -> Generator[tuple[int, str]]:
        with translate_os_errors(f"restore {path!r}", path, after="Restoring again continues"):
            yield self._parent(path)

    @contextmanager
    def _replacing(self, path: str) -> Generator[tuple[int, str]]:
        with self._changing(path) as (parent, name):
            with suppress(FileNotFoundError):
                _remove_entry(name, at=parent)
            yield parent, name


@contextmanager
def disk_at(root: Path, scan: TreeScan) -> Generator[DiskTree]:
    """The tree at a root, made accessible first if the scan may; `RootMissingError` if there is no folder."""
    try:
        scan.open_up(root.stat().st_mode, os.fspath(root), None)
        fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError) as error:
        msg = f"the folder {os.fspath(root)!r} no longer exists; make it again, then try again"
        raise RootMissingError(msg, path=ROOT) from error
    except OSError as error:
        raise cannot_snapshot("open", ROOT, error) from error
    disk = DiskTree(fd)
    try:
        yield disk
    finally:
        disk.close()
        os.close(fd)


def _is_unchanged(item: UnreadFile, parent: int, name: str) -> bool:
    status = os.stat(name, dir_fd=parent, follow_symlinks=False)
    signature = (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
    return (status.st_mode, signature) == (item.leaf.mode, item.leaf.signature)


def _source(item: UnreadFile, parent: int, name: str) -> BinaryIO:
    if stat.S_ISLNK(item.leaf.mode):
        return BytesIO(os.fsencode(os.readlink(name, dir_fd=parent)))
    return open(open_to_read(name, at=parent), "rb")  # noqa: PTH123 - a descriptor


def _remove_entry(name: str, *, at: int) -> None:
    if stat.S_ISDIR(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode):
        shutil.rmtree(name, dir_fd=at)  # follows no link, also if one takes the place of a folder meanwhile
    else:
        os.unlink(name, dir_fd=at)
