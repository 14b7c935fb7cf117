"""A unit of work as one statement: a statement is a transaction, and one round trip.

Each row that is compared is locked first, and everything is written only if all of them are the ones seen, by common
table expressions that depend on each other::

    WITH seen_0 AS (SELECT 1 FROM handrail_effects WHERE ... FOR UPDATE),
         unit AS (UPDATE handrail_sessions SET head = ... WHERE ... AND EXISTS (SELECT 1 FROM seen_0) RETURNING 1),
         write_0 AS (UPDATE handrail_effects SET ... WHERE ... AND EXISTS (SELECT 1 FROM unit)),
         ...
    SELECT 1 FROM unit

All parts of a statement see the same snapshot. A row that another transaction has changed since the snapshot is waited
for by `FOR UPDATE`, and compared again in its newest version; the `UPDATE` that follows finds it locked by its own
transaction and compares it in the same version. So a change that was locked is written.
"""

# ruff: noqa: S608 - what is put into statements here are names of our own tables and columns

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from handrail.session.persistence.protocol import SessionAppend, SessionEntry
from handrail.store.protocol import EffectChange, EffectInsert
from handrail.store.session_locks import newest_number
from handrail.store.sql import statements
from handrail.store.sql.driver import Statement
from handrail.store.sql.tables import ENTRY_TABLE, effect_columns, entry_columns
from handrail.store.sql.unit_writer import MOST_ENTRIES, change_statement, row_statement
from handrail.transaction import RecordCommit

_IN_UNIT = "EXISTS (SELECT 1 FROM unit)"


def one_statement(writes: Sequence[object]) -> Statement | None:
    """A statement with its parameters, which finds one row if it has written the unit; `None` for units of other kinds.

    Args:
        writes: of a unit. One that appends to a session, changes effects and records commits is a statement, and so is
            a claim, and one change of an effect.

    Raises:
        SessionError: the entries do not follow the newest one.
    """
    return row_statement(writes) or _of_claim(writes) or _of_session(writes)


def writes_shared_key(writes: Sequence[object]) -> bool:
    """Whether a unit writes a key that all sessions share, so that it may wait for another session.

    In a group, the other units would wait with it, and two groups could wait for each other.
    """
    return any(not write.seen.partition for write in writes if isinstance(write, EffectInsert | EffectChange))


def _of_claim(writes: Sequence[object]) -> Statement | None:
    """A claim with entries of its session: the row of the session is locked before the claim is inserted."""
    match writes:
        case (EffectInsert(row), SessionAppend(lock, head, entries, checkpoint)) if 0 < len(entries) <= MOST_ENTRIES:
            held = (lock.session_id, head, lock.token)
            newest = newest_number(lock.session_id, head, entries)
            parameters: list[object] = [*held, *effect_columns(row), newest, *held]
            for entry in entries:
                parameters += entry_columns(lock.session_id, entry)
            if checkpoint is not None:
                parameters += (lock.session_id, *checkpoint)
            return Statement(_claim_sql(len(entries), checkpoint is not None), parameters)
        case _:
            return None


def _of_session(writes: Sequence[object]) -> Statement | None:
    appends = [write for write in writes if isinstance(write, SessionAppend)]
    changes = [write for write in writes if isinstance(write, EffectChange) and write.row is not None]
    commits = [write for write in writes if isinstance(write, RecordCommit)]
    if len(appends) != 1 or len(writes) != 1 + len(changes) + len(commits):
        return None
    lock, head, entries, checkpoint = appends[0]
    if not 0 < len(entries) <= MOST_ENTRIES:
        return None
    session_id = lock.session_id
    seen = [(change.seen[:2], (change.seen.effect_id, change.seen.fence, change.seen.status)) for change in changes]
    parameters: list[object] = []
    for key, compared in seen:
        parameters += (*key, *compared)
    parameters += (newest_number(session_id, head, entries), session_id, head, lock.token)
    for change in changes:
        parameters += change_statement(change).parameters
    for entry in entries:
        parameters += entry_columns(session_id, entry)
    if checkpoint is not None:
        parameters += (session_id, *checkpoint)
    parameters += (commit.journal_id for commit in commits)
    return Statement(_sql(len(changes), len(entries), checkpoint is not None, len(commits)), parameters)


@lru_cache(maxsize=256)
def _sql(changes: int, entries: int, has_checkpoint: bool, commits: int) -> str:  # noqa: FBT001 - of a cache
    parts = [
        f"seen_{index} AS (SELECT 1 FROM handrail_effects WHERE {statements.SEEN} FOR UPDATE)"
        for index in range(changes)
    ]
    all_seen = "".join(f" AND EXISTS (SELECT 1 FROM seen_{index})" for index in range(changes))
    parts.append(f"unit AS ({statements.SET_HEAD}{all_seen} RETURNING 1)")
    parts += [f"write_{index} AS ({statements.REPLACE_EFFECT} AND {_IN_UNIT})" for index in range(changes)]
    parts += _entries(entries, has_checkpoint=has_checkpoint)
    parts += [
        f"commit_{index} AS (INSERT INTO handrail_decisions (journal_id) SELECT ? WHERE {_IN_UNIT} "
        "ON CONFLICT (journal_id) DO NOTHING)"
        for index in range(commits)
    ]
    return f"WITH {', '.join(parts)} SELECT 1 FROM unit"


@lru_cache(maxsize=64)
def _claim_sql(entries: int, has_checkpoint: bool) -> str:  # noqa: FBT001 - of a cache
    parts = [
        "held AS (SELECT 1 FROM handrail_sessions WHERE session_id = ? AND head = ? AND token = ? FOR UPDATE)",
        f"claim AS ({statements.INSERT_EFFECT_IF.format('SELECT 1 FROM held')} RETURNING 1)",
        f"unit AS ({statements.SET_HEAD} AND EXISTS (SELECT 1 FROM claim) RETURNING 1)",
        *_entries(entries, has_checkpoint=has_checkpoint),
    ]
    return f"WITH {', '.join(parts)} SELECT 1 FROM unit"


def _entries(number: int, *, has_checkpoint: bool) -> list[str]:
    """The parts that add entries, and the checkpoint that covers them, if the unit is written."""
    row = f"({', '.join('?' * (1 + len(SessionEntry._fields)))})"
    rows = ", ".join([row] * number)
    inserted = f"INSERT INTO handrail_entries ({ENTRY_TABLE.names}) SELECT * FROM (VALUES {rows}) AS added"
    parts = [f"entries AS ({inserted} WHERE {_IN_UNIT})"]
    if has_checkpoint:
        parts.append(
            "checkpoint AS (INSERT INTO handrail_checkpoints (session_id, number, data) "
            f"SELECT ?, ?, ? WHERE {_IN_UNIT} ON CONFLICT (session_id, number) DO NOTHING)"
        )
    return parts
