"""`handrail sessions list|show|fork`: the sessions of a store, one of them, and a fork of one."""

from __future__ import annotations

import json
import uuid
from itertools import islice
from typing import Annotated, Any

from cyclopts import CycloptsError, Parameter

from handrail.cli.ledger import show
from handrail.cli.ledger.show import agent_of_session, call_of
from handrail.cli.options import AS_SET, Limit, StoreOptions, paginate
from handrail.cli.screen import NO_VALUE_CELL, Screen, format_time
from handrail.cli.sessions.filter import (
    ANY_SESSION,
    SessionFilter,
    know_conversations,
    state_text,
    states_in_store,
)
from handrail.cli.table import Column
from handrail.errors import SessionError, SessionNotFoundError, StoreCorruptError
from handrail.serde.formatting import count_noun, shorten
from handrail.session.call_ref import CallRef, storable_id
from handrail.session.open_calls import open_calls_in_store
from handrail.session.persistence.protocol import SessionEntry, SessionRow
from handrail.session.persistence.shared_texts import read_entries
from handrail.store import Store

_LONGEST_SHOWN = 200

_SESSION_COLUMNS = (
    Column("session"),
    Column("state", styles={"unknown": "bold red", "held": "yellow"}),
    Column("entries", right=True),
    Column("created (UTC)", spare=2),
    Column("parent", spare=3),
    Column("tags", cut=True, spare=1),
)
_ENTRY_COLUMNS = (
    Column("no.", right=True),
    Column("call", spare=2),
    Column("role", spare=3),
    Column("type"),
    Column("change", spare=1),
    Column("items", cut=True),
)
_OPEN_CALL_COLUMNS = (
    Column("open call"),
    Column("tool", spare=1),
    Column("state", styles={"unknown": "bold red", "running": "yellow"}),
    Column("waits for"),
)

_MOST_NAMED = 10
"""How many calls of one id a message names."""

_MOST_RECORDS = 1000
"""How many records of one id are read to check that only one reply has a call with it."""

SessionId = Annotated[str, Parameter(metavar="SESSION", help="The id of the session, as `sessions list` shows it.")]
"""Which session."""


def list_sessions(
    *,
    wanted: SessionFilter = ANY_SESSION,
    limit: Limit = None,
    options: StoreOptions = AS_SET,
) -> int:
    """List the sessions, the newest first, and say how many they are. All options that are given must fit."""
    wanted.check()
    size = paginate(limit, options)
    screen = Screen()
    with options.open() as store:
        held = store.held_sessions()
        # A generator: whatever is not shown is counted, and not held in memory.
        found = wanted.found(store)
        shown = islice(found, size)
        if options.as_json:
            for row in shown:
                more = {"agent": agent_of_session(store, row) or None, "state": states_in_store(store, row, held)}
                screen.json(session_json(row) | more, lines=True)
            return 0
        rows = [session_cells(row, state_text(states_in_store(store, row, held))) for row in shown]
        count = len(rows) + sum(1 for _ in found)
    if not rows:
        screen.remark(f"No session{'s' if wanted == ANY_SESSION else ' matches'} in {store.url}.")
        return 0
    screen.table(_SESSION_COLUMNS, rows)
    if count > len(rows):
        screen.remark(f"These are the newest {len(rows):,} of {count:,} sessions; --limit shows more.")
    else:
        screen.remark(f"{count_noun(count, 'session')}.")
    return 0


