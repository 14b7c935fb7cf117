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
from itertools import chain

from handrail.session.persistence.protocol import SessionAppend
from handrail.store.protocol import EffectChange, EffectInsert
from handrail.store.session_locks import newest_number
from handrail.store.sql import statements
from handrail.store.sql.driver import Statement
from handrail.store.sql.tables import ENTRY_TABLE, effect_columns, entry_columns, seen_columns
from handrail.store.sql.units import ROW_UNITS, change_statement, row_statement
from handrail.transaction import RecordCommit

MOST_ENTRIES = 1000
"""The most entries of one statement, which has at most 65,535 parameters."""

_HELD = "SELECT 1 FROM handrail_sessions WHERE session_id = ? AND head = ? AND token = ? FOR UPDATE"
_CLAIM = statements.INSERT_EFFECT_IF.format("SELECT 1 FROM held")
_IN_UNIT = "EXISTS (SELECT 1 FROM unit)"
# The server takes the type of a column of `VALUES` from its first row, and null has none.
_ENTRY = f"({', '.join('?::bigint' if column.is_null else '?' for column in ENTRY_TABLE.columns)})"
_ENTRIES = f"INSERT INTO handrail_entries ({ENTRY_TABLE.names}) SELECT * FROM (VALUES {{}}) AS added WHERE {_IN_UNIT}"
_CHECKPOINT = (
    "INSERT INTO handrail_checkpoints (session_id, number, data) "
    f"SELECT ?, ?, ? WHERE {_IN_UNIT} ON CONFLICT (session_id, number) DO NOTHING"
)
_COMMIT = f"INSERT INTO handrail_decisions (journal_id) SELECT ? WHERE {_IN_UNIT} ON CONFLICT (journal_id) DO NOTHING"


def may_group(writes: Sequence[object]) -> bool:
    """Whether a unit may be written in a pipeline with others: it is one statement, and writes no key that is shared.

    On such a key it may wait for another session. The other units would wait with it, and two groups for each other.
    """
    is_one = tuple(map(type, writes)) in ROW_UNITS or _has_one_append(writes)
    return is_one and all(write.seen.partition for write in writes if isinstance(write, EffectInsert | EffectChange))


def _has_one_append(writes: Sequence[object]) -> bool:
    """Whether a unit appends to a session, with a claim before it or with changes of effects and commits."""
    appends = [write for write in writes if isinstance(write, SessionAppend)]
    if len(appends) != 1 or not 0 < len(appends[0].entries) <= MOST_ENTRIES:
        return False
    return tuple(map(type, writes)) == (EffectInsert, SessionAppend) or all(
        isinstance(write, SessionAppend | RecordCommit) or (isinstance(write, EffectChange) and write.row is not None)
        for write in writes
    )


def one_statement(writes: Sequence[object]) -> Statement | None:
    """A statement with its parameters, which finds one row if it has written the unit; `None` for units of other kinds.

    Raises:
        SessionError: the entries do not follow the newest one.
    """
    if not _has_one_append(writes):
        return row_statement(writes)
    parts: list[str] = []
    values: list[object] = []

    def add(name: str, sql: str, *parameters: object) -> None:
        parts.append(f"{name} AS ({sql})")
        values.extend(parameters)

    (lock, head, entries, checkpoint), *_ = [write for write in writes if isinstance(write, SessionAppend)]
    session_id, seen = lock.session_id, ""
    for number, write in enumerate(writes):
        if isinstance(write, EffectInsert):  # the row of the session is locked before the claim is inserted
            add("held", _HELD, session_id, head, lock.token)
            add(f"seen_{number}", f"{_CLAIM} RETURNING 1", *effect_columns(write.row))
        elif isinstance(write, EffectChange):
            sql = f"SELECT 1 FROM handrail_effects WHERE {statements.SEEN} FOR UPDATE"
            add(f"seen_{number}", sql, *seen_columns(write.seen))
        else:
            continue
        seen += f" AND EXISTS (SELECT 1 FROM seen_{number})"
    newest = newest_number(session_id, head, entries)
    add("unit", f"{statements.SET_HEAD}{seen} RETURNING 1", newest, session_id, head, lock.token)
    for number, write in enumerate(writes):
        if isinstance(write, EffectChange):
            sql, columns = change_statement(write)
            add(f"write_{number}", f"{sql} AND {_IN_UNIT}", *columns)
        elif isinstance(write, RecordCommit):
            add(f"commit_{number}", _COMMIT, write.journal_id)
    rows = [entry_columns(session_id, entry) for entry in entries]
    add("entries", _ENTRIES.format(", ".join([_ENTRY] * len(rows))), *chain.from_iterable(rows))
    if checkpoint is not None:
        add("checkpoint", _CHECKPOINT, session_id, *checkpoint)
    return Statement(f"WITH {', '.join(parts)} SELECT 1 FROM unit", values)
