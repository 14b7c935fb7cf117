"""A file of SQLite: how it is opened, what its errors mean, and whether the folder names the same files as before.

What is committed stands in the log until SQLite copies it into the database. A process whose log was removed writes
on to a file that no other process can find, and another one that opens the database makes a new log beside it. So
each unit of work is preceded by this comparison:

| compared | ordinary changes | everything else |
|---|---|---|
| device and inode of the database | none | it was removed, replaced or moved |
| device and inode of the log | none: SQLite removes it with the last connection, and this process has one | the same |
| device and inode of its index | the same | the same |
| size of the database, if it is less than before | `VACUUM` of another process | it was cut short |
| size of the log, if it is less than before | a checkpoint with `TRUNCATE`, `journal_size_limit` | it was cut short |

A file that has become shorter is examined on a new connection: the database has to be sound, and the log has to hold
all the frames that its index counts.

If log and index were both removed, another process that opens the database finds nothing amiss. So each store locks, as
long as it is open, a byte that stands for the files that it uses (`ByteLocks`), and one that finds the byte of
others locked is not opened. Only where the system has such locks. If the file of these locks was removed, each unit
makes it again before it looks at the others, with the locks of this process.

The files are never opened here, only looked at: a process that closes one of them loses all locks that SQLite has on it
(https://www.sqlite.org/howtocorrupt.html, section 2.2).
"""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from handrail.errors import StoreCorruptError, StoreError, StoreReadOnlyError, StoreUnavailableError
from handrail.store.sql.driver import Durability
from handrail.store.sqlite.locks import FIRST_OF_FILES, ByteLocks

_STATEMENTS = 128
_RETRY_SECONDS = 0.01
_LOOKS = 3
"""How often a file is looked at: another process may change it between two looks."""
_FIRST_LOOK = "SELECT count(*) FROM sqlite_master"
_PRIMARY = 0xFF
_UNAVAILABLE = frozenset(
    {
        *(sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR),
        *(sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_INTERRUPT),
    }
)
_OF_THE_DISK = frozenset({sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN})
_OTHERS = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_CORRUPT = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


