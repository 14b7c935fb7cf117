"""The statements that a store sends to its database; `?` stands for a value."""

# ruff: noqa: S608 - what is put into statements here are names of our own columns

from __future__ import annotations

from datetime import timedelta

from handrail.session.persistence.protocol import EntryPosition
from handrail.store.protocol import UNTIL_APPLIED
from handrail.store.sql import tables

TABLES_VERSION = 1
"""The version of the tables that these statements are written for."""

GET_SCHEMA = "SELECT version, hash_key FROM handrail_schema"
"""The version of the tables."""

IS_CURRENT = f"EXISTS (SELECT 1 FROM handrail_schema WHERE version = {TABLES_VERSION})"
"""The condition that the tables have that version."""

_EFFECTS = tables.EFFECT_TABLE.rows

_SET = ", ".join(f"{column.name} = ?" for column in tables.EFFECT_TABLE.columns[2:])
_KEY = "partition = ? AND key = ?"
_OF_CALL = "owner_session = ? AND owner_reply = ? AND owner_call = ?"
SEEN = f"{_KEY} AND effect_id = ? AND fence = ? AND status = ? AND {_OF_CALL}"
"""The row that was seen."""

ROWS_PER_PAGE = 1000
"""The most rows that are read at a time."""

GET_EFFECT = f"{_EFFECTS} WHERE {_KEY}"
"""The effect of a key."""

INSERT_EFFECT = tables.EFFECT_TABLE.insert(f"SELECT {tables.EFFECT_TABLE.marks} WHERE {IS_CURRENT}")
"""A row, if its key has none."""

INSERT_EFFECT_IF = INSERT_EFFECT.replace(f" WHERE {IS_CURRENT}", f" WHERE EXISTS ({{}}) AND {IS_CURRENT}")
"""A row, if its key has none and a query, which is to be filled in, finds something."""

INSERT_EFFECT_WHILE_HELD = INSERT_EFFECT_IF.format("SELECT 1 FROM handrail_sessions WHERE session_id = ? AND token = ?")
"""A row, if its key has none and a session is held with a token."""

REPLACE_EFFECT = f"UPDATE handrail_effects SET {_SET} WHERE {SEEN} AND {IS_CURRENT}"
"""Replaces a row, if it is still the one read."""

DELETE_EFFECT = f"DELETE FROM handrail_effects WHERE {SEEN} AND {IS_CURRENT}"
"""Removes a row, if it is still the one read."""

MARK_APPLIED = (
    f"UPDATE handrail_effects SET applied_at = ?, expires_at = ? WHERE {_KEY} AND effect_id = ? "
    "AND status = 'done' AND COALESCE(applied_at, 0) = ? AND COALESCE(expires_at, 0) = ?"
)
"""Marks an effect that is done as applied, if no other call has been given it."""

EFFECTS_OF_KEY = f"{_EFFECTS} WHERE key = ?"
"""The effects of a key, in all partitions."""

NEXT_EFFECTS = f"{_EFFECTS} WHERE (partition, key) > (?, ?) ORDER BY partition, key LIMIT {ROWS_PER_PAGE}"
"""The page of all effects after a key."""

# Not by an index: only people look at the ledger by age, and one more would cost each claim a write.
OLDER_EFFECTS = (
    f"{_EFFECTS} WHERE status {{}} ('done', 'failed') AND (created_at, effect_id) < (?, ?) "
    f"ORDER BY created_at DESC, effect_id DESC LIMIT {ROWS_PER_PAGE}"
)
"""The page of effects that are settled, or not, after one, the newest first; `IN` or `NOT IN` is to be filled in."""

_OPEN = "status <> 'failed' AND applied_at IS NULL"
# A key of one session has that session as its partition; for the others there is an index on their owner.
OPEN_EFFECTS_OF_SESSION = (
    f"{_EFFECTS} WHERE partition = ? AND {_OPEN} UNION ALL "
    f"{_EFFECTS} WHERE partition = '' AND owner_session = ? AND {_OPEN}"
)
"""The effects of a session that are running, unknown, or done and not applied."""

EFFECTS_BELOW = f"{_EFFECTS} WHERE (partition = ? OR (partition >= ? AND partition < ?))"
"""The effects of a session, and of those whose ids are in a range."""

UNRESOLVED_SLOTS = (
    f"{EFFECTS_BELOW} AND substr(key, 1, 5) = 'call:' AND (status IN ('running', 'unknown') "
    "OR (status = 'done' AND (expires_at IS NULL "
    f"OR (applied_at IS NULL AND expires_at - completed_at >= {UNTIL_APPLIED // timedelta(microseconds=1)}))))"
)
"""Their slots that are running, unknown or unread."""

