"""The store that lives and dies with the process.

A unit of work is compared as a whole before any of it is written, with the lock held, so nothing has to be undone.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice
from operator import attrgetter, itemgetter

from handrail.clock import SYSTEM_CLOCK, Clock
from handrail.crash_points import reached
from handrail.errors import SessionLostError, SessionUseError
from handrail.session.calls import CallRef
from handrail.session.persistence.protocol import (
    AnswerChange,
    AnswerRow,
    Checkpoint,
    DatabaseConnection,
    EntrySegment,
    RunChange,
    RunRow,
    SessionAppend,
    SessionContents,
    SessionEntry,
    SessionHeld,
    SessionLock,
    SessionRow,
)
from handrail.store import locks
from handrail.store.base_store import BaseStore
from handrail.store.locks import StoreOwner
from handrail.store.protocol import (
    EffectChange,
    EffectInsert,
    EffectRow,
    EffectWrite,
    MarkApplied,
    RefusedWrite,
    has_written,
    list_crash_points,
)
from handrail.transaction import RecordCommit, UnitOfWork
from handrail.transaction.unit_of_work import Refusal


@dataclass(slots=True)
class _Session:
    row: SessionRow
    entries: list[SessionEntry] = field(default_factory=list[SessionEntry])
    checkpoints: list[Checkpoint] = field(default_factory=list[Checkpoint])
    token: str = ""
    answers: dict[CallRef, AnswerRow] = field(default_factory=dict[CallRef, AnswerRow])
    run: RunRow | None = None

    def append(self, append: SessionAppend) -> None:
        _, head, entries, checkpoint = append
        self.entries[head - self.row.origin_head :] = entries
        if checkpoint is not None and (not self.checkpoints or self.checkpoints[-1].number < checkpoint.number):
            self.checkpoints.append(checkpoint)
        self.row = self.row._replace(head=head + len(entries))


# Of the process: it stands for a session that does not exist, and is never written to.
_NONE = _Session(SessionRow("", {}, None, datetime.min.replace(tzinfo=UTC)))

_Identity = tuple[str, str]


class MemoryStore(BaseStore):
    """A `handrail.store.Store` in memory; any number of threads, sessions and ledgers may share it.

    `clock` is the time by which leases and expiries are measured.
    """

    def __init__(self, *, clock: Clock = SYSTEM_CLOCK) -> None:
        super().__init__(StoreOwner(), clock=clock, url="memory:")
        self.waits: bool = False
        self.claim_waits: bool = False
        self.poll_every: timedelta | None = None  # every change passes through this object, so `watch` sees it
        self._clock = clock
        self._lock = threading.RLock()
        self._rows: dict[_Identity, EffectRow] = {}
        self._hash_key = os.urandom(32)
        self._sessions: dict[str, _Session] = {}
        self._decided: set[str] = set()

    def close(self) -> None:
        """Releases all sessions; what is stored can still be read. Idempotent."""
        with self._lock:
            tokens = [session.token for session in self._sessions.values()]
            for session in self._sessions.values():
                session.token = ""
        self._locks.release(*tokens)

    def check_wait(self, *, queued: bool) -> None:
        """Returns at once: a write waits for no call."""

    def hash_key(self) -> bytes:
        """Returns the random key of this store, for hashes of secrets."""
        return self._hash_key

    def now(self) -> datetime:
        """Returns the time of the clock."""
        return self._clock.now()

    # -------------------------------------------------------------------------------------------------------- effects

    def get(self, partition: str, key: str) -> EffectRow | None:
        """Returns the present row; `None` if there is none."""
        return self._rows.get((partition, key))

    def apply(self, unit: UnitOfWork) -> RefusedWrite | None:
        """Writes all of a unit, or nothing of it and returns the first write that was refused; as of `LedgerStore`."""
        writes = unit.writes
        # Most units of a ledger in memory are one write, so it is found without a search for its kind.
        if len(writes) == 1 and isinstance(write := writes[0], EffectInsert | EffectChange):
            with self._lock:
                present = self._rows.get(write.before[:2])
                if not write.fits(present):
                    return RefusedWrite(write, present)
                self._change(write.before, write.row)
        elif (refusal := self._apply_together(unit)) is not None:
            return refusal
        for write in writes:
            if isinstance(write, EffectWrite):
                self.watchers.notify(*write.before[:2], write.row)
        return None

    def submit(self, unit: UnitOfWork) -> Future[Refusal | None]:
        """Writes a unit at once, and returns its answer; see `UnitStore.submit`."""
        answer: Future[Refusal | None] = Future()
        try:
            answer.set_result(self.apply(unit))
        except Exception as error:  # noqa: BLE001 - raised where the answer is read
            answer.set_exception(error)
        return answer

    def rows(self, key: str | None = None) -> Iterator[EffectRow]:
        """Returns all rows, or those of a key, of this moment, in the order in which they were first claimed."""
        with self._lock:
            return iter([row for row in self._rows.values() if key is None or row.key == key])

    def remove_expired(self, now: datetime) -> int:
        """Removes the expired rows; returns how many."""
        with self._lock:
            rows = [row for row in self.rows() if row.has_expired(now)]
            for row in rows:
                self._change(row, None)
        return len(rows)

    # ------------------------------------------------------------------------------------------------------- sessions

    def create(self, row: SessionRow) -> bool:
        """Adds a session without entries of its own; returns whether there was none of that id."""
        with self._lock:
            if row.origin is not None and self._require_session(row.origin).row.head < row.origin_head:
                raise locks.session_not_found(row.origin, self.url)  # it has been deleted meanwhile, and made anew
            if row.session_id in self._sessions:
                return False
            self._sessions[row.session_id] = _Session(row._replace(head=row.origin_head))
            return True

    def find(self, session_id: str) -> SessionRow | None:
        """Returns the present row of a session; `None` if there is none."""
        session = self._sessions.get(session_id)
        return None if session is None else session.row

    def sessions(self, *, after: tuple[datetime, str] | None = None) -> Iterator[SessionRow]:
        """Returns all sessions of this moment, the newest first; or those that follow one."""
        with self._lock:
            places = {(session.row.created_at, name): session.row for name, session in self._sessions.items()}
        return (places[place] for place in sorted(places, reverse=True) if after is None or place < after)

    def forks(self, session_id: str) -> tuple[str, ...]:
        """Returns the ids of the forks of a session."""
        with self._lock:
            return tuple(name for name, session in self._sessions.items() if session.row.origin == session_id)

    def held_sessions(self) -> frozenset[str]:
        """Returns the sessions that are held at this moment."""
        with self._lock:
            return frozenset(session_id for session_id, session in self._sessions.items() if session.token)

    def delete_session(self, lock: SessionLock) -> None:
        """Deletes a session, with the effects that belong to it alone; the lock remains to be released."""
        session_id = lock.session_id
        with self._lock:
            self._check_holder(lock)
            if forks := self.forks(session_id):
                raise locks.session_has_forks(session_id, forks)
            del self._sessions[session_id]
            for row in [row for row in self._rows.values() if row.partition == session_id and session_id]:
                self._change(row, None)
        self.watchers.unresolved.forget(session_id)

    def acquire(self, session_id: str, *, wait: timedelta, evict: bool = False) -> SessionLock:
        """Acquires a session; waits for another holder to release it, or evicts it."""

        def attempt(token: str, token_in_row: str | None) -> SessionLock | tuple[str, str]:
            with self._lock:
                session = self._require_session(session_id)
                if session.token != token_in_row:
                    return session.token, ""
                session.token = token
                return SessionLock(session_id, token, session.row)

        return self._locks.acquire(session_id, attempt, wait=wait, evict=evict)

    def release(self, lock: SessionLock) -> None:
        """Releases the session; a lock that is no longer valid is not an error."""
        with self._lock:
            session = self._sessions.get(lock.session_id)
            if session is not None and session.token == lock.token:
                session.token = ""
        self._locks.release(lock.token)

    def holder(self, session_id: str) -> tuple[str, int] | None:
        """Returns the valid token of a session, and the number of its newest entry; `None` if it does not exist."""
        session = self._sessions.get(session_id)
        return None if session is None else (session.token, session.row.head)

    def contents(self, row: SessionRow) -> SessionContents:
        """Returns what is read of a session when it is opened, without records."""
        with self._lock:
            checkpoint = self.checkpoint(row.session_id, until=row.head)
            covered = 0 if checkpoint is None else checkpoint.number
            entries = self.entries(row.session_id, after=covered, until=row.head)
            return checkpoint, [entry.position for entry in entries]

    def answers(self, session_id: str) -> tuple[AnswerRow, ...]:
        """Returns the answers that people have given to calls of a session, the oldest first."""
        with self._lock:
            return tuple(sorted(self._sessions.get(session_id, _NONE).answers.values(), key=lambda row: row.given_at))

    def run(self, session_id: str) -> RunRow | None:
        """Returns the run of a session; `None` if there is none."""
        return self._sessions.get(session_id, _NONE).run

    def runs(self, *, after: tuple[datetime, str] | None = None) -> Iterator[RunRow]:
        """Returns all runs, or those that follow one, the newest first."""
        with self._lock:
            rows = [(run.submitted_at, run.session_id, run) for one in self._sessions.values() if (run := one.run)]
        in_order = sorted(rows, key=itemgetter(0, 1), reverse=True)
        return (run for at, session_id, run in in_order if after is None or (at, session_id) < after)

    def due_runs(self, queue: str, now: datetime, *, limit: int) -> Iterator[RunRow]:
        """Returns the open runs of a queue that are due, those first that are due for the longest time."""
        runs = [run for run in self.runs() if (run.queue, run.status) == (queue, "open") and run.due_at <= now]
        return iter(sorted(runs, key=attrgetter("due_at", "session_id"))[:limit])

    def checkpoint(self, session_id: str, *, until: int | None = None) -> Checkpoint | None:
        """Returns the newest checkpoint that covers no entry after `until`."""
        for name, _, last in reversed(self._segments(session_id, until=until)):
            for checkpoint in reversed(self._sessions.get(name, _NONE).checkpoints):
                if checkpoint.number <= last:
                    return checkpoint
        return None

    def entries(
        self, session_id: str, *, after: int = 0, until: int | None = None, type_name: str | None = None
    ) -> Iterator[SessionEntry]:
        """Returns the entries with `after < number <= until`, in order; of one type, if it is named."""
        parts = [self._own_entries(segment) for segment in self._segments(session_id, max(after, 0), until)]
        return (entry for part in parts for entry in part if type_name is None or entry.type_name == type_name)

    def newest_changes(
        self, session_id: str, type_name: str, *, after: int, until: int, limit: int
    ) -> list[SessionEntry]:
        """Returns the newest entries with `after < number <= until` that change the slice of a type, in order."""
        return [*self.entries(session_id, after=after, until=until, type_name=type_name)][-limit:]

    def recorded_calls(self, session_id: str, *, limit: int) -> list[tuple[CallRef, int]]:
        """Returns the identities of the newest recorded calls with the numbers of their entries, the newest first."""
        return list(islice(self._records(session_id), limit))

    def record_of_call(self, session_id: str, ref: CallRef) -> int | None:
        """Returns the number of the newest entry that records a call; `None` if there is none."""
        return next((number for call, number in self._records(session_id) if call == ref), None)

    # -------------------------------------------------------------------------------------------------------- commits

    def connection(self) -> DatabaseConnection:
        """Raises `SessionUseError`: there is no database."""
        raise SessionUseError(
            "a store in memory has no database, so context.connection has nothing to write to; open the session on "
            '"sqlite:///desk.db" or "postgresql://..."'
        )

    def is_committed(self, journal_id: str) -> bool:
        """Tests whether the call that a journal belongs to has been committed."""
        return journal_id in self._decided

    def delete_commit_record(self, journal_id: str) -> None:
        """Deletes the commit record of a journal; one that does not exist is not an error."""
        self._decided.discard(journal_id)

    # -------------------------------------------------------------------------------------------------------- private

    def _apply_together(self, unit: UnitOfWork) -> RefusedWrite | None:
        writes = unit.writes
        with self._lock:
            try:
                refusal = next(filter(None, map(self._refuse, writes)), None)
            except SessionLostError:
                if has_written(self, unit):
                    return None
                raise
            if refusal is not None:
                return None if len(writes) > 1 and has_written(self, unit) else refusal
            points = list_crash_points(writes)
            for point in points:  # before anything is written: what a point raises leaves nothing behind
                reached(point)
            try:
                for write in writes:
                    self._write(write)
            except BaseException:  # Ctrl-C: a unit is written to its end, because nothing undoes it
                for write in writes:
                    self._write(write)
                raise
        if points:
            reached("unit-after-commit")
        return None

    def _refuse(self, write: object) -> RefusedWrite | None:
        match write:
            case EffectInsert() | EffectChange() | MarkApplied():
                present = self._rows.get(write.before[:2])
                return None if write.fits(present) else RefusedWrite(write, present)
            case AnswerChange(before, row):
                session = self._sessions.get(row.session_id)
                return RefusedWrite(write) if session is None or session.answers.get(row.call) != before else None
            case RunChange(row):
                session = self._sessions.get(row.session_id, _NONE)
                version = 0 if session.run is None else session.run.version
                return RefusedWrite(write) if session is _NONE or version != row.version - 1 else None
            case SessionAppend(lock, head, entries):
                locks.newest_number(lock.session_id, head, entries)
                self._check_holder(lock, head)
            case SessionHeld(lock):
                self._check_holder(lock)
            case _:
                pass
        return None

    def _write(self, write: object) -> None:
        match write:
            case EffectInsert() | EffectChange() | MarkApplied():
                self._change(write.before, write.row)
            case SessionAppend(lock):
                self._sessions[lock.session_id].append(write)
            case AnswerChange(_, row):
                self._require_session(row.session_id).answers[row.call] = row
            case RunChange(row):
                self._require_session(row.session_id).run = row
            case RecordCommit(journal_id):
                self._decided.add(journal_id)
            case _:  # a condition, or what belongs to another kind of store
                pass

    def _change(self, before: EffectRow, row: EffectRow | None) -> None:
        if row is None:
            self._rows.pop(before[:2], None)
        else:
            self._rows[before[:2]] = row

    def _records(self, session_id: str) -> Iterator[tuple[CallRef, int]]:
        for segment in reversed(self._segments(session_id)):
            for entry in filter(_is_record, reversed(self._own_entries(segment))):
                yield CallRef(entry.reply or None, entry.call_id), entry.number

    def _own_entries(self, segment: EntrySegment) -> list[SessionEntry]:
        session = self._sessions.get(segment.session_id, _NONE)
        before = session.row.origin_head
        return session.entries[segment.after - before : segment.until - before]

    def _require_session(self, session_id: str) -> _Session:
        if (session := self._sessions.get(session_id)) is None:
            raise locks.session_not_found(session_id, self.url)
        return session

    def _check_holder(self, lock: SessionLock, head: int | None = None) -> None:
        holder = self.holder(lock.session_id)
        if holder is None or holder[0] != lock.token or head not in {None, holder[1]}:
            raise locks.session_lost(lock, head or 0, holder)


def _is_record(entry: SessionEntry) -> bool:
    return entry.role == "log" and bool(entry.call_id)
