"""The files of an open store: the database and its write-ahead log, compared with what the folder names now.

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
from contextlib import closing, suppress

from handrail.errors import StoreCorruptError, StoreError, StoreUnavailableError
from handrail.store.sqlite.byte_locks import ByteLocks
from handrail.store.sqlite.file import SqliteFile
from handrail.store.sqlite.locks import FIRST_OF_FILES

_LOG_HEADER = 32
_FRAME_HEADER = 24
"""The bytes at the head of a log and of each of its frames, which hold a page each
(https://www.sqlite.org/fileformat2.html, section 4.1)."""

_LOOKS = 3
"""How often a log is measured: another process may truncate it between two looks."""


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
