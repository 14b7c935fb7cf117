"""The owners of a file of SQLite: each opened store holds the lock of one file until it is closed or its process ends.

The file lies in the folder `<database>-holds` and is named after the owner. The kernel frees its lock when the process
ends, however it ends.

| | lock (flock(2)) | rule |
|---|---|---|
| owner | exclusive | the file gets its name when it is locked; one that was removed is made again |
| test | shared, for an instant | it counts only if the folder still names the file: a missing one proves nothing |
| close | | the file is removed before it is unlocked: a free lock says that the owner is dead |
| removal | shared, for an instant | only of files of dead owners that no running claim and no session names |

A lock belongs to the open file, which a forked process would inherit, and hold after the end of its parent. So it
closes the files that it inherits, and nothing is opened while this process forks.
"""

from __future__ import annotations

import errno
import os
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from handrail.errors import StoreClosedError, StoreError, StoreReadOnlyError
from handrail.process import device_and_inode, fcntl
from handrail.store.locks import StoreOwner, new_owner
from handrail.threads import FORKING, in_forked_process

_PREFIX = "owner-"
_DIGITS = 32

# Of the process: a forked one leaves the locks of all stores to its parent.
_OPEN: weakref.WeakSet[FileOwner] = weakref.WeakSet()


class FileOwner(StoreOwner):
    """One opened store of a file; a `handrail.store.locks.StoreOwner`.

    The locked files are in `folder`, made when the first lock is acquired. `in_use` returns the owners that running
    claims and sessions name. A store with `read_only` acquires no lock.
    """

    def __init__(
        self, folder: Path, *, store: str, in_use: Callable[[], Iterable[str]], read_only: bool = False
    ) -> None:
        super().__init__()
        self._folder = folder
        self._store = store
        self._in_use = in_use
        self._read_only = read_only
        self._is_closed = False
        self._path = ""
        self._file: int | None = None
        self._identity: tuple[int, int] | None = None
        with FORKING:
            _OPEN.add(self)

    @property
    def own_waits(self) -> bool:
        """True if the lock is still to be acquired."""
        return self._file is None

    def own(self) -> str:
        """Acquires the lock, unless it is held, removes files of dead owners then, and returns the name.

        Raises:
            StoreReadOnlyError: nothing may be written.
            StoreError: the file cannot be made or locked.
        """
        if self._file is not None:
            return self.name
        if self._is_closed:
            raise StoreClosedError(f"{self._store} has been closed; open it again", store=self._store)
        if self._read_only:
            msg = f"nothing in {self._store} can be claimed or held, because it was opened with read_only=True"
            raise StoreReadOnlyError(msg, store=self._store)
        try:
            with FORKING:
                self._lock()
        except OSError as error:
            is_denied = isinstance(error, PermissionError) or error.errno == errno.EROFS
            msg = (
                f"nothing in {self._store} can be claimed or held, because its lock in {self._folder} cannot be made: "
                f"{error.strerror}"
            )
            raise (StoreReadOnlyError if is_denied else StoreError)(msg, store=self._store) from error
        self._remove_unused()
        return self.name

    def restore(self) -> None:
        """Makes the file again if it was removed or replaced; called once for each unit of work."""
        if self._file is not None and not self._is_in_place:
            with FORKING, suppress(OSError):  # without it nothing is proved of this store
                self._lock()

    def lives(self, owner: str) -> bool | None:
        """Tests whether the owner of that name holds its lock; `None` if that is not known."""
        return _is_locked(self._locate(owner))

    def close(self) -> None:
        """Removes the file, and releases its lock."""
        with FORKING:
            if self._is_in_place:
                with suppress(OSError):
                    Path(self._path).unlink()
            self._is_closed = True
            self.forget()

    def forget(self) -> None:
        """Closes the file; in a process that was forked off, whose parent keeps it locked."""
        if self._file is not None:
            os.close(self._file)
        self._file, self._identity, self.name = None, None, ""

    @property
    def _is_in_place(self) -> bool:
        return self._identity is not None and device_and_inode(self._path) == self._identity

    def _lock(self) -> None:
        """Locks a new file, and gives it its name then: one with that name is never free while its owner lives."""
        if self._is_in_place:  # another thread has made it
            return
        self.name: str = self.name or new_owner()
        path = self._locate(self.name)
        self._folder.mkdir(exist_ok=True)
        new = path.with_name(f"new-{path.name}")
        file = os.open(new, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            new.rename(path)
        except BaseException:
            os.close(file)
            raise
        if self._file is not None:
            os.close(self._file)
        self._path, self._file, self._identity = str(path), file, device_and_inode(file)

    def _remove_unused(self) -> None:
        with suppress(OSError, StoreError):  # files that stay are harmless
            dead = [path for path in self._folder.glob(f"{_PREFIX}*") if _is_locked(path) is False]
            in_use = {self._locate(owner) for owner in self._in_use()} if dead else set[Path]()
            for path in dead:
                if path not in in_use:
                    path.unlink()

    def _locate(self, owner: str) -> Path:
        digest = sha256(owner.encode("utf-8", "surrogatepass")).hexdigest()
        return self._folder / f"{_PREFIX}{digest[:_DIGITS]}"


def _is_locked(path: Path) -> bool | None:
    """Tests whether a file is locked; `None` if the folder does not name it, or it cannot be opened."""
    with FORKING, suppress(OSError):
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            # Another file, or none, has the name if its owner has closed it meanwhile.
            return False if device_and_inode(path) == device_and_inode(file) else None
        except BlockingIOError:
            return True
        finally:
            os.close(file)
    return None


def _leave_to_parent() -> None:
    for owner in list(_OPEN):
        owner.forget()


in_forked_process(_leave_to_parent)