def show_session(  # noqa: PLR0913 - they are its options
    session: SessionId,
    /,
    *,
    after: Annotated[int, Parameter(metavar="NUMBER", help="Begin after the entry of this number.")] = 0,
    limit: Limit = None,
    type: Annotated[str | None, Parameter(metavar="NAME", help="Only entries of the type of this name.")] = None,
    full: Annotated[bool, Parameter(help="Print the items whole, under each entry.")] = False,
    options: StoreOptions = AS_SET,
) -> int:
    """Show one session: its row, the calls that have not ended, and its entries in order.

    A call is shown as REPLY/CALL. An entry is one change of a slice, or an event that reducers handled. The change
    `-2 +1 at 4` removes two items at index 4 and inserts one there. In JSON the entries are under `shown`, the calls
    under `open_calls`.
    """
    size = paginate(limit, options)
    screen = Screen()
    with options.open() as store:
        row = found_session(store, session)
        # The time of the store, because leases are compared with it.
        now = store.now()
        know_conversations()
        open_calls = open_calls_in_store(store, row)
        # Bounded by the head of the row, so that row and entries are consistent while another process writes.
        limit_read = None if size is None else size + 1  # one more than is shown, to know whether there is one
        entries = read_entries(store, session, after=after, until=row.head, type_name=type, limit=limit_read)
        if options.as_json:
            shown = [entry_json(entry, session_id=session, store=store.url) for entry in entries[:size]]
            calls = [show.open_call_json(call) for call in open_calls]
            screen.json(session_json(row) | {"open_calls": calls, "shown": shown})
            return 0
        page_of, more = entries[:size], len(entries) > len(entries[:size])
    screen.record(session_fields(row))
    if open_calls and not after:
        screen.say("")
        screen.table(_OPEN_CALL_COLUMNS, [show.open_call_cells(call, now) for call in open_calls])
    _print_entries(screen, page_of, full=full)
    if more:
        screen.remark(
            f"There are more; --after {page_of[-1].number if page_of else after} continues, --limit shows more."
        )
    return 0


def fork_session(
    session: SessionId,
    /,
    *,
    at: Annotated[
        str | None,
        Parameter(
            metavar="CALL",
            help="The last call that the fork shares, as REPLY/CALL or by an id that only one reply has; else all.",
        ),
    ] = None,
    as_: Annotated[
        str | None, Parameter(name="--as", metavar="ID", help="The id of the fork; else a random one.")
    ] = None,
    options: StoreOptions = AS_SET,
) -> int:
    """Make a session that shares the history of another one up to a call.

    The fork has the same tags, and the other session as its parent. The ledger is not copied: keys of the scope
    "session" belong to one session, so an earlier call that is repeated in the fork runs again.
    """
    if as_ is not None and not as_.strip():
        raise CycloptsError(msg="--as is empty; give the id of the fork, or leave it out")
    screen = Screen()
    with options.open(writing=True) as store:
        row = found_session(store, session)
        head = row.head if at is None else _end_of_call(store, session, at)
        fork = SessionRow(as_ or uuid.uuid4().hex, row.tags, row.session_id, store.now(), head)
        # Writes only if the id is free, in one transaction; a check before it could be overtaken by another process.
        if not store.copy(session, fork):
            raise SessionError(
                f"the session {fork.session_id} already exists, so nothing was written; give another --as"
            )
    if options.as_json:
        screen.json(session_json(fork))
    else:
        screen.say(
            f"Session {fork.session_id} starts with the first {count_noun(head, 'entry', 'entries')} of {session}."
        )
    return 0


def found_session(store: Store, session_id: str) -> SessionRow:
    """The row of a session.

    Raises:
        SessionNotFoundError: it does not exist.
    """
    row = store.find(session_id)
    if row is None:
        raise SessionNotFoundError(
            f"{store.url} has no session {session_id}; handrail sessions list shows all", session_id=session_id
        )
    return row


def _end_of_call(store: Store, session: str, at: str) -> int:
    """The number of the entry that records a call; `at` is `REPLY/CALL`, or an id that only one reply has.

    Raises:
        SessionError: it does not exist, or several replies have a call of that id.
    """
    named = CallRef.parse(at)
    shown, number = shorten(at, _LONGEST_SHOWN), None
    if named.reply is not None:  # `/CALL` is the call without a reply
        number = store.record_of_call(session, CallRef(named.reply or None, named.call_id).stored)
    # An id may contain a slash, so the word is tried as a whole, and as an id of its last part.
    for call_id in dict.fromkeys(map(storable_id, (at, named.call_id) if named.reply is None else (at,))):
        if number is not None:
            break
        found = store.recorded_calls(session, limit=_MOST_RECORDS, call_id=call_id)
        calls = dict.fromkeys(call for call, _ in found)
        if len(calls) > 1:
            texts = ", ".join(str(call) if call.reply else f"/{call}" for call in islice(calls, _MOST_NAMED))
            raise SessionError(f"several replies of session {session} have a call {shown}; name one with --at: {texts}")
        number = found[0][1] if found else None
    if number is None:
        raise SessionError(
            f"session {session} has no entry of a call {shown}; handrail sessions show {session} lists them"
        )
    return number


