"""Locks of sessions between processes that share a file of SQLite; the kernel releases them when a process dies.

On Linux a session is a byte of the file `sessions` in the folder `<database>-holds` (`ByteLocks`), so that any number
of them takes one descriptor. Elsewhere it is a file of its own, which SQLite locks: that needs nothing but SQLite, and
a descriptor for each session.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Sequence
from contextlib import closing, suppress
from hashlib import sha256
from pathlib import Path

from handrail.errors import StoreError, StoreReadOnlyError
from handrail.store.sqlite.byte_locks import ByteLocks, forbids_writing, has_byte_locks

FIRST_OF_FILES = 1 << 62
"""The bytes below are those of sessions; the others those of opened files (`handrail.store.sqlite.opened_files`)."""

_DIGITS = 40
_guard = threading.Lock()
"""Keeps two threads of this process from making one lock file."""


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
            with _guard:
                return self._lock(session_id, self._path(session_id))
        except OSError as error:
            raise _refusal(error, self._folder, self._store) from error

    def unlock(self, session_id: str) -> None:
        """Release a lock; one that was lost is not an error."""
        if session_id in self._files:
            file, named = self._files.pop(session_id)
            path = self._path(session_id)
            with _guard:
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
