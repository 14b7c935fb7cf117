"""How the units of a group become statements of one transaction.

Claims and other changes of one row are a statement each, which changes nothing if it is refused; what is appended to a
session with a claim is written if the claim is not. The units that commit
calls are written together, one kind of statement for all of them: each is compared by the statements that change its
session and its effects, and if one of them is refused, the transaction is undone, and each unit is written alone. That
is seldom: the lease of a call has been lost, or its session.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from handrail.crash_points import reached
from handrail.errors import SessionError
from handrail.session.persistence.protocol import SessionAppend, SessionHeld
from handrail.store.protocol import EffectChange, EffectInsert, EffectRow
from handrail.store.session_locks import newest_number
from handrail.store.sql import statements
from handrail.store.sql.driver import Statement, StatementParameters
from handrail.store.sql.rows import effect_columns, entry_columns
from handrail.store.sql.unit_writer import INSERT_ENTRY, change_statement
from handrail.transaction import RecordCommit

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
