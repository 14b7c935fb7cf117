"""Locks between processes that share a folder: one file each, which the kernel unlocks when its process dies.

A lock is `flock` on a file that is named after the session. A holder that releases a lock removes the file before
unlocking it; one that has locked a file checks whether the folder still names it, and tries again if not.

A lock belongs to the open file, which a forked process would inherit, and keep locked after the end of its parent. So
it closes what it inherits, and no lock is taken while this process forks.
"""

from __future__ import annotations

import errno
import os
import sys
import threading
import weakref
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from handrail.errors import StoreError, StoreReadOnlyError

if sys.platform != "win32":  # pragma: no branch - see `FileLocks.lock`
    import fcntl

_DIGITS = 40
_OPEN: weakref.WeakSet[FileLocks] = weakref.WeakSet()
_guard = threading.RLock()
"""Keeps this process from forking while a file is open that the fork would not know of."""


class FileLocks:
    """The locks of one store; a `handrail.store.session_locks.LockBackend`.

    A process that is forked off inherits none of them: they die with the process that took them.

    Args:
        folder: where the files are; made when the first lock is taken.
        store: the URL of the store, for messages.
        read_only: whether nothing may be written; then no lock is taken.
    """

    __slots__ = ("__weakref__", "_files", "_folder", "_read_only", "_store")

    def __init__(self, folder: Path, *, store: str, read_only: bool = False) -> None:
        self._folder = folder
        self._store = store
        self._read_only = read_only
        self._files: dict[str, int] = {}
        _OPEN.add(self)

    def lock(self, session_id: str) -> bool:
        """Take the lock of a session if it is free; returns whether it was taken.

        Raises:
            StoreReadOnlyError: nothing may be written.
            StoreError: the file cannot be made.
        """
        if self._read_only:
            msg = f"no session of {self._store} can be held for writing, because it was opened with read_only=True"
            raise StoreReadOnlyError(msg, store=self._store)
        with _guard:
            return self._lock(session_id, self._path(session_id))

    def unlock(self, session_id: str) -> None:
        """Release a lock; one that was lost is not an error."""
        with _guard:
            file = self._files.pop(session_id, None)
            if file is not None:
                path = self._path(session_id)
                with suppress(OSError):  # a file that stays does no harm
                    if is_at(path, file):
                        path.unlink()
                os.close(file)

    def locked(self, session_ids: Sequence[str]) -> Sequence[str]:
        """Those of some sessions that this process or another one has locked.

        Nothing is written. Ask only about sessions that were not released: one that is free is locked for a moment, and
        an opener that does not wait would be refused then.
        """
        with _guard:
            return [session_id for session_id in session_ids if _is_locked(self._path(session_id))]

    def refresh(self) -> None:
        """Nothing can have been lost: the kernel keeps a lock as long as its file is open."""

    def close(self) -> None:
        """Give up all locks."""
        for session_id in list(self._files):
            self.unlock(session_id)

    def forget(self) -> None:
        """Leave all locks to the process that this one was forked off."""
        while self._files:
            os.close(self._files.popitem()[1])

    def _lock(self, session_id: str, path: Path) -> bool:
        while True:
            try:
                self._folder.mkdir(exist_ok=True)
                file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except OSError as error:
                raise self._refusal(error) from error
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                os.close(file)
                if isinstance(error, BlockingIOError):
                    return False
                raise self._refusal(error) from error
            if is_at(path, file):
                self._files[session_id] = file
                return True
            os.close(file)

    def _path(self, session_id: str) -> Path:
        name = sha256(session_id.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
        return self._folder / name

    def _refusal(self, error: OSError) -> StoreError:
        kind = StoreReadOnlyError if forbids_writing(error) else StoreError
        msg = (
            f"no session of {self._store} can be held for writing, because its lock in {self._folder} cannot be made: "
            f"{error.strerror}"
        )
        return kind(msg, store=self._store)


def _is_locked(path: Path) -> bool:
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # never locked, or released
        return False
    try:
        # Shared, so that two processes that look at the same time do not take each other for a holder.
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


def forbids_writing(error: OSError) -> bool:
    """Whether an error says that this process may not write there: it lacks the rights, or the disk is read-only."""
    return isinstance(error, PermissionError) or error.errno == errno.EROFS


def is_at(path: Path, file: int) -> bool:
    """Whether an open file is the one that a path names."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file))
    except FileNotFoundError:
        return False


def _before_fork() -> None:
    _guard.acquire()


def _after_fork() -> None:
    _guard.release()


def _forget_all() -> None:
    for locks in list(_OPEN):
        locks.forget()
    _guard.release()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_forget_all)
