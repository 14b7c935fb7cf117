"""Rows as columns of a database, and back; the same for every database.

Times are whole microseconds since 1970 in UTC, so that they are restored exactly. Messages for the model are bytes in
UTF-8, because it may hold characters that a database refuses in text.

Of a row of the ledger that cannot be read, everything that can be is read (rule 6 of `handrail.store.protocol`); a
word that is not a status is left to the ledger, which checks rows. An entry, a checkpoint or a session that cannot be
read is an error that names it.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias, cast, get_args

from handrail.errors import StoreCorruptError
from handrail.session.persistence.protocol import AnswerRow, Checkpoint, EntryPosition, Role, SessionEntry, SessionRow
from handrail.store.protocol import ClaimOwner, EffectRow

Columns: TypeAlias = Sequence[Any]
"""A row as a database gives it."""

EFFECT_FIELDS = (
    *EffectRow._fields[:5],
    *("owner_session", "owner_reply", "owner_call", "owner_process"),
    *EffectRow._fields[6:],
)
"""The columns of an effect: those of `EffectRow`, and of its owner."""

EFFECT_COLUMNS = ", ".join(EFFECT_FIELDS)
"""The same, as SQL has them."""

SESSION_COLUMNS = ", ".join(SessionRow._fields)
"""The columns of a session, in the order of `SessionRow`."""

ENTRY_COLUMNS = ", ".join(SessionEntry._fields)
"""The columns of an entry, in the order of `SessionEntry`."""

ANSWER_COLUMNS = ", ".join(AnswerRow._fields[1:])
"""The columns of an answer but its session, in the order of `AnswerRow`."""

POSITION_COLUMNS = f"{', '.join(EntryPosition._fields[:-1])}, length(items) AS size"
"""The columns of an entry that are read when its session is opened, in the order of `EntryPosition`."""

SMALLEST_COMPRESSED = 4096
"""Items of an entry that have fewer bytes are stored as they are: to read a row takes more than they do."""

_COMPRESSED = b"x"
"""The first byte of what is compressed; no JSON begins with it."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ONLY_TEXT, _MAYBE_BYTES = {str}, {bytes, type(None)}
_DAY, _SECOND = 86_400_000_000, 1_000_000
_LONGEST_SHOWN = 60
_ROLES = frozenset(get_args(Role))


def to_micros(moment: datetime) -> int:
    """An aware moment as microseconds since 1970."""
    since = moment - _EPOCH
    return since.days * _DAY + since.seconds * _SECOND + since.microseconds


def from_micros(since: int) -> datetime:
    """The moment that `to_micros` came from, in UTC."""
    return _EPOCH + timedelta(microseconds=since)


def effect_columns(row: EffectRow) -> tuple[object, ...]:
    """An effect as columns."""
    lease, completed, expires, applied = row.lease_until, row.completed_at, row.expires_at, row.applied_at
    owner = row.owner
    return (
        *row[:5],
        _plain(owner.session_id),
        "" if owner.reply is None else _plain(owner.reply),
        _plain(owner.call_id),
        owner.process,
        row.status,
        row.fence,
        to_micros(row.created_at),
        None if lease is None else to_micros(lease),
        None if completed is None else to_micros(completed),
        None if expires is None else to_micros(expires),
        row.message.encode("utf-8", "surrogatepass"),
        row.value,
        int(row.exclude_value_from_context),
        _plain(row.note),
        row.arguments,
        None if applied is None else to_micros(applied),
    )


def applied_columns(row: EffectRow) -> tuple[int | None, int | None]:
    """When an effect was applied, and when its row expires, as columns."""
    applied, expires = row.applied_at, row.expires_at
    return None if applied is None else to_micros(applied), None if expires is None else to_micros(expires)