OWNERS = (
    "SELECT owner_process FROM handrail_effects WHERE status = 'running' "
    "UNION SELECT owner FROM handrail_sessions WHERE token <> ''"
)
"""The owners of running effects and of sessions."""

INSERT_SESSION = tables.SESSION_TABLE.insert(f"SELECT {tables.SESSION_TABLE.marks} WHERE {IS_CURRENT}")
"""A session, unless its id is taken."""

KEEP_ORIGIN = "UPDATE handrail_sessions SET head = head WHERE session_id = ? AND head >= ?"
"""The same origin of a fork, if it has so many entries: it is not deleted until the transaction has ended."""

GET_SESSION = f"{tables.SESSION_TABLE.rows} WHERE session_id = ?"
"""One session."""

OLDER_SESSIONS = (
    f"{tables.SESSION_TABLE.rows} WHERE (created_at, session_id) < (?, ?) "
    f"ORDER BY created_at DESC, session_id DESC LIMIT {ROWS_PER_PAGE}"
)
"""The page of sessions after one, the newest first."""

GET_HOLDER = "SELECT token, head, owner FROM handrail_sessions WHERE session_id = ?"
"""The token of the lock of a session, its last entry, and who holds it."""

SET_HOLDER = (
    "UPDATE handrail_sessions SET token = ?, owner = ? "
    f"WHERE session_id = ? AND token IN (?, ?) AND {IS_CURRENT} "
    f"RETURNING {tables.SESSION_TABLE.names}"
)
"""Sets the holder of a session, and returns its row, if that has the token that was read, or already the new one."""

FORKS = "SELECT session_id FROM handrail_sessions WHERE origin = ? ORDER BY session_id"
"""The forks of a session."""

KEEP_HOLDER = "UPDATE handrail_sessions SET token = token WHERE session_id = ? AND token = ?"
"""The same holder, if it is still this one: no other can come until the transaction has ended."""

CLEAR_HOLDER = "UPDATE handrail_sessions SET token = '', owner = '' WHERE session_id = ? AND token = ?"
"""No holder, if it is still this one."""

SET_HEAD = f"UPDATE handrail_sessions SET head = ? WHERE session_id = ? AND head = ? AND token = ? AND {IS_CURRENT}"
"""Sets the last entry, if holder and last entry are still those."""

_BETWEEN = " AND number > ? AND number <= ?"
_IN_ORDER = f" ORDER BY number LIMIT {ROWS_PER_PAGE}"
ENTRIES = tables.ENTRY_TABLE.select_from_session(f"{_BETWEEN}{_IN_ORDER}")
"""Entries of a session, in order."""

ENTRIES_OF_TYPE = tables.ENTRY_TABLE.select_from_session(f"{_BETWEEN} AND type_name = ?{_IN_ORDER}")
"""Entries of a session that hold one type, in order."""

_CHANGES = f"{_BETWEEN} AND type_name = ? ORDER BY number DESC LIMIT ?"
NEWEST_CHANGES = tables.ENTRY_TABLE.select_from_session(_CHANGES)
"""The newest entries of a session that change the slice of a type, the newest first."""

# Not the items, which may be large: their length is read without them.
_POSITIONS = f"SELECT {tables.POSITION_COLUMNS} FROM handrail_entries WHERE session_id = ?"
POSITIONS = f"{_POSITIONS}{_BETWEEN}{_IN_ORDER}"
"""The positions of entries, which opening a session reads, in order."""

# In the words of the partial index, so that the database uses it.
_RECORDS = (
    "SELECT reply, call_id, number FROM handrail_entries "
    "WHERE session_id = ? AND +number <= ? AND role = 'log' AND call_id <> ''"
)

# By an expression, so that a database sorts what it finds in the index of records. To save that, SQLite would read the
# rows in their order, and all of the items in each row.
NEWEST_RECORDS = f"{_RECORDS} ORDER BY +number DESC LIMIT ?"
"""The records of calls of a session, the newest first."""

NEWEST_RECORD = f"{_RECORDS} AND reply = ? AND call_id = ? ORDER BY number DESC LIMIT 1"
"""The newest record of a call."""

_COVERED = "SELECT max(number) FROM handrail_checkpoints WHERE session_id = ? AND number <= ?"
_NO_POSITION = "'' AS role, '' AS type_name, 0 AS start, 0 AS removed, 0 AS added, 0 AS size"
CONTENTS = (
    f"SELECT 0 AS part, number, {_NO_POSITION}, data FROM handrail_checkpoints "
    f"WHERE session_id = ? AND number = ({_COVERED}) UNION ALL "
    f"SELECT 1 AS part, {', '.join(EntryPosition._fields)}, NULL AS data FROM ({_POSITIONS} "
    f"AND number > coalesce(({_COVERED}), 0) AND number <= ?{_IN_ORDER}) AS uncovered ORDER BY part, number"
)
"""The newest checkpoint of a session (part 0), and the positions of the entries after it (1)."""


