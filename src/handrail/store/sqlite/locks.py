"""Locks of sessions between processes that share a file of SQLite; the kernel releases them when a process dies.

On Linux a session is a byte of the file `sessions` in the folder `<database>-holds` (`ByteLocks`), so that any number
of them takes one descriptor. Elsewhere it is a file of its own, which SQLite locks: that needs nothing but SQLite, and
a descriptor for each session.

The locks of bytes are open file description locks (fcntl(2), `F_OFD_SETLK`), of Linux. They belong to the open file, as
those of flock(2) do, and not to the process, so that two stores of one process exclude each other, and so that no other
descriptor of the file loses them when it is closed. The bytes need not exist: the file stays empty.

A lock belongs to the open file, which a forked process would inherit, and keep locked after the end of its parent. So
it closes what it inherits, and no file is opened while this process forks.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import struct
import sys
import weakref
from collections.abc import Sequence
from contextlib import closing, suppress
from functools import cache
from hashlib import sha256
from pathlib import Path

from handrail.errors import StoreError, StoreReadOnlyError
from handrail.posix import HAS_FILE_LOCKS, fcntl
from handrail.process_state import FORKING, in_forked_process

_FLOCK = "hhqqi0q"
"""`struct flock`: kind, from where the start counts, start, length, process."""

# Of the process: a forked one closes the files of all stores.
_OPEN: weakref.WeakSet[ByteLocks] = weakref.WeakSet()


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
        with FORKING:
            _OPEN.add(self)

    def lock(self, byte: int, *, shared: bool = False) -> bool:
        """Lock a byte, if no other open file has it; returns whether it is locked now.

        Args:
            byte: its position, below 2**63 - 1.
            shared: whether others may lock it too, if they share it.

        Raises:
            OSError: the file cannot be made, opened or locked.
        """
        with FORKING:
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
        with FORKING:
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
        with FORKING:
            if self._file is not None:
                self._opened()

    def close(self) -> None:
        """Release all locks, and close the file; idempotent."""
        with FORKING:
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


def _forget_all() -> None:
    for locks in list(_OPEN):
        locks.forget()


in_forked_process(_forget_all)


FIRST_OF_FILES = 1 << 62
"""The bytes below are those of sessions; the others those of opened files (`handrail.store.sqlite.file`)."""

_DIGITS = 40


def file_of_byte_locks(folder: Path) -> ByteLocks | None:
    """The file whose bytes are locked, in the folder of a store; `None` where the system has no such locks."""
    return ByteLocks(folder / "sessions") if has_byte_locks() else None


def session_locks(
    folder: Path, locks: ByteLocks | None, *, store: str, read_only: bool
) -> SessionByteLocks | SessionFileLocks:
    """What keeps other processes from the sessions of a store."""
    if locks is None:
        return SessionFileLocks(folder, store=store, read_only=read_only)
    return SessionByteLocks(locks, folder, store=store, read_only=read_only)


class SessionByteLocks:
    """The locks of one store, each a byte; a `handrail.store.session_locks.LockBackend`.

    Args:
        locks: the bytes.
        folder: where they are, for messages.
        store: the URL of the store, for messages.
        read_only: whether nothing may be written; then no lock is taken.
    """

    __slots__ = ("_folder", "_held", "_locks", "_read_only", "_store")

    def __init__(self, locks: ByteLocks, folder: Path, *, store: str, read_only: bool = False) -> None:
        self._locks = locks
        self._folder = folder
        self._store = store
        self._read_only = read_only
        self._held: set[int] = set()

    def lock(self, session_id: str, *, evict: bool = False) -> bool:  # noqa: ARG002 - a process keeps its lock
        """Take the lock of a session if it is free; returns whether it was taken.

        Raises:
            StoreReadOnlyError: nothing may be written.
            StoreError: the file cannot be made.
        """
        if self._read_only:
            raise _opened_for_reading(self._store)
        byte = _byte(session_id)
        try:
            if byte in self._held or not self._locks.lock(byte):
                return False
        except OSError as error:
            raise _refusal(error, self._folder, self._store) from error
        self._held.add(byte)
        return True

    def unlock(self, session_id: str) -> None:
        """Release a lock; one that was lost is not an error."""
        byte = _byte(session_id)
        if byte in self._held:
            self._held.remove(byte)
            self._locks.unlock(byte)

    def locked(self, session_ids: Sequence[str]) -> Sequence[str]:
        """Those of some sessions that this process or another one has locked; nothing is written."""
        with suppress(OSError):  # another user's
            return [each for each in session_ids if _byte(each) in self._held or self._locks.is_locked(_byte(each))]
        return ()

    def refresh(self) -> None:
        """Nothing can have been lost: the kernel keeps a lock as long as its file is open."""

    def close(self) -> None:
        """Give up all locks."""
        while self._held:
            self._locks.unlock(self._held.pop())


class SessionFileLocks:
    """The locks of one store, each a file; a `handrail.store.session_locks.LockBackend`.

    A holder that releases a lock removes the file before it is unlocked; one that has locked a file checks whether the
    folder still names it, and tries again if not.

    Args:
        folder: where the files are; made when the first lock is taken.
        store: the URL of the store, for messages.
        read_only: whether nothing may be written; then no lock is taken.
    """

    __slots__ = ("_files", "_folder", "_read_only", "_store")

    def __init__(self, folder: Path, *, store: str, read_only: bool = False) -> None:
        self._folder = folder
        self._store = store
        self._read_only = read_only
        self._files: dict[str, tuple[sqlite3.Connection, os.stat_result]] = {}

    def lock(self, session_id: str, *, evict: bool = False) -> bool:  # noqa: ARG002 - a process keeps its lock
        """Take the lock of a session if it is free; returns whether it was taken.

        Raises:
            StoreReadOnlyError: nothing may be written.
            StoreError: the file cannot be made.
        """
        if self._read_only:
            raise _opened_for_reading(self._store)
        if session_id in self._files:
            return False
        try:
            with FORKING:
                return self._lock(session_id, self._path(session_id))
        except OSError as error:
            raise _refusal(error, self._folder, self._store) from error

    def unlock(self, session_id: str) -> None:
        """Release a lock; one that was lost is not an error."""
        if session_id in self._files:
            file, named = self._files.pop(session_id)
            path = self._path(session_id)
            with FORKING:
                with suppress(OSError):  # a file that stays does no harm
                    if _names(path, named):
                        path.unlink()
                file.close()

    def locked(self, session_ids: Sequence[str]) -> Sequence[str]:
        """Those of some sessions that this process or another one has locked; nothing is written.

        Ask only about sessions that were not released: one that is free is locked for a moment, and an opener that
        does not wait would be refused then.
        """
        return [each for each in session_ids if each in self._files or _is_locked(self._path(each))]

    def refresh(self) -> None:
        """Nothing can have been lost: the kernel keeps a lock as long as its file is open."""

    def close(self) -> None:
        """Give up all locks."""
        for session_id in list(self._files):
            self.unlock(session_id)

    def _lock(self, session_id: str, path: Path) -> bool:
        while True:
            self._folder.mkdir(exist_ok=True)
            if not path.exists():  # one that exists is not opened: to close it would unlock it for this process
                os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
            with suppress(FileNotFoundError):
                named = path.stat()
                file = _connected(path)
                try:
                    file.execute("PRAGMA journal_mode = MEMORY")  # no other file beside it
                    file.execute("BEGIN EXCLUSIVE")
                except sqlite3.Error as error:
                    file.close()
                    if _is_busy(error):
                        return False
                    if not path.exists():  # its holder has removed it meanwhile
                        continue
                    raise OSError(str(error)) from error
                if _names(path, named):
                    self._files[session_id] = file, named
                    return True
                file.close()

    def _path(self, session_id: str) -> Path:
        return self._folder / _digest(session_id).hex()[:_DIGITS]


def _connected(path: Path) -> sqlite3.Connection:
    uri = f"{path.as_uri()}?mode=rw"
    return sqlite3.connect(uri, uri=True, timeout=0, isolation_level=None, check_same_thread=False)


def _is_locked(path: Path) -> bool:
    if not path.exists():  # never locked, or released
        return False
    with closing(_connected(path)) as file:
        try:
            # Shared, so that two processes that look at the same time do not take each other for a holder.
            file.execute("SELECT count(*) FROM sqlite_master").fetchall()
        except sqlite3.Error as error:
            return _is_busy(error)
    return False


def _is_busy(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", None) in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


def _names(path: Path, status: os.stat_result) -> bool:
    try:
        return os.path.samestat(path.stat(), status)
    except FileNotFoundError:
        return False


def _byte(session_id: str) -> int:
    return int.from_bytes(_digest(session_id)[:8]) % FIRST_OF_FILES


def _digest(session_id: str) -> bytes:
    return sha256(session_id.encode("utf-8", "surrogatepass")).digest()


def _opened_for_reading(store: str) -> StoreReadOnlyError:
    msg = f"no session of {store} can be held for writing, because it was opened with read_only=True"
    return StoreReadOnlyError(msg, store=store)


def _refusal(error: OSError, folder: Path, store: str) -> StoreError:
    kind = StoreReadOnlyError if forbids_writing(error) else StoreError
    msg = (
        f"no session of {store} can be held for writing, because its lock in {folder} cannot be made: "
        f"{error.strerror or error}"
    )
    return kind(msg, store=store)