def effect_of(columns: Columns) -> EffectRow:
    """The effect that columns hold; with status `"unknown"`, and the faults in `note`, if they cannot be read."""
    (*texts, fence, created, lease, completed, expires, message, value, exclude, note, arguments, applied) = columns
    if (
        {*map(type, texts), type(note)} != _ONLY_TEXT
        or type(fence) is not int
        or not {type(value), type(arguments)} <= _MAYBE_BYTES
    ):
        return _salvaged(columns)
    try:
        moments = (lease, completed, expires, applied)
        *times, at = [None if since is None else _EPOCH + timedelta(0, 0, since) for since in moments]
        (*first, session, reply, call, process, status) = texts
        owner = ClaimOwner(session, reply or None, call, process)
        words = message.decode("utf-8", "surrogatepass")
        row = (
            *first,
            owner,
            status,
            fence,
            from_micros(created),
            *times,
            words,
            value,
            exclude == 1,
            note,
            arguments,
            at,
        )
        return EffectRow._make(row)
    except (AttributeError, TypeError, ValueError, OverflowError):
        return _salvaged(columns)


def session_columns(row: SessionRow) -> tuple[object, ...]:
    """A session as columns."""
    return row.session_id, json.dumps(dict(row.tags)), row.parent, to_micros(row.created_at), row.head


def session_of(columns: Columns, *, store: str) -> SessionRow:
    """The session that columns hold.

    Raises:
        StoreCorruptError: they cannot be read.
    """
    session_id, tags, parent, created_at, head = columns
    faults = [
        *_faults("session_id", session_id, str),
        *_faults("tags", tags, str),
        *(() if parent is None else _faults("parent", parent, str)),
        *_faults("created_at", created_at, int),
        *_faults("head", head, int),
    ]
    if not faults:
        try:
            return SessionRow(session_id, _tags(tags), parent, from_micros(created_at), head)
        except (TypeError, ValueError, OverflowError) as error:
            faults.append(str(error))
    raise _corrupt(f"the row of session {session_id!r}", faults, store)


def entry_columns(session_id: str, entry: SessionEntry) -> tuple[object, ...]:
    """An entry of a session as columns, its items compressed if that makes them smaller."""
    items = entry.items
    if len(items) < SMALLEST_COMPRESSED:
        return (session_id, *entry)
    # The fastest level: it makes text a third of its size, and the writer of the store waits for it.
    return (session_id, *entry[:-1], min(zlib.compress(items, 1), items, key=len))


def entry_of(columns: Columns, *, session_id: str, store: str) -> SessionEntry:
    """The entry that columns hold.

    Raises:
        StoreCorruptError: they cannot be read.
    """
    entry = SessionEntry(*columns)
    if (
        type(entry.items) is bytes
        and entry.role in _ROLES
        and type(entry.reply) is type(entry.call_id) is type(entry.type_name) is str
        and type(entry.number) is type(entry.type_version) is type(entry.start) is type(entry.removed) is int
        and type(entry.added) is int
    ):
        if entry.items[:1] != _COMPRESSED:
            return entry
        try:
            return entry._replace(items=zlib.decompress(entry.items))
        except zlib.error as error:
            fault = f"items cannot be decompressed: {error}"
            raise _corrupt(f"entry {entry.number} of session {session_id!r}", [fault], store) from error
    wanted = zip(SessionEntry._fields, entry, (int, str, str, str, str, int, int, int, int, bytes), strict=True)
    raise _corrupt_entry(entry.number, entry.role, wanted, session_id=session_id, store=store)


def position_of(columns: Columns, *, session_id: str, store: str) -> EntryPosition:
    """Where the entry stands that columns hold.

    Raises:
        StoreCorruptError: they cannot be read.
    """
    position = EntryPosition(*columns)
    if (
        position.role in _ROLES
        and type(position.type_name) is str
        and type(position.number) is type(position.start) is type(position.removed) is type(position.added) is int
        and type(position.size) is int
    ):
        return position
    wanted = zip(EntryPosition._fields, position, (int, str, str, int, int, int, int), strict=True)
    raise _corrupt_entry(position.number, position.role, wanted, session_id=session_id, store=store)


def checkpoint_of(columns: Columns, *, session_id: str, store: str) -> Checkpoint:
    """The checkpoint that columns hold.

    Raises:
        StoreCorruptError: they cannot be read.
    """
    number, data = columns
    faults = [*_faults("number", number, int), *_faults("data", data, bytes)]
    if faults:
        raise _corrupt(f"checkpoint {number!r} of session {session_id!r}", faults, store)
    return Checkpoint(number, data)


