"""The store that lives and dies with the process: its ledger, its sessions and what was decided of journals."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import islice
from types import TracebackType
from typing import Self
from uuid import uuid4

from handrail.clock import SYSTEM_CLOCK, Clock
from handrail.crash_points import reached
from handrail.errors import SessionUseError
from handrail.session.calls import CallRef, OpenCall
from handrail.session.storage import Checkpoint, Connection, Entry, Hold, SessionRow
from handrail.store import refusals
from handrail.store.memory import MemoryLedgerStore
from handrail.store.protocol import open_call
from handrail.store.session_locks import HeldSessions, NoLocks


@dataclass(slots=True)
class _Kept:
    """What is kept of one session; entry `n` stands at index `n - 1`."""

    row: SessionRow
    entries: list[Entry] = field(default_factory=list[Entry])
    checkpoints: list[Checkpoint] = field(default_factory=list[Checkpoint])
    token: str = ""


class MemoryStore(MemoryLedgerStore):
    """A `handrail.store.Store` in memory; any number of threads, sessions and ledgers may share it.

    Args:
        clock: the time by which leases and expiries are measured.
        new_token: makes the tokens of holds.
    """

    __slots__ = ("_decided", "_held", "_new_token", "_sessions")

    def __init__(self, *, clock: Clock = SYSTEM_CLOCK, new_token: Callable[[], str] = lambda: uuid4().hex) -> None:
        super().__init__(clock=clock)
        self._new_token = new_token
        self._sessions: dict[str, _Kept] = {}
        self._decided: set[str] = set()
        self._held = HeldSessions(NoLocks(), clock=clock, store=self.url)

    def __enter__(self) -> Self:
        """Return the store."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """Let go of all sessions; what the store keeps can still be read. Closing twice is closing once."""
        self._held.close()

    # ---------------------------------------------------------------------------------------------------- sessions

    def create(self, row: SessionRow) -> bool:
        """Add a session without entries; returns whether there was none of that id."""
        with self._lock:
            return self._add(_Kept(row._replace(head=0)))

    def find(self, session_id: str) -> SessionRow | None:
        """The row of a session as it stands; `None` if there is none."""
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
            SessionNotFoundError: there is no session `source`.
            SessionError: it has fewer entries.
        """
        with self._lock:
            kept = self._kept(source)
            if row.head > kept.row.head:
                raise refusals.too_few_entries(source, kept.row.head, row.head)
            checkpoints = [checkpoint for checkpoint in kept.checkpoints if checkpoint.number <= row.head]
            return self._add(_Kept(row, kept.entries[: row.head], checkpoints))

    # ------------------------------------------------------------------------------------------------------- holds

    def hold(self, session_id: str, *, wait: timedelta) -> Hold:
        """Become the only one that writes to a session; waits for another holder to let go.

        Raises:
            SessionNotFoundError: there is no such session.
            SessionHeldError: another `Session` still holds it after `wait`.
        """
        with self._lock:
            self._kept(session_id)
        self._held.take(session_id, wait=wait)
        try:
            with self._lock:
                kept = self._kept(session_id)
                kept.token = self._new_token()
        except BaseException:
            self._held.give(session_id)
            raise
        hold = Hold(session_id, kept.token)
        self._held.note(hold)
        return hold

    def release(self, hold: Hold) -> None:
        """Let others write to the session; a hold that is no longer valid is no fault."""
        if self._held.holds(hold):
            with self._lock:
                kept = self._sessions.get(hold.session_id)
                if kept is not None:
                    kept.token = ""
            self._held.give(hold.session_id)

    def check(self, hold: Hold, head: int) -> None:
        """Make sure that the hold is valid, and that nobody else has written to the session.

        Raises:
            SessionLostError: it is not, or somebody has.
        """
        with self._lock:
            self._valid(hold, head)

    # ----------------------------------------------------------------------------------------------------- entries

    def append(self, hold: Hold, head: int, entries: Sequence[Entry], checkpoint: Checkpoint | None) -> None:
        """Add entries after `head`, and keep a checkpoint that covers the last of them.

        Raises:
            SessionLostError: as for `check`. Nothing has been written.
            SessionError: the entries are not numbered from `head + 1` on. Nothing has been written.
        """
        newest = refusals.newest_number(hold.session_id, head, entries)
        with self.unit(), self._lock:
            kept = self._sessions.get(hold.session_id)
            if kept is not None and kept.token == hold.token and kept.row.head == newest > head:
                return
            kept = self._valid(hold, head)
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
    ) -> Iterator[Entry]:
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

    def record_of_call(self, session_id: str, call: CallRef) -> int | None:
        """The number of the newest entry that records a call; `None` if there is none."""
        with self._lock:
            return next((number for found, number in self._records(session_id) if found == call), None)

    def connection(self) -> Connection:
        """There is none.

        Raises:
            SessionUseError: always.
        """
        msg = (
            "a store in memory has no database, so context.connection has nothing to write to; open the session on "
            '"sqlite:///desk.db" or "postgresql://..."'
        )
        raise SessionUseError(msg)

    # --------------------------------------------------------------------------------------------------- decisions

    def decide(self, journal_id: str) -> None:
        """Record that the call which a journal belongs to has been committed; doing it twice is once."""
        with self._lock:
            if journal_id not in self._decided:
                self._undo_with(lambda: self._decided.discard(journal_id))
                self._decided.add(journal_id)

    def decided(self, journal_id: str) -> bool:
        """Whether the call that a journal belongs to has been committed."""
        with self._lock:
            return journal_id in self._decided

    def forget_decision(self, journal_id: str) -> None:
        """Keep no more what was decided of a journal; that nothing was is no fault."""
        with self._lock:
            if journal_id in self._decided:
                self._undo_with(lambda: self._decided.add(journal_id))
                self._decided.remove(journal_id)

    # ------------------------------------------------------------------------------------------------- with the lock

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
            raise refusals.no_session(session_id, self.url)
        return kept

    def _valid(self, hold: Hold, head: int) -> _Kept:
        kept = self._sessions.get(hold.session_id)
        if kept is None or kept.token != hold.token or kept.row.head != head:
            found = None if kept is None else (kept.token, kept.row.head)
            raise refusals.lost(hold, head, found)
        return kept


def _cut(kept: _Kept, row: SessionRow, checkpoints: int) -> None:
    """Take away what came after `row`."""
    kept.row = row
    del kept.entries[row.head :]
    del kept.checkpoints[checkpoints:]
