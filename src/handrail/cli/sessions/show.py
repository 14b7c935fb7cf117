"""`handrail sessions list|show|fork`: the sessions of a store, one of them, and a fork of one."""

from __future__ import annotations

import json
import uuid
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Annotated, NamedTuple

from cyclopts import CycloptsError, Parameter

from handrail.cli.entities import Entity
from handrail.cli.ledger.show import agent_of_session
from handrail.cli.options import AS_SET, PAGE, Limit, StoreOptions, typed_options
from handrail.cli.screen import NO_VALUE_CELL, Column, Screen, format_time
from handrail.cli.sessions.conversation import ALL_OF_IT, ConversationOptions, session_json, show_conversation
from handrail.cli.sessions.filter import ANY_SESSION, SessionFilter, know_conversations, states_in_store
from handrail.errors import SessionError, SessionNotFoundError, StoreCorruptError
from handrail.redaction import MASK
from handrail.serde.formatting import count_noun, shorten
from handrail.session.calls import CallRef, OpenCall, storable_id
from handrail.session.open_calls import open_calls_in_store
from handrail.session.persistence.protocol import SessionEntry, SessionRow
from handrail.store import Store
from handrail.taint.state import DELIMITER_SECRET

_LONGEST_SHOWN = 200

_MOST_NAMED = 10
"""How many calls of one id a message names."""

_MOST_RECORDS = 1_000_000
"""How many recorded calls are looked through for an id."""


class StoredSession(NamedTuple):
    """A session of a store; `held` are the sessions that processes hold."""

    store: Store
    row: SessionRow
    held: frozenset[str]

    @property
    def state(self) -> str:
        """What can be said of it, in one cell: `open` is left out where a word says why."""
        states = states_in_store(*self)
        return ", ".join(state for state in states if state != "open" or {"waiting", "unknown"}.isdisjoint(states))


class ShownCall(NamedTuple):
    """An open call of a session; `is_held` says whether a process has the session open."""

    call: OpenCall
    now: datetime
    is_held: bool

    @property
    def awaited(self) -> str:
        """What it waits for, and until when."""
        call = self.call
        if call.state == "unrecorded" and not self.is_held:
            return "its program: it was interrupted, or has not begun"
        if call.state != "running":
            return _AWAITED[call.state]
        owner = call.owner or "its owner"
        if call.lease_until is None:
            return f"nothing: {owner} has ended"
        if call.lease_until <= self.now:
            return "nothing: its lease has expired"
        return f"{owner}, or the end of its lease at {format_time(call.lease_until)} UTC"


_AWAITED = {
    "unknown": "being resolved: it may have happened",
    "unapplied": "being asked again: its effect has happened",
    "postponed": "an approval",
    "unrecorded": "the process that has the session open",
}


def _tags(row: SessionRow) -> str:
    return " ".join(f"{name}={value}" for name, value in sorted(row.tags.items())) or NO_VALUE_CELL


SESSION: Entity[StoredSession] = Entity(
    "session",
    (
        Column("session", lambda each: each.row.session_id),
        Column("state", lambda each: each.state, styles={"unknown": "bold red", "held": "yellow"}),
        Column("entries", lambda each: f"{each.row.head:,}", right=True),
        Column("created (UTC)", lambda each: format_time(each.row.created_at), spare=2),
        Column("parent", lambda each: each.row.parent or NO_VALUE_CELL, spare=3),
        Column("tags", lambda each: _tags(each.row), cut=True, spare=1),
    ),
    lambda each: {
        **session_json(each.row),
        "agent": agent_of_session(each.store, each.row) or None,
        "state": states_in_store(*each),
    },
    (
        ("session", lambda each: each.row.session_id),
        ("parent", lambda each: each.row.parent or NO_VALUE_CELL),
        ("tags", lambda each: _tags(each.row)),
        ("created", lambda each: f"{format_time(each.row.created_at)} UTC"),
        ("entries", lambda each: f"{each.row.head:,}"),
    ),
)
"""A session."""


