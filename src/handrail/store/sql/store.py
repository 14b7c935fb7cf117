"""Sessions in a database: the statements of `handrail.session.storage.SessionStore`, and decisions about journals."""

# ruff: noqa: S608 - what is put into statements here are names of our own columns

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta

from handrail.crash_points import reached
from handrail.errors import StoreError
from handrail.session.calls import CallRef
from handrail.session.storage import Checkpoint, Entry, Hold, SessionRow
from handrail.store import refusals
from handrail.store.session_locks import HeldSessions
from handrail.store.sql.database import Database
from handrail.store.sql.driver import Link
from handrail.store.sql.rows import (
    ENTRY,
    SESSION,
    checkpoint_of,
    entry_of,
    micros,
    missing_entry,
    session_columns,
    session_of,
)

_ENTRIES_PER_PAGE = 1000
_LAST = 2**62
_ADD = (
    f"INSERT INTO handrail_sessions ({SESSION}, token) VALUES (?, ?, ?, ?, ?, '') ON CONFLICT (session_id) DO NOTHING"
)
_FIND = f"SELECT {SESSION} FROM handrail_sessions WHERE session_id = ?"
_OLDER = (
    f"SELECT {SESSION} FROM handrail_sessions WHERE (created_at, session_id) < (?, ?) "
    f"ORDER BY created_at DESC, session_id DESC LIMIT {_ENTRIES_PER_PAGE}"
)
_NEWEST = f"SELECT {SESSION} FROM handrail_sessions ORDER BY created_at DESC, session_id DESC LIMIT {_ENTRIES_PER_PAGE}"
_STANDS = "SELECT token, head FROM handrail_sessions WHERE session_id = ?"
_TAKE_OVER = "UPDATE handrail_sessions SET token = ? WHERE session_id = ?"
_LET_GO = "UPDATE handrail_sessions SET token = '' WHERE session_id = ? AND token = ?"
_MOVE = "UPDATE handrail_sessions SET head = ? WHERE session_id = ? AND head = ? AND token = ?"
_ENTRIES = (
    f"SELECT {ENTRY} FROM handrail_entries WHERE session_id = ? AND number > ? AND number <= ? "
    f"ORDER BY number LIMIT {_ENTRIES_PER_PAGE}"
)
_ENTRIES_OF_TYPE = (
    f"SELECT {ENTRY} FROM handrail_entries WHERE session_id = ? AND number > ? AND number <= ? AND type_name = ? "
    f"ORDER BY number LIMIT {_ENTRIES_PER_PAGE}"
)
# In the words of the partial index, so that the database uses it.
_RECORDS = "SELECT reply, call_id, number FROM handrail_entries WHERE session_id = ? AND role = 'log' AND call_id <> ''"
_NEWEST_RECORDS = f"{_RECORDS} ORDER BY number DESC LIMIT ?"
_RECORDS_OF_ID = f"{_RECORDS} AND call_id = ? ORDER BY number DESC LIMIT ?"
RECORD = f"{_RECORDS} AND reply = ? AND call_id = ? ORDER BY number DESC LIMIT 1"
"""The newest record of a call."""
_KEEP = (
    "INSERT INTO handrail_checkpoints (session_id, number, data) VALUES (?, ?, ?) "
    "ON CONFLICT (session_id, number) DO NOTHING"
)
_CHECKPOINT = (
    "SELECT number, data FROM handrail_checkpoints WHERE session_id = ? AND number <= ? ORDER BY number DESC LIMIT 1"
)
_COPY_ENTRIES = (
    f"INSERT INTO handrail_entries (session_id, {ENTRY}) "
    f"SELECT ?, {ENTRY} FROM handrail_entries WHERE session_id = ? AND number <= ?"
)
_COPY_CHECKPOINTS = (
    "INSERT INTO handrail_checkpoints (session_id, number, data) "
    "SELECT ?, number, data FROM handrail_checkpoints WHERE session_id = ? AND number <= ?"
)
_DECIDE = "INSERT INTO handrail_decisions (journal_id) VALUES (?) ON CONFLICT (journal_id) DO NOTHING"
_DECIDED = "SELECT 1 FROM handrail_decisions WHERE journal_id = ?"
_FORGET = "DELETE FROM handrail_decisions WHERE journal_id = ?"


