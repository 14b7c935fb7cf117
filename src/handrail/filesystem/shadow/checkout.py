"""The files of a tree on disk, read and put back below the descriptor of its root.

Each path is opened folder by folder and no link is followed, so that nothing outside the root is read or written, even
if a process that a tool has left behind puts a link where a folder was.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO, cast

from handrail.errors import RootVanishedError
from handrail.filesystem.disk import LIST, MAKE, READ
from handrail.filesystem.paths import ROOT
from handrail.filesystem.shadow.git import CHUNK
from handrail.filesystem.shadow.tree import UNREAD, Look, Unread, cannot, running_id, signature_of

_CHANGED = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EINVAL}
"""What reading says of something that is gone, or of another kind than it was."""


class DiskTree:
    """What is below one root."""

    def __init__(self, root: int) -> None:
        """Work below the folder of this descriptor."""
        self.root = root

    def read(self, item: Unread, how: Callable[[BinaryIO, int], str]) -> str:
        """What `how` makes of a file's content, or a link's target, and its size; `UNREAD` if it is not as looked at.

        Raises:
            FilesystemError: it cannot be read.
        """
        try:
            with self._parent(item.path) as (parent, name):
                if not _is_unchanged(item, parent, name):
                    return UNREAD
                with _source(item, parent, name) as source:
                    found = how(source, item.leaf.signature[0])
                return found if _is_unchanged(item, parent, name) else UNREAD
        except BrokenPipeError:
            raise  # it is git that failed, not the disk
        except OSError as error:
            if error.errno in _CHANGED:
                return UNREAD
            raise cannot("read", item.path, error) from error

    def remove(self, path: str) -> None:
        """Remove whatever there is at a path, if anything."""
        with _at(path), self._parent(path) as (parent, name):
            try:
                os.unlink(name, dir_fd=parent)
            except FileNotFoundError:
                return
            except (IsADirectoryError, PermissionError):  # some systems say of a folder that it is not permitted
                shutil.rmtree(name, dir_fd=parent)

    def make_folder(self, path: str) -> None:
        """Make an empty folder in place of whatever there is at a path."""
        self.remove(path)
        with _at(path), self._parent(path) as (parent, name):
            os.mkdir(name, stat.S_IRWXU, dir_fd=parent)

    def make_link(self, path: str, target: bytes) -> None:
        """Make a link in place of whatever there is at a path."""
        self.remove(path)
        with _at(path), self._parent(path) as (parent, name):
            os.symlink(target, os.fsencode(name), dir_fd=parent)

    def make_file(self, path: str, mode: int, content: Iterable[bytes]) -> None:
        """Make a file in place of whatever there is at a path."""
        self.remove(path)
        with _at(path), self._parent(path) as (parent, name):
            fd = os.open(name, MAKE, stat.S_IRUSR | stat.S_IWUSR, dir_fd=parent)
            with open(fd, "wb") as file:  # noqa: PTH123 - a descriptor
                file.writelines(content)
                os.fchmod(fd, stat.S_IMODE(mode))

    def set_mode(self, path: str, mode: int) -> None:
        """Give a file or folder its mode."""
        with _at(path):
            if path == ROOT:
                os.fchmod(self.root, stat.S_IMODE(mode))
                return
            with self._parent(path) as (parent, name):
                os.chmod(name, stat.S_IMODE(mode), dir_fd=parent)

    @contextmanager
    def _parent(self, path: str) -> Generator[tuple[int, str]]:
        *folders, name = path.split("/")
        fd = os.dup(self.root)
        try:
            for folder in folders:
                inner = os.open(folder, LIST, dir_fd=fd)
                os.close(fd)
                fd = inner
            yield fd, name
        finally:
            os.close(fd)


def digest(source: BinaryIO, size: int) -> str:
    """The id that a file's content has in git."""
    found = running_id(b"blob", size)
    while chunk := source.read(CHUNK):
        found.update(chunk)
    return found.hexdigest()


@contextmanager
def disk_at(root: Path, come_upon: Look) -> Generator[DiskTree]:
    """The tree at a root, which is made accessible first if a look may do so.

    Raises:
        RootVanishedError: there is no folder.
        FilesystemError: it cannot be opened.
    """
    try:
        come_upon.open_up(ROOT, root.stat().st_mode, os.fspath(root), None)
        fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError) as error:
        msg = f"there is no folder {os.fspath(root)!r} any more; make it again, then try again"
        raise RootVanishedError(msg, path=ROOT) from error
    except OSError as error:
        raise cannot("open", ROOT, error) from error
    try:
        yield DiskTree(fd)
    finally:
        os.close(fd)


def _is_unchanged(item: Unread, parent: int, name: str) -> bool:
    status = os.stat(name, dir_fd=parent, follow_symlinks=False)
    return (status.st_mode, signature_of(status)) == (item.leaf.mode, item.leaf.signature)


def _source(item: Unread, parent: int, name: str) -> BinaryIO:
    if stat.S_ISLNK(item.leaf.mode):
        target = TemporaryFile()  # noqa: SIM115 - git reads from descriptors
        target.write(os.fsencode(os.readlink(name, dir_fd=parent)))
        target.seek(0)
        return cast("BinaryIO", target)  # it is declared as what it wraps elsewhere
    return open(os.open(name, READ, dir_fd=parent), "rb")  # noqa: PTH123 - a descriptor


@contextmanager
def _at(path: str) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise cannot("put back", path, error) from error