def _change(entry: SessionEntry) -> str:
    """What an entry does to its slice: `-2 +1 at 4` removes two items at index 4, and inserts one there."""
    if entry.role == "event":
        return NO_VALUE_CELL
    parts = [f"-{entry.removed}"] if entry.removed else []
    parts += [f"+{entry.added}"] if entry.added or not parts else []
    return f"{' '.join(parts)} at {entry.start}"


def _items(entry: SessionEntry) -> str:
    """The items of an entry as JSON; of the secret that delimiters are made from, the mask."""
    return f'[{{"secret":"{MASK}"}}]' if entry.type_name == DELIMITER_SECRET else entry.items.decode(errors="replace")


ENTRY: Entity[SessionEntry] = Entity(
    "entry",
    (
        Column("no.", lambda entry: str(entry.number), right=True),
        # In the form of `sessions fork --at`.
        Column(
            "call",
            lambda entry: str(CallRef(entry.reply or None, entry.call_id)) if entry.call_id else NO_VALUE_CELL,
            spare=2,
        ),
        Column("role", lambda entry: entry.role, spare=3),
        Column(
            "type",
            # With its version where it has had more than one.
            lambda entry: entry.type_name if entry.type_version == 1 else f"{entry.type_name} v{entry.type_version}",
        ),
        Column("change", _change, spare=1),
        Column("items", _items, cut=True),
    ),
    lambda entry: {
        "number": entry.number,
        "reply": entry.reply or None,
        "call_id": entry.call_id,
        "role": entry.role,
        "type_name": entry.type_name,
        "version": entry.type_version,
        "start": entry.start,
        "removed": entry.removed,
        "added": entry.added,
        "items": json.loads(_items(entry)),
    },
)
"""An entry of a session."""

OPEN_CALL: Entity[ShownCall] = Entity(
    "open call",
    (
        Column("open call", lambda each: str(each.call.call)),
        Column("tool", lambda each: each.call.tool, spare=1),
        Column("state", lambda each: each.call.state, styles={"unknown": "bold red", "running": "yellow"}),
        Column("waits for", lambda each: each.awaited),
    ),
    lambda each: {
        "reply": each.call.call.reply,
        "call_id": each.call.call.call_id,
        "tool": each.call.tool,
        "state": each.call.state,
        "key": each.call.key,
        "lease_until": None if each.call.lease_until is None else each.call.lease_until.isoformat(),
        "owner": each.call.owner,
    },
)
"""A call of a session that has not ended."""


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class EntryChoice:
    """Which entries of a session to show.

    Attributes:
        entries: Show the entries, and the calls that have not ended, instead of the conversation; --after, --limit and
            --type do so too.
        after: Begin after the entry of this number.
        limit: how many.
        type: Only entries of the type of this name.
    """

    entries: Annotated[bool, Parameter(negative="")] = False
    after: Annotated[int, Parameter(metavar="NUMBER")] = 0
    limit: Limit = None
    type: Annotated[str | None, Parameter(metavar="NAME")] = None


ANY_ENTRY = EntryChoice()
"""The defaults."""

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
    with options.open() as store:
        held = store.held_sessions()
        sessions = (StoredSession(store, row, held) for row in wanted.select(store))
        none = f"No session{'s' if wanted == ANY_SESSION else ' matches'} in {store.url}."
        count = SESSION.print_list(sessions, limit, options, none=none)
        if 0 < count <= (limit or PAGE):
            Screen().note(f"{count_noun(count, 'session')}.")
    return 0


