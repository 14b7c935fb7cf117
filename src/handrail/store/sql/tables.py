"""The tables of a store: for each kind of row one list of columns, from which its definition and its rows are made.

A column has a kind: its type in the database, and how values are written and read. Times are whole microseconds since
1970 in UTC, so that they are restored exactly. Messages for the model are bytes in UTF-8, because they may hold
characters that a database refuses in text. A row that cannot be read is an error that names it and its first
fault; the ledger checks the word of a status. `docs/reference/store-schema.md` is made from this module.
"""

# ruff: noqa: S608 - what is put into statements here are names of our own tables and columns

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from operator import methodcaller
from typing import Any, NamedTuple, TypeAlias, cast, get_args

from handrail.errors import StoreCorruptError
from handrail.session.persistence.protocol import (
    AnswerRow,
    Checkpoint,
    EntryPosition,
    Role,
    RunRow,
    RunStatus,
    SessionEntry,
    SessionRow,
)
from handrail.store.protocol import ClaimOwner, EffectRow

Columns: TypeAlias = Sequence[Any]
"""A row as a database gives it."""

SMALLEST_COMPRESSED = 4096
"""Items of an entry that have fewer bytes are stored as they are: to read a row takes more than they do."""

_COMPRESSED = b"x"
"""The first byte of what is compressed; no JSON begins with it."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY, _SECOND = 86_400_000_000, 1_000_000
_ROLES = {role: role for role in get_args(Role)}
_UNREADABLE = (LookupError, TypeError, ValueError, OverflowError)


# ------------------------------------------------------------------------------------------------------------- columns


class ColumnKind(NamedTuple):
    """The form of a column: its `sql` type, with fields of `ColumnTypes` in braces, and the `type` that drivers return.

    `write` and `read` convert a value, `None` for one that stays as it is; `read` may raise one of `_UNREADABLE`.
    """

    sql: str
    type: type[Any]
    write: Callable[[Any], object] | None = None
    read: Callable[[Any], Any] | None = None


class TableColumn(NamedTuple):
    """A column of a table; `about` is its meaning, for people who look into the database."""

    name: str
    kind: ColumnKind
    about: str
    is_null: bool = False


class RowForm:
    """Some columns in the order of the values of a row, with their `names` and a question mark for each."""

    def __init__(self, columns: Sequence[TableColumn]) -> None:
        self.columns: tuple[TableColumn, ...] = tuple(columns)
        self.names: str = ", ".join(column.name for column in columns)
        self.marks: str = ", ".join("?" for _ in columns)
        self._writers = [(place, one.kind.write) for place, one in enumerate(columns) if one.kind.write is not None]
        self._readers = [(one.name, one.kind.type, one.kind.read, one.is_null) for one in columns]

    def write(self, values: Iterable[object]) -> list[object]:
        """Converts the values of a row to columns."""
        columns = list(values)
        for place, write in self._writers:
            if (value := columns[place]) is not None:
                columns[place] = write(value)
        return columns

    def read(self, columns: Columns, where: str, store: str) -> list[Any]:
        """Converts columns to values, or raises a `StoreCorruptError` that names the row and its first fault."""
        values: list[Any] = []
        for (name, kind, read, is_null), value in zip(self._readers, columns, strict=True):
            try:
                if type(value) is kind:
                    values.append(value if read is None else read(value))
                elif value is None and is_null:
                    values.append(None)
                else:
                    raise TypeError(value)
            except _UNREADABLE:
                raise corrupt_row(where, f"{name} is {value!r:.60}", store) from None
        return values


class Table(RowForm):
    """A table, and the rows in it; `about` says what a row is, `key` identifies it.

    Attributes:
        definition: the statements that make it and its indexes, with fields of `ColumnTypes` in braces. Large columns
            stand last, so that they are not read for small ones.
        rest: its columns without the first one, the session of the row.
    """

    def __init__(
        self, name: str, about: str, columns: Sequence[TableColumn], *, key: str = "", indexes: Sequence[str] = ()
    ) -> None:
        super().__init__(columns)
        self.name: str = name
        self.about: str = about
        self.rest: RowForm = RowForm(columns[1:])
        self.key: str = key
        self.rows: str = f"SELECT {self.names} FROM {name}"
        self.insertion: str = f"INSERT INTO {name} ({self.names})"
        parts = [
            f"{one.name} {one.kind.sql}{'' if one.is_null else ' NOT NULL'}"
            for one in sorted(columns, key=lambda column: column.kind.type is bytes)
        ]
        parts += [f"PRIMARY KEY ({key})"] if key else []
        table = f"CREATE TABLE {name} ({', '.join(parts)}){'{clustered}' if key else ''}"
        self.definition: tuple[str, ...] = (table, *(f"CREATE INDEX {name}_{index}" for index in indexes))

    def select_from_session(self, where: str = "") -> str:
        """Makes the question for the rows of a session, without its id."""
        return f"SELECT {self.rest.names} FROM {self.name} WHERE {self.columns[0].name} = ?{where}"

    def insert(self, source: str) -> str:
        """Makes the statement that adds the rows of a question, but for those whose key is taken."""
        return f"{self.insertion} {source} ON CONFLICT ({self.key}) DO NOTHING"


def corrupt_row(where: str, fault: str, store: str) -> StoreCorruptError:
    """Describes the row of a store that cannot be read; `where` names the row."""
    msg = (
        f"{where} in {store} cannot be read: {fault}. Something other than Handrail has changed it; put "
        "the store back from a copy, or fork the session before it if it is an entry"
    )
    return StoreCorruptError(msg, store=store)


def to_micros(moment: datetime) -> int:
    """Converts an aware moment to microseconds since 1970."""
    since = moment - _EPOCH
    return since.days * _DAY + since.seconds * _SECOND + since.microseconds


def from_micros(since: int) -> datetime:
    """Converts microseconds since 1970 to a moment in UTC."""
    return _EPOCH + timedelta(0, 0, since)


def _plain(text: str) -> str:
    if text.isascii() and "\0" not in text:
        return text
    return text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")


def _tags(text: str) -> dict[str, str]:
    tags: Any = json.loads(text)
    if type(tags) is not dict or {*map(type, cast("dict[str, Any]", tags).values())} - {str}:
        raise ValueError(text)
    return cast("dict[str, str]", tags)


def _compress(items: bytes) -> bytes:
    # The fastest level: it makes text a third of its size, and the writer of the store waits for it.
    return items if len(items) < SMALLEST_COMPRESSED else min(zlib.compress(items, 1), items, key=len)


def _decompress(items: bytes) -> bytes:
    try:
        return items if items[:1] != _COMPRESSED else zlib.decompress(items)
    except zlib.error as error:
        raise ValueError(items) from error


_TEXT = ColumnKind("TEXT", str)
_TAGS = ColumnKind("TEXT", str, json.dumps, _tags)
_ROLE = ColumnKind("TEXT", str, read=_ROLES.__getitem__)
_RUN_STATUS = ColumnKind("TEXT", str, read={status: status for status in get_args(RunStatus)}.__getitem__)
_ITEMS = ColumnKind("{bytes}", bytes, _compress, _decompress)
_ORDERED = ColumnKind("TEXT{collation}", str)
_WORDS = ColumnKind("TEXT", str, _plain)
_NUMBER = ColumnKind("{number}", int)
_MOMENT = ColumnKind("{number}", int, to_micros, from_micros)
_FLAG = ColumnKind("{number}", int, int, (1).__eq__)
_BYTES = ColumnKind("{bytes}", bytes)
_UTF8 = ("utf-8", "surrogatepass")
_MESSAGE = ColumnKind("{bytes}", bytes, methodcaller("encode", *_UTF8), methodcaller("decode", *_UTF8))

# -------------------------------------------------------------------------------------------------------------- tables

SCHEMA_TABLE = Table(
    "handrail_schema",
    "The store itself: one row.",
    (
        TableColumn("version", _NUMBER, "the version of the tables; nothing is written to tables of another one"),
        TableColumn("hash_key", _BYTES, "a random key, for hashes of secrets", is_null=True),
    ),
)
"""The store itself."""

EFFECT_TABLE = Table(
    "handrail_effects",
    "The effect of a call, from its claim on.",
    (
        TableColumn("partition", _ORDERED, "the session that the key is of; empty for one that all sessions share"),
        TableColumn("key", _TEXT, "the idempotency key; `call:` and a hash for a tool that declares none"),
        TableColumn("effect_id", _TEXT, "32 hexadecimal digits, unique"),
        TableColumn("tool", _TEXT, "the tool"),
        TableColumn("params_hash", _TEXT, "SHA-256 of the canonical JSON of the arguments"),
        TableColumn("owner_session", _WORDS, "the session of the call that has claimed it last"),
        TableColumn("owner_reply", _WORDS, "the reply of that call; empty if it has none"),
        TableColumn("owner_call", _WORDS, "the id of that call"),
        TableColumn("owner_process", _TEXT, "the opened store whose ledger renews the lease; empty if none does"),
        TableColumn("status", _TEXT, "`running`, `done`, `failed` or `unknown`"),
        TableColumn("fence", _NUMBER, "one more for each owner"),
        TableColumn("created_at", _MOMENT, "when it was claimed first"),
        TableColumn("lease_until", _MOMENT, "until when its owner has it, if no renewal follows", is_null=True),
        TableColumn("completed_at", _MOMENT, "when its result was recorded", is_null=True),
        TableColumn("expires_at", _MOMENT, "when the row counts as absent", is_null=True),
        TableColumn("message", _MESSAGE, "the message of the result, in UTF-8"),
        TableColumn("value", _BYTES, "the value of the result as JSON; null if JSON cannot say it", is_null=True),
        TableColumn("exclude_value_from_context", _FLAG, "1 if the model reads only the message"),
        TableColumn("note", _WORDS, "why it has failed or is unknown, for people"),
        TableColumn("arguments", _BYTES, "the arguments as JSON, without secrets, for people", is_null=True),
        TableColumn("applied_at", _MOMENT, "when a call was committed with the result", is_null=True),
    ),
    key="partition, key",
    # For keys that sessions share. The others are found by their partition, which is the session.
    indexes=("shared ON handrail_effects (owner_session) WHERE partition = ''",),
)
"""The ledger."""

SESSION_TABLE = Table(
    "handrail_sessions",
    "A session.",
    (
        TableColumn("session_id", _TEXT, "its id"),
        TableColumn("tags", _TAGS, "its tags, a JSON object"),
        TableColumn("parent", _TEXT, "the session that it was made for", is_null=True),
        TableColumn("created_at", _MOMENT, "when it was begun"),
        TableColumn("head", _NUMBER, "the number of its newest entry"),
        TableColumn("origin", _TEXT, "the session that it was forked from, which has its first entries", is_null=True),
        TableColumn("origin_head", _NUMBER, "the number of the last of these entries; 0 if it is not a fork"),
        TableColumn("new_keys", _FLAG, "1 if it may repeat what its origin has done"),
        TableColumn("token", _TEXT, "the token of who has it open; empty if it was closed"),
        TableColumn("owner", _TEXT, "the opened store that has it open, by its process and a random word"),
    ),
    key="session_id",
    indexes=(
        "by_age ON handrail_sessions (created_at, session_id)",
        "forks ON handrail_sessions (origin) WHERE origin IS NOT NULL",
    ),
)
"""The sessions."""

ENTRY_TABLE = Table(
    "handrail_entries",
    "A change of a session: items that were added to a slice, or removed from it.",
    (
        TableColumn("session_id", _TEXT, "its session"),
        TableColumn("number", _NUMBER, "its place in the session, from 1, without gaps"),
        TableColumn("reply", _TEXT, "the reply of the call that has written it; empty for none"),
        TableColumn("call_id", _TEXT, "the id of that call; empty for none"),
        TableColumn("role", _ROLE, f"what it is to its slice: {', '.join(get_args(Role))}"),
        TableColumn("type_name", _TEXT, "the name of the stored type of its items; calls are `handrail.tool_invoked`"),
        TableColumn("type_version", _NUMBER, "the version of that type"),
        TableColumn("start", _NUMBER, "where in the slice it changes"),
        TableColumn("removed", _NUMBER, "how many items it removes"),
        TableColumn("added", _NUMBER, "how many items it adds"),
        TableColumn("items", _ITEMS, "these as a JSON array; compressed by zlib if that has 4 kB or more"),
        TableColumn("tool", _WORDS, "the tool of the call that it records; empty for other entries"),
        TableColumn("success", _FLAG, "1 if that call succeeded", is_null=True),
        TableColumn("at", _MOMENT, "when that call ended", is_null=True),
    ),
    key="session_id, number",
    # The role is among the columns, so that the index covers the query: SQLite takes the primary key otherwise.
    indexes=("of_calls ON handrail_entries (session_id, reply, call_id, role) WHERE role = 'log' AND call_id <> ''",),
)
"""The changes of sessions."""

CHECKPOINT_TABLE = Table(
    "handrail_checkpoints",
    "Where the entries of each slice are, up to one entry; opening a session reads the newest.",
    (
        TableColumn("session_id", _TEXT, "the session"),
        TableColumn("number", _NUMBER, "the entry"),
        TableColumn("data", _BYTES, "JSON"),
    ),
    key="session_id, number",
)
"""The positions that opening a session reads in place of old entries."""

DECISION_TABLE = Table(
    "handrail_decisions",
    "A call that was committed, while a journal of files or another participant has to learn of it.",
    (TableColumn("journal_id", _TEXT, "what belongs to the call"),),
    key="journal_id",
)
"""Which calls are committed."""

ANSWER_TABLE = Table(
    "handrail_answers",
    "The answer of a person to a call that waits for approval.",
    (
        TableColumn("session_id", _TEXT, "the session of the call"),
        TableColumn("reply", _TEXT, "the reply of the call"),
        TableColumn("call_id", _TEXT, "its id"),
        TableColumn("given_at", _MOMENT, "when it was given"),
        TableColumn("answer", _BYTES, "JSON"),
    ),
    key="session_id, reply, call_id",
)
"""The answers of people to calls."""

RUN_TABLE = Table(
    "handrail_runs",
    "What workers are to carry out in a session.",
    (
        TableColumn("session_id", _TEXT, "the session"),
        TableColumn("version", _NUMBER, "one more with each change"),
        TableColumn("status", _RUN_STATUS, f"where it is: {', '.join(get_args(RunStatus))}"),
        TableColumn("queue", _TEXT, "whose workers carry it out"),
        TableColumn("priority", _NUMBER, "the highest comes first"),
        TableColumn("worker", _TEXT, "who carries it out; empty for none"),
        TableColumn("due_at", _MOMENT, "it is not begun before; until then, its worker has it"),
        TableColumn("submitted_at", _MOMENT, "when it was submitted"),
        TableColumn("data", _BYTES, "what else is known of it, as JSON"),
    ),
    key="session_id",
    indexes=(
        "due ON handrail_runs (queue, due_at, session_id) WHERE status = 'open'",
        "by_age ON handrail_runs (submitted_at, session_id)",
    ),
)
"""The runs of workers."""

TABLES = (
    SCHEMA_TABLE,
    EFFECT_TABLE,
    SESSION_TABLE,
    ENTRY_TABLE,
    CHECKPOINT_TABLE,
    DECISION_TABLE,
    ANSWER_TABLE,
    RUN_TABLE,
)
"""All tables of a store."""

# ---------------------------------------------------------------------------------------------------------------- rows

POSITION_COLUMNS = f"{', '.join(EntryPosition._fields[:-1])}, length(items) AS size"
"""The columns of an entry that are read when its session is opened, in the order of `EntryPosition`."""

_OWNER = EffectRow._fields.index("owner")
_SIZE = TableColumn("size", _NUMBER, "the bytes of its items")
_NAMED = {column.name: column for column in (*ENTRY_TABLE.columns, _SIZE)}
_POSITIONS = RowForm([_NAMED[name] for name in EntryPosition._fields])


def effect_columns(row: EffectRow) -> list[object]:
    """Converts an effect to columns."""
    session, reply, call, process = row.owner
    return EFFECT_TABLE.write((*row[:_OWNER], session, reply or "", call, process, *row[_OWNER + 1 :]))


def seen_columns(row: EffectRow) -> tuple[object, ...]:
    """Converts the fields of an effect that are compared: rule 3 of `handrail.store.protocol`."""
    session, reply, call, _ = row.owner
    return (*row[:3], row.fence, row.status, _plain(session), _plain(reply or ""), _plain(call))


def applied_columns(row: EffectRow) -> tuple[int | None, int | None]:
    """Converts `applied_at` and `expires_at` of an effect to columns."""
    applied, expires = row.applied_at, row.expires_at
    return None if applied is None else to_micros(applied), None if expires is None else to_micros(expires)


def read_effect(columns: Columns, store: str) -> EffectRow:
    """Converts columns to an effect, or raises `StoreCorruptError`."""
    values = EFFECT_TABLE.read(columns, f"the effect of key {columns[1]!r} in partition {columns[0]!r}", store)
    session, reply, call, process = values[_OWNER : _OWNER + 4]
    return EffectRow._make((*values[:_OWNER], ClaimOwner(session, reply or None, call, process), *values[_OWNER + 4 :]))


def session_columns(row: SessionRow) -> list[object]:
    """Converts a session that is not open to columns."""
    return SESSION_TABLE.write((*row._replace(tags=dict(row.tags)), "", ""))


def read_session(columns: Columns, store: str) -> SessionRow:
    """Converts columns to a session, or raises `StoreCorruptError`."""
    return SessionRow._make(SESSION_TABLE.read(columns, f"the row of session {columns[0]!r}", store)[:-2])


def entry_columns(session_id: str, entry: SessionEntry) -> list[object]:
    """Converts an entry of a session to columns, its items compressed if that makes them smaller."""
    return ENTRY_TABLE.write((session_id, *entry))


def read_entry(columns: Columns, session_id: str, store: str) -> SessionEntry:
    """Converts columns, without that of the session, to an entry, or raises `StoreCorruptError`."""
    return SessionEntry._make(ENTRY_TABLE.rest.read(columns, f"entry {columns[0]!r} of session {session_id!r}", store))


def read_position(columns: Columns, session_id: str, store: str) -> EntryPosition:
    """Converts columns to the position of an entry, or raises `StoreCorruptError`."""
    return EntryPosition._make(_POSITIONS.read(columns, f"entry {columns[0]!r} of session {session_id!r}", store))


def read_checkpoint(columns: Columns, session_id: str, store: str) -> Checkpoint:
    """Converts columns to a checkpoint of a session, or raises `StoreCorruptError`."""
    where = f"checkpoint {columns[0]!r} of session {session_id!r}"
    return Checkpoint._make(CHECKPOINT_TABLE.rest.read(columns, where, store))


def read_answer(columns: Columns, session_id: str, store: str) -> AnswerRow:
    """Converts columns to an answer of a session, or raises `StoreCorruptError`."""
    where = f"the answer to call {columns[1]!r} of session {session_id!r}"
    return AnswerRow(session_id, *ANSWER_TABLE.rest.read(columns, where, store))


def read_run(columns: Columns, store: str) -> RunRow:
    """Converts columns to a run, or raises `StoreCorruptError`."""
    return RunRow._make(RUN_TABLE.read(columns, f"the run of session {columns[0]!r}", store))
