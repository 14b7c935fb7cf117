"""A store in a database: effects, sessions and their entries, and which calls have been committed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from datetime import datetime, timedelta

from handrail.clock import SYSTEM_CLOCK, Clock
from handrail.errors import HandrailError, SessionUseError, StoreError
from handrail.interrupts import HeldInterrupts
from handrail.session.calls import CallRef
from handrail.session.persistence.protocol import (
    AnswerRow,
    Checkpoint,
    DatabaseConnection,
    SessionContents,
    SessionEntry,
    SessionLock,
    SessionRow,
    SessionSize,
)
from handrail.store import session_locks
from handrail.store.base_store import BaseStore
from handrail.store.protocol import (
    EffectChange,
    EffectInsert,
    EffectRow,
    MarkApplied,
    RefusedWrite,
    change_effect,
    disowned,
)
from handrail.store.sql import removal, statements, tables
from handrail.store.sql.call_places import loop_would_wait
from handrail.store.sql.database import Database, check_version, make_tables
from handrail.store.sql.driver import Driver, Rows
from handrail.store.sql.units import UnitApplier, holder
from handrail.transaction import UnitOfWork
from handrail.transaction.unit_of_work import Refusal
from handrail.waiting import check_blocking, may_wait_for_calls

_LAST = 2**62


class SqlStore(BaseStore):
    """A `handrail.store.Store` in a database; any number of threads, sessions and ledgers may share it.

    Args:
        driver: the database.
        clock: measures how long a caller waits for a session.

    Attributes:
        url: names the store to people, without any password; a file by its absolute path.
        poll_every: how often to look for what other processes have changed.

    Raises:
        StoreError: the tables cannot be created.
    """

    def __init__(self, driver: Driver, *, clock: Clock = SYSTEM_CLOCK) -> None:
        super().__init__(driver.owner, clock=clock, store=driver.url)
        self.url: str = driver.url
        self.poll_every: timedelta = driver.poll_every
        self._driver = driver
        self._database = Database(driver)
        try:
            self._hash_key = make_tables(self._database)
        except BaseException:
            driver.close()
            raise
        self._units = UnitApplier(self._database, self, self._written)
        self._claimed: dict[tuple[str, str], EffectRow] = {}  # the rows that it has written as running last

    waits = True
    """Writing waits for the disk or the server."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.url}>"

    def hash_key(self) -> bytes:
        """The random key of this store, for hashes of secrets; read when the store is opened."""
        return self._hash_key

    @property
    def claim_waits(self) -> bool:
        """Whether `now` asks the server, or `process` takes the lock of this store."""
        return self._driver.now_waits or self._owner.own_waits

    def now(self) -> datetime:
        """The store's time, aware and in UTC."""
        return self._driver.now()

    def connection(self) -> DatabaseConnection:
        """The database, inside the transaction of the call that runs in this context.

        Raises:
            SessionError: no call runs here.
        """
        return self._database.connection(self)

    def check_wait(self, *, queued: bool) -> None:
        """Refuse to wait for a call, or for a write that may, on the thread of an event loop; see `SessionStore`."""
        waits = self._driver.one_writer and (queued or self._driver.call_places.is_used_by_calls())
        if waits and not may_wait_for_calls():
            raise loop_would_wait(self.url)

    def close(self) -> None:
        """Release all sessions, and close all connections. Calling it twice has the same effect.

        Claims of handlers that still run are left to their leases, which this process no longer renews.
        """
        with suppress(HandrailError):  # where this fails, nothing is proved of this store once its lock is released
            for row in tuple(self._claimed.values()):
                if row.owner.process == self._owner.name:
                    change_effect(self, row, disowned(row))
            self._clear_released()
        self._driver.close()

    # -------------------------------------------------------------------------------------------------------- effects

    def open_effects(self, session_id: str) -> list[EffectRow]:
        """The effects of a session's calls that are running, unknown, or done without having been applied."""
        return [*self._effects(statements.OPEN_EFFECTS_OF_SESSION, session_id, session_id)]

    def get(self, partition: str, key: str) -> EffectRow | None:
        """The present row; `None` if there is none."""
        return next(self._effects(statements.GET_EFFECT, partition, key), None)

    def apply(self, unit: UnitOfWork) -> RefusedWrite | None:
        """Write all of a unit, and return `None`; or nothing of it, and return the first write that was refused.

        A unit of several writes that has been written already changes nothing and is answered with `None`.

        Raises:
            SessionLostError: another process has taken the session over, or has written to it. Nothing was written.
            SessionError: the entries do not follow the newest one. Nothing was written.
            StoreUnavailableError: the store does not answer; nothing has been written, unless `in_doubt` is true.
        """
        return self._units.apply(unit)

    def submit(self, unit: UnitOfWork) -> Future[Refusal | None]:
        """Have a unit written by another thread; see `UnitStore.submit`."""
        return self._units.submit(unit)

    def rows(self, key: str | None = None) -> Iterator[EffectRow]:
        """All rows in the order of their keys, or those of a key; each as it stood when the iteration came near it."""
        if key is not None:
            return self._effects(statements.EFFECTS_OF_KEY, key)
        pages = self._pages(statements.NEXT_EFFECTS, lambda last: last[:2], ("", ""))
        return (tables.read_effect(columns, self.url) for columns in pages)

    def remove_expired(self, now: datetime) -> int:
        """Remove these rows in many transactions; returns how many."""
        return removal.remove_expired(self._database, now)

    def effects_below(self, root: str) -> tuple[EffectRow, ...]:
        """All rows of a session and those below it."""
        return tuple(self._effects(statements.EFFECTS_BELOW, *_range_below(root)))

    def slots_below(self, root: str) -> tuple[EffectRow, ...]:
        """The slots of a session and those below it that are running, unknown or unread."""
        return tuple(self._effects(statements.UNRESOLVED_SLOTS, *_range_below(root)))

    def _effects(self, sql: str, *parameters: object) -> Iterator[EffectRow]:
        found = self._database.query(sql, parameters)
        return (tables.read_effect(columns, self.url) for columns in found)

    # ------------------------------------------------------------------------------------------- sessions and commits

    def create(self, row: SessionRow) -> bool:
        """Add a session without entries; returns whether there was none of that id."""
        columns = tables.session_columns(row._replace(head=0))
        while self._database.execute(statements.INSERT_SESSION, columns) == 0:
            # Its process has died while it deleted a session of that id, of which rows are left.
            if not removal.finish_deletion(self._database, row.session_id):
                check_version(self._database, self.url)
                return False
        return True

    def find(self, session_id: str) -> SessionRow | None:
        """The present row of a session; `None` if there is none.

        Raises:
            StoreCorruptError: it cannot be read.
        """
        found = self._database.query(statements.GET_SESSION, (session_id,))
        return tables.read_session(found[0], self.url) if found else None

    def sessions(self) -> Iterator[SessionRow]:
        """All sessions, the newest first; each as it stood when the iteration came near it.

        Raises:
            StoreCorruptError: one cannot be read.
        """
        # The place of a page is the age and the id of the last session before it.
        pages = self._pages(statements.OLDER_SESSIONS, lambda last: (last[3], last[0]), (_LAST, ""))
        return (tables.read_session(columns, self.url) for columns in pages)

    def copy(self, source: str, row: SessionRow) -> bool:
        """Add the session `row` with a copy of the first `row.head` entries of another, and of their checkpoints.

        Raises:
            SessionNotFoundError: the session `source` does not exist, or has fewer entries.
        """
        with self._database.transaction() as link:
            if not link.query(statements.GET_SESSION, (source,)):
                raise session_locks.session_not_found(source, self.url)
            if link.execute(statements.INSERT_SESSION, tables.session_columns(row)) == 0:
                return False
            # With fewer entries than it had, the other session has been deleted meanwhile, and perhaps made anew.
            if link.execute(statements.COPY_ENTRIES, (row.session_id, source, row.head)) < row.head:
                raise session_locks.session_not_found(source, self.url)
            link.execute(statements.COPY_CHECKPOINTS, (row.session_id, source, row.head))
            return True

    def answers(self, session_id: str) -> tuple[AnswerRow, ...]:
        """The answers that people have given to calls of a session, the oldest first.

        Raises:
            StoreCorruptError: one cannot be read.
        """
        found = self._database.query(statements.GET_ANSWERS, (session_id,))
        return tuple(tables.read_answer(columns, session_id, self.url) for columns in found)

    def held_sessions(self) -> frozenset[str]:
        """The sessions that a process holds at this moment, this process or another one."""
        rows = self._database.query(statements.UNRELEASED_SESSIONS)
        own = {session_id for session_id, token, _ in rows if self._locks.holds(token)}
        living = {*filter(self._locks.is_held_elsewhere, {str(owner) for _, _, owner in rows})}
        return frozenset(own.union(session_id for session_id, _, owner in rows if owner in living))

    def session_size(self, session_id: str) -> SessionSize:
        """What a session takes in the store."""
        return SessionSize(*map(int, self._database.query(statements.SESSION_SIZE, (session_id,) * 5)[0]))

    def delete_session(self, lock: SessionLock) -> None:
        """Delete a session, with the effects that belong to it alone; the lock remains to be released.

        Raises:
            SessionLostError: the lock is not valid. Nothing was deleted.
            StoreError: the store cannot be written; `finish_deletion` completes what has begun.
        """
        if not self._database.execute(statements.MARK_DELETED, lock[:2]):
            check_version(self._database, self.url)
            raise session_locks.session_lost(lock, 0, self.holder(lock.session_id))
        self.watchers.unresolved.forget(lock.session_id)
        self.finish_deletion(lock.session_id)

    def unfinished_deletions(self) -> tuple[str, ...]:
        """The sessions whose deletion has begun and not ended."""
        return tuple(str(session_id) for (session_id,) in self._database.query(statements.DELETED_SESSIONS))

    def finish_deletion(self, session_id: str) -> bool:
        """Remove what a deletion has left; returns whether there was anything."""
        return removal.finish_deletion(self._database, session_id)

    # ---------------------------------------------------------------------------------------------------------- locks

    def acquire(self, session_id: str, *, wait: timedelta, evict: bool = False) -> SessionLock:
        """Become the only one that writes to a session; waits for another holder to let go, or evicts it.

        Raises:
            SessionNotFoundError: the session does not exist.
            SessionLockedError: another process, or another `Session` of this one, still holds it after `wait`.
        """
        check_blocking("opening a session of", self.url)
        self._clear_released()
        owner = self._owner.own()

        def attempt(token: str, standing: str | None) -> SessionLock | tuple[str, str]:
            if standing is not None:
                changed = self._database.change(statements.SET_HOLDER, (token, owner, session_id, standing, token))
                if changed:
                    row = tables.read_session(changed[0], self.url)
                    return SessionLock(session_id, token, row, was_released=not standing)
                check_version(self._database, self.url)
            stands = self._database.query(statements.GET_HOLDER, (session_id,))
            if not stands:
                raise session_locks.session_not_found(session_id, self.url)
            return stands[0][0], str(stands[0][2])

        try:
            lock = self._locks.acquire(session_id, attempt, wait=wait, evict=evict)
        finally:
            self._clear_released()
        self.watchers.unresolved.forget(session_id)
        return lock

    def release(self, lock: SessionLock) -> None:
        """Release the session; a lock that is no longer valid, or a store that is down, is not an error.

        What cannot be written now is written when the store is next used; until then other processes find it held.
        """
        if self._locks.holds(lock.token):  # a session that is collected is released once more
            self._locks.unreleased.add(lock[:2])
            with HeldInterrupts():
                self._clear_released()
                self._locks.release(lock.token)

    def _clear_released(self) -> None:
        with suppress(StoreError, SessionUseError):  # the latter on an event loop, while a call writes
            for session in tuple(self._locks.unreleased):
                self._database.execute(statements.CLEAR_HOLDER, session)
                self._locks.unreleased.discard(session)

    def check_lock(self, lock: SessionLock, head: int) -> None:
        """As of `BaseStore`; also writes that sessions are released, where that could not be written."""
        super().check_lock(lock, head)
        self._clear_released()

    def holder(self, session_id: str) -> tuple[str, int] | None:
        """The token of the lock of a session that is valid, and the number of its newest entry; `None` for none."""
        return holder(self._database, session_id)

    # -------------------------------------------------------------------------------------------------------- entries

    def contents(self, row: SessionRow) -> SessionContents:
        """What is read of a session when it is opened: one query, and one more for each further page of entries.

        Raises:
            StoreCorruptError: it cannot be read, or an entry is missing.
        """
        session_id, head = row.session_id, row.head
        parameters = (session_id, session_id, head, session_id, session_id, head, head)
        found = self._database.query(statements.CONTENTS, parameters)
        checkpoint: Checkpoint | None = None
        if found and found[0][0] == 0:
            (_, number, *_, data), *found = found
            checkpoint = tables.read_checkpoint((number, data), session_id, self.url)
        first = [columns[1:-1] for columns in found]
        pages = self._pages(statements.POSITIONS, lambda last: (session_id, last[0], head), found=first)
        positions = (tables.read_position(columns, session_id, self.url) for columns in pages)
        return checkpoint, positions

    def checkpoint(self, session_id: str, *, until: int | None = None) -> Checkpoint | None:
        """The newest checkpoint that covers no entry after `until`.

        Raises:
            StoreCorruptError: it cannot be read.
        """
        found = self._database.query(statements.NEWEST_CHECKPOINT, (session_id, _LAST if until is None else until))
        return tables.read_checkpoint(found[0], session_id, self.url) if found else None

    def entries(
        self, session_id: str, *, after: int = 0, until: int | None = None, type_name: str | None = None
    ) -> Iterator[SessionEntry]:
        """The entries with `after < number <= until`, in order; of one type, if it is named.

        Raises:
            StoreCorruptError: one of them cannot be read, or is missing.
        """
        if until is None:
            row = self.find(session_id)
            until = 0 if row is None else row.head
        after, more = max(after, 0), () if type_name is None else (type_name,)
        sql = statements.ENTRIES if type_name is None else statements.ENTRIES_OF_TYPE
        pages = self._pages(sql, lambda last: (session_id, last[0], until, *more), (session_id, after, until, *more))
        for columns in pages:
            entry = tables.read_entry(columns, session_id, self.url)
            if type_name is None and entry.number != after + 1:
                break
            after = entry.number
            yield entry
        if type_name is None and after < until:
            if self.find(session_id) is None:  # deleted since its row was read
                raise session_locks.session_not_found(session_id, self.url)
            raise tables.corrupt_row(f"entry {after + 1} of session {session_id!r}", ["it is missing"], self.url)

    def newest_changes(
        self, session_id: str, type_name: str, *, after: int, until: int, limit: int
    ) -> list[SessionEntry]:
        """The newest entries with `after < number <= until` that change the slice of a type, at most `limit`, in order.

        Raises:
            StoreCorruptError: one of them cannot be read.
        """
        found = self._database.query(statements.NEWEST_CHANGES, (session_id, after, until, type_name, limit))
        return [tables.read_entry(columns, session_id, self.url) for columns in reversed(found)]

    def recorded_calls(self, session_id: str, *, limit: int) -> list[tuple[CallRef, int]]:
        """The identities of the newest recorded calls with the numbers of their entries, the newest first."""
        found = self._database.query(statements.NEWEST_RECORDS, (session_id, limit))
        return [(CallRef(reply or None, call_id), number) for reply, call_id, number in found]

    def record_of_call(self, session_id: str, ref: CallRef) -> int | None:
        """The number of the newest entry that records a call; `None` if there is none."""
        found = self._database.query(statements.NEWEST_RECORD, (session_id, ref.reply or "", ref.call_id))
        return int(found[0][2]) if found else None

    # ------------------------------------------------------------------------------------------------------ decisions

    def is_committed(self, journal_id: str) -> bool:
        """Whether the call that a journal belongs to has been committed."""
        return bool(self._database.query(statements.GET_DECISION, (journal_id,)))

    def delete_commit_record(self, journal_id: str) -> None:
        """Delete the commit record of a journal; one that does not exist is not an error."""
        self._database.execute(statements.DELETE_DECISION, (journal_id,))

    # -------------------------------------------------------------------------------------------------------- private

    def _pages(
        self,
        sql: str,
        place_behind: Callable[[tables.Columns], Sequence[object]],
        place: Sequence[object] = (),
        *,
        found: Rows | None = None,
    ) -> Iterator[tables.Columns]:
        """The rows of a question that finds a page of them behind a place.

        Args:
            sql: the question.
            place_behind: its parameters for the page behind a row.
            place: those for the first page.
            found: the first page, if it has been read.
        """
        found = self._database.query(sql, place) if found is None else found
        while found:
            yield from found
            is_last = len(found) < statements.ROWS_PER_PAGE
            found = [] if is_last else self._database.query(sql, place_behind(found[-1]))

    def _written(self, write: EffectInsert | EffectChange | MarkApplied) -> None:
        partition, key = write.seen[:2]
        if write.row is not None and write.row.status == "running":
            self._claimed[partition, key] = write.row
        else:
            self._claimed.pop((partition, key), None)
        self.watchers.notify(partition, key, write.row)


def _range_below(root: str) -> tuple[str, str, str]:
    """A session, and the range of the ids below it: "0" is the character after "/"."""
    return root, f"{root}/", f"{root}0"