def show_session(
    session: SessionId,
    /,
    *,
    entries: EntryChoice = ANY_ENTRY,
    full: bool = False,
    how: ConversationOptions = ALL_OF_IT,
    options: StoreOptions = AS_SET,
) -> int:
    """Show one session: who said what, and each call with its outcome, also while a process has the session open.

    With --entries, its row, the calls that have not ended, and its entries in order are shown. A call is shown as
    REPLY/CALL. An entry is one change of a slice, or an event that reducers handled. The change `-2 +1 at 4` removes
    two items at index 4 and inserts one there. In JSON the entries are under `shown`, the calls under `open_calls`.

    Args:
        session: Which session.
        entries: Which entries.
        full: Print the items whole, under each entry; of a conversation also arguments and results.
        how: What to show of the conversation.
        options: The store and the output format.
    """
    how.check()
    if entries != ANY_ENTRY and how != ALL_OF_IT:
        both = " and ".join(", ".join(typed_options(each)) for each in (how, entries))
        raise CycloptsError(msg=f"{both} contradict each other: the conversation is shown, or the entries")
    with options.open() as store:
        row = find_session(store, session)
        if entries == ANY_ENTRY:
            return show_conversation(store, row, how, options, full=full)
        # The time of the store, because leases are compared with it.
        now = store.now()
        know_conversations()
        in_use = store.held_sessions()
        calls = [ShownCall(call, now, session in in_use) for call in open_calls_in_store(store, row)]
        size = entries.limit or (None if options.as_json else PAGE)
        # One more than is shown, to know whether there is one. Bounded by the head of the row, so that row and entries
        # are consistent while another process writes.
        limit, after = None if size is None else size + 1, entries.after
        read = list(islice(store.entries(session, after=after, until=row.head, type_name=entries.type), limit))
        page = read[:size]
    screen = Screen()
    if options.as_json:
        try:
            shown = {"open_calls": list(map(OPEN_CALL.json, calls)), "shown": list(map(ENTRY.json, page))}
        except ValueError as error:
            text = f"an entry of session {session} is not JSON ({error}); without --format json it is shown as it is"
            raise StoreCorruptError(text, store=store.url) from error
        screen.json(session_json(row) | shown)
        return 0
    screen.record(SESSION.shown(StoredSession(store, row, in_use)))
    if calls and not after:
        screen.say("")
        screen.table(OPEN_CALL.columns, calls)
    _print_entries(screen, page, full=full)
    if len(read) > len(page):
        screen.note(f"There are more; --after {page[-1].number if page else after} continues, --limit shows more.")
    return 0


def _print_entries(screen: Screen, entries: list[SessionEntry], *, full: bool) -> None:
    if not entries:
        screen.note("No entries to show.")
    elif not full:
        screen.say("")
        screen.table(ENTRY.columns, entries)
    for entry in entries if full else ():
        screen.say("")
        *head, _ = ENTRY.columns
        items = _items(entry)
        with suppress(ValueError):
            items = json.dumps(json.loads(items), ensure_ascii=False, indent=2)
        screen.record([*((column.name, column.text(entry)) for column in head), ("items", items)])


def fork_session(
    session: SessionId,
    /,
    *,
    at: Annotated[str | None, Parameter(metavar="CALL")] = None,
    as_: Annotated[str | None, Parameter(name="--as", metavar="ID")] = None,
    options: StoreOptions = AS_SET,
) -> int:
    """Make a session that shares the history of another one up to a call.

    The fork has the same tags, and the other session as its parent. The ledger is not copied: keys of the scope
    "session" belong to one session, so an earlier call that is repeated in the fork runs again.

    Args:
        session: Which session.
        at: The last call that the fork shares, as REPLY/CALL or by an id that only one reply has; else all.
        as_: The id of the fork; else a random one.
        options: The store and the output format.
    """
    if as_ is not None and not as_.strip():
        raise CycloptsError(msg="--as is empty; give the id of the fork, or leave it out")
    screen = Screen()
    with options.open(writing=True) as store:
        row = find_session(store, session)
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


def find_session(store: Store, session_id: str) -> SessionRow:
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
        records = [each for each in store.recorded_calls(session, limit=_MOST_RECORDS) if each[0].call_id == call_id]
        calls = dict.fromkeys(call for call, _ in records)
        if len(calls) > 1:
            texts = ", ".join(str(call) if call.reply else f"/{call}" for call in islice(calls, _MOST_NAMED))
            raise SessionError(f"several replies of session {session} have a call {shown}; name one with --at: {texts}")
        number = records[0][1] if records else None
    if number is None:
        raise SessionError(
            f"session {session} has no entry of a call {shown}; handrail sessions show {session} lists them"
        )
    return number
