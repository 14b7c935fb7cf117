"""The store that lives and dies with the process: its ledger, its sessions, and which calls have been committed.

`Changes` undoes units of work; it owns the lock of everything that a store in memory keeps.
"""

from __future__ import annotations

import os
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from types import TracebackType
from typing import Self
from uuid import uuid4

from handrail.clock import SYSTEM_CLOCK, Clock
from handrail.crash_points import reached
from handrail.errors import SessionUseError, StoreUnavailableError
from handrail.session.call_records import OpenCall
from handrail.session.call_ref import CallRef
from handrail.session.persistence.protocol import Checkpoint, DatabaseConnection, SessionEntry, SessionLock, SessionRow
from handrail.store import session_locks
from handrail.store.protocol import EffectRow, Testimony, WatchCallback, open_call
from handrail.store.session_locks import NoLockBackend, SessionLockTable
from handrail.store.units import InnerUnit, Unit, Watchers, open_unit

_Identity = tuple[str, str]

_OTHER_UNIT = (
    "a unit of work is open on {store} in this thread, but in another context (another task?), and could never end "
    "while this write waits for it; do not await inside `with store.unit()`"
)


class UndoLog:
    """What undoes the changes of the unit that is open, the newest last. A `handrail.store.units.UnitBackend`.

    The unit's thread has the lock until the unit ends, so no other thread sees what is not committed yet.

    Args:
        store: the URL of the store, for messages.

    Attributes:
        lock: guards everything that the store keeps.
        is_open: whether a unit is open; read with the lock held.
    """

    __slots__ = ("_store", "_undo", "is_open", "lock")

    def __init__(self, store: str) -> None:
        self.lock = threading.RLock()
        self.is_open = False
        self._undo: list[Callable[[], object]] = []
        self._store = store

    def begin(self) -> None:
        """Keep others out, and remember what is changed from here on."""
        self.lock.acquire()
        if self.is_open:
            self.lock.release()
            raise self.refusal()
        self.is_open = True

    def commit(self) -> None:
        """Let all that was changed count."""
        self._undo.clear()
        self.is_open = False
        self.lock.release()

    def rollback(self) -> None:
        """Undo all of it."""
        self.rollback_to(0)
        self.commit()

    def savepoint(self) -> int:
        """How many changes there were so far."""
        return len(self._undo)

    def rollback_to(self, savepoint: int) -> None:
        """Undo the changes after the first `savepoint`."""
        while len(self._undo) > savepoint:
            self._undo.pop()()

    def note(self, undo: Callable[[], object]) -> None:
        """Remember how to undo the change that was just made, with the lock held and a unit open."""
        self._undo.append(undo)

    def refusal(self) -> StoreUnavailableError:
        """What is raised where a unit is open, but not in this context."""
        return StoreUnavailableError(_OTHER_UNIT.format(store=self._store), store=self._store)


@dataclass(slots=True)
class _Kept:
    """What is kept of one session; entry `n` stands at index `n - 1`."""

    row: SessionRow
    entries: list[SessionEntry] = field(default_factory=list[SessionEntry])
    checkpoints: list[Checkpoint] = field(default_factory=list[Checkpoint])
    token: str = ""


