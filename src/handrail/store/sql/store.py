"""A store in a database: effects, sessions and their entries, and which calls have been committed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from itertools import chain

from handrail.clock import SYSTEM_CLOCK, Clock
from handrail.errors import HandrailError, SessionUseError, StoreError
from handrail.interrupts import HeldInterrupts
from handrail.session.calls import CallRef
from handrail.session.persistence.protocol import (
    AnswerRow,
    Checkpoint,
    DatabaseConnection,
    EntryPosition,
    EntrySegment,
    RunRow,
    SessionContents,
    SessionEntry,
    SessionLock,
    SessionRow,
)
from handrail.store import locks
from handrail.store.base_store import BaseStore
from handrail.store.protocol import EffectRow, EffectWrite, RefusedWrite, change_effect, disown
from handrail.store.sql import statements, tables
from handrail.store.sql.database import Database, check_version, make_tables, remove_expired
from handrail.store.sql.driver import Driver, Rows, loop_would_wait
from handrail.store.sql.units import UnitApplier, holder
from handrail.transaction import UnitOfWork
from handrail.transaction.unit_of_work import Refusal
from handrail.waiting import check_blocking, may_wait_for_calls

_LATEST = 2**62
_MOST_ORIGINS = 10_000
_NOT_READ: tuple[str, int] = ("", 0)


class SqlStore(BaseStore):
    """A `handrail.store.Store` in a database; any number of threads, sessions and ledgers may share it.

    `clock` measures how long a caller waits for a session. `url` names the store to people, without any password.

    Raises:
        StoreError: the tables cannot be created.
    """

    def __init__(self, driver: Driver, *, clock: Clock = SYSTEM_CLOCK) -> None:
        super().__init__(driver.owner, clock=clock, url=driver.url)
        self.waits: bool = True  # for the disk or the server
        self.poll_every: timedelta = driver.poll_every
        self._driver = driver
        self._database = Database(driver)
        try:
            self._hash_key = make_tables(self._database)
        except BaseException:
            driver.close()
            raise
        self._units = UnitApplier(self._database, self, self._record_change)
        self._claims: dict[tuple[str, str], EffectRow] = {}  # the rows that it has written as running last
        # The origins of sessions whose rows were read: they never change.
        self._origins: dict[str, tuple[str, int] | None] = {}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.url}>"

    def hash_key(self) -> bytes:
        """Returns the random key of this store, for hashes of secrets; read when the store is opened."""
        return self._hash_key

    @property
    def claim_waits(self) -> bool:
        """True if `now` asks the server, or `process` acquires the lock of this store."""
        return self._driver.now_waits or self._owner.own_waits

    def now(self) -> datetime:
        """Returns the store's time, aware and in UTC."""
        return self._driver.now()

    def connection(self) -> DatabaseConnection:
        """Returns the database inside the transaction of the call that runs here, or raises `SessionError`."""
        return self._database.connection(self)

    def check_wait(self, *, queued: bool) -> None:
        """Refuses to wait for a call, or for a write that may, on the thread of an event loop; see `SessionStore`."""
        waits = self._driver.one_writer and (queued or self._driver.call_places.is_used_by_calls())
        if waits and not may_wait_for_calls():
            raise loop_would_wait(self.url)

    def close(self) -> None:
        """Releases all sessions, and closes all connections; running claims are left to their leases."""
        with suppress(HandrailError):  # where this fails, nothing is proved of this store once its lock is released
            for row in tuple(self._claims.values()):
                if row.owner.process == self._owner.name:
                    change_effect(self, row, disown(row))
            self._clear_released()
        self._driver.close()

    # -------------------------------------------------------------------------------------------------------- effects

    def open_effects(self, session_id: str) -> list[EffectRow]:
        """Returns the effects of a session's calls that are running, unknown, or done and not applied."""
        return [*self._effects(statements.OPEN_EFFECTS_OF_SESSION, session_id, session_id)]

    def get(self, partition: str, key: str) -> EffectRow | None:
        """Returns the present row; `None` if there is none."""
        return next(self._effects(statements.GET_EFFECT, partition, key), None)

    def apply(self, unit: UnitOfWork) -> RefusedWrite | None:
        """Writes all of a unit, or nothing of it and returns the first write that was refused; as of `LedgerStore`."""
        return self._units.apply(unit)

    def submit(self, unit: UnitOfWork) -> Future[Refusal | None]:
        """Writes a unit on another thread; see `UnitStore.submit`."""
        return self._units.submit(unit)

    def rows(self, key: str | None = None) -> Iterator[EffectRow]:
        """Returns all rows by their keys, or those of a key; each as it stood when the iteration came near it."""
        if key is not None:
            return self._effects(statements.EFFECTS_OF_KEY, key)
        pages = self._pages(statements.NEXT_EFFECTS, lambda last: last[:2], ("", ""))
        return (tables.read_effect(columns, self.url) for columns in pages)

    def rows_by_age(self, *, is_settled: bool, after: tuple[datetime, str] | None = None) -> Iterator[EffectRow]:
        """Returns the rows that are settled, or the others; each as it stood when the iteration came near it."""
        sql = statements.OLDER_EFFECTS.format("IN" if is_settled else "NOT IN")
        # The place of a page is the age and the id of the last effect before it.
        pages = self._pages(sql, lambda last: (last[11], last[2]), _place(after))
        return (tables.read_effect(columns, self.url) for columns in pages)

    def remove_expired(self, now: datetime) -> int:
        """Removes these rows in many transactions; returns how many."""
        return remove_expired(self._database, now)

    def effects_below(self, root: str) -> tuple[EffectRow, ...]:
        """Returns all rows of a session and those below it."""
        return tuple(self._effects(statements.EFFECTS_BELOW, *_range_below(root)))

    def slots_below(self, root: str) -> tuple[EffectRow, ...]:
        """Returns the slots of a session and those below it that are running, unknown or unread."""
        return tuple(self._effects(statements.UNRESOLVED_SLOTS, *_range_below(root)))

    def _effects(self, sql: str, *parameters: object) -> Iterator[EffectRow]:
        return (tables.read_effect(columns, self.url) for columns in self._database.query(sql, parameters))

    # ------------------------------------------------------------------------------------------- sessions and commits

    def create(self, row: SessionRow) -> bool:
        """Adds a session without entries of its own; returns whether there was none of that id."""
        if self._insert_session(row):
            return True
        check_version(self._database.query, self.url)
        return False

    def _insert_session(self, row: SessionRow) -> int:
        columns = tables.session_columns(row._replace(head=row.origin_head))
        if row.origin is None:
            return self._database.execute(statements.INSERT_SESSION, columns)
        with self._database.transaction() as connection:
            if not connection.execute(statements.KEEP_ORIGIN, (row.origin, row.origin_head)):
                raise locks.session_not_found(row.origin, self.url)
            return connection.execute(statements.INSERT_SESSION, columns)

    def find(self, session_id: str) -> SessionRow | None:
        """Returns the present row of a session; `None` if there is none."""
        rows = self._database.query(statements.GET_SESSION, (session_id,))
        return self._read_session(rows[0]) if rows else None

    def sessions(self, *, after: tuple[datetime, str] | None = None) -> Iterator[SessionRow]:
        """Returns all sessions, or those that follow one; each as it stood when the iteration came near it."""
        # The place of a page is the age and the id of the last session before it.
        pages = self._pages(statements.OLDER_SESSIONS, lambda last: (last[3], last[0]), _place(after))
        return map(self._read_session, pages)

    def _read_session(self, columns: tables.Columns) -> SessionRow:
        row = tables.read_session(columns, self.url)
        if len(self._origins) >= _MOST_ORIGINS:
            self._origins.clear()
        self._origins[row.session_id] = None if row.origin is None else (row.origin, row.origin_head)
        return row

    def _origin(self, session_id: str) -> tuple[str, int] | None:
        origin = self._origins.get(session_id, _NOT_READ)
        return super()._origin(session_id) if origin is _NOT_READ else origin

    def forks(self, session_id: str) -> tuple[str, ...]:
        """Returns the ids of the forks of a session."""
        return tuple(str(fork) for (fork,) in self._database.query(statements.FORKS, (session_id,)))

    def answers(self, session_id: str) -> tuple[AnswerRow, ...]:
        """Returns the answers that people have given to calls of a session, the oldest first."""
        rows = self._database.query(statements.GET_ANSWERS, (session_id,))
        return tuple(tables.read_answer(columns, session_id, self.url) for columns in rows)

    def run(self, session_id: str) -> RunRow | None:
        """Returns the run of a session; `None` if there is none."""
        rows = self._database.query(statements.GET_RUN, (session_id,))
        return tables.read_run(rows[0], self.url) if rows else None

    def runs(self, *, after: tuple[datetime, str] | None = None) -> Iterator[RunRow]:
        """Returns all runs, or those that follow one; each as it stood when the iteration came near it."""
        pages = self._pages(statements.OLDER_RUNS, lambda last: (last[7], last[0]), _place(after))
        return map(partial(tables.read_run, store=self.url), pages)

    def due_runs(self, queue: str, now: datetime, *, limit: int) -> Iterator[RunRow]:
        """Returns the open runs of a queue that are due, those first that are due for the longest time."""
        rows = self._database.query(statements.DUE_RUNS, (queue, tables.to_micros(now), limit))
        return map(partial(tables.read_run, store=self.url), rows)

    def held_sessions(self) -> frozenset[str]:
        """Returns the sessions that a process holds at this moment, this process or another one."""
        rows = self._database.query(statements.UNRELEASED_SESSIONS)
        own = {session_id for session_id, token, _ in rows if self._locks.holds(token)}
        living = {*filter(self._locks.is_held_elsewhere, {str(owner) for _, _, owner in rows})}
        return frozenset(own.union(session_id for session_id, _, owner in rows if owner in living))

    def delete_session(self, lock: SessionLock) -> None:
        """Deletes a session and its effects, in one transaction; the lock remains to be released."""
        session_id = lock.session_id
        with self._database.transaction() as connection:
            if not connection.execute(statements.KEEP_HOLDER, lock[:2]):
                raise locks.session_lost(lock, 0, holder(connection.query, session_id))
            # By a statement of its own, which sees the forks that were made while the first one waited.
            if forks := connection.query(statements.FORKS, (session_id,)):
                raise locks.session_has_forks(session_id, tuple(str(fork) for (fork,) in forks))
            for sql in statements.DELETE_SESSION:
                connection.execute(sql, (session_id,))
        self.watchers.unresolved.forget(session_id)

    # ---------------------------------------------------------------------------------------------------------- locks

    def acquire(self, session_id: str, *, wait: timedelta, evict: bool = False) -> SessionLock:
        """Acquires a session; waits for another holder to release it, or evicts it."""
        check_blocking("opening a session of", self.url)
        self._clear_released()
        owner = self._owner.own()

        def attempt(token: str, token_in_row: str | None) -> SessionLock | tuple[str, str]:
            if token_in_row is not None:
                rows = self._database.change(statements.SET_HOLDER, (token, owner, session_id, token_in_row, token))
                if rows:
                    row = self._read_session(rows[0])
                    return SessionLock(session_id, token, row, was_released=not token_in_row)
                check_version(self._database.query, self.url)
            holder = self._database.query(statements.GET_HOLDER, (session_id,))
            if not holder:
                raise locks.session_not_found(session_id, self.url)
            return holder[0][0], str(holder[0][2])

        try:
            lock = self._locks.acquire(session_id, attempt, wait=wait, evict=evict)
        finally:
            self._clear_released()
        for segment in self._segments(session_id):
            self.watchers.unresolved.forget(segment.session_id)
        return lock

    def release(self, lock: SessionLock) -> None:
        """Releases the session; a lock that is no longer valid, or a store that is down, is not an error.

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
        """Checks the lock; also writes the releases of sessions that could not be written before."""
        super().check_lock(lock, head)
        self._clear_released()

    def holder(self, session_id: str) -> tuple[str, int] | None:
        """Returns the valid token of a session, and the number of its newest entry; `None` if it does not exist."""
        return holder(self._database.query, session_id)

    # -------------------------------------------------------------------------------------------------------- entries

    def contents(self, row: SessionRow) -> SessionContents:
        """Returns what is read of a session when it is opened: one query, and one more for each further page."""
        parts: list[Iterable[EntryPosition]] = []
        checkpoint: Checkpoint | None = None
        for segment in reversed(self._segments(row.session_id, until=row.head)):
            checkpoint, positions = self._contents(segment)
            parts.append(positions)
            if checkpoint is not None:
                break
        return checkpoint, chain.from_iterable(reversed(parts))

    def _contents(self, segment: EntrySegment) -> SessionContents:
        session_id, _, head = segment
        parameters = (session_id, session_id, head, session_id, session_id, head, head)
        rows = self._database.query(statements.CONTENTS, parameters)
        checkpoint: Checkpoint | None = None
        if rows and rows[0][0] == 0:
            (_, number, *_, data), *rows = rows
            checkpoint = tables.read_checkpoint((number, data), session_id, self.url)
        first = [columns[1:-1] for columns in rows]
        pages = self._pages(statements.POSITIONS, lambda last: (session_id, last[0], head), rows=first)
        return checkpoint, (tables.read_position(columns, session_id, self.url) for columns in pages)

    def checkpoint(self, session_id: str, *, until: int | None = None) -> Checkpoint | None:
        """Returns the newest checkpoint that covers no entry after `until`."""
        for name, _, last in reversed(self._segments(session_id, until=until)):
            if rows := self._database.query(statements.NEWEST_CHECKPOINT, (name, last)):
                return tables.read_checkpoint(rows[0], name, self.url)
        return None

    def entries(
        self, session_id: str, *, after: int = 0, until: int | None = None, type_name: str | None = None
    ) -> Iterator[SessionEntry]:
        """Returns the entries with `after < number <= until`, in order; a missing one is a `StoreCorruptError`."""
        if until is None:
            row = self.find(session_id)
            until = 0 if row is None else row.head
        after = max(after, 0)
        parts = (self._own_entries(segment, type_name) for segment in self._segments(session_id, after, until))
        for entry in chain.from_iterable(parts):
            if type_name is None and entry.number != after + 1:
                break
            after = entry.number
            yield entry
        if type_name is None and after < until:
            if self.find(session_id) is None:  # deleted since its row was read
                raise locks.session_not_found(session_id, self.url)
            raise tables.corrupt_row(f"entry {after + 1} of session {session_id!r}", "it is missing", self.url)

    def _own_entries(self, segment: EntrySegment, type_name: str | None) -> Iterator[SessionEntry]:
        session_id, after, until = segment
        sql, more = (statements.ENTRIES, ()) if type_name is None else (statements.ENTRIES_OF_TYPE, (type_name,))
        place = (session_id, after, until, *more)
        pages = self._pages(sql, lambda last: (session_id, last[0], until, *more), place)
        return (tables.read_entry(columns, session_id, self.url) for columns in pages)

    def newest_changes(
        self, session_id: str, type_name: str, *, after: int, until: int, limit: int
    ) -> list[SessionEntry]:
        """Returns the newest entries with `after < number <= until` that change the slice of a type, in order."""
        changes: list[SessionEntry] = []
        for name, first, last in reversed(self._segments(session_id, after, until)):
            rows = self._database.query(statements.NEWEST_CHANGES, (name, first, last, type_name, limit - len(changes)))
            changes += [tables.read_entry(columns, name, self.url) for columns in rows]
            if len(changes) == limit:
                break
        return changes[::-1]

    def recorded_calls(self, session_id: str, *, limit: int) -> list[tuple[CallRef, int]]:
        """Returns the identities of the newest recorded calls with the numbers of their entries, the newest first."""
        calls: list[tuple[CallRef, int]] = []
        for name, _, last in reversed(self._segments(session_id)):
            rows = self._database.query(statements.NEWEST_RECORDS, (name, last, limit - len(calls)))
            calls += [(CallRef(reply or None, call_id), number) for reply, call_id, number in rows]
        return calls

    def record_of_call(self, session_id: str, ref: CallRef) -> int | None:
        """Returns the number of the newest entry that records a call; `None` if there is none."""
        for name, _, last in reversed(self._segments(session_id)):
            if rows := self._database.query(statements.NEWEST_RECORD, (name, last, ref.reply or "", ref.call_id)):
                return int(rows[0][2])
        return None

    # ------------------------------------------------------------------------------------------------------ decisions

    def is_committed(self, journal_id: str) -> bool:
        """Tests whether the call that a journal belongs to has been committed."""
        return bool(self._database.query(statements.GET_DECISION, (journal_id,)))

    def delete_commit_record(self, journal_id: str) -> None:
        """Deletes the commit record of a journal; one that does not exist is not an error."""
        self._database.execute(statements.DELETE_DECISION, (journal_id,))

    # -------------------------------------------------------------------------------------------------------- private

    def _pages(
        self,
        sql: str,
        place_behind: Callable[[tables.Columns], Sequence[object]],
        place: Sequence[object] = (),
        *,
        rows: Rows | None = None,
    ) -> Iterator[tables.Columns]:
        rows = self._database.query(sql, place) if rows is None else rows
        while rows:
            yield from rows
            is_last = len(rows) < statements.ROWS_PER_PAGE
            rows = [] if is_last else self._database.query(sql, place_behind(rows[-1]))

    def _record_change(self, write: EffectWrite) -> None:
        partition, key = write.before[:2]
        if write.row is not None and write.row.status == "running":
            self._claims[partition, key] = write.row
        else:
            self._claims.pop((partition, key), None)
        self.watchers.notify(partition, key, write.row)


def _place(after: tuple[datetime, str] | None) -> tuple[int, str]:
    return (_LATEST, "") if after is None else (tables.to_micros(after[0]), after[1])


def _range_below(root: str) -> tuple[str, str, str]:
    return root, f"{root}/", f"{root}0"
