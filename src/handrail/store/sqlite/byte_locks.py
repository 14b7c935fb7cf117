"""Locks of single bytes of one file: any number of them with one descriptor, each until its process ends.

These are open file description locks (fcntl(2), `F_OFD_SETLK`), of Linux. They belong to the open file, as those of
flock(2) do, and not to the process, so that two stores of one process exclude each other, and so that no other
descriptor of the file loses them when it is closed. The bytes need not exist: the file stays empty.

A lock belongs to the open file, which a forked process would inherit, and keep locked after the end of its parent. So
it closes what it inherits, and no file is opened while this process forks.
"""

from __future__ import annotations

import errno
import os
import struct
import sys
import threading
import weakref
from contextlib import suppress
from functools import cache
from pathlib import Path

from handrail.posix import HAS_FILE_LOCKS, fcntl

_FLOCK = "hhqqi0q"
"""`struct flock`: kind, from where the start counts, start, length, process."""

_OPEN: weakref.WeakSet[ByteLocks] = weakref.WeakSet()
_guard = threading.RLock()
"""Keeps this process from forking while a file is open that the fork would not know of."""


class ByteLocks:
    """The locks of one store in one file; used by one thread at a time, but for `restore`.

    Attributes:
        path: the file; it is made with the first lock, as its folder is, and stays.
    """

    __slots__ = ("__weakref__", "_file", "_held", "path")

    def __init__(self, path: Path) -> None:
        self.path: Path = path
        self._file: int | None = None
        self._held: dict[int, bool] = {}
        with _guard:
            _OPEN.add(self)

    def lock(self, byte: int, *, shared: bool = False) -> bool:
        """Lock a byte, if no other open file has it; returns whether it is locked now.

        Args:
            byte: its position, below 2**63 - 1.
            shared: whether others may lock it too, if they share it.

        Raises:
            OSError: the file cannot be made, opened or locked.
        """
        with _guard:
            file = self._opened()
            if not _set(file, byte, fcntl.F_RDLCK if shared else fcntl.F_WRLCK):
                return False
            self._held[byte] = shared
            return True

    def unlock(self, byte: int) -> None:
        """Release a byte; one that is not locked is not an error."""
        if self._held.pop(byte, None) is not None and self._file is not None:
            with suppress(OSError):  # the lock ends with the process at the latest
                _set(self._file, byte, fcntl.F_UNLCK)

    def is_locked(self, start: int, length: int = 1) -> bool:
        """Whether another open file has locked one of some bytes; a file that does not exist has no locks.

        Raises:
            OSError: the system does not say.
        """
        with _guard:
            file = self._file
            if file is not None and is_at(self.path, file):
                return _has_lock(file, start, length)
            try:
                file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return False
            try:
                return _has_lock(file, start, length)
            finally:
                os.close(file)

    def restore(self) -> None:
        """Make the file again if it was removed or replaced, and lock in it what is held; nothing if none is open.

        Raises:
            OSError: it cannot be made.
        """
        with _guard:
            if self._file is not None:
                self._opened()

    def close(self) -> None:
        """Release all locks, and close the file; idempotent."""
        with _guard:
            self.forget()

    def forget(self) -> None:
        """Leave all locks to the process that this one was forked off."""
        self._held.clear()
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _opened(self) -> int:
        """The file, made anew if the folder names another one or none; what is held is locked in that one as well."""
        if self._file is not None and is_at(self.path, self._file):
            return self._file
        self.path.parent.mkdir(exist_ok=True)
        file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        for byte, shared in list(self._held.items()):
            with suppress(OSError):
                _set(file, byte, fcntl.F_RDLCK if shared else fcntl.F_WRLCK)
        if self._file is not None:
            os.close(self._file)
        self._file = file
        return file


@cache
def has_byte_locks() -> bool:
    """Whether this system has such locks; some sandboxes that stand for Linux have not."""
    if sys.platform != "linux" or not HAS_FILE_LOCKS:
        return False
    file = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _has_lock(file, 0, 1)
    except OSError:
        return False
    finally:
        os.close(file)
    return True


def forbids_writing(error: OSError) -> bool:
    """Whether an error says that this process may not write there: it lacks the rights, or the disk is read-only."""
    return isinstance(error, PermissionError) or error.errno == errno.EROFS


def is_at(path: Path, file: int) -> bool:
    """Whether an open file is the one that a path names."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file))
    except FileNotFoundError:
        return False


def _set(file: int, byte: int, kind: int) -> bool:
    try:
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, struct.pack(_FLOCK, kind, os.SEEK_SET, byte, 1, 0))
    except (BlockingIOError, PermissionError):  # either may say that it is locked
        return False
    return True


def _has_lock(file: int, start: int, length: int) -> bool:
    asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, start, length, 0)
    found = fcntl.fcntl(file, fcntl.F_OFD_GETLK, asked)
    return bool(struct.unpack(_FLOCK, found)[0] != fcntl.F_UNLCK)


def _before_fork() -> None:
    _guard.acquire()


def _after_fork() -> None:
    _guard.release()


def _forget_all() -> None:
    for locks in list(_OPEN):
        locks.forget()
    _guard.release()


if sys.platform != "win32":  # pragma: no branch - Windows has no fork
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_forget_all)
