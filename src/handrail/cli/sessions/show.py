"""`handrail sessions list|show|fork`: the sessions of a store, one of them, and a fork of one."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from itertools import islice
from typing import Annotated

from cyclopts import CycloptsError, Parameter

from handrail.cli.ledger import show
from handrail.cli.ledger.show import agent_of_session
from handrail.cli.options import AS_SET, Limit, StoreOptions, paginate
from handrail.cli.screen import Screen
from handrail.cli.sessions.conversation import (
    NO_CONVERSATION,
    ConversationOptions,
    show_conversation,
)
from handrail.cli.sessions.filter import (
    ANY_SESSION,
    SessionFilter,
    know_conversations,
    state_text,
    states_in_store,
)
from handrail.cli.sessions.rows import entry_cells, entry_json, session_cells, session_fields, session_json
from handrail.cli.table import Column
from handrail.errors import SessionError, SessionNotFoundError
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


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class EntryChoice:
    """Which entries of a session to show.

    Attributes:
        after: the number of the entry after which to begin.
        limit: how many.
        type: the name of the type of their items; `None` for any.
    """

    after: Annotated[int, Parameter(metavar="NUMBER", help="Begin after the entry of this number.")] = 0
    limit: Limit = None
    type: Annotated[str | None, Parameter(metavar="NAME", help="Only entries of the type of this name.")] = None


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
        screen.note(f"No session{'s' if wanted == ANY_SESSION else ' matches'} in {store.url}.")
        return 0
    screen.table(_SESSION_COLUMNS, rows)
    if count > len(rows):
        screen.note(f"These are the newest {len(rows):,} of {count:,} sessions; --limit shows more.")
    else:
        screen.note(f"{count_noun(count, 'session')}.")
    return 0


def show_session(
    session: SessionId,
    /,
    *,
    entries: EntryChoice = ANY_ENTRY,
    full: Annotated[
        bool,
        Parameter(help="Print the items whole, under each entry; of a conversation also arguments and results."),
    ] = False,
    how: ConversationOptions = NO_CONVERSATION,
    options: StoreOptions = AS_SET,
) -> int:
    """Show one session: its row, the calls that have not ended, and its entries in order; or its conversation.

    A call is shown as REPLY/CALL. An entry is one change of a slice, or an event that reducers handled. The change
    `-2 +1 at 4` removes two items at index 4 and inserts one there. In JSON the entries are under `shown`, the calls
    under `open_calls`.

    With --conversation it is shown who said what, and each call with its outcome, also while a process has the
    session open.
    """
    how.check()
    if how.conversation:
        if entries != ANY_ENTRY:
            raise CycloptsError(
                msg="--after, --limit and --type choose entries; of a conversation, --last shows the end"
            )
        with options.open() as store:
            return show_conversation(store, found_session(store, session), how, options, full=full)
    size = paginate(entries.limit, options)
    screen = Screen()
    with options.open() as store:
        row = found_session(store, session)
        # The time of the store, because leases are compared with it.
        now = store.now()
        know_conversations()
        open_calls = open_calls_in_store(store, row)
        is_held = bool(open_calls) and session in store.held_sessions()
        # One more than is shown, to know whether there is one. Bounded by the head of the row, so that row and entries
        # are consistent while another process writes.
        limit, after = None if size is None else size + 1, entries.after
        found = read_entries(store, session, after=after, until=row.head, type_name=entries.type, limit=limit)
        if options.as_json:
            shown = [entry_json(entry, session_id=session, store=store.url) for entry in found[:size]]
            calls = [show.open_call_json(call) for call in open_calls]
            screen.json(session_json(row) | {"open_calls": calls, "shown": shown})
            return 0
    screen.record(session_fields(row))
    if open_calls and not after:
        screen.say("")
        screen.table(_OPEN_CALL_COLUMNS, [show.open_call_cells(call, now, is_held=is_held) for call in open_calls])
    page_of = found[:size]
    _print_entries(screen, page_of, full=full)
    if len(found) > len(page_of):
        screen.note(
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
        screen.note("No entries to show.")
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
