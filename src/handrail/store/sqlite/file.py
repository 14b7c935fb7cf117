"""A file of SQLite: how it is opened, what its errors mean, and whether the folder names the same files as before.

What is committed stands in the log until SQLite copies it into the database. A process whose log was removed writes
on to a file that no other process can find, and another one that opens the database makes a new log beside it. So
device and inode of the database, its log and the index of that are compared before each unit of work, and those of the
database before each read and at the end. No process changes them while another one uses the files: SQLite removes log
and index with the last connection, and this process has one. What is in the files is SQLite's to check.

The files are never opened here, only looked at: a process that closes one of them loses all locks that SQLite has on it
(https://www.sqlite.org/howtocorrupt.html, section 2.2).
"""

from __future__ import annotations

import os
import sqlite3
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from handrail.errors import StoreCorruptError, StoreError, StoreReadOnlyError, StoreUnavailableError
from handrail.process import device_and_inode
from handrail.store.sql.driver import Durability

_STATEMENTS = 128
_RETRY_SECONDS = 0.01
_FIRST_LOOK = "SELECT count(*) FROM sqlite_master"
_PRIMARY = 0xFF
_OF_THE_DISK = frozenset({sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN})
_OTHERS = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_MEANINGS: dict[int, tuple[type[StoreError], str]] = {
    sqlite3.SQLITE_READONLY: (
        StoreReadOnlyError,
        "can be read, but not written to: {}. Look at the rights of the file and its folder, and at its disk",
    ),
    # A page that another file says is there.
    sqlite3.SQLITE_IOERR_SHORT_READ: (
        StoreCorruptError,
        "cannot be read: the file, or its log, was cut short; restore it from a copy",
    ),
    **dict.fromkeys(
        (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB),
        (StoreCorruptError, "cannot be read: {}. It is not a database, or is damaged; restore it from a copy"),
    ),
    **dict.fromkeys(
        (
            *(sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR),
            *(sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_INTERRUPT),
        ),
        (
            StoreUnavailableError,
            "cannot be used now: {}. Look who else writes to it, and whether its disk is full",
        ),
    ),
}
"""What the errors of SQLite mean, by their codes."""


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
        except (OSError, RuntimeError, ValueError) as error:
            # Links in a circle, no current folder, a zero, its length.
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
            return self._open()
        except sqlite3.Error as error:
            raise self.translated(error) from error

    def translated(self, error: Exception) -> StoreError:
        """What an error of `sqlite3` means."""
        code = getattr(error, "sqlite_errorcode", 0)
        primary = code & _PRIMARY
        if primary in _OF_THE_DISK and self.path.exists() and not _may_write(self.path.parent):
            primary = sqlite3.SQLITE_READONLY  # SQLite does not distinguish it
        kind, text = _MEANINGS.get(code) or _MEANINGS.get(primary, (StoreError, "refuses: {}"))
        meaning = kind(f"{self.url} {text.format(error)}", store=self.url)
        if isinstance(meaning, StoreUnavailableError):
            meaning.waited = code == sqlite3.SQLITE_BUSY
        return meaning

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
        log, index = Path(self.log), Path(f"{self.path}-shm")
        # SQLite makes the log before its index, and removes the index first; twice, because another process may do so.
        if not (self.read_only or log.exists()) and index.exists() and not log.exists():
            msg = (
                f"{self.url} cannot be opened: its log {log} was removed, perhaps with what was committed last. Put it "
                f"back; or close the store in all processes; or, if none has it open, remove {index} to do without that"
            )
            raise StoreUnavailableError(msg, store=self.url)

    def _open(self) -> sqlite3.Connection:
        # A reader makes files beside the database, too; SQLite does without them if nothing there can change.
        sealed = not _may_write(self.path.parent) and not Path(self.log).exists()
        mode = "ro&immutable=1" if sealed else "ro" if self.read_only else "rwc"
        connection = sqlite3.connect(
            f"{self.path.as_uri()}?mode={mode}",
            uri=True,
            timeout=self.busy.total_seconds(),
            isolation_level=None,
            check_same_thread=False,
            cached_statements=_STATEMENTS,
        )
        try:
            connection.execute(_FIRST_LOOK).fetchall()
            if mode == "rwc" and _may_write(self.path):
                self._write_ahead(connection)
            connection.execute(f"PRAGMA synchronous = {self.durability}")
        except BaseException:
            connection.close()
            raise
        return connection

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


def _may_write(path: Path) -> bool:
    """Whether this process has the right to write there."""
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


class OpenedFiles:
    """The files that a store uses as long as it is open; made after its first connection.

    Args:
        file: the database.
    """

    __slots__ = ("_files", "_url")

    def __init__(self, file: SqliteFile) -> None:
        self._url = file.url
        paths = (str(file.path),) if file.read_only else (str(file.path), file.log, f"{file.path}-shm")
        self._files = [(path, identity) for path in paths if (identity := device_and_inode(path)) is not None]

    def check(self, *, reading: bool = False) -> None:
        """Refuse to write where another process would not find it, or to read a database that is gone.

        Raises:
            StoreUnavailableError: the database was removed or replaced; or, for writing, its log or the index of that.
        """
        for path, identity in self._files[:1] if reading else self._files:
            if device_and_inode(path) != identity:
                msg = (
                    f"{self._url} cannot be used: {path} was removed or replaced while the store was open. Put it "
                    "back; or close the store in all processes, which copies what they have committed into the "
                    "database, and open it again. Nothing was written, and a killed process loses what is in the log "
                    "alone"
                )
                raise StoreUnavailableError(msg, store=self._url)