INSERT_ENTRY = f"{tables.ENTRY_TABLE.insertion} VALUES ({tables.ENTRY_TABLE.marks})"
"""Adds an entry to a session."""

INSERT_CHECKPOINT = tables.CHECKPOINT_TABLE.insert("VALUES (?, ?, ?)")
"""A checkpoint, unless there is one."""

NEWEST_CHECKPOINT = tables.CHECKPOINT_TABLE.select_from_session(" AND number <= ? ORDER BY number DESC LIMIT 1")
"""The newest checkpoint up to an entry."""

UNRELEASED_SESSIONS = "SELECT session_id, token, owner FROM handrail_sessions WHERE token <> ''"
"""The sessions that have a holder, or whose holder has died; with token and owner."""

INSERT_ANSWER = tables.ANSWER_TABLE.insert(
    "SELECT ?, ?, ?, ?, ? WHERE EXISTS (SELECT 1 FROM handrail_sessions WHERE session_id = ?)"
)
"""The answer to a call, if its session exists and it has none."""

REPLACE_ANSWER = (
    "UPDATE handrail_answers SET given_at = ?, answer = ? "
    "WHERE session_id = ? AND reply = ? AND call_id = ? AND given_at = ? AND answer = ?"
)
"""Replaces the answer to a call, if it is still the one read."""

GET_ANSWERS = tables.ANSWER_TABLE.select_from_session(" ORDER BY given_at, reply, call_id")
"""The answers to calls of a session, the oldest first."""

INSERT_RUN = tables.RUN_TABLE.insert(
    f"SELECT {tables.RUN_TABLE.marks} WHERE EXISTS "
    f"(SELECT 1 FROM handrail_sessions WHERE session_id = ? AND {IS_CURRENT})"
)
"""The run of a session, if it exists and has none."""

REPLACE_RUN = (
    f"UPDATE handrail_runs SET ({tables.RUN_TABLE.rest.names}) = ({tables.RUN_TABLE.rest.marks}) "
    f"WHERE session_id = ? AND version = ? AND {IS_CURRENT}"
)
"""Replaces the run of a session, if it has still the version before."""

GET_RUN = f"{tables.RUN_TABLE.rows} WHERE session_id = ?"
"""The run of a session."""

OLDER_RUNS = (
    f"{tables.RUN_TABLE.rows} WHERE (submitted_at, session_id) < (?, ?) "
    f"ORDER BY submitted_at DESC, session_id DESC LIMIT {ROWS_PER_PAGE}"
)
"""The page of runs after one, the newest first."""

DUE_RUNS = (
    f"{tables.RUN_TABLE.rows} WHERE status = 'open' AND queue = ? AND due_at <= ? ORDER BY due_at, session_id LIMIT ?"
)
"""The open runs of a queue that are due, those first that are due for the longest time."""

# The row of the session comes last: another process may answer or submit a run to it until the next statement.
DELETE_SESSION = tuple(
    f"DELETE FROM {table.name} WHERE {table.columns[0].name} = ?"
    for table in (
        tables.ENTRY_TABLE,
        tables.CHECKPOINT_TABLE,
        tables.EFFECT_TABLE,
        tables.ANSWER_TABLE,
        tables.RUN_TABLE,
        tables.SESSION_TABLE,
    )
)
"""The rows of a session, one kind after the other."""

_EXPIRED = "status IN ('done', 'failed') AND expires_at <= ?"
LAST_OF_PAGE = (
    "SELECT partition, key FROM handrail_effects WHERE (partition, key) > (?, ?) "
    "ORDER BY partition, key LIMIT 1 OFFSET ?"
)
"""The key that comes so many after the next one; none if there are not as many."""

REMOVE_LAST_EXPIRED = f"DELETE FROM handrail_effects WHERE (partition, key) > (?, ?) AND {_EXPIRED}"
"""The expired effects after the last whole page."""

REMOVE_EXPIRED = f"{REMOVE_LAST_EXPIRED} AND (partition, key) <= (?, ?)"
"""Those of a page."""

INSERT_DECISION = tables.DECISION_TABLE.insert("VALUES (?)")
"""Records that the call of a journal has been committed."""

GET_DECISION = "SELECT 1 FROM handrail_decisions WHERE journal_id = ?"
"""The question whether the call of a journal has been committed."""

DELETE_DECISION = "DELETE FROM handrail_decisions WHERE journal_id = ?"
"""Nothing about a journal."""