class MemoryStore:
    """A `handrail.store.Store` in memory; any number of threads, sessions and ledgers may share it.

    Args:
        clock: the time by which leases and expiries are measured.
        new_token: makes the tokens of locks.
    """

    __slots__ = (
        "_changes",
        "_clock",
        "_decided",
        "_hash_key",
        "_held",
        "_lock",
        "_new_token",
        "_rows",
        "_sessions",
        "_testimony",
        "_watchers",
    )

    url = "memory:"
    """What names the store to people."""

    poll_every: timedelta | None = None
    """Never: every change passes through this object, so `watch` sees it."""

    has_old_slots = False
    """Never: what an older version wrote has ended with its process."""

    def __init__(self, *, clock: Clock = SYSTEM_CLOCK, new_token: Callable[[], str] = lambda: uuid4().hex) -> None:
        self._clock = clock
        self._new_token = new_token
        self._changes = UndoLog(self.url)
        self._lock = self._changes.lock
        self._rows: dict[_Identity, EffectRow] = {}
        self._testimony: dict[str, dict[int, Testimony]] = {}
        self._watchers = Watchers()
        self._hash_key = os.urandom(32)
        self._sessions: dict[str, _Kept] = {}
        self._decided: set[str] = set()
        self._held = SessionLockTable(NoLockBackend(), clock=clock, store=self.url)

    def __enter__(self) -> Self:
        """Return the store."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """Release all sessions; what is stored can still be read. Idempotent."""
        self._held.close()

    def hash_key(self) -> bytes:
        """The random key of this store, for hashes of secrets."""
        return self._hash_key

    def now(self) -> datetime:
        """The time of the clock."""
        return self._clock.now()

    def unit(self) -> AbstractContextManager[object]:
        """Keep what this thread writes in the block, or nothing of it if the block raises; others wait meanwhile."""
        outer = open_unit(self)
        return Unit(self, self._changes, self._watchers) if outer is None else InnerUnit(outer)

    # ------------------------------------------------------------------------------------------ effects and testimony

    def process(self) -> str:
        """There is nothing to name: no other process can reach the store."""
        return ""

    def is_dead(self, process: str) -> bool:  # noqa: ARG002 - the interface's
        """Nothing is known of other processes."""
        return False

    def get(self, partition: str, key: str) -> EffectRow | None:
        """The present row; `None` if there is none."""
        with self._lock:
            return self._rows.get((partition, key))

    def insert(self, row: EffectRow) -> EffectRow | None:
        """Add the row if its key has none, and return `None`; else change nothing and return the row that stands."""
        identity = row[:2]
        with self._lock:
            standing = self._rows.get(identity)
            if standing is not None:
                return standing
            if self._changes.is_open:
                self._note(lambda: self._rows.pop(identity))
            self._rows[identity] = row
        if self._changes.is_open or self._watchers.concerns(identity[0]):
            self._notify(identity, row)
        return None

    def replace(self, seen: EffectRow, row: EffectRow) -> bool:
        """Put `row` in the place of `seen` if that is still the one seen; returns whether it was."""
        return self._put(seen, row)

    def delete(self, seen: EffectRow) -> bool:
        """Remove the row, and the testimony about its effect, if it is still the one seen; returns whether it was."""
        return self._put(seen, None)

    def testify(self, testimony: Testimony) -> bool:
        """Add testimony; returns whether it is the first of its effect and fencing token."""
        with self._lock:
            given = self._testimony.get(testimony.effect_id, {})
            if testimony.fence in given:
                return False
            if self._changes.is_open:
                self._note(lambda: self._set_testimony(testimony.effect_id, given))
            self._set_testimony(testimony.effect_id, {**given, testimony.fence: testimony})
        if self._changes.is_open and open_unit(self) is not None:
            reached("unit-testimony-written")
        return True

    def testimony(self, effect_id: str) -> tuple[Testimony, ...]:
        """All testimony about an effect, in the order of the fencing tokens."""
        with self._lock:
            given = self._testimony.get(effect_id, {})
        return tuple(given[fence] for fence in sorted(given))

    def rows(self) -> Iterator[EffectRow]:
        """All rows as they stand at this moment, in the order in which their keys were first claimed."""
        with self._lock:
            return iter(list(self._rows.values()))

    def unresolved_slots(self, partition: str, tool: str, reply: str | None) -> tuple[EffectRow, ...]:
        """The running and unknown slots of a partition and tool, and those of the reply resolved as happened."""
        unresolved = self._watchers.unresolved
        slots = unresolved.of(partition)
        if slots is None:
            rows = [row for row in self.rows() if row.partition == partition]
            slots = unresolved.load(
                partition, [row for row in rows if row.status in {"running", "unknown"} or row.was_found_done]
            )
        if not slots:
            return ()
        keys = unresolved.keys(partition, tool, reply)
        return tuple(row for key in keys if (row := self.get(partition, key)) is not None)

    def watch(self, partition: str, key: str, wake: WatchCallback) -> Callable[[], None]:
        """Call `wake` after each change of the key's row; returns how to stop that."""
        return self._watchers.watch(partition, key, wake)

    def open_claims(self, session_id: str) -> tuple[OpenCall, ...]:
        """The effects of a session's calls that are running, unknown, or done without having been applied."""
        return tuple(
            open_call(row)
            for row in self.rows()
            if row.owner.session_id == session_id and row.status != "failed" and row.applied_at is None
        )

    def end_leases_of_dead(self, session_id: str) -> tuple[OpenCall, ...]:
        """No owner is proved dead, because all live in this process; returns the running effects of the session."""
        now = self.now()
        claimed = self.open_claims(session_id)
        return tuple(each for each in claimed if each.lease_until is not None and each.lease_until > now)

    # ------------------------------------------------------------------------------------------------------- sessions

    def create(self, row: SessionRow) -> bool:
        """Add a session without entries; returns whether there was none of that id."""
        with self._lock:
            return self._add(_Kept(row._replace(head=0)))

    def find(self, session_id: str) -> SessionRow | None:
        """The present row of a session; `None` if there is none."""
        with self._lock:
            kept = self._sessions.get(session_id)
            return None if kept is None else kept.row

    def sessions(self) -> Iterator[SessionRow]:
        """All sessions as they stand at this moment, the newest first."""
        with self._lock:
            rows = [kept.row for kept in self._sessions.values()]
        return iter(sorted(rows, key=lambda row: (row.created_at, row.session_id), reverse=True))

    def copy(self, source: str, row: SessionRow) -> bool:
        """Add the session `row` with a copy of the first `row.head` entries of another, and of their checkpoints.

        Raises:
            SessionNotFoundError: the session `source` does not exist.
            SessionError: it has fewer entries.
        """
        with self._lock:
            kept = self._kept(source)
            if row.head > kept.row.head:
                raise session_locks.too_few_entries(source, kept.row.head, row.head)
            checkpoints = [checkpoint for checkpoint in kept.checkpoints if checkpoint.number <= row.head]
            return self._add(_Kept(row, kept.entries[: row.head], checkpoints))

    def acquire(self, session_id: str, *, wait: timedelta) -> SessionLock:
        """Become the only one that writes to a session; waits for another holder to let go.

        Raises:
            SessionNotFoundError: the session does not exist.
            SessionLockedError: another `Session` still holds it after `wait`.
        """
        with self._lock:
            self._kept(session_id)
        self._held.acquire(session_id, wait=wait)
        try:
            with self._lock:
                kept = self._kept(session_id)
                kept.token = self._new_token()
        except BaseException:
            self._held.give(session_id)
            raise
        lock = SessionLock(session_id, kept.token)
        self._held.note(lock)
        return lock

    def release(self, lock: SessionLock) -> None:
        """Release the session; a lock that is no longer valid is not an error."""
        if self._held.holds(lock):
            with self._lock:
                kept = self._sessions.get(lock.session_id)
                if kept is not None:
                    kept.token = ""
            self._held.give(lock.session_id)

    def check_lock(self, lock: SessionLock, head: int) -> None:
        """Make sure that the lock is valid, and that no other process has written to the session.

        Raises:
            SessionLostError: it is not, or another process has.
        """
        with self._lock:
            self._valid(lock, head)

    def append(
        self, lock: SessionLock, head: int, entries: Sequence[SessionEntry], checkpoint: Checkpoint | None
    ) -> None:
        """Add entries after `head`, and keep a checkpoint that covers the last of them.

        Raises:
            SessionLostError: as for `check_lock`. Nothing has been written.
            SessionError: the entries are not numbered from `head + 1` on. Nothing has been written.
        """
        newest = session_locks.newest_number(lock.session_id, head, entries)
        with self.unit(), self._lock:
            kept = self._sessions.get(lock.session_id)
            if kept is not None and kept.token == lock.token and kept.row.head == newest > head:
                return
            kept = self._valid(lock, head)
            was, checkpoints = kept.row, len(kept.checkpoints)
            kept.entries += entries
            if checkpoint is not None and (not kept.checkpoints or kept.checkpoints[-1].number < checkpoint.number):
                kept.checkpoints.append(checkpoint)
            kept.row = was._replace(head=newest)
            self._note(lambda: _cut(kept, was, checkpoints))
            reached("unit-session-written")

    def checkpoint(self, session_id: str, *, until: int | None = None) -> Checkpoint | None:
        """The newest checkpoint that covers no entry after `until`."""
        with self._lock:
            kept = self._sessions.get(session_id)
            found = [] if kept is None else kept.checkpoints
            place = len(found) if until is None else bisect_right(found, until, key=lambda one: one.number)
            return found[place - 1] if place else None

    def entries(
        self, session_id: str, *, after: int = 0, until: int | None = None, type_name: str | None = None
    ) -> Iterator[SessionEntry]:
        """The entries with `after < number <= until`, in order; of one type, if it is named."""
        with self._lock:
            kept = self._sessions.get(session_id)
            found = [] if kept is None else kept.entries[after:until]
        return (entry for entry in found if type_name is None or entry.type_name == type_name)

    def recorded_calls(self, session_id: str, *, limit: int, call_id: str | None = None) -> list[tuple[CallRef, int]]:
        """The identities of the newest recorded calls with the numbers of their entries, the newest first."""
        with self._lock:
            found = (record for record in self._records(session_id) if call_id in {None, record[0].call_id})
            return list(islice(found, limit))

    def record_of_call(self, session_id: str, ref: CallRef) -> int | None:
        """The number of the newest entry that records a call; `None` if there is none."""
        with self._lock:
            return next((number for found, number in self._records(session_id) if found == ref), None)

    # -------------------------------------------------------------------------------------------------------- commits

    def connection(self) -> DatabaseConnection:
        """There is none.

        Raises:
            SessionUseError: always.
        """
        msg = (
            "a store in memory has no database, so context.connection has nothing to write to; open the session on "
            '"sqlite:///desk.db" or "postgresql://..."'
        )
        raise SessionUseError(msg)

    def record_commit(self, journal_id: str) -> None:
        """Record that the call which a journal belongs to has been committed; idempotent."""
        with self._lock:
            if journal_id not in self._decided:
                self._undo_with(lambda: self._decided.discard(journal_id))
                self._decided.add(journal_id)

    def is_committed(self, journal_id: str) -> bool:
        """Whether the call that a journal belongs to has been committed."""
        with self._lock:
            return journal_id in self._decided

    def delete_commit_record(self, journal_id: str) -> None:
        """Delete the commit record of a journal; one that does not exist is not an error."""
        with self._lock:
            if journal_id in self._decided:
                self._undo_with(lambda: self._decided.add(journal_id))
                self._decided.remove(journal_id)

    # -------------------------------------------------------------------------------------------------------- private

    def _put(self, seen: EffectRow, row: EffectRow | None) -> bool:
        identity = seen[:2]
        with self._lock:
            standing = self._rows.get(identity)
            if standing is None or (standing is not seen and _version(standing) != _version(seen)):
                return False
            if self._changes.is_open:
                self._note(lambda: self._rows.__setitem__(identity, standing))
            if row is None:
                del self._rows[identity]
            else:
                self._rows[identity] = row
            if row is None or row.effect_id != seen.effect_id:
                self._forget_testimony(seen.effect_id)
        if self._changes.is_open or self._watchers.concerns(identity[0]) or _is_left(row):
            self._notify(identity, row)
        return True

    def _forget_testimony(self, effect_id: str) -> None:
        """Remove the testimony about an effect, with the lock held."""
        given = self._testimony.get(effect_id)
        if given is None:
            return
        if self._changes.is_open:
            self._note(lambda: self._set_testimony(effect_id, given))
        self._set_testimony(effect_id, {})

    def _set_testimony(self, effect_id: str, given: dict[int, Testimony]) -> None:
        if given:
            self._testimony[effect_id] = given
        else:
            self._testimony.pop(effect_id, None)

    def _note(self, undo: Callable[[], object]) -> None:
        """Remember how to undo the next change, with the lock held and a unit open."""
        if open_unit(self) is None:
            raise self._changes.refusal()
        self._changes.note(undo)

    def _notify(self, identity: _Identity, row: EffectRow | None) -> None:
        """Notify of a change now, or when the unit that it belongs to is committed."""
        unit = open_unit(self) if self._changes.is_open else None
        if unit is None:
            self._watchers.notify(*identity, row)
        else:
            unit.notify(*identity, row)
            reached("unit-ledger-written")

    def _undo_with(self, undo: Callable[[], object]) -> None:
        if self._changes.is_open:
            self._note(undo)

    def _records(self, session_id: str) -> Iterator[tuple[CallRef, int]]:
        kept = self._sessions.get(session_id)
        for entry in reversed([] if kept is None else kept.entries):
            if entry.role == "log" and entry.call_id:
                yield CallRef(entry.reply or None, entry.call_id), entry.number

    def _add(self, kept: _Kept) -> bool:
        session_id = kept.row.session_id
        if session_id in self._sessions:
            return False
        self._undo_with(lambda: self._sessions.pop(session_id))
        self._sessions[session_id] = kept
        return True

    def _kept(self, session_id: str) -> _Kept:
        kept = self._sessions.get(session_id)
        if kept is None:
            raise session_locks.session_not_found(session_id, self.url)
        return kept

    def _valid(self, lock: SessionLock, head: int) -> _Kept:
        kept = self._sessions.get(lock.session_id)
        if kept is None or kept.token != lock.token or kept.row.head != head:
            found = None if kept is None else (kept.token, kept.row.head)
            raise session_locks.session_lost(lock, head, found)
        return kept


def _version(row: EffectRow) -> tuple[int, str, str]:
    """What a row is compared by, to know whether it is still the one seen."""
    return row.fence, row.status, row.effect_id


def _is_left(row: EffectRow | None) -> bool:
    """Whether a row is that of a slot which its call has not settled."""
    return row is not None and (row.status == "unknown" or row.was_found_done)


def _cut(kept: _Kept, row: SessionRow, checkpoints: int) -> None:
    """Take away what came after `row`."""
    kept.row = row
    del kept.entries[row.head :]
    del kept.checkpoints[checkpoints:]