@dataclass(frozen=True, slots=True)
class SqliteFile:
    """One file, and how it is opened.

    Attributes:
        path: where it is; made absolute and free of links, so that one file has one name, whatever the current folder.
        durability: what a commit survives.
        busy: how long to wait while another process writes.
        read_only: whether all writes are refused.

    Raises:
        StoreError: the path leads nowhere.
    """

    path: Path
    durability: Durability = "full"
    busy: timedelta = timedelta(seconds=5)
    read_only: bool = False

    def __post_init__(self) -> None:
        """Follow the path once and for all."""
        try:
            object.__setattr__(self, "path", self.path.resolve())
            self.path.exists()
        except (
            OSError,
            RuntimeError,
            ValueError,
        ) as error:  # links in a circle, no current folder, a zero, its length
            msg = f"{self.url!r} cannot be opened: its path leads nowhere ({error}); give another one"
            raise StoreError(msg, store=self.url) from error

    @property
    def url(self) -> str:
        """What names it to people."""
        return f"sqlite:///{self.path}"

    @property
    def log(self) -> str:
        """The path of its write-ahead log."""
        return f"{self.path}-wal"

    def connect(self) -> sqlite3.Connection:
        """Open the file, and make it if it is missing.

        Raises:
            StoreError: it cannot be opened, or is not a database; it is unchanged.
        """
        self._look()
        try:
            return self._open("ro" if self.read_only else "rwc")
        except sqlite3.Error as error:
            if not self._is_sealed():
                raise self.translated(error) from error
        return self._open_sealed()

    def translated(self, error: Exception) -> StoreError:
        """What an error of `sqlite3` means."""
        code = getattr(error, "sqlite_errorcode", None)
        primary = code & _PRIMARY if isinstance(code, int) else None
        if primary in _OF_THE_DISK and _is_read_only_disk(self.path.parent):  # SQLite does not distinguish it
            msg = f"{self.url} can be read, but not written to: {error}. Its disk is mounted for reading only"
            return StoreReadOnlyError(msg, store=self.url)
        if code == sqlite3.SQLITE_IOERR_SHORT_READ:  # a page that another file says is there
            msg = f"{self.url} cannot be read: the file, or its log {self.log}, was cut short; restore it from a copy"
            return StoreCorruptError(msg, store=self.url)
        if primary in _UNAVAILABLE:
            msg = f"{self.url} cannot be used now: {error}. Look who else writes to it, and whether its disk is full"
            return StoreUnavailableError(msg, store=self.url, waited=code == sqlite3.SQLITE_BUSY)
        if primary in _CORRUPT:
            msg = f"{self.url} cannot be read: {error}. It is not a database, or is damaged; restore it from a copy"
            return StoreCorruptError(msg, store=self.url)
        if is_read_only(error):
            msg = f"{self.url} can be read, but not written to: {error}. Look at the rights of the file and its folder"
            return StoreReadOnlyError(msg, store=self.url)
        return StoreError(f"{self.url} refuses: {error}", store=self.url)

    def _look(self) -> None:
        """Say in plain words what SQLite would call being unable to open the file."""
        folder = self.path.parent
        if self.path.is_dir():
            raise StoreError(f"{self.url} names a folder; name a file in it", store=self.url)
        if not folder.is_dir():
            msg = f"{self.url} cannot be opened: the folder {folder} does not exist; create it"
            raise StoreError(msg, store=self.url)
        if not self.path.exists() and self.read_only:
            raise StoreError(f"{self.url} cannot be opened for reading: the file does not exist", store=self.url)
        if not self.read_only and self._lacks_log():
            msg = (
                f"{self.url} cannot be opened: its log {self.log} is missing, and the index of that log is there, so "
                "the log was removed while a process used it, perhaps with what was committed last. Put it back; or "
                "close the store in all processes that have it open; or, if there are none, remove "
                f"{self._index} to do without what was in the log"
            )
            raise StoreUnavailableError(msg, store=self.url)

    @property
    def _index(self) -> str:
        return f"{self.path}-shm"

    def _lacks_log(self) -> bool:
        """Whether the log was removed: SQLite makes it before its index, and removes the index first."""
        for _ in range(_LOOKS):  # another process may close the database and open it between two looks
            if not Path(self._index).exists() or Path(self.log).exists():
                return False
            time.sleep(_RETRY_SECONDS)
        return True

    def _open(self, mode: str) -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"{self.path.as_uri()}?mode={mode}",
            uri=True,
            timeout=self.busy.total_seconds(),
            isolation_level=None,
            check_same_thread=False,
            cached_statements=_STATEMENTS,
        )
        try:
            self._set_up(connection, writable=mode == "rwc" and _may_write(self.path))
        except BaseException:
            connection.close()
            raise
        return connection

    def _open_sealed(self) -> sqlite3.Connection:
        """Open a read-only file without WAL files beside it; SQLite needs an option for that."""
        try:
            return self._open("ro&immutable=1")
        except sqlite3.Error as error:
            raise self.translated(error) from error

    def _is_sealed(self) -> bool:
        """Whether nothing can be written beside the file, and nothing there waits to be put into it."""
        log = Path(self.log)
        return not _may_write(self.path.parent) and not (log.exists() and log.stat().st_size)

    def _set_up(self, connection: sqlite3.Connection, *, writable: bool) -> None:
        connection.execute(_FIRST_LOOK).fetchall()
        if writable:
            self._write_ahead(connection)
        connection.execute(f"PRAGMA synchronous = {self.durability}")

    def _write_ahead(self, connection: sqlite3.Connection) -> None:
        """Turn the write-ahead log on; while another process does the same, SQLite does not wait by itself."""
        until = time.monotonic() + self.busy.total_seconds()
        while connection.execute("PRAGMA journal_mode").fetchone() != ("wal",):
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute(_FIRST_LOOK).fetchall()  # makes the log
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & _PRIMARY not in _OTHERS or time.monotonic() >= until:
                    raise
                time.sleep(_RETRY_SECONDS)


def is_read_only(error: Exception) -> bool:
    """Whether SQLite has refused a statement because it writes where only reading is allowed."""
    code = getattr(error, "sqlite_errorcode", None)
    return isinstance(code, int) and code & _PRIMARY == sqlite3.SQLITE_READONLY


def _is_read_only_disk(folder: Path) -> bool:
    if not hasattr(os, "statvfs"):  # pragma: no cover - Windows
        return False
    try:
        return bool(os.statvfs(folder).f_flag & os.ST_RDONLY)
    except OSError:  # it is gone
        return False


def _may_write(path: Path) -> bool:
    """Whether this process has the right to write there."""
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


_LOG_HEADER = 32
_FRAME_HEADER = 24
"""The bytes at the head of a log and of each of its frames, which hold a page each
(https://www.sqlite.org/fileformat2.html, section 4.1)."""


