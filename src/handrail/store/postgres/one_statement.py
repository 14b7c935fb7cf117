"""A unit of work as one statement: a statement is a transaction, and one round trip.

Each row that is compared is locked first, and everything is written only if all of them are the ones read, by common
table expressions that depend on each other::

    WITH seen_0 AS (SELECT 1 FROM handrail_effects WHERE ... FOR UPDATE),
         unit AS (UPDATE handrail_sessions SET head = ... WHERE ... AND EXISTS (SELECT 1 FROM seen_0) RETURNING 1),
         write_0 AS (UPDATE handrail_effects SET ... WHERE ... AND EXISTS (SELECT 1 FROM unit)),
         ...
    SELECT 1 FROM unit

All parts of a statement see the same snapshot. A row that another transaction has changed since the snapshot is waited
for by `FOR UPDATE`, and compared again in its newest version; the `UPDATE` that follows finds it locked by its own
transaction, in that version. So a change that was locked is written.
"""

# ruff: noqa: S608 - what is put into statements here are names of our own tables and columns

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import cast

from handrail.session.persistence.protocol import SessionAppend
from handrail.store.locks import newest_number
from handrail.store.protocol import EffectChange, EffectInsert, EffectRow
from handrail.store.sql import statements, tables
from handrail.store.sql.driver import Statement
from handrail.store.sql.units import ROW_UNITS, row_statement
from handrail.transaction import RecordCommit

MOST_ENTRIES = 1000
"""The most entries of one statement, which has at most 65,535 parameters."""

_HELD = "SELECT 1 FROM handrail_sessions WHERE session_id = ? AND head = ? AND token = ? FOR UPDATE"
_SEEN = f"SELECT 1 FROM handrail_effects WHERE {statements.SEEN} FOR UPDATE"
_CLAIM = statements.INSERT_EFFECT_IF.format("SELECT 1 FROM held")
# What is in `unit` has compared the row and the version of the tables.
_REPLACE = statements.REPLACE_EFFECT.partition(" WHERE ")[0] + " WHERE partition = ? AND key = ?"
_IN_UNIT = "EXISTS (SELECT 1 FROM unit)"
# The server takes the type of a column of `VALUES` from its first row, and null has none.
_ENTRY = f"({', '.join('?::bigint' if column.is_null else '?' for column in tables.ENTRY_TABLE.columns)})"
_ENTRIES = f"{tables.ENTRY_TABLE.insertion} SELECT * FROM (VALUES {{}}) AS added WHERE {_IN_UNIT}"
_CHECKPOINT = tables.CHECKPOINT_TABLE.insert(f"SELECT ?, ?, ? WHERE {_IN_UNIT}")
_COMMIT = tables.DECISION_TABLE.insert(f"SELECT ? WHERE {_IN_UNIT}")


def may_group(writes: Sequence[object]) -> bool:
    """Tests whether a unit may be written in a pipeline with others: it is one statement, and writes no shared key.

    On such a key it may wait for another session. The other units would wait with it, and two groups for each other.
    """
    is_one = tuple(map(type, writes)) in ROW_UNITS or _has_one_append(writes)
    return is_one and all(write.before.partition for write in writes if isinstance(write, EffectInsert | EffectChange))


def _has_one_append(writes: Sequence[object]) -> bool:
    kinds = tuple(map(type, writes))
    sizes = [len(write.entries) for write in writes if isinstance(write, SessionAppend)]
    if len(sizes) != 1 or not 0 < sizes[0] <= MOST_ENTRIES or not all(getattr(write, "row", True) for write in writes):
        return False
    return kinds == (EffectInsert, SessionAppend) or {SessionAppend, EffectChange, RecordCommit}.issuperset(kinds)


def one_statement(writes: Sequence[object]) -> Statement | None:
    """Makes a statement that returns one row if it has written the unit; `None` for units of other kinds."""
    if not _has_one_append(writes):
        return row_statement(writes)
    (lock, head, entries, checkpoint) = next(write for write in writes if isinstance(write, SessionAppend))
    session_id, changes = lock.session_id, [write for write in writes if isinstance(write, EffectChange)]
    values: list[object] = []
    if isinstance(claim := writes[0], EffectInsert):
        values += (session_id, head, lock.token, *tables.effect_columns(claim.row))
    for change in changes:
        values += tables.seen_columns(change.before)
    values += (newest_number(session_id, head, entries), session_id, head, lock.token)
    for change in changes:
        values += (*tables.effect_columns(cast("EffectRow", change.row))[2:], *change.before[:2])
    values += (write.journal_id for write in writes if isinstance(write, RecordCommit))
    for entry in entries:
        values += tables.entry_columns(session_id, entry)
    values += () if checkpoint is None else (session_id, *checkpoint)
    return Statement(_sql(tuple(map(type, writes)), len(entries), checkpoint is not None), values)


@lru_cache(maxsize=256)
def _sql(kinds: Sequence[type[object]], entries: int, has_checkpoint: bool) -> str:  # noqa: FBT001 - of a cache
    claims, changes = kinds.count(EffectInsert), kinds.count(EffectChange)
    parts = [f"held AS ({_HELD})", f"seen_0 AS ({_CLAIM} RETURNING 1)"][: 2 * claims]
    parts += [f"seen_{number} AS ({_SEEN})" for number in range(changes)]
    conditions = "".join(f" AND EXISTS (SELECT 1 FROM seen_{number})" for number in range(claims + changes))
    parts.append(f"unit AS ({statements.SET_HEAD}{conditions} RETURNING 1)")
    parts += [f"write_{number} AS ({_REPLACE} AND {_IN_UNIT})" for number in range(changes)]
    parts += [f"commit_{number} AS ({_COMMIT})" for number in range(kinds.count(RecordCommit))]
    parts.append(f"entries AS ({_ENTRIES.format(', '.join([_ENTRY] * entries))})")
    if has_checkpoint:
        parts.append(f"checkpoint AS ({_CHECKPOINT})")
    return f"WITH {', '.join(parts)} SELECT 1 FROM unit"