def _print_entries(screen: Screen, entries: list[SessionEntry], *, full: bool) -> None:
    if not entries:
        screen.remark("No entries to show.")
        return
    screen.say("")
    if not full:
        screen.table(_ENTRY_COLUMNS, [entry_cells(entry) for entry in entries])
        return
    for entry in entries:
        *heading, items = entry_cells(entry)
        screen.block("  ".join(heading), _set_in(items))


def _set_in(items: str) -> str:
    """Items as indented JSON; unchanged if they are not JSON."""
    try:
        return json.dumps(json.loads(items), ensure_ascii=False, indent=2)
    except ValueError:
        return items


# --------------------------------------------------------------------------------------------------------- the sessions


def tags_of(row: SessionRow) -> str:
    """The tags of a session, in the form of `--tag`."""
    return " ".join(f"{name}={value}" for name, value in sorted(row.tags.items())) or NO_VALUE_CELL


def session_cells(row: SessionRow, state: str) -> tuple[str, ...]:
    """A session, for people: id, state, entries, creation, parent, tags."""
    parent = row.parent or NO_VALUE_CELL
    return (row.session_id, state, f"{row.head:,}", format_time(row.created_at), parent, tags_of(row))


def session_fields(row: SessionRow) -> list[tuple[str, str]]:
    """A session, for people."""
    return [
        ("session", row.session_id),
        ("parent", row.parent or NO_VALUE_CELL),
        ("tags", tags_of(row)),
        ("created", f"{format_time(row.created_at)} UTC"),
        ("entries", f"{row.head:,}"),
    ]


def session_json(row: SessionRow) -> dict[str, Any]:
    """A session, for programs."""
    return {
        "session_id": row.session_id,
        "parent": row.parent,
        "tags": dict(row.tags),
        "created_at": row.created_at.isoformat(),
        "entries": row.head,
    }


def change(entry: SessionEntry) -> str:
    """What an entry does to its slice: `-2 +1 at 4` removes two items at index 4, and inserts one there."""
    if entry.role == "event":
        return NO_VALUE_CELL
    parts = [f"-{entry.removed}"] if entry.removed else []
    parts += [f"+{entry.added}"] if entry.added or not parts else []
    return f"{' '.join(parts)} at {entry.start}"


def entry_cells(entry: SessionEntry) -> tuple[str, ...]:
    """An entry, for people: number, call, role, type, change, items."""
    return (
        str(entry.number),
        call_of(entry),
        entry.role,
        type_of(entry),
        change(entry),
        entry.items.decode(errors="replace"),
    )


def type_of(entry: SessionEntry) -> str:
    """The type of an entry's items, with its version where it has had more than one."""
    return entry.type_name if entry.type_version == 1 else f"{entry.type_name} v{entry.type_version}"


def entry_json(entry: SessionEntry, *, session_id: str, store: str) -> dict[str, Any]:
    """An entry, for programs.

    Raises:
        StoreCorruptError: its items are not JSON.
    """
    try:
        items = json.loads(entry.items)
    except ValueError as error:
        raise StoreCorruptError(
            f"the items of entry {entry.number} of session {session_id} are not JSON ({error}); look at them with "
            f"handrail sessions show {session_id} --after {entry.number - 1} --limit 1 --full",
            store=store,
        ) from error
    return {
        "number": entry.number,
        "reply": entry.reply or None,
        "call_id": entry.call_id,
        "role": entry.role,
        "type_name": entry.type_name,
        "version": entry.type_version,
        "start": entry.start,
        "removed": entry.removed,
        "added": entry.added,
        "items": items,
    }
