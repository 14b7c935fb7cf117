"""The processes that claim effects in a file of SQLite: each holds the lock of one file until it ends.

The file lies in the folder `<database>-holds`, is named after the process, and is locked before the first claim. The
lock is the process's, not the store's: it is released with its last store, and the kernel frees it when the process
ends, however it ends. A process lives while its file is locked, and is dead when the file is there and the lock free.

| | lock | rule |
|---|---|---|
| owner | exclusive | it claims only when the locked file is the one that the folder names |
| test | shared, for an instant | it counts only if the folder still names the file: a missing one proves nothing |
| removal | exclusive, for an instant | only of files whose process is dead, and that no running claim names |

A lock belongs to the open file, which a forked process would inherit, and keep locked after the end of its parent. So
it closes what it inherits, and nothing is opened while this process forks.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from handrail.errors import StoreError, StoreReadOnlyError
from handrail.posix import fcntl
from handrail.process_identity import own_name
from handrail.process_state import FORKING, in_forked_process
from handrail.store.sqlite.locks import forbids_writing, is_at

_PREFIX = "process-"
_DIGITS = 32
_MOST_SECONDS = 5.0
_PAUSE_SECONDS = 0.002

# Of the process: a file is locked once for all stores, or they would exclude each other. By its path.
_HELD: dict[Path, int] = {}
# Of the process, as `_HELD`: how many open stores rely on each of them.
_USERS: Counter[Path] = Counter()


class ProcessLocks:
    """The processes of one file; a `handrail.store.processes.Processes`.

    Args:
        folder: where the locked files are; made when the first lock is taken.
        store: the URL of the store, for messages.
        read_only: whether nothing may be written; then nothing is claimed either, and no lock is taken.
    """

    __slots__ = ("_folder", "_name", "_own", "_read_only", "_store")

    def __init__(self, folder: Path, *, store: str, read_only: bool = False) -> None:
        self._folder = folder
        self._store = store
        self._read_only = read_only
        self._name = ""
        self._own: Path | None = None

    @property
    def own_waits(self) -> bool:
        """Whether the lock of this process is still to be taken."""
        return self._own is None or self._own not in _HELD  # a forked process holds nothing

    def own(self, in_use: Callable[[], Iterable[str]]) -> str:
        """The name of this process, whose lock is held from now on; the files of ended processes are removed.

        Args:
            in_use: the processes that running claims name; their files stay.

        Raises:
            StoreError: the file cannot be made or locked.
        """
        if self.own_waits:
            name = str(own_name())
            if self._read_only:
                return name
            path = self._path(name)
            with FORKING:
                self._hold(path)
                self._own, self._name = path, name
                _USERS[path] += 1
            self._remove_unused(in_use)
        return self._name

    def lives(self, process: str) -> bool | None:
        """Whether the process of that name holds its lock; `None` for this process, and if that is not known."""
        path = self._path(process)
        if not process or path in _HELD:
            return None
        try:
            return _is_locked(path)
        except OSError:
            return None  # missing, or another user's

    def close(self) -> None:
        """Release the lock with the last store of the file."""
        with FORKING:
            path, self._own = self._own, None
            if path is None or path not in _HELD:
                return  # nothing was claimed, or by the process that this one was forked from
            _USERS[path] -= 1
            # Removed before it is unlocked: a free lock says that the process is dead.
            if not _USERS[path] and _removed(path, _HELD[path]):
                os.close(_HELD.pop(path))

    def _remove_unused(self, in_use: Callable[[], Iterable[str]]) -> None:
        """Remove the files of dead processes that no running claim names.

        The claims are read after the files: what a dead process has claimed is in the store by then.
        """
        found: list[Path] = []
        with suppress(OSError):  # files that stay are harmless
            found = [path for path in self._folder.iterdir() if path.name.startswith(_PREFIX) and path not in _HELD]
        dead: list[Path] = []
        for path in found:
            with suppress(OSError):
                if _is_locked(path) is False:
                    dead.append(path)
        if dead:
            kept = {self._path(process) for process in in_use()}
            for path in dead:
                if path not in kept:
                    _remove_free(path)

    def _hold(self, path: Path) -> None:
        while path not in _HELD:
            try:
                self._folder.mkdir(exist_ok=True)
                file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except OSError as error:
                raise self._refusal(error) from error
            try:
                _lock(file)
            except OSError as error:
                os.close(file)
                raise self._refusal(error) from error
            if is_at(path, file):  # else another process has removed it before it was locked
                _HELD[path] = file
            else:
                os.close(file)

    def _path(self, process: str) -> Path:
        name = sha256(process.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
        return self._folder / f"{_PREFIX}{name}"

    def _refusal(self, error: OSError) -> StoreError:
        kind = StoreReadOnlyError if forbids_writing(error) else StoreError
        msg = (
            f"no effect of {self._store} can be claimed, because the lock of this process in {self._folder} cannot be "
            f"used: {error.strerror}"
        )
        return kind(msg, store=self._store)


def _lock(file: int) -> None:
    """Lock a file that this process has made; another one may be testing the lock at this moment."""
    end = time.monotonic() + _MOST_SECONDS
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end:
                raise
        else:
            return
        time.sleep(_PAUSE_SECONDS)


def _is_locked(path: Path) -> bool | None:
    """Whether a process has locked a file; `None` if the folder does not name it any more.

    Raises:
        OSError: it cannot be opened.
    """
    with FORKING:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False if is_at(path, file) else None  # its owner has removed it, and lives on
        except BlockingIOError:
            return True
        finally:
            os.close(file)


def _remove_free(path: Path) -> None:
    with FORKING, suppress(OSError):  # one that stays is harmless
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _removed(path, file)
        finally:
            os.close(file)


def _removed(path: Path, file: int) -> bool:
    """Remove a file that is locked exclusively, if the folder names it; returns whether it was removed."""
    try:
        if is_at(path, file):
            path.unlink()
    except OSError:
        return False
    return True


def _close_inherited() -> None:
    """Leave the locks to the parent."""
    _USERS.clear()
    while _HELD:
        os.close(_HELD.popitem()[1])


in_forked_process(_close_inherited)