def answer_columns(row: AnswerRow) -> tuple[object, ...]:
    """An answer as columns."""
    return (*row[:3], to_micros(row.given_at), row.answer)


def answer_of(columns: Columns, *, session_id: str, store: str) -> AnswerRow:
    """The answer that columns hold.

    Raises:
        StoreCorruptError: they cannot be read.
    """
    reply, call_id, given_at, answer = columns
    faults = [
        *_faults("reply", reply, str),
        *_faults("call_id", call_id, str),
        *_faults("given_at", given_at, int),
        *_faults("answer", answer, bytes),
    ]
    if faults:
        raise _corrupt(f"the answer to call {call_id!r} of session {session_id!r}", faults, store)
    return AnswerRow(session_id, reply, call_id, from_micros(given_at), answer)


def missing_entry(number: int, *, session_id: str, store: str) -> StoreCorruptError:
    """An entry is not where it must be."""
    return _corrupt(f"entry {number} of session {session_id!r}", ["it is missing"], store)


def _tags(text: str) -> dict[str, str]:
    tags: Any = json.loads(text)
    if type(tags) is not dict:
        raise ValueError(f"tags are {_shown(text)}")
    return {name: _text(value) for name, value in cast("dict[str, Any]", tags).items()}  # JSON has no other keys


def _text(value: object) -> str:
    if type(value) is not str:
        raise TypeError(value)
    return value


def _number(value: object) -> int:
    if type(value) is not int:
        raise TypeError(value)
    return value


def _moment(value: object) -> datetime:
    return from_micros(_number(value))


def _maybe_moment(value: object) -> datetime | None:
    return None if value is None else from_micros(_number(value))


def _bytes(value: object) -> bytes:
    if type(value) is not bytes:
        raise TypeError(value)
    return value


def _maybe_bytes(value: object) -> bytes | None:
    return None if value is None else _bytes(value)


def _message(value: object) -> str:
    return _bytes(value).decode("utf-8", "surrogatepass")


def _flag(value: object) -> bool:
    return _number(value) == 1


_READERS: tuple[Callable[[object], Any], ...] = (
    *(_text,) * 10,
    _number,
    _moment,
    *(_maybe_moment,) * 3,
    _message,
    _maybe_bytes,
    _flag,
    _text,
    _maybe_bytes,
    _maybe_moment,
)
_UNREAD: tuple[Any, ...] = (*("",) * 9, "unknown", 0, _EPOCH, None, None, None, "", None, False, "", None, None)


def _salvaged(columns: Columns) -> EffectRow:
    """What can be read of an effect whose columns are not all what they must be."""
    values: list[Any] = []
    faults: list[str] = []
    for name, read, unread, column in zip(EFFECT_FIELDS, _READERS, _UNREAD, columns, strict=True):
        try:
            values.append(read(column))
        except (TypeError, ValueError, OverflowError):
            values.append(unread)
            faults.append(f"{name} is {_shown(column)}")
    (*first, session, reply, call, process) = values[:9]
    row = EffectRow._make((*first, ClaimOwner(session, reply or None, call, process), *values[9:]))
    return row._replace(status="unknown", note=f"the stored row cannot be read: {'; '.join(faults)}")


def _faults(name: str, value: object, kind: type) -> list[str]:
    return [] if type(value) is kind else [f"{name} is {_shown(value)}"]


def _shown(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= _LONGEST_SHOWN else f"{shown[:_LONGEST_SHOWN]}..."


def _corrupt(what: str, faults: Sequence[str], store: str) -> StoreCorruptError:
    msg = (
        f"{what} in {store} cannot be read: {'; '.join(faults)}. Something other than Handrail has changed it; put the "
        "store back from a copy, or fork the session before that entry"
    )
    return StoreCorruptError(msg, store=store)


def _corrupt_entry(
    number: object, role: object, columns: Iterable[tuple[str, object, type]], *, session_id: str, store: str
) -> StoreCorruptError:
    faults = [fault for name, value, kind in columns for fault in _faults(name, value, kind)]
    return _corrupt(f"entry {number!r} of session {session_id!r}", faults or [f"role is {_shown(role)}"], store)


def _plain(text: str) -> str:
    """Text for people, without what a database refuses in text."""
    if text.isascii() and "\0" not in text:
        return text
    return text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")