class SqlSessions:
    """The part of a store that keeps sessions and decisions; `_database` is where, `_held` is who holds which."""

    _database: Database
    _held: HeldSessions
    _new_token: Callable[[], str]

    def create(self, row: SessionRow) -> bool:
        """Add a session without entries; returns whether there was none of that id."""
        return self._database.change(_ADD, session_columns(row._replace(head=0))) == 1

    def find(self, session_id: str) -> SessionRow | None:
        """The row of a session as it stands; `None` if there is none.

        Raises:
            StoreCorruptError: it cannot be read.
        """
        found = self._database.ask(_FIND, (session_id,))
        return session_of(found[0], store=self._database.url) if found else None

    def sessions(self) -> Iterator[SessionRow]:
        """All sessions, the newest first; each as it stood when the iteration came near it.

        Raises:
            StoreCorruptError: one cannot be read.
        """
        found = self._database.ask(_NEWEST)
        while found:
            rows = [session_of(columns, store=self._database.url) for columns in found]
            yield from rows
            last = (micros(rows[-1].created_at), rows[-1].session_id)
            found = self._database.ask(_OLDER, last) if len(found) == _ENTRIES_PER_PAGE else []

    def copy(self, source: str, row: SessionRow) -> bool:
        """Add the session `row` with a copy of the first `row.head` entries of another, and of their checkpoints.

        Raises:
            SessionNotFoundError: there is no session `source`.
            SessionError: it has fewer entries.
        """
        database = self._database
        with database.unit():
            kept = self.find(source)
            if kept is None:
                raise refusals.no_session(source, database.url)
            if row.head > kept.head:
                raise refusals.too_few_entries(source, kept.head, row.head)
            if database.change(_ADD, session_columns(row)) == 0:
                return False
            for sql in (_COPY_ENTRIES, _COPY_CHECKPOINTS):
                database.change(sql, (row.session_id, source, row.head))
            return True

    # ------------------------------------------------------------------------------------------------------- holds

    def hold(self, session_id: str, *, wait: timedelta) -> Hold:
        """Become the only one that writes to a session; waits for another holder to let go.

        Raises:
            SessionNotFoundError: there is no such session.
            SessionHeldError: another process, or another `Session` of this one, still holds it after `wait`.
        """
        self._held.take(session_id, wait=wait)
        try:
            found = self._database.ask(_STANDS, (session_id,))
            hold = Hold(session_id, self._new_token(), was_released=not (found and found[0][0]))
            is_there = found and self._database.change(_TAKE_OVER, (hold.token, session_id))
        except BaseException:
            self._held.give(session_id)
            raise
        if not is_there:
            self._held.give(session_id)
            raise refusals.no_session(session_id, self._database.url)
        self._held.note(hold)
        self._database.watchers.unresolved.forget(session_id)
        return hold

    def release(self, hold: Hold) -> None:
        """Let others write to the session; a hold that is no longer valid is no fault, nor is a store that is down."""
        if self._held.holds(hold):
            with suppress(StoreError):
                self._database.change(_LET_GO, hold[:2])
            self._held.give(hold.session_id)

    def check(self, hold: Hold, head: int) -> None:
        """Make sure that the store answers, that the hold is valid and that nobody else has written.

        Raises:
            SessionLostError: somebody else has taken the session over, or has written to it.
            StoreUnavailableError: the store does not answer.
        """
        self._held.refresh()
        stands = self._stands(hold)
        if stands != (hold.token, head):
            raise refusals.lost(hold, head, stands)

    # ----------------------------------------------------------------------------------------------------- entries

    def append(self, hold: Hold, head: int, entries: Sequence[Entry], checkpoint: Checkpoint | None) -> None:
        """Add entries after `head`, and keep a checkpoint that covers the last of them.

        Raises:
            SessionLostError: as for `check`. Nothing has been written.
            SessionError: the entries are not numbered from `head + 1` on. Nothing has been written.
        """
        session_id = hold.session_id
        newest = refusals.newest_number(session_id, head, entries)
        with self._database.joined() as unit:
            link: Link = unit.work.link
            added = [(session_id, *entry) for entry in entries]
            move = (newest, session_id, head, hold.token)
            if not link.insert_if(_MOVE, move, f"handrail_entries (session_id, {ENTRY})", added):
                stands = self._stands(hold)
                if stands == (hold.token, newest):
                    return
                raise refusals.lost(hold, head, stands)
            if checkpoint is not None:
                link.change(_KEEP, (session_id, *checkpoint))
            reached("unit-session-written")

    def checkpoint(self, session_id: str, *, until: int | None = None) -> Checkpoint | None:
        """The newest checkpoint that covers no entry after `until`.

        Raises:
            StoreCorruptError: it cannot be read.
        """
        found = self._database.ask(_CHECKPOINT, (session_id, _LAST if until is None else until))
        return checkpoint_of(found[0], session_id=session_id, store=self._database.url) if found else None

    def entries(
        self, session_id: str, *, after: int = 0, until: int | None = None, type_name: str | None = None
    ) -> Iterator[Entry]:
        """The entries with `after < number <= until`, in order; of one type, if it is named.

        Raises:
            StoreCorruptError: one of them cannot be read, or is missing.
        """
        url = self._database.url
        last = until
        if last is None:
            row = self.find(session_id)
            last = 0 if row is None else row.head
        sql = _ENTRIES if type_name is None else _ENTRIES_OF_TYPE
        more = () if type_name is None else (type_name,)
        place = max(after, 0)
        while place < last:
            found = self._database.ask(sql, (session_id, place, last, *more))
            for columns in found:
                entry = entry_of(columns, session_id=session_id, store=url)
                if type_name is None and entry.number != place + 1:
                    raise missing_entry(place + 1, session_id=session_id, store=url)
                place = entry.number
                yield entry
            if len(found) < _ENTRIES_PER_PAGE:
                break
        if type_name is None and place < last:
            raise missing_entry(place + 1, session_id=session_id, store=url)

    def recorded_calls(self, session_id: str, *, limit: int, call_id: str | None = None) -> list[tuple[CallRef, int]]:
        """The identities of the newest recorded calls with the numbers of their entries, the newest first."""
        if call_id is None:
            found = self._database.ask(_NEWEST_RECORDS, (session_id, limit))
        else:
            found = self._database.ask(_RECORDS_OF_ID, (session_id, call_id, limit))
        return [(CallRef(reply or None, found_id), number) for reply, found_id, number in found]

    def record_of_call(self, session_id: str, call: CallRef) -> int | None:
        """The number of the newest entry that records a call; `None` if there is none."""
        found = self._database.ask(RECORD, (session_id, call.reply or "", call.call_id))
        return int(found[0][2]) if found else None

    # --------------------------------------------------------------------------------------------------- decisions

    def decide(self, journal_id: str) -> None:
        """Record that the call which a journal belongs to has been committed; doing it twice is once."""
        self._database.change(_DECIDE, (journal_id,))

    def decided(self, journal_id: str) -> bool:
        """Whether the call that a journal belongs to has been committed."""
        return bool(self._database.ask(_DECIDED, (journal_id,)))

    def forget_decision(self, journal_id: str) -> None:
        """Keep no more what was decided of a journal; that nothing was is no fault."""
        self._database.change(_FORGET, (journal_id,))

    def _stands(self, hold: Hold) -> tuple[str, int] | None:
        found = self._database.ask(_STANDS, (hold.session_id,))
        return (found[0][0], found[0][1]) if found else None
