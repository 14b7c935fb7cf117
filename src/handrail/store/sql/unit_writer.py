"""How the writes of a unit of work become statements: each row is compared by the statement that changes it.

The units of a group become statements of one transaction. Claims and other changes of one row are a statement each,
which changes nothing if it is refused; what is appended to a session with a claim is written if the claim is not. The
units that commit calls are written together, one kind of statement for all of them: each is compared by the statements
that change its session and its effects, and if one of them is refused, the transaction is undone, and each unit is
written alone. That is seldom: the lease of a call has been lost, or its session.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from handrail.crash_points import reached
from handrail.errors import SessionError
from handrail.session.persistence.protocol import AnswerChange, SessionAppend, SessionHeld, SessionLock
from handrail.store import session_locks
from handrail.store.protocol import EffectChange, EffectInsert, EffectRow, MarkApplied, RefusedWrite
from handrail.store.session_locks import newest_number
from handrail.store.sql import statements
from handrail.store.sql.driver import DriverConnection, Statement, StatementExecutor, StatementParameters
from handrail.store.sql.tables import (
    ENTRY_TABLE,
    answer_columns,
    applied_columns,
    effect_columns,
    entry_columns,
    read_effect,
)
from handrail.transaction import RecordCommit

_ENTRIES = f"handrail_entries ({ENTRY_TABLE.names})"

INSERT_ENTRY = f"INSERT INTO {_ENTRIES} VALUES ({', '.join('?' * len(ENTRY_TABLE.columns))})"  # noqa: S608 - ours
"""One more entry of a session."""

Execute: TypeAlias = Callable[[str, StatementParameters], int]
"""Executes a statement that writes; returns how many rows it has changed."""


class RefusedError(Exception):
    """A write of a unit was refused, so its transaction is undone. Never leaves the store.

    Attributes:
        refused: which write, and what stands there.
    """

    def __init__(self, refused: RefusedWrite) -> None:
        super().__init__()
        self.refused = refused


def write_with(link: DriverConnection, write: object) -> None:
    """Write one part of a unit, in the transaction that is open on a connection.

    Raises:
        RefusedError: a row is not the one seen.
        SessionLostError: the session has passed to another process.
        SessionError: entries do not follow the newest one.
        StoreError: the statement has failed.
    """
    match write:
        case EffectInsert() | EffectChange() | MarkApplied() | AnswerChange():
            refused = _write_row(link, write)
            if refused is not None:
                raise RefusedError(refused)
            if not isinstance(write, AnswerChange):
                reached("unit-ledger-written")
        case SessionAppend():
            _append(link, write)
            reached("unit-session-written")
        case SessionHeld():
            check_held(link, write)
        case RecordCommit(journal_id):
            link.execute(statements.INSERT_DECISION, (journal_id,))
        case _:  # the connection of the call, whose transaction this is
            pass


def _write_row(
    link: DriverConnection, write: EffectInsert | EffectChange | MarkApplied | AnswerChange
) -> RefusedWrite | None:
    """Write the row of an effect or of an answer, unless another one than the one seen stands there."""
    match write:
        case EffectInsert():
            return insert_row(link, write)
        case EffectChange():
            return replace_row(link.execute, write, link)
        case MarkApplied(seen, row):
            compared = (*seen[:3], *(moment or 0 for moment in applied_columns(seen)))
            is_written = link.execute(statements.MARK_APPLIED, (*applied_columns(row), *compared))
            return None if is_written else RefusedWrite(write, _standing(link, seen))
        case _:
            return _change_answer(link, write)


def insert_row(
    executor: StatementExecutor, insert: EffectInsert, held: SessionHeld | None = None
) -> RefusedWrite | None:
    """Add a row, if its key has none, and, in the same statement, if a session is held.

    Raises:
        SessionLostError: the session is not held.
    """
    sql, columns = statements.INSERT_EFFECT, effect_columns(insert.row)
    if held is not None:
        sql, columns = statements.INSERT_EFFECT_WHILE_HELD, [*columns, *held.lock[:2]]
    while not executor.execute(sql, columns):
        standing = _standing(executor, insert.row)
        if standing is not None:
            return RefusedWrite(insert, standing)
        # The key is free: the row was removed since, the session is not held, or the tables have another version.
        if held is not None:
            check_held(executor, held)
        if executor.query(statements.GET_VERSION) != [(statements.TABLES_VERSION,)]:
            return RefusedWrite(insert)
    return None


def change_statement(change: EffectChange) -> Statement:
    """The statement of a change, which changes nothing if the row is not the one seen."""
    seen, row = change
    compared = (seen.partition, seen.key, seen.effect_id, seen.fence, seen.status)
    if row is None:
        return Statement(statements.DELETE_EFFECT, compared)
    return Statement(statements.REPLACE_EFFECT, (*effect_columns(row)[2:], *compared))


def replace_row(execute: Execute, change: EffectChange, executor: StatementExecutor) -> RefusedWrite | None:
    """Put a row in the place of the one seen, if that is still there; or remove that, if no row takes its place."""
    seen, row = change
    if execute(*change_statement(change)):
        return None
    standing = _standing(executor, seen)
    # A row that could not be read is shown with another status than it has, so it is compared as it is shown.
    if seen.status == "unknown" and change.fits(standing):
        values = [] if row is None else effect_columns(row)[2:]
        unread = statements.DELETE_READ_EFFECT if row is None else statements.REPLACE_READ_EFFECT
        if execute(unread, (*values, seen.partition, seen.key)):
            return None
    return RefusedWrite(change, standing)


def _change_answer(link: DriverConnection, change: AnswerChange) -> RefusedWrite | None:
    seen, row = change
    if seen is None:
        written = link.execute(statements.INSERT_ANSWER, (*answer_columns(row), row.session_id))
    else:
        identity = (row.session_id, row.reply, row.call_id)
        written = link.execute(
            statements.REPLACE_ANSWER, (*answer_columns(row)[3:], *identity, *answer_columns(seen)[3:])
        )
    if written:
        return None
    return RefusedWrite(change)


def _append(link: DriverConnection, append: SessionAppend) -> None:
    lock, head, entries, checkpoint = append
    session_id = lock.session_id
    newest = session_locks.newest_number(session_id, head, entries)
    added = [entry_columns(session_id, entry) for entry in entries]
    if not link.insert_if(statements.SET_HEAD, (newest, session_id, head, lock.token), _ENTRIES, added):
        raise session_locks.session_lost(lock, head, holder(link, lock))
    if checkpoint is not None:
        link.execute(statements.INSERT_CHECKPOINT, (session_id, *checkpoint))


def check_held(executor: StatementExecutor, held: SessionHeld) -> None:
    """Make sure that a lock is valid.

    Raises:
        SessionLostError: it is not.
    """
    found = holder(executor, held.lock)
    if found is None or found[0] != held.lock.token:
        raise session_locks.session_lost(held.lock, 0, found)


def holder(executor: StatementExecutor, lock: SessionLock) -> tuple[str, int] | None:
    """The token of the lock of a session that is valid, and the number of its newest entry."""
    found = executor.query(statements.GET_HOLDER, (lock.session_id,))
    return (found[0][0], found[0][1]) if found else None


def _standing(executor: StatementExecutor, row: EffectRow) -> EffectRow | None:
    found = executor.query(statements.GET_EFFECT, (row.partition, row.key))
    return read_effect(found[0]) if found else None


MOST_ENTRIES = 1000
"""The most entries of a unit in a group; in PostgreSQL a statement has at most 65,535 parameters."""


class GroupConnection(Protocol):
    """What the units of a group are written through."""

    def execute(self, sql: str, parameters: StatementParameters = ()) -> int:
        """Execute a statement that writes; returns how many rows it has changed."""
        ...

    def execute_many(self, sql: str, rows: Sequence[StatementParameters]) -> int:
        """Execute a statement that writes with each of the rows; returns how many it has changed in all."""
        ...


def may_group(writes: Sequence[object]) -> bool:
    """Whether a unit may be written in one transaction with others."""
    match writes:
        case (EffectInsert(),) | (EffectInsert(), SessionHeld()) | (EffectChange(),):
            return True
        case (EffectInsert(), SessionAppend() as append):
            return _is_short(append)
        case _:
            appends = 0
            for write in writes:
                match write:
                    case SessionAppend() as append:
                        appends += 1 if _is_short(append) else 2
                    case EffectChange(_, EffectRow()) | RecordCommit():
                        pass
                    case _:
                        return False
            return appends == 1


def _is_short(append: SessionAppend) -> bool:
    return 0 < len(append.entries) <= MOST_ENTRIES


def row_statement(writes: Sequence[object]) -> Statement | None:
    """The statement of a unit that claims an effect or changes a row of one; `None` for other units."""
    match writes:
        case (EffectInsert(row),):
            return Statement(statements.INSERT_EFFECT, effect_columns(row))
        case (EffectInsert(row), SessionHeld(lock)):
            return Statement(statements.INSERT_EFFECT_WHILE_HELD, (*effect_columns(row), *lock[:2]))
        case (EffectChange() as change,):
            return change_statement(change)
        case _:
            return None


def write_group(link: GroupConnection, units: Sequence[Sequence[object]]) -> list[bool] | None:
    """Write units in the transaction that is open; returns which of them were written.

    Returns:
        `None` if one of them was refused in part: then the transaction is to be undone.

    Raises:
        StoreError: a statement has failed.
    """
    written: list[bool] = []
    commits: list[object] = []
    for writes in units:
        statement = row_statement(writes)
        appended: Sequence[object] = ()
        if statement is None and isinstance(writes[0], EffectInsert):  # a claim with what was deferred until then
            statement, appended = row_statement(writes[:1]), writes[1:]
        if statement is None:
            commits += writes
            written.append(True)
        else:
            is_written = bool(link.execute(*statement))
            commits += appended if is_written else ()
            written.append(is_written)
            reached("unit-group-written")
    if commits:
        if not _write_commits(link, commits):
            return None
        reached("unit-group-written")
    return written


def _write_commits(link: GroupConnection, writes: Sequence[object]) -> bool:
    heads: list[StatementParameters] = []
    effects: list[StatementParameters] = []
    entries: list[StatementParameters] = []
    checkpoints: list[StatementParameters] = []
    journals: list[StatementParameters] = []
    try:
        for write in writes:
            match write:
                case SessionAppend(lock, head, added, checkpoint):
                    session_id = lock.session_id
                    heads.append((newest_number(session_id, head, added), session_id, head, lock.token))
                    entries += [entry_columns(session_id, entry) for entry in added]
                    checkpoints += () if checkpoint is None else ((session_id, *checkpoint),)
                case EffectChange(_, EffectRow()) as change:
                    effects.append(change_statement(change).parameters)
                case RecordCommit(journal_id):
                    journals.append((journal_id,))
                case _:
                    return False
    except SessionError:  # its entries do not follow each other
        return False
    reached("unit-begun")
    for sql, compared in ((statements.SET_HEAD, heads), (statements.REPLACE_EFFECT, effects)):
        if compared and link.execute_many(sql, compared) < len(compared):
            return False
    if effects:
        reached("unit-ledger-written")
    _insert(link, INSERT_ENTRY, entries)
    _insert(link, statements.INSERT_CHECKPOINT, checkpoints)
    _insert(link, statements.INSERT_DECISION, journals)
    reached("unit-session-written")
    return True


def _insert(link: GroupConnection, sql: str, rows: Sequence[StatementParameters]) -> None:
    if rows:
        link.execute_many(sql, rows)
