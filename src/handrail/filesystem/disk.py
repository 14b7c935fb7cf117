"""The operating system below one open root: its calls, the resolution of paths, and the messages for errors.

Every name is that of one entry of an open folder (`at`), so no path is looked up twice, and no call follows a link: if
another process replaces a folder by a link in the meantime, the call raises an error and reaches no file outside. The
calls are methods of a class so that a test can make any one of them fail, or change the tree between two of them.

A path is walked from the root part by part, and no link is followed: nothing is below a link.

The messages name only paths inside the root: they may be shown to a model.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from handrail.errors import FilesystemError, PathConflictError, RootMissingError
from handrail.filesystem.paths import ROOT, composed, folders_above, parent_folder, to_bytes, to_text
from handrail.process import fcntl, has_open_databases, is_protected
from handrail.waiting import check_blocking

_GENERATION = struct.Struct("l")
_GET_GENERATION = 2 << 30 | _GENERATION.size << 16 | ord("v") << 8 | 1
"""`FS_IOC_GETVERSION` of linux/fs.h, which ext4, XFS and btrfs know."""

CHUNK_BYTES = 1 << 20
"""How much of a file is in memory at once while it is copied."""

_FOLDER, _PATH, _LINK, _SHUT, _NOW = (  # 0 where a system has no such flag: importing this module works everywhere
    getattr(os, name, 0) for name in ("O_DIRECTORY", "O_PATH", "O_NOFOLLOW", "O_CLOEXEC", "O_NONBLOCK")
)
LIST = _FOLDER | _LINK | _SHUT
"""How a folder is opened that can be listed and synced."""

MAKE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _LINK | _SHUT
"""How a new file is opened to be written."""

_READ = os.O_RDONLY | _LINK | _SHUT | _NOW  # does not wait for the writer of a fifo
_STEP = LIST | _PATH  # O_PATH passes through a folder that may not be listed
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | _LINK | _SHUT
# EPERM: the disk has no hard links, or Linux forbids one to a file of another owner (`fs.protected_hardlinks`).
_NO_LINK_ERRNOS = frozenset({errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.EACCES})

_NOT_THERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})  # or it is below a file, or a link

_WORDS = {
    errno.ENOSPC: "the disk is full. Free some space and try again",
    errno.EACCES: "permission is denied. Ask for another place, or for the permission",
    errno.EPERM: "the operating system does not permit it. Ask for another place, or for the permission",
    errno.EROFS: "the disk is read-only. Ask for another place",
    errno.EIO: "the disk reports an I/O error. Report it to the administrator of this machine",
    errno.EXDEV: "the two paths lie on different disks. Write the new file and remove the old one",
    errno.ENOENT: "something was removed or replaced meanwhile. Look again",
    errno.ENOTDIR: "something was removed or replaced meanwhile. Look again",
    errno.ELOOP: "something was removed or replaced meanwhile. Look again",
    errno.EEXIST: "something was created there meanwhile. Look again",
    errno.ENOTEMPTY: "something was created there meanwhile. Look again",
}


class Disk:
    """The operating system, for names in open folders. Every method raises `OSError` as `os` does."""

    __slots__ = ()

    def open_root(self, path: Path) -> int:
        """A descriptor of a folder by its path, which may lead through links."""
        return os.open(path, _FOLDER | _SHUT)

    def process(self) -> int:
        """The id of this process."""
        return os.getpid()

    def folds_case(self, folder: Path) -> bool:
        """Returns whether a folder ignores case in names, as far as its name and those above show."""
        # Nothing is made in the folder to find out: a crash would leave it there.
        for place in (folder, *folder.parents):
            # A name without letters shows nothing; the next one above may.
            if place.name.swapcase() != place.name:
                other = place.with_name(place.name.swapcase())
                return other.exists() and place.samefile(other)
        return False

    def step(self, name: bytes, *, at: int) -> int:
        """A descriptor of a folder, good only for names in it."""
        return _open_folder(name, _STEP, at=at)

    def open_folder(self, name: bytes, *, at: int) -> int:
        """A descriptor of a folder that can be listed and synced."""
        return _open_folder(name, LIST, at=at)

    def open_file(self, name: bytes, *, at: int) -> int:
        """A descriptor to read a file with; see `open_to_read`."""
        return open_to_read(name, at=at)

    def make_file(self, name: bytes, mode: int = 0o666, *, at: int) -> int:
        """A descriptor to write a new file with."""
        return os.open(name, MAKE, mode, dir_fd=at)

    def append_file(self, name: bytes, *, at: int) -> int:
        """A descriptor that appends to a file."""
        return os.open(name, _APPEND, 0o600, dir_fd=at)

    def close(self, descriptor: int) -> None:
        """Closes a descriptor."""
        os.close(descriptor)

    def look(self, name: bytes, *, at: int) -> os.stat_result | None:
        """The status of an entry, of a link itself; `None` for nothing, and for a file of an open database."""
        try:
            status = os.stat(name, dir_fd=at, follow_symlinks=False)
        except FileNotFoundError:
            return None
        return None if is_protected(status, name, at=at) else status

    def is_protected(self, name: bytes, *, at: int) -> bool:
        """Returns whether an entry, or nothing, with that name is a file of an open database."""
        with suppress(FileNotFoundError):
            return is_protected(os.stat(name, dir_fd=at, follow_symlinks=False), name, at=at)
        return is_protected(None, name, at=at)

    def look_at(self, descriptor: int) -> os.stat_result:
        """The status of the file or folder that a descriptor is open on."""
        return os.fstat(descriptor)

    def generation(self, descriptor: int) -> int | None:
        """A number that a later file with the same inode does not have; `None` if the disk does not say one."""
        birth: float | None = getattr(os.fstat(descriptor), "st_birthtime", None)  # macOS and the BSDs
        if birth is not None:  # pragma: no cover - not on Linux
            return int(birth * 1e9)
        number = bytearray(_GENERATION.size)
        try:
            fcntl.ioctl(descriptor, _GET_GENERATION, number)
        except OSError:  # tmpfs, for one, which counts its inodes instead of using them again
            return None
        return int(_GENERATION.unpack(number)[0])

    def names(self, descriptor: int) -> list[bytes]:
        """The names in a folder."""
        # Of a descriptor, `listdir` returns text, in which bytes that are not UTF-8 are surrogates.
        return [os.fsencode(name) for name in os.listdir(descriptor)]

    def may_write(self, name: bytes, *, at: int) -> bool:
        """Returns whether this process may write to a file."""
        return os.access(name, os.W_OK, dir_fd=at)

    def target(self, name: bytes, *, at: int) -> bytes:
        """The target of a link."""
        return os.readlink(name, dir_fd=at)

    def chunks(self, descriptor: int) -> Iterator[bytes]:
        """The rest of a file, piece by piece."""
        check_blocking("reading a file")
        while chunk := os.read(descriptor, CHUNK_BYTES):
            yield chunk

    def start(self, descriptor: int, most_bytes: int) -> bytes:
        """The next bytes of a file, `most_bytes` of them or all that are left."""
        pieces: list[bytes] = []
        # A read may return less than was asked for.
        while most_bytes and (piece := os.read(descriptor, min(most_bytes, CHUNK_BYTES))):
            pieces.append(piece)
            most_bytes -= len(piece)
        return b"".join(pieces)

    def write(self, descriptor: int, data: bytes) -> None:
        """Writes all of the data."""
        rest = memoryview(data)
        # A write may take only a part: when the disk is nearly full, or after a signal.
        while rest:
            rest = rest[os.write(descriptor, rest) :]

    def truncate(self, descriptor: int, length: int) -> None:
        """Shortens a file."""
        os.ftruncate(descriptor, length)

    def sync(self, descriptor: int) -> None:
        """Fsyncs a file or folder."""
        check_blocking("fsync")
        os.fsync(descriptor)

    def sync_all(self) -> None:
        """Syncs everything that any process has written; not every system waits until that is done."""
        check_blocking("sync")
        os.sync()

    def dress(self, descriptor: int, *, owner: tuple[int, int], mode: int) -> None:
        """Sets the owner and mode of a file; a process that may not change owners leaves the owner as it is."""
        status = os.fstat(descriptor)
        if (status.st_uid, status.st_gid) != owner:
            try:
                # The owner before the mode: changing the owner may clear the set-id bits.
                self.give(descriptor, owner)
            except PermissionError:
                mode &= ~(stat.S_ISUID | stat.S_ISGID)  # they would grant the rights of another owner
        os.fchmod(descriptor, mode)

    def give(self, descriptor: int, owner: tuple[int, int]) -> None:
        """Sets the user and group of a file."""
        os.fchown(descriptor, *owner)

    def set_time(self, descriptor: int, modified: int) -> None:
        """Sets when a file was written last, in nanoseconds."""
        os.utime(descriptor, ns=(modified, modified))

    def make_folder(self, name: bytes, *, at: int) -> None:
        """Makes a folder."""
        os.mkdir(name, dir_fd=at)

    def make_link(self, target: bytes, name: bytes, *, at: int) -> None:
        """Makes a symbolic link."""
        os.symlink(target, name, dir_fd=at)

    def share(self, name: bytes, new: bytes, *, at: int, to: int) -> bool:
        """Hard-links a file; returns whether the operating system can."""
        try:
            self.link(name, new, at=at, to=to)
        except OSError as error:
            if error.errno in _NO_LINK_ERRNOS:
                return False
            raise
        return True

    def link(self, name: bytes, new: bytes, *, at: int, to: int) -> None:
        """Hard-links a file, or a link itself and not its target."""
        os.link(name, new, src_dir_fd=at, dst_dir_fd=to, follow_symlinks=False)

    def rename(self, name: bytes, new: bytes, *, at: int, to: int) -> None:
        """Renames an entry; replaces what has the new name."""
        os.rename(name, new, src_dir_fd=at, dst_dir_fd=to)

    def unlink(self, name: bytes, *, at: int) -> None:
        """Removes a file or link."""
        os.unlink(name, dir_fd=at)

    def discard(self, name: bytes, *, at: int) -> None:
        """Removes a file or link if it exists."""
        try:
            self.unlink(name, at=at)
        except FileNotFoundError:
            return

    def remove_folder(self, name: bytes, *, at: int) -> None:
        """Removes an empty folder."""
        os.rmdir(name, dir_fd=at)


def _open_folder(name: bytes, flags: int, *, at: int) -> int:
    if is_protected(None, name, at=at):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    return os.open(name, flags, dir_fd=at)


def open_to_read(name: bytes | str | Path, *, at: int | None) -> int:
    """A descriptor to read a file with; `FileNotFoundError` for a file of an open database."""
    if has_open_databases() and is_protected(os.stat(name, dir_fd=at, follow_symlinks=False)):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    return os.open(name, _READ, dir_fd=at)


def change_mode(name: str, mode: int, *, at: int | None) -> None:
    """Sets the mode of a file or folder, also of one that may not be read; `OSError` for a link."""
    if os.chmod in os.supports_follow_symlinks:  # pragma: no cover - not on Linux
        os.chmod(name, mode, dir_fd=at, follow_symlinks=False)
        return
    # Linux has `follow_symlinks=False` since glibc 2.32 only, which does the same. `fchmod` refuses a descriptor of
    # O_PATH, and any other needs the permission to read.
    descriptor = os.open(name, _PATH | _LINK | _SHUT, dir_fd=at)
    try:
        if stat.S_ISLNK(os.fstat(descriptor).st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        Path(f"/proc/self/fd/{descriptor}").chmod(mode)
    finally:
        os.close(descriptor)


def read_file(name: bytes | str, *, at: int, most_bytes: int) -> bytes | None:
    """The content of a file; `None` for what is not a file, cannot be read, or is larger."""
    try:
        descriptor = open_to_read(name, at=at)
    except OSError:
        return None
    with open(descriptor, "rb") as file:  # noqa: PTH123 - a descriptor
        # Looked at through the descriptor: the file cannot be replaced by a pipe, which would never end, in between.
        status = os.fstat(descriptor)
        return file.read() if stat.S_ISREG(status.st_mode) and status.st_size <= most_bytes else None


@contextmanager
def open_folder(root: int, parts: Sequence[str]) -> Generator[int]:
    """A descriptor of a folder below another, without following links."""
    fd = os.dup(root)
    try:
        for part in parts:
            inner = os.open(part, LIST, dir_fd=fd)
            os.close(fd)
            fd = inner
        yield fd
    finally:
        os.close(fd)


@contextmanager
def translate_os_errors(what: str, path: str, *, after: str = "Nothing was changed") -> Generator[None]:
    """Translates an `OSError` into a `FilesystemError` with a message for a model.

    `what` completes the sentence "cannot ...", and `after` says what is true now, or to be done.
    """
    try:
        yield
    except FilesystemError:  # some of them are an `OSError` too
        raise
    except OSError as error:
        # Without `str(error)`, which may name the root's path or a file of the journal.
        reason = _WORDS.get(error.errno or 0, f"the operating system reports: {error.strerror}")
        raise FilesystemError(f"cannot {what}: {reason}. {after}.", path=path) from error


def special_file(path: str) -> PathConflictError:
    """The error for reading or changing a device, socket or fifo."""
    return PathConflictError(
        f"{path!r} is a device, socket or fifo, which is neither read nor changed here. Give the path of a file.",
        path=path,
    )


def holds_special_file(path: str, *, special: str) -> PathConflictError:
    """The error for removing or moving a folder that holds what could not be restored."""
    msg = f"{path!r} holds {special!r}, a device, socket or fifo, which could not be restored. Leave the folder there."
    return PathConflictError(msg, path=path)


def other_case(path: str, *, there: str) -> PathConflictError:
    """The error for a path that differs from the name on disk in case only, on a disk that ignores case."""
    msg = f"{path!r} is called {there!r} here, and this disk ignores case. Give that name."
    return PathConflictError(msg, path=path)


class ResolvedPath(NamedTuple):
    """What is at a path, `None` for nothing, and the path itself or the nearest above it where something is."""

    path: str
    status: os.stat_result | None
    nearest: str = ROOT


class Root:
    """A folder that stays open; it does not close itself.

    `generation` distinguishes it from a later folder with its inode, if the disk says one; `spellings` are where it is,
    without links and as the caller wrote it.
    """

    __slots__ = ("_disk", "descriptor", "folds_case", "generation", "identity", "path", "spellings")

    def __init__(self, path: Path, disk: Disk) -> None:
        """Opens a folder.

        Raises:
            RootMissingError: there is no folder at `path`, or it may not be used.
        """
        try:
            self.path: Path = path.resolve(strict=True)
            self.descriptor: int = disk.open_root(self.path)
        except OSError as error:
            msg = f"there is no folder to be the root at {str(path)!r}: {error.strerror}. Make it, or give another one."
            raise RootMissingError(msg, path=str(path)) from error
        self.spellings: tuple[str, ...] = (os.fspath(self.path), os.path.abspath(path))  # noqa: PTH100 - links stay
        # Of the descriptor: the path may lead to another folder by now.
        status = os.fstat(self.descriptor)
        self.identity: tuple[int, int] = (status.st_dev, status.st_ino)
        self.generation: int | None = disk.generation(self.descriptor)
        self._disk = disk
        self.folds_case: bool = disk.folds_case(self.path)

    def check(self) -> None:
        """Checks that the folder is still at its path.

        Raises:
            RootMissingError: it was removed, moved or replaced.
        """
        try:
            status = self.path.stat()
            identity = (status.st_dev, status.st_ino)
        except OSError:
            identity = None
        if identity != self.identity:
            state = "is no longer there" if identity is None else "has been replaced by another one"
            msg = f"the folder of this filesystem {state}. Move it back; after a failed call, open it again then."
            raise RootMissingError(msg, path=ROOT)

    def resolve(self, path: str) -> ResolvedPath:
        """What is at a path; no link is followed, neither on the way nor at the end.

        Raises:
            PathConflictError: the disk ignores case, and the path is spelled in another one.
        """
        status, nearest = self.look(path), path
        if status is None:
            nearest = next(folder for folder in folders_above(path) if self.look(folder) is not None)
        if self.folds_case:
            self._refuse_other_case(nearest)
        return ResolvedPath(path, status, nearest)

    @contextmanager
    def folder(self, path: str, *, for_listing: bool = False) -> Generator[int]:
        """A descriptor of a folder, by a path without links; `for_listing` if it is for listing or syncing."""
        descriptor = self._open(path, for_listing=for_listing)
        try:
            yield descriptor
        finally:
            self._disk.close(descriptor)

    @contextmanager
    def entry(self, path: str) -> Generator[tuple[int, bytes]]:
        """A descriptor of the folder that a path without links lies in, and its name there."""
        with self.folder(parent_folder(path)) as folder:
            yield folder, to_bytes(path.rpartition("/")[2])

    def look(self, path: str) -> os.stat_result | None:
        """The status of what is at a path without links; `None` for nothing."""
        if path == ROOT:
            return self._disk.look_at(self.descriptor)
        try:
            with self.entry(path) as (folder, name):
                return self._disk.look(name, at=folder)
        except OSError as error:
            if error.errno in _NOT_THERE:
                return None
            raise

    def sync_folders(self, paths: Iterable[str]) -> None:
        """Fsyncs the folders that changed paths lie in, as far as they exist, and the changed folders."""
        changed = set(paths)
        # The folder of a path, for its name; the path itself if it is a folder, for its mode.
        for path in sorted(changed | {parent_folder(path) for path in changed}):
            status = self.look(path)
            if status is not None and stat.S_ISDIR(status.st_mode):
                with self.folder(path, for_listing=True) as folder:
                    self._disk.sync(folder)

    def _open(self, path: str, *, for_listing: bool) -> int:
        descriptor = self._disk.open_folder(b".", at=self.descriptor)
        try:
            parts = [] if path == ROOT else path.split("/")
            for number, part in enumerate(parts, 1):
                # Only the last one is opened to be listed: a folder above it may deny listing and still be passed
                # through.
                last = for_listing and number == len(parts)
                step = self._disk.open_folder if last else self._disk.step
                inner = step(to_bytes(part), at=descriptor)
                self._disk.close(descriptor)
                descriptor = inner
        except BaseException:
            self._disk.close(descriptor)
            raise
        return descriptor

    def _refuse_other_case(self, path: str) -> None:
        # On such a disk `Secret` and `secret` are one entry, and a rule for one must not be bypassed by the other.
        for entry in (*reversed(tuple(folders_above(path))), path)[1:]:
            name = entry.rpartition("/")[2]
            with self.folder(parent_folder(entry), for_listing=True) as folder:
                names = [to_text(name_there) for name_there in self._disk.names(folder)]
            # Compared in one form, because some disks return names in another Unicode form than they were given.
            if composed(name) not in map(composed, names):
                there = [one for one in names if composed(one).casefold() == composed(name).casefold()]
                raise other_case(entry, there="".join(there[:1]))
