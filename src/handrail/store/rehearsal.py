"""The copy of a store in which a dry run works.

| of | the copy | what others notice |
|---|---|---|
| SQLite | a database in a temporary folder | nothing |
| PostgreSQL | sessions and effects in memory; `context.connection` is in one transaction, never committed | its locks |
| memory | sessions and effects in another store in memory | nothing |
"""

from __future__ import annotations

import sqlite3
from concurrent.futures import Future
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from handrail.errors import PlanRefusedError
from handrail.session.persistence.protocol import DatabaseConnection, SessionAppend, SessionLock, SessionRow
from handrail.store.memory import MemoryStore
from handrail.store.protocol import EffectInsert, EffectRow, EffectWrite, RefusedWrite, Store
from handrail.store.sql.call_connection import CallConnection, connection_in
from handrail.store.sqlite.store import SqliteStore
from handrail.transaction import UnitOfWork, current
from handrail.transaction.unit_of_work import Refusal
from handrail.waiting import run_in_thread

if TYPE_CHECKING:
    from handrail.store.postgres.rehearsal import RehearsedDatabase

MOST_COPIED_BYTES: Final = 1_000_000_000
"""How large a database of SQLite, or the files of a folder, may be of which a dry run works on a copy."""


def copy_store(store: Store, folder: Path) -> Store:
    """A copy of a store, to be closed; `folder` is where a database may be put.

    Raises:
        PlanRefusedError: the database is larger than `MOST_COPIED_BYTES`.
        StoreError: the store cannot be read.
    """
    if not isinstance(store, SqliteStore):
        return RehearsedStore(store)
    path, copy = Path(store.url.removeprefix("sqlite:///")), folder / "store.db"
    check_size(path, path.stat().st_size)
    copy_database(path, copy)
    return SqliteStore(copy, durability="normal")


def copy_database(path: Path, target: Path) -> None:
    """Copies what has been committed to a database of SQLite, by a connection of its own, for which no call waits."""
    uri = f"{path.as_uri()}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True)) as original, closing(sqlite3.connect(target)) as copy:
        original.backup(copy)


def check_size(path: Path, size: int) -> None:
    """Raises `PlanRefusedError` if something is too large to be copied."""
    if size > MOST_COPIED_BYTES:
        raise PlanRefusedError(
            f"{path} has more than {MOST_COPIED_BYTES:,} bytes, so it is not copied; work on a part of it"
        )


class RehearsedStore(MemoryStore):
    """A store in memory over another one, of which it copies the sessions and effects that are asked for.

    `context.connection` is one to the database of the other store, if that is PostgreSQL.
    """

    def __init__(self, original: Store) -> None:
        super().__init__()
        self._original = original
        self.waits: bool = original.waits  # for what is copied of it
        self.claim_waits: bool = self.waits
        self._copies: set[object] = set()
        self._database: RehearsedDatabase | None = None
        server: Any = getattr(original, "server", None)
        if server is not None:
            from handrail.store.postgres.rehearsal import RehearsedDatabase  # noqa: PLC0415 - needs an extra

            self._database = RehearsedDatabase(server)

    def find(self, session_id: str) -> SessionRow | None:
        """Returns the row of a session, which is copied before."""
        if session_id not in self._copies:
            self._copies.add(session_id)
            if (row := self._original.find(session_id)) is not None:
                self._copy_session(row)
        return super().find(session_id)

    def create(self, row: SessionRow) -> bool:
        """Adds a session without entries; returns whether there was none of that id."""
        return self.find(row.session_id) is None and super().create(row)

    def acquire(self, session_id: str, *, wait: timedelta, evict: bool = False) -> SessionLock:
        """Acquires a session, which is copied before."""
        self.find(session_id)
        return super().acquire(session_id, wait=wait, evict=evict)

    def get(self, partition: str, key: str) -> EffectRow | None:
        """Returns the row of an effect, which is copied before."""
        if (partition, key) not in self._copies:
            self._copies.add((partition, key))
            if (row := self._original.get(partition, key)) is not None:
                super().apply(UnitOfWork((EffectInsert(row),)))
        return super().get(partition, key)

    def effects_below(self, root: str) -> tuple[EffectRow, ...]:
        """Returns all rows of a session and those below it."""
        for row in self._original.effects_below(root):
            self.get(row.partition, row.key)
        return super().effects_below(root)

    def hash_key(self) -> bytes:
        """Returns the key of the other store."""
        return self._original.hash_key()

    def connection(self) -> DatabaseConnection:
        """The database of the other store, inside the transaction of the dry run."""
        transaction, database = current(), self._database
        if transaction is None or database is None:
            return super().connection()
        call = connection_in(transaction, database)
        if call is None:
            call = CallConnection(transaction.root, store=self, driver=database)
            transaction.root.enlist(call)
        return call

    def apply(self, unit: UnitOfWork) -> RefusedWrite | None:
        """Writes a unit; what a call has written to the database stays until the store is closed."""
        for write in unit.writes:
            if isinstance(write, EffectWrite):  # a claim is inserted without having been read
                self.get(*write.before[:2])
        call = next((write for write in unit.writes if isinstance(write, CallConnection)), None)
        if call is None:
            return super().apply(unit)
        with call.unit() as connection:
            if (refused := super().apply(unit)) is None:
                connection.commit()
            return refused

    def submit(self, unit: UnitOfWork) -> Future[Refusal | None]:
        """Writes a unit on a thread."""
        return run_in_thread(lambda: self.apply(unit))

    def close(self) -> None:
        """Rolls back what was written to the database."""
        super().close()
        if self._database is not None:
            self._database.close()

    def _copy_session(self, row: SessionRow) -> None:
        if row.origin is not None:
            self.find(row.origin)
        super().create(row)
        lock = super().acquire(row.session_id, wait=timedelta(0))
        entries = tuple(self._original.entries(row.session_id, after=row.origin_head, until=row.head))
        checkpoint = self._original.checkpoint(row.session_id, until=row.head)
        checkpoint = None if checkpoint is None or checkpoint.number <= row.origin_head else checkpoint
        super().apply(UnitOfWork((SessionAppend(lock, row.origin_head, entries, checkpoint),)))
        self.release(lock)
        self.effects_below(row.session_id)