class OpenedFiles:
    """The files that a store uses as long as it is open; made after its first connection.

    Args:
        file: the database.
    """

    __slots__ = (
        *("_database", "_file", "_index", "_index_path", "_locks", "_locks_at", "_locks_path", "_log", "_log_path"),
        *("_log_size", "_size"),
    )

    def __init__(self, file: SqliteFile) -> None:
        self._file = file
        self._log_path = file.log
        self._database = _identity(_look(str(file.path)))
        status = None if file.read_only else _look(self._log_path)  # a reader may do without a log
        self._log = _identity(status)
        self._index_path = f"{file.path}-shm"
        self._index = None if self._log is None else _identity(_look(self._index_path))
        self._size = self._log_size = 0
        self._locks: ByteLocks | None = None
        self._locks_path = ""
        self._locks_at: tuple[int, int] | None = None

    def announce(self, locks: ByteLocks | None) -> None:
        """Say to other processes which files are used here, as long as the locks are open.

        Raises:
            StoreUnavailableError: another process uses other files under the same names.
        """
        if self._database is None or self._log is None or locks is None:
            return
        index = 0 if self._index is None else self._index[1]
        used = self._database[0] << 42 ^ self._database[1] << 21 ^ self._log[1] ^ index << 7
        byte = FIRST_OF_FILES + 1 + used % (FIRST_OF_FILES - 2)  # there are bytes on both sides
        with suppress(OSError):  # then no session can be held either, and nothing is written
            locks.lock(byte, shared=True)
            if locks.is_locked(FIRST_OF_FILES, byte - FIRST_OF_FILES) or locks.is_locked(byte + 1, 0):
                raise self._others()
            self._locks, self._locks_path = locks, str(locks.path)
            self._locks_at = _identity(_look(self._locks_path))

    def check_database(self) -> None:
        """Refuse a database that was removed or replaced.

        Raises:
            StoreUnavailableError: it was.
        """
        if _identity(_look(str(self._file.path))) != self._database:
            raise self._gone()

    def check(self) -> None:
        """Refuse to write where another process would not find it; called once for each unit of work.

        Raises:
            StoreUnavailableError: the database or the log was removed or replaced.
            StoreCorruptError: one of them was cut short.
        """
        if self._locks is not None and _identity(_look(self._locks_path)) != self._locks_at:
            self._restore_locks(self._locks)
        database = _look(str(self._file.path))
        if database is None or (database.st_dev, database.st_ino) != self._database:
            raise self._gone()
        log_size = 0
        if self._log is not None:
            log = _look(self._log_path)
            if log is None or (log.st_dev, log.st_ino) != self._log:
                raise self._log_gone(self._log_path)
            log_size = log.st_size
        # Two processes with two indexes of one log overwrite what the other has committed.
        if self._index is not None and _identity(_look(self._index_path)) != self._index:
            raise self._log_gone(self._index_path)
        if database.st_size < self._size:
            self._check_database_is_sound()
        if log_size < self._log_size:
            self._check_log_is_whole()
        self._size, self._log_size = database.st_size, log_size

    def _restore_locks(self, locks: ByteLocks) -> None:
        """Say again which files are used here, to processes that open the database from now on."""
        with suppress(OSError):  # the folder of the database is gone, which is found next
            locks.restore()
        self._locks_at = _identity(_look(self._locks_path))

    def _check_database_is_sound(self) -> None:
        try:
            with closing(self._file.connect()) as connection:
                found = connection.execute("PRAGMA quick_check(1)").fetchone()
        except sqlite3.Error as error:
            raise self._cut_short(str(self._file.path)) from error
        if found != ("ok",):
            raise self._cut_short(str(self._file.path))

    def _check_log_is_whole(self) -> None:
        try:
            with closing(self._file.connect()) as connection:
                (page,) = connection.execute("PRAGMA page_size").fetchone()
                for _ in range(_LOOKS):
                    # Also copies frames into the database, which is harmless: it reads each of them first.
                    _, frames, _ = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
                    status = _look(self._log_path)
                    if not frames or (
                        status is not None and status.st_size >= _LOG_HEADER + frames * (page + _FRAME_HEADER)
                    ):
                        return
        except (sqlite3.Error, StoreError) as error:
            raise self._cut_short(self._log_path) from error
        raise self._cut_short(self._log_path)

    def _gone(self) -> StoreUnavailableError:
        url = self._file.url
        msg = f"the file of {url} was removed or replaced while it was open; put it back, or open the store anew"
        return StoreUnavailableError(msg, store=url)

    def _log_gone(self, path: str) -> StoreUnavailableError:
        url, what = self._file.url, "log" if path == self._log_path else "index of the log,"
        msg = (
            f"{url} cannot be written to: its {what} {path} was removed or replaced while the store was open. "
            "Put it back; or close the store in all processes, which copies what they have committed into the "
            "database, and open it again. Nothing was written, and a killed process loses what is in the log alone"
        )
        return StoreUnavailableError(msg, store=url)

    def _others(self) -> StoreUnavailableError:
        url = self._file.url
        msg = (
            f"{url} cannot be opened: another process has it open, and its database or log was removed or replaced "
            "meanwhile. Close the store there, which copies what was committed into its database, and open it again"
        )
        return StoreUnavailableError(msg, store=url)

    def _cut_short(self, path: str) -> StoreCorruptError:
        url = self._file.url
        msg = f"{url} cannot be written to: {path} was cut short while the store was open; restore it from a copy"
        return StoreCorruptError(msg, store=url)


def _look(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)  # noqa: PTH116 - once for each unit, and quicker than the path's own
    except OSError:
        return None


def _identity(status: os.stat_result | None) -> tuple[int, int] | None:
    return None if status is None else (status.st_dev, status.st_ino)
